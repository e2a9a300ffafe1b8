"""Before a night: remove what a killed one left. After publishing: forget what the corpus lost.

What belongs here is only removing, everywhere outside the serving snapshot.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from pathlib import Path

from noctuary.archive.summaries import applied_summaries
from noctuary.archive.writing import purge_texts
from noctuary.compact.tables import iter_summaries
from noctuary.corpus.columns import iter_batches
from noctuary.corpus.record_file import RecordFile
from noctuary.files import remove_temporary_files, remove_tree
from noctuary.graph.tables import FILES
from noctuary.night.concept_vectors import CONCEPT_VECTORS, live_names
from noctuary.night.context import GRAPH, MEMORIES, SHARDS, SUMMARIES, Night
from noctuary.night.fragment_pruning import prune_fragments
from noctuary.night.llm_triples import TRIPLES_KIND, live_triples
from noctuary.night.query_vectors import everyday_keys, everyday_kind
from noctuary.night.vector_rows import keyed_batches as keyed_vectors
from noctuary.night.vector_rows import vector_kind
from noctuary.night.vectors import chosen_face
from noctuary.night.written import ANSWERS_KIND, live_answers
from noctuary.shards.fragment_store import KEY
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.publish import drop_older_snapshots
from noctuary.vectors.embed import memo_kind, text_key
from noctuary.work.memo import Memo

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
                ANSWERS_KIND: live_answers(night),
                TRIPLES_KIND: live_triples(night, records),
            }
        )
