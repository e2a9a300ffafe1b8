"""Before a night: remove what a killed one left. After publishing: forget what the corpus lost.

What belongs here is only removing, everywhere outside the serving snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mnemon.archive.summaries import applied_summaries
from mnemon.archive.writing import purge_texts
from mnemon.compact.tables import read_summaries
from mnemon.corpus.export import read_records
from mnemon.files import remove_temporary_files, remove_tree
from mnemon.graph.tables import FILES
from mnemon.night.concept_vectors import CONCEPT_VECTORS, live_names
from mnemon.night.context import GRAPH, MEMORIES, SUMMARIES, Night
from mnemon.night.graph import EXTRACTION_KIND, extraction_key
from mnemon.night.graph_plugins import FINDINGS_KIND, live_findings
from mnemon.night.lexical import TOKENS_KIND, tokens_key
from mnemon.night.vectors import chosen_face
from mnemon.night.written import ANSWERS_KIND, live_answers
from mnemon.snapshot.layout import StorePaths
from mnemon.snapshot.publish import drop_older_snapshots
from mnemon.types import MemoryRecord
from mnemon.vectors.embed import memo_kind, text_key
from mnemon.work.memo import Memo

# Verdicts kept beside those of published snapshots, so that a failed night can still be read about.
_KEPT_VERDICTS = 30


def sweep(paths: StorePaths) -> None:
    """Remove half-written files, which may hold texts that the source has lost since."""
    remove_temporary_files(paths.root, below=False)
    for directory in (paths.work, paths.encoders, paths.rotations, paths.verdicts):
        remove_temporary_files(directory)


def tidy(night: Night) -> tuple[str, ...]:
    """Prune memo and archive to what is live, drop judged candidates and old verdicts; idempotent.

    When a row that was published has turned sensitive, older snapshots still hold it: they go too.

    Returns:
        The snapshots that were removed for that reason.
    """
    records = read_records(night.work(MEMORIES))
    purge_texts(night.paths.archive, {r.memory_id: r.content_hash for r in records})
    _prune_memo(night, records)
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


def _prune_memo(night: Night, records: Sequence[MemoryRecord]) -> int:
    texts = [r.content for r in records] + [s.text for s in read_summaries(night.work(SUMMARIES))]
    texts += [a.summary.text for a in applied_summaries(night.paths.archive, records)]
    vectors = memo_kind(night.fingerprint(), chosen_face(night).tag)
    with Memo.open(night.paths.memo) as memo:
        return memo.prune(
            {
                vectors: [*map(text_key, texts), *live_names(night)],
                TOKENS_KIND: [tokens_key(r) for r in records],
                EXTRACTION_KIND: [extraction_key(r) for r in records],
                ANSWERS_KIND: live_answers(night),
                FINDINGS_KIND: live_findings(night, records),
            }
        )
