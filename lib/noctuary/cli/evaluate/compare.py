"""`noctuary evaluate compare`: is one run better than another, and could these queries tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noctuary.cli.common import print_json
from noctuary.cli.evaluate.common import (
    PATH,
    exit_on_error,
    json_option,
    metric_option,
    print_columns,
    show_signed_interval,
)
from noctuary.errors import FAULTS_SHOWN

if TYPE_CHECKING:
    from noctuary.evaluate.comparison import Comparison, Difference
    from noctuary.evaluate.labels.queries import Query
    from noctuary.evaluate.run import Run

HEADER = ("", "difference", "95 % interval", "p", "Holm", "detectable", "n", "won/lost/tied", "")
SIGNIFICANT = "*"


@click.command()
@click.argument("run_a", metavar="RUN_A", type=PATH)
@click.argument("run_b", metavar="RUN_B", type=PATH)
@click.option(
    "--queries",
    required=True,
    type=PATH,
    metavar="FILE",
    help="The labelled queries that both runs were asked, or the folder of their set.",
)
@metric_option
@json_option
def compare(
    run_a: Path, run_b: Path, queries: Path, metrics: tuple[str, ...], as_json: bool
) -> None:
    """Compare RUN_A with RUN_B, query by query; above zero, RUN_A is better.

    \b
    noctuary evaluate compare ours.json bm25.json --queries data/locomo --metric recall@10

    Per metric and stratum: the mean difference with its BCa bootstrap interval, the p-value of a
    paired permutation test, the same after Holm's correction over the strata, and the smallest true
    difference that this many queries would find four times out of five. * marks differences whose
    interval excludes zero and whose corrected p-value is below 0.05.
    """  # noqa: D301 (click wants the control character)
    with exit_on_error(as_json):
        from noctuary.evaluate.comparison import compare as compare_scores
        from noctuary.evaluate.run_file import read_run
        from noctuary.evaluate.scores import score_run

        ours, baseline = read_run(run_a)[0], read_run(run_b)[0]
        labelled = _read_labelled(queries)
        asked = _asked_of_both(labelled, ours, baseline)
        pair = (score_run(ours, asked, metrics), score_run(baseline, asked, metrics))
        (found,) = compare_scores([pair])
    if as_json:
        print_json({"queries": len(asked), "of": len(labelled), **found.to_json()})
        return
    if len(asked) < len(labelled):
        click.echo(
            f"! some_queries_not_asked: compared on {len(asked)} of {len(labelled)} labelled "
            "queries; the runs were not asked the others",
            err=True,
        )
    _print(found)


def _read_labelled(path: Path) -> tuple[Query, ...]:
    from noctuary.evaluate.labels.dataset import QUERIES_FILE
    from noctuary.evaluate.labels.queries import read_queries

    return read_queries(path / QUERIES_FILE if path.is_dir() else path).ranked


def _asked_of_both(labelled: Sequence[Query], ours: Run, baseline: Run) -> list[Query]:
    """Return the labelled queries that the runs were asked.

    Raises:
        ValueError: If only one of them was asked a query, or neither any: leaving those queries out
            would change what is compared without a word.
    """
    in_ours, in_baseline = frozenset(ours.query_ids), frozenset(baseline.query_ids)
    one_sided = [
        q.query_id for q in labelled if (q.query_id in in_ours) != (q.query_id in in_baseline)
    ]
    if one_sided:
        raise ValueError(
            f"{len(one_sided)} labelled queries were asked of only one of {ours.name!r} and "
            f"{baseline.name!r}, the first: {one_sided[:FAULTS_SHOWN]}; ask both the same queries"
        )
    asked = [q for q in labelled if q.query_id in in_ours]
    if not asked:
        raise ValueError(
            f"neither {ours.name!r} nor {baseline.name!r} was asked any of the {len(labelled)} "
            "labelled queries; are they runs of another set?"
        )
    return asked


def _print(found: Comparison) -> None:
    click.echo(f"{found.ours} - {found.baseline}\n")
    # Of a single stratum there is nothing to correct and nothing to add.
    strata: Mapping[str, Mapping[str, Difference]] = found.strata if len(found.strata) > 1 else {}
    rows: list[Sequence[str]] = [HEADER]
    for metric, overall in found.overall.items():
        rows.append(_row(metric, overall, ""))
        rows += [
            _row(f"  {stratum}", differences[metric], f"{differences[metric].p_holm:.4f}")
            for stratum, differences in strata.items()
        ]
    print_columns(rows)


def _row(name: str, found: Difference, holm: str) -> list[str]:
    detectable = found.minimum_detectable
    return [
        name,
        f"{found.mean:+.3f}",
        show_signed_interval(found.interval),
        f"{found.p_value:.4f}",
        holm,
        "-" if detectable is None else f"{detectable:.3f}",
        f"{found.n:,}",
        f"{found.wins}/{found.losses}/{found.ties}",
        SIGNIFICANT if found.significant else "",
    ]
