"""`noctuary evaluate kappa`, `pool` and `holes`: who judged what, and how alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noctuary.cli.common import print_json
from noctuary.cli.evaluate.common import (
    PATH,
    exit_on_error,
    json_option,
    print_columns,
    show_interval,
)

if TYPE_CHECKING:
    from noctuary.evaluate.labels.agreement import Agreement
    from noctuary.evaluate.labels.pooling import Holes, Pool
    from noctuary.evaluate.run import Run
    from noctuary.evaluate.statistics.bootstrap import Interval

DEFAULT_CUTOFF = 10
"""Depth of pools and holes: what a prompt holds. Deeper pools cost judgements in proportion."""

cutoff_option = click.option(
    "-k",
    default=DEFAULT_CUTOFF,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many of each run's first results.",
)


@click.command()
@click.argument("first", metavar="A", type=PATH)
@click.argument("second", metavar="B", type=PATH)
@click.option(
    "--threshold",
    type=int,
    metavar="GRADE",
    help="Count grades of at least this as relevant, all others as not [default: every grade is a "
    "class of its own].",
)
@json_option
def kappa(first: Path, second: Path, threshold: int | None, as_json: bool) -> None:
    """Compare two files of judgements, A and B: Cohen's kappa over the pairs that both judged.

    \b
    noctuary evaluate kappa ann.jsonl model.jsonl --threshold 2
    kappa 0.583 [0.431, 0.717] over 240 pairs of 24 queries
    observed agreement 0.808, expected by chance 0.540
    judged in one file alone, not counted: 12 in A, 0 in B

    Formats: JSON lines with relevant_ids or grades, or TREC qrels.
    """  # noqa: D301 (click wants the control character)
    with exit_on_error(as_json):
        from noctuary.evaluate.labels.agreement import agreement
        from noctuary.evaluate.labels.qrels import read_qrels

        found = agreement(read_qrels(first), read_qrels(second), threshold=threshold)
    if as_json:
        print_json({**found._asdict(), "is_degenerate": found.is_degenerate})
        return
    _print_agreement(found)


def _print_agreement(found: Agreement) -> None:
    ends = "" if found.low is None else f" [{found.low:.3f}, {found.high:.3f}]"
    click.echo(
        f"kappa {found.kappa:.3f}{ends} over {found.n_pairs:,} pairs of {found.n_queries:,} queries"
    )
    click.echo(
        f"observed agreement {found.observed:.3f}, expected by chance {found.expected:.3f}\n"
        f"judged in one file alone, not counted: {found.only_in_a:,} in A, {found.only_in_b:,} in B"
    )
    if found.is_degenerate:
        click.echo(
            "! degenerate: every common pair has one and the same grade in both files, so kappa is "
            "1 by custom and says nothing. Files that list relevant ids only always do this: judge "
            "with grades, 0 for what is not relevant",
            err=True,
        )


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=PATH)
@cutoff_option
@click.option("--out", required=True, type=PATH, help="The file to write, one query a line.")
@click.option(
    "--found-by", is_flag=True, help="Also write which runs found each memory (not for judges)."
)
@json_option
def pool(runs: tuple[Path, ...], k: int, out: Path, found_by: bool, as_json: bool) -> None:
    """Collect what is to be judged: the first results of every RUN, without saying whose.

    \b
    noctuary evaluate pool fts.json ours.json -k 10 --out judge.jsonl
    {"query_id": "q1", "grades": {"17": null, "204": null}}

    Write an integer in the place of every null (0: not relevant) and the file is a qrels file.
    """  # noqa: D301 (click wants the control character)
    with exit_on_error(as_json):
        from noctuary.evaluate.labels.pooling import build_pool
        from noctuary.files import write_text

        built = build_pool(_read_runs(runs, k), k)
        write_text(out, _pool_lines(built, found_by))
    pairs = sum(map(len, built.values()))
    facts = {"k": k, "runs": len(runs), "queries": len(built), "pairs": pairs}
    if as_json:
        print_json(facts)
        return
    click.echo(
        f"{pairs:,} pairs of {len(built):,} queries to judge, from the first {k} "
        f"of {len(runs)} run{'' if len(runs) == 1 else 's'}: {out}"
    )


def _pool_lines(pool: Pool, found_by: bool) -> str:
    lines: list[str] = []
    for query_id, found in pool.items():
        row: dict[str, Any] = {"query_id": query_id, "grades": dict.fromkeys(found)}
        if found_by:
            row["found_by"] = found
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines)


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=PATH)
@click.option(
    "--judged", required=True, type=PATH, metavar="QRELS", help="What was judged, in any format."
)
@cutoff_option
@json_option
def holes(runs: tuple[Path, ...], judged: Path, k: int, as_json: bool) -> None:
    """Say how much of the first results of every RUN nobody judged (unjudged@k).

    \b
    noctuary evaluate holes fts.json ours.json --judged ann.jsonl
    run   unjudged@10                  ids  queries
    fts         0.000  [0.000, 0.000]    0      100
    ours        0.214  [0.187, 0.243]  214      100

    What nobody judged counts as wrong: a run with many more holes than another was not given the
    same chance.
    """  # noqa: D301 (click wants the control character)
    with exit_on_error(as_json):
        from noctuary.evaluate.labels.pooling import unjudged_at_k
        from noctuary.evaluate.labels.qrels import read_qrels

        known = read_qrels(judged)
        found = [unjudged_at_k(run, known, k) for run in _read_runs(runs, k)]
        intervals = [_holes_interval(one) for one in found]
    if as_json:
        print_json({"k": k, "runs": list(map(_holes_json, found, intervals))})
        return
    header = ["run", f"unjudged@{k}", "", "ids", "queries"]
    print_columns([header, *map(_holes_row, found, intervals)])
    for one in found:
        if one.without_judgements:
            click.echo(
                f"! {one.name}: {one.without_judgements:,} queries have no judgement at all and do "
                "not count",
                err=True,
            )


def _holes_interval(found: Holes) -> Interval | None:
    if not found.per_query:
        return None
    import numpy as np

    from noctuary.evaluate.statistics.bootstrap import mean_interval

    return mean_interval(np.array(list(found.per_query.values()), dtype=np.float64))


def _holes_json(found: Holes, interval: Interval | None) -> dict[str, Any]:
    return {
        "name": found.name,
        "mean": found.mean,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "n_unjudged": found.n_unjudged,
        "n_queries": len(found.per_query),
        "without_judgements": found.without_judgements,
        "per_query": dict(found.per_query),
    }


def _holes_row(found: Holes, interval: Interval | None) -> list[str]:
    mean = "-" if found.mean is None else f"{found.mean:.3f}"
    counts = [f"{found.n_unjudged:,}", f"{len(found.per_query):,}"]
    return [found.name, mean, show_interval(interval), *counts]


def _read_runs(paths: tuple[Path, ...], k: int) -> list[Run]:
    """Read runs that are at least k deep: a shorter one would look better judged than it is."""
    from noctuary.evaluate.run_file import read_run

    runs = [read_run(path)[0] for path in paths]
    for path, run in zip(paths, runs, strict=True):
        if run.depth < k:
            raise ValueError(f"{path} is a run of depth {run.depth}; -k {k} looks deeper")
    return runs
