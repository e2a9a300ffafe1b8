"""`noctuary evaluate run`: ask the queries of a set, score what comes back, keep the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noctuary.cli.common import limit_threads, print_json, store_options
from noctuary.cli.evaluate.common import (
    PATH,
    exit_on_error,
    metric_option,
    print_columns,
    show_interval,
)
from noctuary.errors import EmptyQuerySetError, LineFault

if TYPE_CHECKING:
    from noctuary.evaluate.abstention import Abstention
    from noctuary.evaluate.labels.queries import Query
    from noctuary.evaluate.report import Report
    from noctuary.evaluate.run import Run, RunPlan
    from noctuary.hashing import JsonValue

DEFAULT_K = 10
DEPTH = 50
"""Results wanted in all, at least: the deepest default metric. Deeper metrics ask for more."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run over a set, scored."""

    run: Run
    report: Report
    abstention: Abstention | None
    manifest: dict[str, JsonValue]


@click.command()
@click.argument("set_", metavar="SET", type=PATH)
@click.option(
    "--retriever",
    metavar="MODULE:NAME",
    help="A class, object or function to ask [default: the serving snapshot].",
)
@click.option("--name", help="What the run is called [default: the retriever's own name].")
@click.option("--in-wing", is_flag=True, help="Search only the wing that a query names.")
@click.option(
    "-k",
    default=DEFAULT_K,
    show_default=True,
    type=click.IntRange(min=1),
    help="Results asked for in the timed call.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many queries.")
