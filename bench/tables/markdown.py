"""What every page is made of: its tables, and cells that hold a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from noctuary.evaluate.metrics import Difference, Mean

ENCODER = "all-MiniLM-L6-v2"
"""The bundled model; files that name no encoder were measured with it."""

INTERVALS = """Brackets hold 95 % BCa bootstrap intervals over the queries. Differences are paired,
and bold only if the interval excludes zero and a permutation test gives p < 0.05. Otherwise they
are no evidence of a change."""

_NAMES = {"recall": "R", "ndcg": "nDCG", "mrr": "MRR"}
_COMMIT_CHARS = 12

Row = Mapping[str, str]
"""Cells by the heading of their column."""


def table(rows: Iterable[Row]) -> str:
    """Return a Markdown table of rows with equal headings, aligned right but for the first."""
    found = list(rows)
    if not found:
        return "None of the results belongs here."
    header = list(found[0])
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(c)} |" for c in (header, rule, *(r.values() for r in found)))


def short(metric: str) -> str:
    """Return a metric's name as a column heading."""
    name, _, cutoff = metric.partition("@")
    return f"{_NAMES.get(name, name)}@{cutoff}"


def mean_cell(raw: Mapping[str, Any]) -> str:
    """Return a mean with its interval; a mean of too few queries says so."""
    found = Mean.from_json(raw)
    if found.interval is None:
        return f"{found.mean:.3f} [n = {found.n}]"
    return f"{found.mean:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def difference_cell(raw: Mapping[str, Any], p_value: float | None = None) -> str:
    """Return a difference with its interval, bold where both interval and test speak.

    Args:
        raw: The difference.
        p_value: Decides on bold in the place of the difference's own.
    """
    found = Difference.from_json(raw if p_value is None else {**raw, "p_holm": p_value})
    if found.interval is None:
        return f"{found.mean:+.3f} [n = {found.n}]"
    text = f"{found.mean:+.3f} [{found.interval.low:+.3f}, {found.interval.high:+.3f}]"
    return f"**{text}**" if found.significant else text


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with its thousands separated, or nothing."""
    return "" if value is None else f"{value:,.{digits}f}"


def share(value: float | None) -> str:
    """Return a share in per cent, or nothing."""
    return "" if value is None else f"{value:.1%}"


def pair(found: Mapping[str, float], digits: int = 1) -> str:
    """Return median and 95th percentile of a time in milliseconds."""
    return f"{number(found['p50_ms'], digits)} / {number(found['p95_ms'], digits)}"


def commits(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return what was checked out when these were measured, each commit once."""
    found = dict.fromkeys(_commit(document["manifest"]) for document in documents)
    return f"Measured on {', '.join(found)}."


def _commit(manifest: Mapping[str, Any]) -> str:
    if not manifest.get("commit"):
        return "an unknown commit"
    changed = " with local changes" if manifest["dirty"] else ""
    return f"commit {manifest['commit'][:_COMMIT_CHARS]}{changed}"
