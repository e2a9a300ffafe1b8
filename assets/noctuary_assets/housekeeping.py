"""Before a night and after it: what a killed one left, what is not needed any more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path

import numpy as np

from noctuary.compact.archive_apply import applied_summaries, purge_texts
from noctuary.compact.tables import iter_summaries
from noctuary.core.files import (
    hash_file,
    hash_json,
    remove_temporary_files,
    remove_tree,
    write_text,
)
from noctuary.core.store import StorePaths
from noctuary.embed.documents import memo_kind, text_key
from noctuary.graph.extract import EXTRACTION_KIND
from noctuary.graph.extract import iter_keyed as keyed_extractions
from noctuary.graph.tables import FILES
from noctuary.lexical.build import TOKENS_KIND
from noctuary.lexical.build import iter_keyed as keyed_tokens
from noctuary.snapshot.publish import drop_older_snapshots
from noctuary.sources.corpus import RecordFile, iter_batches
from noctuary.work.fragments import (
    KEY,
    MANIFEST_FILE,
    RecordBatch,
    remove_unnamed,
    rows_of,
    store_directory,
)
from noctuary.work.stage import Memo, hash_settled
from noctuary_assets.evaluate import (
    WRITTEN_ANSWERS_KIND,
    everyday_keys,
    everyday_kind,
    live_answers,
)
from noctuary_assets.graph import CONCEPT_VECTORS, TRIPLES_KIND, live_names, live_triples
from noctuary_assets.index import chosen_face, vector_kind
from noctuary_assets.index import keyed_batches as keyed_vectors
from noctuary_assets.night import FRAGMENTS, GRAPH, MEMORIES, SHARDS, SUMMARIES, Night

# After publishing: forget the heavy steps' results for texts that are gone.


_PRUNED = "stamps/fragments_pruned"

_Keyed = Callable[[Path], Iterator[RecordBatch]]


def prune_fragments(night: Night) -> None:
    """Forget results of texts that are gone, and of kinds that nothing asks for any more.

    Keys are compared only where the corpus or a kind's fragments differ from what the last
    comparison left; files that no manifest names go every time.
    """
    kinds = _live_kinds(night)
    places = {kind: store_directory(night.work(FRAGMENTS), kind) for kind in kinds}
    for path in night.work(FRAGMENTS).glob("*"):
        if path not in places.values():
            remove_tree(path)
    # Rows of a task that was killed: they hold texts.
    remove_tree(night.work(SHARDS))
    for kind, place in places.items():
        remove_unnamed(place, kind)

    stamp = night.work(_PRUNED)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == _state(night, places):
        return
    for kind, keyed in kinds.items():
        keys = [rows_of(batch.column(KEY)) for batch in keyed(night.work(MEMORIES))]
        night.fragments(kind).prune(np.concatenate(keys) if keys else ())
    # Of what is left: a stamp of what was found would hold again when that comes back.
    write_text(stamp, _state(night, places))


def _state(night: Night, places: Mapping[str, Path]) -> str:
    """Return the digest of everything that decides what is forgotten."""
    manifests = {kind: place / MANIFEST_FILE for kind, place in places.items()}
    held = {kind: hash_file(path) for kind, path in manifests.items() if path.exists()}
    return hash_json({"memories": hash_settled(night.work(MEMORIES)), "fragments": held})


def _live_kinds(night: Night) -> dict[str, _Keyed]:
    kinds: dict[str, _Keyed] = {TOKENS_KIND: keyed_tokens, EXTRACTION_KIND: keyed_extractions}
    if (vectors := vector_kind(night, chosen_face(night))) is not None:
        kinds[vectors] = keyed_vectors
    return kinds


# Before a night: remove what a killed one left. After publishing: forget what the corpus lost.


# Verdicts kept beside those of published snapshots, so that a failed night can still be read about.
_KEPT_VERDICTS = 30


def sweep(paths: StorePaths) -> None:
    """Remove half-written files, which may hold texts that the source has lost since."""
    remove_temporary_files(paths.root, below=False)
    remove_tree(paths.work / SHARDS)
    for directory in (paths.work, paths.encoders, paths.rotations, paths.verdicts):
        remove_temporary_files(directory)


def tidy(night: Night) -> tuple[str, ...]:
    """Forget what the corpus lost; drop judged candidates and old verdicts; idempotent.

    When a row that was published has turned sensitive, older snapshots still hold it: they go too.

    Returns:
        The snapshots that were removed for that reason.
    """
    purge_texts(night.paths.archive, lambda ids: _hashes_of(night, ids))
    prune_fragments(night)
    _prune_memo(night)
    drop_old_tables(night.work(GRAPH))
    if night.paths.candidates.is_dir():
        for directory in night.paths.candidates.iterdir():
            remove_tree(directory)
    verdicts = sorted(night.paths.verdicts.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
    for path in verdicts[:-_KEPT_VERDICTS]:
        path.unlink()
    if not night.paths.purge_pending.exists():
        return ()
    removed = drop_older_snapshots(night.paths)
    # A page may show a query's text, and a query of the exact group is a phrase of a memory.
    remove_tree(night.paths.reports)
    _forget_questions(night.paths)
    night.paths.purge_pending.unlink()
    return removed


def drop_old_tables(directory: Path) -> None:
    """Remove graph tables of an earlier version, whose texts nothing else would forget.

    Args:
        directory: Where this version's tables lie.
    """
    known = {*FILES.values(), Path(CONCEPT_VECTORS).name}
    for path in directory.glob("*.parquet"):
        if path.name not in known:
            path.unlink()


def _forget_questions(paths: StorePaths) -> None:
    """Remove what was asked: people ask in the words of what they want to find."""
    for log in (paths.queries, paths.replays):
        for ending in ("", "-wal", "-shm"):
            log.with_name(log.name + ending).unlink(missing_ok=True)


def _hashes_of(night: Night, memory_ids: Collection[str]) -> dict[str, str]:
    """Return the content hash of those memories that exist now."""
    wanted = frozenset(memory_ids)
    columns = ("memory_id", "content_hash")
    return {
        memory_id: digest
        for batch in iter_batches(night.work(MEMORIES), columns)
        for memory_id, digest in zip(*(batch.column(c).to_pylist() for c in columns), strict=True)
        if memory_id in wanted
    }


def _prune_memo(night: Night) -> None:
    face, records = chosen_face(night), RecordFile(night.work(MEMORIES))
    texts = [s.text for s in iter_summaries(night.work(SUMMARIES))]
    texts += [a.summary.text for a in applied_summaries(night.paths.archive, records)]
    vectors = chain(map(text_key, texts), live_names(night))
    if vector_kind(night, face) is None:
        keyed = keyed_vectors(night.work(MEMORIES))
        kept = (key.hex() for batch in keyed for key in batch.column(KEY).to_pylist())
        vectors = chain(vectors, kept)
    with Memo.open(night.paths.memo) as memo:
        memo.prune(
            {
                memo_kind(night.fingerprint(), face.tag): vectors,
                everyday_kind(night.fingerprint().digest): everyday_keys(),
                WRITTEN_ANSWERS_KIND: live_answers(night),
                TRIPLES_KIND: live_triples(night, records),
            }
        )