@metric_option
@click.option("--out", type=PATH, help="Keep the run in this file; compressed if it ends in .gz.")
@store_options
def run(
    set_: Path,
    retriever: str | None,
    name: str | None,
    in_wing: bool,
    k: int,
    limit: int | None,
    metrics: tuple[str, ...],
    out: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Ask the queries of SET and score the answers, with 95 % intervals.

    \b
    make nightly STORE=data/locomo                       (once: builds the snapshot)
    noctuary evaluate run data/locomo --out ours.json
    noctuary evaluate run data/locomo --retriever my_search:Bm25 --out bm25.json.gz

    Without --retriever the serving snapshot of --store is asked; by default that is the store built
    from SET. A retriever has retrieve(query, k) and returns ids, best first; a function of query
    and k will do. Queries that nothing answers are asked as well and judged apart.
    """  # noqa: D301 (click wants the control character)
    if retriever is not None and (store is not None or in_wing):
        raise click.UsageError("--store and --in-wing are for the snapshot, not for --retriever")
    limit_threads()
    request = _Request(set_, retriever, name, in_wing, k, limit, metrics, store)
    with exit_on_error(as_json):
        outcome = _run(request)
        if out is not None:
            from noctuary.evaluate.run_file import write_run

            write_run(out, outcome.run, outcome.manifest)
    if as_json:
        print_json(_to_json(outcome))
        return
    _print(outcome)
    if out is not None:
        click.echo(f"\nkept in {out}")


@dataclass(frozen=True, slots=True)
class _Request:
    """The command line, read."""

    directory: Path
    retriever: str | None
    name: str | None
    in_wing: bool
    k: int
    limit: int | None
    metrics: tuple[str, ...]
    store: str | None


def _run(request: _Request) -> Outcome:
    from noctuary.evaluate.labels.dataset import QUERIES_FILE, load_labelled_set
    from noctuary.evaluate.labels.faults import FaultKind
    from noctuary.evaluate.run import RunPlan

    labelled = load_labelled_set(request.directory)
    ranked = labelled.queries.ranked[: request.limit]
    unanswerable = labelled.unanswerable[: request.limit]
    if not ranked:
        message = "no query has a label: there is nothing to score"
        fault = LineFault(0, FaultKind.EMPTY_FILE, message)
        raise EmptyQuerySetError(request.directory / QUERIES_FILE, [fault])
    cutoffs = [int(metric.partition("@")[2]) for metric in request.metrics]
    plan = RunPlan(k=request.k, depth=max(request.k, DEPTH, *cutoffs))
    ask = _ask_snapshot if request.retriever is None else _ask_imported
    found, manifest = ask(request, (*ranked, *unanswerable), plan)
    report, abstention = _score(found, ranked, unanswerable, request.metrics)
    return Outcome(found, report, abstention, manifest)


def _ask_snapshot(
    request: _Request, queries: Sequence[Query], plan: RunPlan
) -> tuple[Run, dict[str, JsonValue]]:
    from noctuary.cli.evaluate.retrievers import open_snapshot, require_labels
    from noctuary.evaluate.run import run_retriever

    snapshot = open_snapshot(request.directory, request.store, request.in_wing)
    try:
        require_labels(snapshot, queries, request.directory)
        found = run_retriever(snapshot, queries, plan, name=request.name)
        built = snapshot.recaller.reader.manifest
        asked = {
            "snapshot_digest": built.digest,
            "profile": snapshot.profile.to_json(),
            "in_wing": request.in_wing,
        }
        manifest = _describe(request, built.corpus_digest, built.encoder_digest, asked)
    finally:
        snapshot.close()
    return found, manifest


def _ask_imported(
    request: _Request, queries: Sequence[Query], plan: RunPlan
) -> tuple[Run, dict[str, JsonValue]]:
    from noctuary.cli.evaluate.retrievers import import_retriever
    from noctuary.evaluate.labels.dataset import find_corpus, read_corpus_rows
    from noctuary.evaluate.retriever import index_builder_of
    from noctuary.evaluate.run import run_retriever
    from noctuary.hashing import hash_file

    spec = request.retriever or ""
    retriever = import_retriever(spec)
    corpus = None
    if index_builder_of(retriever) is not None:
        corpus = list(read_corpus_rows(request.directory))
    found = run_retriever(retriever, queries, plan, name=request.name, corpus=corpus)
    digest = hash_file(find_corpus(request.directory))
    return found, _describe(request, digest, None, {"retriever": spec})


def _describe(
    request: _Request,
    corpus_digest: str,
    encoder_digest: str | None,
    asked: Mapping[str, JsonValue],
) -> dict[str, JsonValue]:
    """Return the manifest of a run: what is needed to repeat it, without a path."""
    from noctuary.evaluate.labels.dataset import ADVERSARIAL_FILE, QUERIES_FILE
    from noctuary.evaluate.manifest import describe_run
    from noctuary.evaluate.statistics.bootstrap import DEFAULT_SEED
    from noctuary.hashing import hash_file

    files = [request.directory / name for name in (QUERIES_FILE, ADVERSARIAL_FILE)]
    return describe_run(
        DEFAULT_SEED,
        corpus_digest,
        encoder_digest,
        set=request.directory.absolute().name,
        query_digests={path.name: hash_file(path) for path in files if path.is_file()},
        limit=request.limit,
        asked=asked,
    )


def _score(
    found: Run, ranked: Sequence[Query], unanswerable: Sequence[Query], metrics: Sequence[str]
) -> tuple[Report, Abstention | None]:
    from noctuary.evaluate.abstention import judge_abstention
    from noctuary.evaluate.report import latency_of, summarize
    from noctuary.evaluate.scores import score_run

    (report,) = summarize([score_run(found, ranked, metrics)])
    report = replace(report, latency=latency_of(found))
    if not unanswerable:
        return report, None
    metric = f"recall@{found.k}"
    abstention = judge_abstention(
        _part(found, ranked),
        _part(found, unanswerable),
        score_run(found, ranked, [metric]),
        metric,
    )
    return report, abstention


def _part(found: Run, queries: Sequence[Query]) -> Run:
    """Return the part of a run that is over some of its queries, untimed."""
    place = {query_id: row for row, query_id in enumerate(found.query_ids)}
    rows = [place[query.query_id] for query in queries]
    return replace(
        found,
        query_ids=tuple(found.query_ids[row] for row in rows),
        rankings=tuple(found.rankings[row] for row in rows),
        top_scores=tuple(found.top_scores[row] for row in rows),
        latency_ms=None,
    )


def _to_json(outcome: Outcome) -> dict[str, Any]:
    abstention = outcome.abstention
    return {
        "report": outcome.report.to_json(),
        "abstention": None if abstention is None else abstention.to_json(),
        "build_ms": outcome.run.build_ms,
        "index_bytes": outcome.run.index_bytes,
        "manifest": outcome.manifest,
    }


def _print(outcome: Outcome) -> None:
    report, found = outcome.report, outcome.run
    click.echo(f"{report.name} on {report.n:,} queries\n")
    rows = [["metric", "mean", "95 % interval", "macro"]]
    rows += [
        [metric, f"{m.mean:.3f}", show_interval(m.interval), f"{report.macro[metric]:.3f}"]
        for metric, m in report.overall.items()
    ]
    print_columns(rows)
    if len(report.strata) > 1:
        for stratum, means in report.strata.items():
            click.echo(f"\n{stratum} ({next(iter(means.values())).n:,} queries)")
            print_columns(
                [[name, f"{m.mean:.3f}", show_interval(m.interval)] for name, m in means.items()],
                indent="  ",
            )
    click.echo()
    for line in _facts(report, found, outcome.abstention):
        click.echo(line)


def _facts(report: Report, found: Run, abstention: Abstention | None) -> list[str]:
    lines: list[str] = []
    if report.latency is not None:
        lines.append(
            f"latency at k={found.k}: p50 {report.latency.p50_ms:.2f} ms, p95 "
            f"{report.latency.p95_ms:.2f} ms over {report.latency.n:,} queries, warm-up excluded"
        )
    if found.build_ms is not None:
        lines.append(f"index built in {found.build_ms / 1000:.2f} s")
    if found.index_bytes is not None:
        lines.append(f"index size {found.index_bytes / 1e6:.2f} MB")
    if found.unstable_prefixes:
        lines.append(
            f"{found.unstable_prefixes:,} of {len(found.query_ids):,} queries answer k={found.k} "
            f"otherwise than the first {found.k} of k={found.depth}; scores are of the former"
        )
    if abstention is not None and abstention.auroc is not None:
        lines.append(
            f"abstention: AUROC of the top score {abstention.auroc:.3f} "
            f"{show_interval(abstention.interval)} over {abstention.n_answerable:,} answerable and "
            f"{abstention.n_unanswerable:,} unanswerable queries; area under risk-coverage "
            f"{abstention.curve.area:.3f}"
        )
    elif len(found.query_ids) > report.n:
        lines.append("abstention: the retriever gives no scores, so it cannot be judged")
    return lines
