"""The part of quality.md about one set: plot, ablation tables, strata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.tables.markdown import (
    Row,
    commit,
    difference_cell,
    mean_cell,
    short,
    table,
)
from bench.tables.quality_document import QualityDocument
from noctuary.evaluate.metrics import Report

METRICS = ("recall@10", "all_relevant@10", "ndcg@10", "mrr@10")
DIFFERENCES = ("recall@10", "ndcg@10")
STRATUM_METRIC = "recall@10"
STRATUM_ARMS = ("fts_seed", "lexical_only", "dense", "hybrid_seed", "noctuary", "noctuary_decided")
STRATUM_BASELINE = "fts_seed"

GROUPS = {
    "baseline": "Baselines",
    "noctuary": "noctuary",
    "ablation": "Ablations",
    "graph_seed": "The seed's co-occurrence graph",
}
_DIGEST_CHARS = 12


def set_blocks(document: QualityDocument) -> list[str]:
    """Return caption, plot and tables of a set."""
    name = document.dataset
    blocks = [_caption(document), f"![{name}: differences to noctuary in R@10](plots/{name}.png)"]
    for group, title in GROUPS.items():
        arms = [arm for arm in document.reports() if document.group(arm) == group]
        if arms:
            blocks += [f"### {name}: {title}", _arm_table(document, arms)]
    degraded = _warnings(document)
    return [*blocks, *degraded, *_strata(document)]


def _caption(document: QualityDocument) -> str:
    manifest = document.manifest
    model = (manifest["encoder"] or {}).get("model")
    night = document.raw["measured"]["night"]
    parts = [
        f"{manifest['n_queries']} queries ({document.raw['split']})",
        f"{manifest['counts'].get('memories', '?')} memories",
        f"snapshot {str(manifest['snapshot_digest'])[:_DIGEST_CHARS]}",
        f"encoder {model}" if model else "no encoder",
        commit(manifest),
        f"night {night['seconds']:.0f} s",
        f"evaluation {document.raw['measured']['evaluate_seconds']:.0f} s",
        f"load average {manifest['load_average_1m']:.1f}",
    ]
    missing = manifest["labels_missing_from_snapshot"]
    if missing:
        parts.append(f"{missing} labelled memories are not in the snapshot and count as misses")
    return ", ".join(part for part in parts if part) + "."


def _arm_table(document: QualityDocument, arms: Sequence[str]) -> str:
    reports = document.reports()
    baselines = _baselines(document, arms)
    header = [
        "arm",
        *map(short, METRICS),
        *(f"Δ {short(metric)} vs {base}" for base in baselines for metric in DIFFERENCES),
        "p50 / p95 ms",
    ]
    rows = [
        [
            f"{arm}{' (degraded)' if document.measured(arm).get('warnings') else ''}",
            *(mean_cell(reports[arm].overall[metric]) for metric in METRICS),
            *(
                difference_cell(document.difference(arm, base, metric))
                for base in baselines
                for metric in DIFFERENCES
            ),
            _latency(document, arm),
        ]
        for arm in arms
    ]
    return table(header, rows)


def _baselines(document: QualityDocument, arms: Sequence[str]) -> list[str]:
    """Return what these arms were compared with, in the order in which it appears."""
    found = {
        base: None
        for arm in arms
        for base in document.raw["scopes"]["all"]["comparisons"].get(arm, {})
    }
    return list(found)


def _latency(document: QualityDocument, arm: str) -> str:
    latency = document.measured(arm).get("latency")
    return f"{latency['p50_ms']:.1f} / {latency['p95_ms']:.1f}" if latency else ""


def _warnings(document: QualityDocument) -> list[str]:
    lines = [
        f"- {arm}: " + ", ".join(f"{code} x {count}" for code, count in warnings.items())
        for arm in document.reports()
        if (warnings := document.measured(arm).get("warnings"))
    ]
    return ["Degraded arms, warnings met while they ran:\n\n" + "\n".join(lines)] if lines else []


def _strata(document: QualityDocument) -> list[str]:
    """Return means and differences per stratum; nothing for a set of one stratum."""
    reports = {arm: r for arm in STRATUM_ARMS if (r := document.reports().get(arm))}
    if not reports:
        return []
    first = next(iter(reports.values()))
    if len(first.strata) < 2:  # one stratum is the overall row again
        return []
    header = ["stratum", "n", *reports]
    gains = [arm for arm in reports if arm in document.compared(STRATUM_BASELINE)]
    title = f"### {document.dataset}: {short(STRATUM_METRIC)} per stratum"
    blocks = [title, table(header, _stratum_rows(reports))]
    if gains:
        blocks.append(f"Differences to {STRATUM_BASELINE}, Holm over the strata:")
        blocks.append(table(["stratum", *gains], _gain_rows(document, first, gains)))
    return blocks


def _stratum_rows(reports: dict[str, Report]) -> Iterable[Row]:
    first = next(iter(reports.values()))
    for stratum, part in first.strata.items():
        cells = [mean_cell(r.strata[stratum][STRATUM_METRIC]) for r in reports.values()]
        yield [stratum, str(part[STRATUM_METRIC].n), *cells]


def _gain_rows(document: QualityDocument, first: Report, gains: Sequence[str]) -> Iterable[Row]:
    for stratum in first.strata:
        yield [
            stratum,
            *(
                difference_cell(
                    document.stratum_difference(arm, STRATUM_BASELINE, STRATUM_METRIC, stratum)
                )
                for arm in gains
            ),
        ]
