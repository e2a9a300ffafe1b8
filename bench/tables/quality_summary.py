"""The summary over all sets: headline arms, and what noctuary gains over the two baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.tables.markdown import (
    Row,
    difference_cell,
    mean_cell,
    number_cell,
    p_cell,
    short,
    table,
)
from bench.tables.quality_document import DECIDED, WHOLE, QualityDocument
from noctuary.evaluate.metrics import Difference
from noctuary.evaluate.statistics import holm

ARMS = ("fts_seed", "hybrid_seed", "noctuary", DECIDED)
METRICS = ("recall@5", "recall@10", "all_relevant@10", "ndcg@10", "mrr@10")
BASELINES = ("fts_seed", "hybrid_seed")
DIFFERENCES = ("recall@10", "ndcg@10")


@dataclass(frozen=True, slots=True)
class _Gain:
    """One difference of the summary and where it stands."""

    where: str
    ours: str
    n: int
    found: Difference


def summary_blocks(documents: Sequence[QualityDocument]) -> list[str]:
    """Return the tables over all sets."""
    if not documents:
        return []
    blocks = [table(["set", "arm", "n", *map(short, METRICS)], _mean_rows(documents))]
    for metric in DIFFERENCES:
        for baseline in BASELINES:
            blocks += _gain_blocks(documents, metric, baseline)
    return blocks


def _mean_rows(documents: Sequence[QualityDocument]) -> Iterable[Row]:
    for document in documents:
        for scope in document.scopes:
            reports = document.reports(scope)
            for arm in ARMS:
                if arm in reports:
                    overall = reports[arm].overall
                    cells = [mean_cell(overall[metric]) for metric in METRICS]
                    yield [_where(document, scope), arm, str(reports[arm].n), *cells]


def _where(document: QualityDocument, scope: str) -> str:
    return document.dataset if scope == WHOLE else f"{document.dataset}, own {scope}"


def _gain_blocks(documents: Sequence[QualityDocument], metric: str, baseline: str) -> Iterable[str]:
    """Yield a table for noctuary and one for noctuary_decided; each is its own family for Holm."""
    rows: list[Row] = []
    for ours in ARMS[2:]:
        gains = [
            _Gain(_where(document, scope), ours, document.reports(scope)[ours].n, found)
            for document in documents
            for scope in document.scopes
            if (found := document.difference(ours, baseline, metric, scope)) is not None
        ]
        corrected = holm([gain.found.p_value for gain in gains])
        rows += [_gain_row(gain, p) for gain, p in zip(gains, corrected, strict=True)]
    if not rows:
        return
    rows.sort(key=lambda row: row[0])
    header = ["set", "arm", "n", f"Δ {short(metric)}", "p", "p (Holm)", "MDD", "better / worse"]
    yield f"### {short(metric)}: difference to {baseline}"
    yield table(header, rows)


def _gain_row(gain: _Gain, corrected: float) -> Row:
    found = gain.found
    return [
        gain.where,
        gain.ours,
        str(gain.n),
        difference_cell(found, corrected),
        p_cell(found.p_value),
        p_cell(corrected),
        number_cell(found.minimum_detectable),
        f"{found.wins} / {found.losses}",
    ]
