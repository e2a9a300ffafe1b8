"""Before a night and after it: what a killed one left, what is not needed any more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.archive_apply import applied_summaries, purge_texts
from noctuary.compact.summaries import iter_summaries, summary_kind
from noctuary.compact.summarizers import open_summarizer
from noctuary.core.files import (
    fsync_dir,
    hash_json,
    remove_temporary_files,
    remove_tree,
    write_text,
)
from noctuary.core.store import StorePaths
from noctuary.core.tombstones import read_tombstones
from noctuary.curate.promotions import SIGNALS_KIND
from noctuary.embed.documents import keyed_memories, text_key, vector_kind
from noctuary.embed.sentence import FINGERPRINT_KIND
from noctuary.graph.extract import EXTRACTION_KIND
from noctuary.graph.extract import iter_keyed as keyed_extractions
from noctuary.graph.llm import TRIPLES_KIND, live_triples
from noctuary.graph.tables import FILES
from noctuary.lexical.build import TOKENS_KIND
from noctuary.lexical.build import iter_keyed as keyed_tokens
from noctuary.snapshot.publish import drop_older_snapshots, forget_questions
from noctuary.sources.corpus import RecordFile, iter_batches
from noctuary.sources.export import SCANNED, clean_kind
from noctuary.work.content import (
    KEY,
    MANIFEST_FILE,
    Keys,
    as_rows,
    remove_unnamed,
    rows_of,
    store_directory,
)
from noctuary.work.shards import RecordBatch
from noctuary.work.stage import hash_settled
from noctuary_assets.compact import summary_recipe
from noctuary_assets.evaluate import query_keys
from noctuary_assets.graph import names_kind
from noctuary_assets.index import chosen_backend, compared_words, kept_postings
from noctuary_assets.night import (
    ABSTENTION,
    CONTENT,
    EVALUATION_QUERIES,
    GRAPH,
    MEMORIES,
    SHARDS,
    SUMMARIES,
    Night,
)

# After publishing: forget results for texts that are gone, and of kinds that nobody asks for.

_PRUNED = "stamps/content_pruned"


def prune_content(night: Night) -> None:
    """Forget what the content store holds of texts that are gone."""
    # Keys are compared only where something that decides differs from the last comparison.
    kinds = _live_keys(night)
    places = {kind: store_directory(night.work(CONTENT), kind) for kind in kinds}
    for path in night.work(CONTENT).glob("*"):
        if path not in places.values():
            remove_tree(path)
    # Rows of a task that was killed: they hold texts.
    remove_tree(night.work(SHARDS))
    for kind, place in places.items():
        remove_unnamed(place, kind)

    stamp = night.work(_PRUNED)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == _state(night, places):
        return
    for kind, read_keys in kinds.items():
        if read_keys is not None:
            night.content(kind).prune(read_keys())
    # Of what is left: a stamp of what was found would hold again when that comes back.
    write_text(stamp, _state(night, places))


def _state(night: Night, places: Mapping[str, Path]) -> str:
    """Return the digest of everything that decides what is forgotten."""
    names = (MEMORIES, SUMMARIES, EVALUATION_QUERIES, ABSTENTION)
    decisive = [night.work(name) for name in names]
    decisive += [night.paths.archive, *(place / MANIFEST_FILE for place in places.values())]
    return hash_json([hash_settled(path) if path.exists() else None for path in decisive])


def _live_keys(night: Night) -> dict[str, Callable[[], Keys] | None]:
    """Return how to read the keys still needed, by kind; None for what its own stage prunes."""
    memories = night.work(MEMORIES)
    fingerprint, compaction = night.encoder.fingerprint, night.settings.compaction
    backend = chosen_backend(night)

    @cache
    def own() -> NDArray[np.uint8]:
        return _keys_of(keyed_memories(memories))

    @cache
    def texts() -> NDArray[np.uint8]:
        return np.concatenate([own(), _other_texts(night), query_keys(night)])

    recipe = summary_recipe(night, open_summarizer(compaction))
    return {
        SIGNALS_KIND: own,
        TOKENS_KIND: lambda: _keys_of(keyed_tokens(memories)),
        EXTRACTION_KIND: lambda: _keys_of(keyed_extractions(memories)),
        vector_kind(fingerprint, backend.tag): texts,
        night.encoder.query_kind(backend): texts,
        TRIPLES_KIND: lambda: live_triples(night.settings.graph, RecordFile(memories)),
        summary_kind(recipe): None,
        names_kind(night): None,
        **dict.fromkeys(map(clean_kind, SCANNED)),
        FINGERPRINT_KIND: None,
    }


def _keys_of(batches: Iterable[RecordBatch]) -> NDArray[np.uint8]:
    return np.concatenate([as_rows([]), *(rows_of(batch.column(KEY)) for batch in batches)])


def _other_texts(night: Night) -> NDArray[np.uint8]:
    """Return the keys of summaries, names and words; their vectors lie beside those of memories."""
    texts = [s.text for s in iter_summaries(night.work(SUMMARIES))]
    records = RecordFile(night.work(MEMORIES))
    texts += [a.summary.text for a in applied_summaries(night.paths.archive, records)]
    texts += compared_words(night, kept_postings(night)).values()
    return np.concatenate([as_rows(map(text_key, texts)), night.content(names_kind(night)).keys()])


# Before a night: remove what a killed one left. After publishing: forget what the corpus lost.

# Verdicts kept beside those of published snapshots, so that a failed night can still be read about.
_KEPT_VERDICTS = 30


def sweep(paths: StorePaths) -> None:
    """Remove half-written files, which may hold texts that the source has lost since."""
    remove_temporary_files(paths.root, below=False)
    remove_tree(paths.work / SHARDS)
    for leftover in paths.root.glob(".removing-*"):
        remove_tree(leftover)
    for directory in (paths.work, paths.encoders, paths.rotations, paths.verdicts):
        remove_temporary_files(directory)


def tidy(night: Night) -> tuple[str, ...]:
    """Forget what the corpus lost and old verdicts; return the snapshots that were removed."""
    purge_texts(night.paths.archive, lambda ids: _hashes_of(night, ids))
    prune_content(night)
    _drop_old_files(night)
    if night.paths.candidates.is_dir():
        for directory in night.paths.candidates.iterdir():
            remove_tree(directory)
    verdicts = sorted(night.paths.verdicts.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
    for path in verdicts[:-_KEPT_VERDICTS]:
        path.unlink()
    # Older snapshots still hold a row that has turned sensitive since: they go too.
    return forget_retracted(night.paths) if night.paths.purge_pending.exists() else ()


def forget_retracted(paths: StorePaths) -> tuple[str, ...]:
    """Remove what else may hold a row that has turned sensitive; return the snapshots among it."""
    # A page may show a query's text, and a query of the exact group is a phrase of a memory.
    remove_tree(paths.reports)
    forget_questions(paths)
    if read_tombstones(paths.root).is_pending:
        return ()  # the snapshots go when everything else was searched for what they hold
    removed = drop_older_snapshots(paths)
    fsync_dir(paths.root)  # all that is gone, before the mark that asks for it goes
    paths.purge_pending.unlink()
    return removed


_OLD_FILES = (
    "memo.sqlite*", "fragments", "graph_near.json", "graph_names.json", "evaluation/plots",
    "evaluation/generated.json", "stamps/generated_queries.json", "usage/access.json",
)  # fmt: skip
"""What earlier versions kept results in, below the work directory."""


def _drop_old_files(night: Night) -> None:
    """Remove what an earlier version left: nothing else would forget the texts in it."""
    known = set(FILES.values())
    old = [path for path in night.work(GRAPH).glob("*.parquet") if path.name not in known]
    old += [path for name in _OLD_FILES for path in night.paths.work.glob(name)]
    old += night.paths.root.glob("replays.jsonl*")
    for path in old:
        remove_tree(path)


def _hashes_of(night: Night, memory_ids: Collection[str]) -> dict[str, str]:
    wanted = frozenset(memory_ids)
    columns = ("memory_id", "content_hash")
    return {
        memory_id: digest
        for batch in iter_batches(night.work(MEMORIES), columns)
        for memory_id, digest in zip(*(batch.column(c).to_pylist() for c in columns), strict=True)
        if memory_id in wanted
    }
