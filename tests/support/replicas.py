"""What must hold of a replica after any script of edits, on any store."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from noctuary.capture.capturing import capture
from noctuary.capture.replica_source import ReplicaSource
from noctuary.corpus.export import export_corpus
from noctuary.corpus.sensitive import find_sensitivity
from noctuary.corpus.source import Source
from noctuary.settings import CaptureSettings
from tests.support.edit_scripts import OVERLAP_MINUTES, EditedStore, Editor, NightOfEdits

NOW_US = 1_900_000_000_000_000
_WORD = re.compile(rb"word\d{5}x")
NIGHTLY = CaptureSettings(overlap_minutes=OVERLAP_MINUTES, full_diff_hours=1e6)
COMPLETE = CaptureSettings(overlap_minutes=OVERLAP_MINUTES, full_diff_hours=0)

Look = Callable[[Source, Path], object]


def export(source: Source, out: Path) -> object:
    """Export and return the bytes of everything that a night reads of it."""
    with source:
        export_corpus(source, out, now_us=NOW_US, batch_rows=3)
    return {file.name: file.read_bytes() for file in out.iterdir()}


def judge(source: Source, _: Path) -> object:
    """Return what the export is made of: the rows that may leave, and why the others may not."""
    with source:
        rows = [row for batch in source.batches(3) for row in batch]
        found = [(row.locator, row.key, find_sensitivity(row)) for row in rows]
        clean = [repr(row) for row, (_, _, reason) in zip(rows, found, strict=True) if not reason]
        return source.identity(), source.count(), found, clean


def require_equal_nights(
    store: EditedStore, nights: Sequence[NightOfEdits], out: Path, look: Look
) -> None:
    """Run a script with a night after each part of it, and a complete one at the end."""
    editor, replica = Editor(store), out / "replica.sqlite"
    for night in [NightOfEdits([], False), *nights, NightOfEdits([], True)]:
        for edit in night.edits:
            editor.apply(edit)
        store.pass_time()
        source = store.open()
        report = capture(source, replica, COMPLETE if night.is_full else NIGHTLY, batch_rows=3)
        assert report.is_full or not night.is_full
        found = look(ReplicaSource(replica, source, report), out / "captured")
        if report.is_full:
            editor.unseen.clear()
        if not editor.unseen & set(store.ids()):
            assert found == look(store.open(), out / "fresh"), report
            kept = set(_WORD.findall(replica.read_bytes()))
            assert kept == words_of(store), "a text that is gone or sensitive stayed"


def words_of(store: EditedStore) -> set[bytes]:
    """Return the words that a replica must hold: of rows that are there and not sensitive."""
    with store.open() as source:
        rows = [row for batch in source.batches() for row in batch]
    clean = [row for row in rows if find_sensitivity(row) is None]
    return {word for row in clean for word in _WORD.findall(repr(row.fields).encode())}
