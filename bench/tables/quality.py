"""quality.md: the headline metrics of every set, from quality-*.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from bench.results import read_results
from bench.tables.markdown import INTERVALS, Row, commits, difference_cell, mean_cell, short, table
from noctuary.evaluate.metrics import Difference
from noctuary.evaluate.statistics import holm

BASELINES = ("fts_seed", "hybrid_seed")
OURS = ("noctuary", "noctuary_decided")
METRICS = ("recall@5", "recall@10", "ndcg@10", "mrr@10")

_ASKED = """## Question

Does noctuary find the labelled memories more often than the search people run today? We asked every
query of each set's {split} split over the whole corpus, at k = {k}, with {encoder}.

- `fts_seed`: SQLite FTS5 as the seed store queries it.
- `hybrid_seed`: reciprocal rank fusion of `fts_seed` and exact cosines.
- `noctuary`: the profile that ships.
- `noctuary_decided`: the nightly fusion rule chooses on half of the queries and is scored on the
  other. You see it only where it differs from `noctuary`."""

_GAINS = f"""## Gains over the baselines

{INTERVALS} Here p is corrected after Holm over all sets and wings of an arm and a baseline. "Own
wing" searches only the wing of the query."""

_HOLES = """## Holes

The sets list relevant ids only, so any other result counts as wrong, even if nobody looked at it.
holes@10 is the share of noctuary's first ten that is neither labelled nor among the first ten of
{pool}. The more holes, the less these labels can say."""

_LIMITS = """## Limits

- We tuned on the dev split. Expect less on your own queries.
- An interval covers the choice of queries, not wrong labels. Nothing corrects for the number of
  metrics and arms.
- `json/quality-SET.json` has all arms and metrics, strata, p-values, minimum detectable differences
  and latency. Its group `graph_seed` is the seed store's graph: flawed, repaired and swept.
- Plots of R@10 of {arms} arms minus that of `noctuary`, ablations too: {plots}.
- `json/suite.json` has the seconds of each set.
- `python -m bench.suite --rescore` recomputes every number from the rankings in `runs/`."""


def write_quality(directory: Path) -> Iterator[str]:
    """Yield the blocks for every quality file of a directory."""
    documents = read_results(directory, "quality")
    if not documents:
        return
    yield _ASKED.format(
        split=_once(document["split"] for document in documents),
        k=_once(document["manifest"]["k"] for document in documents),
        encoder=_once((d["manifest"]["encoder"] or {}).get("model", "none") for d in documents),
    )
    yield "## Scores"
    yield table(row for document in documents for row in _means(document))
    yield from _degraded(documents)
    yield _GAINS
    yield table(_gains(documents))
    if judged := [d for d in documents if "noctuary" in (d["holes"] or {}).get("arms", {})]:
        pool = _once(f"`{arm}`" for document in judged for arm in document["holes"]["pool_arms"])
        yield _HOLES.format(pool=pool)
        yield table(map(_holes, judged))
    compared = documents[0]["scopes"]["all"]["comparisons"].values()
    yield _LIMITS.format(
        arms=sum("noctuary" in baselines for baselines in compared),
        plots=", ".join(f"[{d['dataset']}](plots/{d['dataset']}.svg)" for d in documents),
    )
    yield commits(documents)


def _once(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))


def _stands(arm: str, scope: Mapping[str, Any]) -> bool:
    """Return whether an arm has a row: the decided one only where it differs."""
    means = {name: report["overall"] for name, report in scope["reports"].items()}
    return arm in means and (arm != OURS[1] or means[arm] != means.get(OURS[0]))


def _means(document: Mapping[str, Any]) -> Iterator[Row]:
    scope = document["scopes"]["all"]
    for arm in (*BASELINES, *OURS):
        if _stands(arm, scope):
            found = scope["reports"][arm]
            means = {short(metric): mean_cell(found["overall"][metric]) for metric in METRICS}
            yield {"set": document["dataset"], "n": str(found["n"]), "arm": arm, **means}


def _degraded(documents: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    lines = [
        f"- {document['dataset']}, {arm}: {code} x {count}"
        for document in documents
        for arms in document["measured"]["arms"].values()
        for arm, measured in arms.items()
        for code, count in measured["warnings"].items()
    ]
    if lines:
        yield "These arms met warnings, so they are not what their names say:"
        yield "\n".join(lines)


def _gains(documents: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    scopes: dict[str, Mapping[str, Any]] = {
        document["dataset"] + ("" if name == "all" else f", own {name}"): scope
        for document in documents
        for name, scope in document["scopes"].items()
    }
    cells: dict[tuple[str, str, str], str] = {}
    for ours, base in product(OURS, BASELINES):
        found = {
            where: scope["comparisons"][ours][base]["overall"]["recall@10"]
            for where, scope in scopes.items()
            if base in scope["comparisons"].get(ours, {})
        }
        corrected = holm([Difference.from_json(raw).p_value for raw in found.values()])
        for (where, raw), p in zip(found.items(), corrected, strict=True):
            cells[where, ours, base] = difference_cell(raw, p)
    for (where, scope), ours in product(scopes.items(), OURS):
        if _stands(ours, scope):
            gains = {f"Δ R@10 to {base}": cells.get((where, ours, base), "") for base in BASELINES}
            yield {"set": where, "n": str(scope["reports"][ours]["n"]), "arm": ours, **gains}


def _holes(document: Mapping[str, Any]) -> Row:
    return {
        "set": document["dataset"],
        "n": str(document["manifest"]["n_queries"]),
        "memories": f"{document['manifest']['counts']['memories']:,}",
        "holes@10": mean_cell(document["holes"]["arms"]["noctuary"]),
    }
