"""Cells and tables of Markdown: how a number with its interval is written. No document shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from noctuary.evaluate.metrics import Difference, Mean

_NAMES = {
    "recall": "R",
    "ndcg": "nDCG",
    "mrr": "MRR",
    "map": "MAP",
    "precision": "P",
    "all_relevant": "all",
}
_COMMIT_CHARS = 12

Row = Sequence[str]


def table(header: Row, rows: Iterable[Row]) -> str:
    """Return a Markdown table; every column but the first is aligned right."""
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def section(title: str, blocks: Iterable[str]) -> list[str]:
    """Return a heading and its blocks, nothing where there is no block."""
    found = [block for block in blocks if block]
    return [f"## {title}", *found] if found else []


def short(metric: str) -> str:
    """Return a metric's name as a column heading."""
    name, _, cutoff = metric.partition("@")
    return f"{_NAMES.get(name, name)}@{cutoff}"


def mean_cell(found: Mean) -> str:
    """Return a mean with its interval; a mean of too few queries says so."""
    if found.interval is None:
        return f"{found.mean:.3f} [n = {found.n}]"
    return f"{found.mean:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def difference_cell(found: Difference | None, p_value: float | None = None) -> str:
    """Return a difference with its interval, bold where both interval and test speak.

    Args:
        found: The difference; None gives an empty cell.
        p_value: Shown, and decides on bold, in the place of the difference's own.
    """
    if found is None:
        return ""
    if found.interval is None:
        return f"{found.mean:+.3f} [n = {found.n}]"
    text = f"{found.mean:+.3f} [{found.interval.low:+.3f}, {found.interval.high:+.3f}]"
    p = found.p_holm if p_value is None else p_value
    significant = found.interval.excludes_zero and p < ALPHA
    return f"**{text}**" if significant else text


ALPHA = 0.05


def p_cell(p_value: float) -> str:
    """Return a p-value; what 10,000 draws cannot tell from zero is a bound."""
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def number_cell(value: float | None, digits: int = 3) -> str:
    """Return a number, or nothing."""
    return "" if value is None else f"{value:.{digits}f}"


def commit(manifest: Mapping[str, Any]) -> str:
    """Return what was checked out when something was measured."""
    found = manifest.get("commit")
    if not found:
        return "commit unknown"
    return f"commit {found[:_COMMIT_CHARS]}{' (with local changes)' if manifest['dirty'] else ''}"
