"""docs/benchmarks/changes.md: a dated entry for every change of a number, with its reason.

Entries are only ever appended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.datasets import CHECKOUT
from bench.verify.regression import Value
from noctuary.core.errors import ConfigError, SourceFormatError
from noctuary.core.files import write_text

CHANGES = CHECKOUT / "docs" / "benchmarks" / "changes.md"

NOTHING = "-"
"""Stands for a number that was not there before, or is gone."""

HEADER = """# Changes of expected numbers

Written by `python -m bench.verify --accept "reason"`: one entry for every number of
`bench/regressions/*.yaml` that changed, newest last. Nothing is ever taken out; a test compares the
newest entry of every number with its file.

| date | set | number | old | new | commit | reason |
| --- | --- | --- | ---: | ---: | --- | --- |
"""

_ENTRY = re.compile(r"^\| (\d{4}-\d\d-\d\d) \| " + r" \| ".join([r"([^|]*?)"] * 6) + r" \|$")


@dataclass(frozen=True, slots=True)
class Change:
    """One entry.

    Attributes:
        date: ISO date, UTC.
        dataset: The set.
        number: Dotted name, as in the regression file.
        old: What was expected until then, as text.
        new: What is expected from then on, as text.
        commit: Checked out when it was measured; "+" marks local changes.
        reason: Why it moved, in one line.
    """

    date: str
    dataset: str
    number: str
    old: str
    new: str
    commit: str
    reason: str


def as_text(value: Value) -> str:
    """Return a value as the log writes it."""
    return NOTHING if value is None else str(value)


def check_reason(reason: str) -> str:
    """Return a reason that fits in one cell.

    Raises:
        ConfigError: If it is blank, has several lines or a vertical bar.
    """
    text = reason.strip()
    if not text or "\n" in text or "|" in text:
        raise ConfigError(
            f"a reason is one line of text without a vertical bar, found {reason!r}; "
            "say what changed the number"
        )
    return text


def append_changes(path: Path, changes: Sequence[Change]) -> None:
    """Append entries; what stands there is kept byte for byte."""
    before = path.read_text(encoding="utf-8") if path.is_file() else HEADER
    lines = [
        f"| {c.date} | {c.dataset} | {c.number} | {c.old} | {c.new} | {c.commit} | {c.reason} |\n"
        for c in changes
    ]
    write_text(path, before + "".join(lines))


def read_changes(path: Path) -> list[Change]:
    """Return every entry, oldest first; empty if there is no log.

    Raises:
        SourceFormatError: If a row of the table cannot be read.
    """
    if not path.is_file():
        return []
    found: list[Change] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("| ") or line.startswith(("| date ", "| --- ")):
            continue
        entry = _ENTRY.match(line)
        if entry is None:
            raise SourceFormatError(f"{path}, line {number} is no entry of the log: {line!r}")
        found.append(Change(*entry.groups()))
    return found


def newest(changes: Sequence[Change]) -> dict[tuple[str, str], str]:
    """Return what each number of each set is expected to be, by the newest entry."""
    return {(c.dataset, c.number): c.new for c in changes}
