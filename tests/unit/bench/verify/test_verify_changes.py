from __future__ import annotations

from pathlib import Path

import pytest

from bench.verify.changes import (
    CHANGES,
    HEADER,
    NOTHING,
    Change,
    append_changes,
    as_text,
    check_reason,
    newest,
    read_changes,
)
from bench.verify.regression import REGRESSIONS, read_regression
from noctuary.core.errors import ConfigError, SourceFormatError


def change(number: str, old: str, new: str, dataset: str = "tiny") -> Change:
    return Change("2026-11-21", dataset, number, old, new, "0123456789ab+", "a reason")


def test_entries_are_appended_and_what_stands_there_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "changes.md"
    assert read_changes(log) == []
    first, second = change("index.memories", NOTHING, "60"), change("index.memories", "60", "61")
    append_changes(log, [first])
    before = log.read_text(encoding="utf-8")
    assert before.startswith(HEADER)
    append_changes(log, [second, change("index.memories", NOTHING, "7", "other")])
    assert log.read_text(encoding="utf-8").startswith(before)
    assert read_changes(log)[:2] == [first, second]
    assert newest(read_changes(log)) == {
        ("tiny", "index.memories"): "61",
        ("other", "index.memories"): "7",
    }


def test_a_row_that_is_no_entry_is_named_with_its_line(tmp_path: Path) -> None:
    log = tmp_path / "changes.md"
    append_changes(log, [change("index.memories", NOTHING, "60")])
    log.write_text(log.read_text(encoding="utf-8") + "| half | a row |\n", encoding="utf-8")
    with pytest.raises(SourceFormatError, match=r"changes\.md, line 10 is no entry"):
        read_changes(log)


@pytest.mark.parametrize("reason", ["", "  ", "a | b", "two\nlines"])
def test_a_reason_that_would_break_the_table_is_refused(reason: str) -> None:
    with pytest.raises(ConfigError, match="one line of text"):
        check_reason(reason)


def test_every_expected_number_has_its_newest_entry_in_the_log() -> None:
    """No number of a regression file changes without a dated reason."""
    said = newest(read_changes(CHANGES))
    expected = {
        (found.dataset, name): as_text(value)
        for path in sorted(REGRESSIONS.glob("*.yaml"))
        for found in [read_regression(path)]
        for name, value in found.values.items()
    }
    gone = {key: value for key, value in said.items() if value == NOTHING}
    assert expected, "there are regression files"
    assert {**expected, **gone} == said


def test_a_regression_file_is_named_after_its_set() -> None:
    for path in REGRESSIONS.glob("*.yaml"):
        assert read_regression(path).dataset == path.stem
