"""`noctuary evaluate`: labelled sets, judgements, runs and comparisons from the shell."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from noctuary.cli.common import (
    EXIT_FAILED,
    is_json,
    json_option,
    limit_threads,
    open_paths,
    store_options,
    tell,
    warn,
)
from noctuary.core.errors import (
    FAULTS_SHOWN,
    EmptyQuerySetError,
    FileFaultsError,
    LineFault,
    NoctuaryError,
    SourceFormatError,
)
from noctuary.core.store import find_home, store_for_source

if TYPE_CHECKING:
    from noctuary.core.files import JsonValue
    from noctuary.evaluate.abstain import Abstention
    from noctuary.evaluate.labels import LabelledSet, Query
    from noctuary.evaluate.metrics import Comparison, Difference, Holes, Pool, Report
    from noctuary.evaluate.run import Run, RunPlan
    from noctuary.evaluate.statistics import Interval
    from noctuary.recall.engine import Recaller
    from noctuary.recall.profile import RetrievalProfile


# What the evaluation commands share: their options, one way to fail, and columns of text.


F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
"""Whether a file is there is for its reader to say: its message tells what was expected."""


def metric_option(command: F) -> F:
    """Add --metric."""
    return click.option(
        "--metric",
        "metrics",
        metavar="NAME",
        multiple=True,
        callback=_check_metrics,
        help="A metric, e.g. ndcg@10; may be repeated "
        "[default: recall@5, recall@10, all_relevant@10, precision@5, ndcg@10, mrr@50, map@50].",
    )(command)


def _check_metrics(
    _context: click.Context, _parameter: click.Parameter, names: Sequence[str]
) -> tuple[str, ...]:
    from noctuary.evaluate.metrics import DEFAULT_METRICS, parse_metric

    for name in names:
        try:
            parse_metric(name)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return tuple(dict.fromkeys(names)) or DEFAULT_METRICS


@contextmanager
def exit_on_error() -> Generator[None]:
    """Turn what the input is to blame for into a sentence and exit code 1.

    The library refuses input that does not fit together (runs over different queries, say) with a
    ValueError and a retriever's wrong answers with a TypeError; here both come from files and
    options.
    """
    try:
        yield
    except NoctuaryError as error:
        if isinstance(cause := error.__cause__, Exception):
            warn(f"caused by {type(cause).__name__}: {cause}")
        raise
    except (ValueError, TypeError) as error:
        raise SourceFormatError(str(error)) from None


def show_interval(found: Interval | None, sign: str = "") -> str:
    """Return an interval as text; a dash where there are too few queries for one."""
    return "-" if found is None else f"[{found.low:{sign}.3f}, {found.high:{sign}.3f}]"


def column_lines(rows: Sequence[Sequence[str]], *, indent: str = "") -> Iterator[str]:
    """Yield rows of equal length, the first column flush left and the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield (indent + "  ".join([first, *rest])).rstrip()


# `noctuary evaluate check`: does a labelled set load.


@click.command()
@click.argument("sets", metavar="SET...", nargs=-1, required=True, type=PATH)
@json_option
def check(sets: tuple[Path, ...]) -> None:
    """Load every SET and say what it holds, or which lines are wrong.

    \b
    noctuary evaluate check data/locomo data/scifact
    locomo   ok    5,882 memories  745 queries in 4 strata  223 unanswerable
    scifact  FAIL  data/scifact/queries.jsonl has 1 fault:
                     line 17: query '42' names ids that the corpus lacks: ['9001']

    Exit code 1 if any of them does not load; the others are still checked.
    """  # noqa: D301 (click wants the control character)
    rows = [_describe(directory) for directory in sets]
    tell({"sets": rows}, _set_lines(rows))
    if any("error" in row for row in rows):
        sys.exit(EXIT_FAILED)


def _describe(directory: Path) -> dict[str, Any]:
    from noctuary.evaluate.labels import load_labelled_set

    try:
        return _describe_set(load_labelled_set(directory))
    except (NoctuaryError, OSError) as error:
        faults = error.faults if isinstance(error, FileFaultsError) else ()
        return {
            "name": directory.absolute().name,
            "error": type(error).__name__,
            "message": str(error),
            "faults": [{"line": f.line, "kind": f.kind, "message": f.message} for f in faults],
        }


def _describe_set(found: LabelledSet) -> dict[str, Any]:
    strata: dict[str, int] = {}
    for query in found.queries.ranked:
        strata[query.stratum] = strata.get(query.stratum, 0) + 1
    return {
        "name": found.name,
        "memories": len(found.corpus_ids),
        "queries": len(found.queries.ranked),
        "strata": dict(sorted(strata.items())),
        "unanswerable": len(found.unanswerable),
        "judgements": sum(len(judged) for judged in found.qrels.values()),
    }


def _set_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        name = row["name"].ljust(width)
        if "error" in row:
            margin = " " * (width + len("  FAIL  "))
            yield f"{name}  FAIL  " + row["message"].replace("\n", f"\n{margin}")
            continue
        strata = len(row["strata"])
        parts = [
            f"{row['memories']:>7,} memories",
            f"{row['queries']:,} queries in {strata} {'stratum' if strata == 1 else 'strata'}",
        ]
        parts += [f"{row[key]:,} {key}" for key in ("unanswerable", "judgements") if row[key]]
        yield f"{name}  ok    " + "  ".join(parts)


# What `noctuary evaluate run` can ask: the serving snapshot, or anything that can be imported.
#
# No metric, no timing.


@dataclass(frozen=True, slots=True)
class SnapshotRetriever:
    """The serving snapshot of a store, asked the way `recall` asks it."""

    recaller: Recaller
    profile: RetrievalProfile
    in_wing: bool = False
    name: str = "noctuary"

    def retrieve_hits(self, query: Query, k: int) -> list[tuple[str, float]]:
        """Return ids with their final scores, best first; only what existed at `query.as_of`.

        In the wing that the query names, or in all: then finding the wing is part of the work.
        """
        from noctuary.recall.query import Scope

        scope = Scope(wing=query.wing if self.in_wing else None, as_of=query.as_of)
        found = self.recaller.recall(query.text, k, profile=self.profile, scope=scope)
        return [(str(memory.id), memory.final_score) for memory in found.memories]

    def retrieve(self, query: str, k: int) -> list[str]:
        """Return ids, best first, of the whole snapshot."""
        found = self.recaller.recall(query, k, profile=self.profile)
        return [str(memory.id) for memory in found.memories]

    @property
    def index_size_bytes(self) -> int:
        """Size of the snapshot's directory."""
        from noctuary.core.files import tree_bytes

        return tree_bytes(self.recaller.reader.directory)


def open_snapshot(directory: Path, store: str | None, in_wing: bool) -> SnapshotRetriever:
    """Pin what serves in a store, by default in the one that was built from the set.

    It ranks by the settings, what the snapshot's evaluation adopted, and the store's own default.
    """
    from noctuary.core.settings import Settings
    from noctuary.recall.engine import Recaller
    from noctuary.recall.profile import configured_profile, read_store_profiles

    settings = Settings.load(home=find_home())
    if store is None and (store_for_source(find_home(), directory) / "CURRENT").is_file():
        store = str(directory)
    recaller = Recaller.open(open_paths(store).root)
    stored = read_store_profiles(recaller.paths.profiles)
    warn(*(f"{warning.code}: {warning.message}" for warning in stored.warnings))
    profile = configured_profile(settings, recaller.reader.adopted, stored.tables)
    return SnapshotRetriever(recaller, profile, in_wing)


def require_labels(retriever: SnapshotRetriever, queries: Sequence[Query], directory: Path) -> None:
    """Warn of labels that the snapshot does not hold; refuse a snapshot that holds none of them."""
    labels = {memory_id for query in queries for memory_id in query.relevant_ids}
    known = retriever.recaller.reader.content_hashes(sorted(labels))
    missing = sorted(labels - known.keys())
    where = f"snapshot {retriever.recaller.snapshot_id} of {retriever.recaller.paths.root}"
    if len(missing) == len(labels):
        raise SourceFormatError(
            f"{where} holds none of the {len(labels)} labelled memories of {directory.name}: it "
            f"was built from another source. Run `noctuary nightly {directory}` or pass --store"
        )
    if missing:
        warn(
            f"labels_not_in_snapshot: {where} lacks {len(missing)} of {len(labels)} labelled "
            f"memories; they count as not found. The first: {missing[:10]}"
        )


def import_retriever(spec: str) -> Any:
    """Return what module:name names; a class is instantiated without arguments.

    The current directory can be imported from, as with `python -m`.
    """
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise click.BadParameter(
            f"{spec!r} is not module:name, e.g. my_search:Retriever", param_hint="--retriever"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module_name), attribute)
        return found() if isinstance(found, type) else found
    except Exception as error:
        # Foreign code runs here and may raise anything.
        raise click.BadParameter(
            f"cannot make {spec!r}: {type(error).__name__}: {error}", param_hint="--retriever"
        ) from error


# `noctuary evaluate run`: ask the queries of a set, score what comes back, keep the run.


DEFAULT_K = 10
DEPTH = 50
"""Results wanted in all, at least: the deepest default metric. Deeper metrics ask for more."""


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
) -> None:
    """Ask the queries of SET and score the answers, with 95 % intervals.

    \b
    noctuary nightly data/locomo                       (once: builds the snapshot)
    noctuary evaluate run data/locomo --out ours.json
    noctuary evaluate run data/locomo --retriever my_search:Bm25 --out bm25.json.gz

    Without --retriever the serving snapshot of --store is asked; by default that is the store built
    from SET. A retriever has retrieve(query, k) and returns ids, best first; a function of query
    and k will do. Queries that nothing answers are asked as well and judged apart.
    """  # noqa: D301 (click wants the control character)
    if retriever is not None and (store is not None or in_wing):
        raise click.UsageError("--store and --in-wing are for the snapshot, not for --retriever")
    limit_threads()
    with exit_on_error():
        from noctuary.evaluate.labels import QUERIES_FILE, FaultKind, load_labelled_set
        from noctuary.evaluate.run import RunPlan, write_run

        labelled = load_labelled_set(set_)
        ranked, unanswerable = labelled.queries.ranked[:limit], labelled.unanswerable[:limit]
        if not ranked:
            message = "no query has a label: there is nothing to score"
            fault = LineFault(0, FaultKind.EMPTY_FILE, message)
            raise EmptyQuerySetError(set_ / QUERIES_FILE, [fault])
        plan = RunPlan(k=k, depth=max(k, DEPTH, *(int(m.partition("@")[2]) for m in metrics)))
        queries = (*ranked, *unanswerable)
        if retriever is None:
            snapshot = open_snapshot(set_, store, in_wing)
            found, asked = _ask_snapshot(snapshot, set_, queries, plan, name)
        else:
            found, asked = _ask_imported(retriever, set_, queries, plan, name)
        manifest = _describe_scores(set_, limit, *asked)
        report, abstention = _score(found, ranked, unanswerable, metrics)
        if out is not None:
            write_run(out, found, manifest)
    shown = {
        "report": report.to_json(),
        "abstention": None if abstention is None else abstention.to_json(),
        "build_ms": found.build_ms,
        "index_bytes": found.index_bytes,
        "manifest": manifest,
    }
    kept = [] if out is None else [f"\nkept in {out}"]
    tell(shown, [*_score_lines(report, found, abstention), *kept])


Asked = tuple[str, str | None, dict[str, Any]]
"""Digests of the corpus and of the encoder, and what was asked."""


def _ask_snapshot(
    snapshot: SnapshotRetriever,
    directory: Path,
    queries: Sequence[Query],
    plan: RunPlan,
    name: str | None,
) -> tuple[Run, Asked]:
    from noctuary.evaluate.run import run_retriever

    reader = snapshot.recaller.reader
    try:
        require_labels(snapshot, queries, directory)
        found = run_retriever(snapshot, queries, plan, name=name)
    finally:
        reader.close()
    built = reader.manifest
    asked = {
        "snapshot_digest": built.digest,
        "profile": snapshot.profile.to_json(),
        "in_wing": snapshot.in_wing,
    }
    return found, (built.corpus_digest, built.encoder_digest, asked)


def _ask_imported(
    spec: str, directory: Path, queries: Sequence[Query], plan: RunPlan, name: str | None
) -> tuple[Run, Asked]:
    from noctuary.core.files import hash_file
    from noctuary.evaluate.labels import find_corpus, read_corpus_rows
    from noctuary.evaluate.run import index_builder_of, run_retriever

    retriever = import_retriever(spec)
    builds = index_builder_of(retriever) is not None
    corpus = list(read_corpus_rows(directory)) if builds else None
    found = run_retriever(retriever, queries, plan, name=name, corpus=corpus)
    return found, (hash_file(find_corpus(directory)), None, {"retriever": spec})


def _describe_scores(
    directory: Path,
    limit: int | None,
    corpus_digest: str,
    encoder_digest: str | None,
    asked: Mapping[str, JsonValue],
) -> dict[str, JsonValue]:
    """Return the manifest of a run: what is needed to repeat it, without a path."""
    from noctuary.core.files import hash_file
    from noctuary.evaluate.labels import ADVERSARIAL_FILE, QUERIES_FILE
    from noctuary.evaluate.run import describe_run
    from noctuary.evaluate.statistics import STANDARD

    files = [directory / name for name in (QUERIES_FILE, ADVERSARIAL_FILE)]
    return describe_run(
        STANDARD.seed,
        corpus_digest,
        encoder_digest,
        set=directory.absolute().name,
        query_digests={path.name: hash_file(path) for path in files if path.is_file()},
        limit=limit,
        asked=asked,
    )


def _score(
    found: Run, ranked: Sequence[Query], unanswerable: Sequence[Query], metrics: Sequence[str]
) -> tuple[Report, Abstention | None]:
    from noctuary.evaluate.abstain import judge_abstention
    from noctuary.evaluate.metrics import latency_of, score_run, summarize

    (report,) = summarize([score_run(found, ranked, metrics)])
    report = replace(report, latency=latency_of(found))
    if not unanswerable:
        return report, None
    metric = f"recall@{found.k}"
    abstention = judge_abstention(
        _part(found, ranked), _part(found, unanswerable), score_run(found, ranked, [metric]), metric
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


def _score_lines(report: Report, found: Run, abstention: Abstention | None) -> Iterator[str]:
    yield f"{report.name} on {report.n:,} queries\n"
    rows = [["metric", "mean", "95 % interval", "macro"]]
    rows += [
        [metric, f"{m.mean:.3f}", show_interval(m.interval), f"{report.macro[metric]:.3f}"]
        for metric, m in report.overall.items()
    ]
    yield from column_lines(rows)
    for stratum, means in report.strata.items() if len(report.strata) > 1 else ():
        yield f"\n{stratum} ({next(iter(means.values())).n:,} queries)"
        rows = [[name, f"{m.mean:.3f}", show_interval(m.interval)] for name, m in means.items()]
        yield from column_lines(rows, indent="  ")
    yield ""
    if report.latency is not None:
        yield (
            f"latency at k={found.k}: p50 {report.latency.p50_ms:.2f} ms, p95 "
            f"{report.latency.p95_ms:.2f} ms over {report.latency.n:,} queries, warm-up excluded"
        )
    if found.build_ms is not None:
        yield f"index built in {found.build_ms / 1000:.2f} s"
    if found.index_bytes is not None:
        yield f"index size {found.index_bytes / 1e6:.2f} MB"
    if found.unstable_prefixes:
        yield (
            f"{found.unstable_prefixes:,} of {len(found.query_ids):,} queries answer k={found.k} "
            f"otherwise than the first {found.k} of k={found.depth}; scores are of the former"
        )
    if abstention is not None and abstention.auroc is not None:
        yield (
            f"abstention: AUROC of the top score {abstention.auroc:.3f} "
            f"{show_interval(abstention.interval)} over {abstention.n_answerable:,} answerable and "
            f"{abstention.n_unanswerable:,} unanswerable queries; area under risk-coverage "
            f"{abstention.curve.area:.3f}"
        )
    elif len(found.query_ids) > report.n:
        yield "abstention: the retriever gives no scores, so it cannot be judged"


# `noctuary evaluate compare`: is one run better than another, and could these queries tell.


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
def compare(run_a: Path, run_b: Path, queries: Path, metrics: tuple[str, ...]) -> None:
    """Compare RUN_A with RUN_B, query by query; above zero, RUN_A is better.

    \b
    noctuary evaluate compare ours.json bm25.json --queries data/locomo --metric recall@10

    Per metric and stratum: the mean difference with its BCa bootstrap interval, the p-value of a
    paired permutation test, the same after Holm's correction over the strata, and the smallest true
    difference that this many queries would find four times out of five. * marks differences whose
    interval excludes zero and whose corrected p-value is below 0.05.
    """  # noqa: D301 (click wants the control character)
    with exit_on_error():
        from noctuary.evaluate.metrics import compare as compare_scores
        from noctuary.evaluate.metrics import score_run
        from noctuary.evaluate.run import read_run

        ours, baseline = read_run(run_a)[0], read_run(run_b)[0]
        labelled = _read_labelled(queries)
        asked = _asked_of_both(labelled, ours, baseline)
        pair = (score_run(ours, asked, metrics), score_run(baseline, asked, metrics))
        (found,) = compare_scores([pair])
    if len(asked) < len(labelled) and not is_json():
        warn(
            f"some_queries_not_asked: compared on {len(asked)} of {len(labelled)} labelled "
            "queries; the runs were not asked the others"
        )
    shown = {"queries": len(asked), "of": len(labelled), **found.to_json()}
    tell(shown, _comparison_lines(found))


def _read_labelled(path: Path) -> tuple[Query, ...]:
    from noctuary.evaluate.labels import QUERIES_FILE, read_queries

    return read_queries(path / QUERIES_FILE if path.is_dir() else path).ranked


def _asked_of_both(labelled: Sequence[Query], ours: Run, baseline: Run) -> list[Query]:
    """Return the labelled queries that the runs were asked."""
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


def _comparison_lines(found: Comparison) -> Iterator[str]:
    yield f"{found.ours} - {found.baseline}\n"
    # Of a single stratum there is nothing to correct and nothing to add.
    strata: Mapping[str, Mapping[str, Difference]] = found.strata if len(found.strata) > 1 else {}
    rows: list[Sequence[str]] = [HEADER]
    for metric, overall in found.overall.items():
        rows.append(_row(metric, overall, ""))
        rows += [
            _row(f"  {stratum}", differences[metric], f"{differences[metric].p_holm:.4f}")
            for stratum, differences in strata.items()
        ]
    yield from column_lines(rows)


def _row(name: str, found: Difference, holm: str) -> list[str]:
    detectable = found.minimum_detectable
    return [
        name,
        f"{found.mean:+.3f}",
        show_interval(found.interval, "+"),
        f"{found.p_value:.4f}",
        holm,
        "-" if detectable is None else f"{detectable:.3f}",
        f"{found.n:,}",
        f"{found.wins}/{found.losses}/{found.ties}",
        SIGNIFICANT if found.significant else "",
    ]


# `noctuary evaluate kappa`, `pool` and `holes`: who judged what, and how alike.


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
def kappa(first: Path, second: Path, threshold: int | None) -> None:
    """Compare two files of judgements, A and B: Cohen's kappa over the pairs that both judged.

    \b
    noctuary evaluate kappa ann.jsonl model.jsonl --threshold 2
    kappa 0.583 [0.431, 0.717] over 240 pairs of 24 queries
    observed agreement 0.808, expected by chance 0.540
    judged in one file alone, not counted: 12 in A, 0 in B

    Formats: JSON lines with relevant_ids or grades, or TREC qrels.
    """  # noqa: D301 (click wants the control character)
    with exit_on_error():
        from noctuary.evaluate.labels import read_qrels
        from noctuary.evaluate.metrics import agreement

        found = agreement(read_qrels(first), read_qrels(second), threshold=threshold)
    ends = "" if found.low is None else f" [{found.low:.3f}, {found.high:.3f}]"
    said = (
        f"kappa {found.kappa:.3f}{ends} over {found.n_pairs:,} pairs of {found.n_queries:,} "
        "queries\n"
        f"observed agreement {found.observed:.3f}, expected by chance {found.expected:.3f}\n"
        f"judged in one file alone, not counted: {found.only_in_a:,} in A, {found.only_in_b:,} in B"
    )
    tell({**found._asdict(), "is_degenerate": found.is_degenerate}, [said])
    if found.is_degenerate and not is_json():
        warn(
            "degenerate: every common pair has one and the same grade in both files, so kappa is "
            "1 by custom and says nothing. Files that list relevant ids only always do this: judge "
            "with grades, 0 for what is not relevant"
        )


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=PATH)
@cutoff_option
@click.option("--out", required=True, type=PATH, help="The file to write, one query a line.")
@click.option(
    "--found-by", is_flag=True, help="Also write which runs found each memory (not for judges)."
)
@json_option
def pool(runs: tuple[Path, ...], k: int, out: Path, found_by: bool) -> None:
    """Collect what is to be judged: the first results of every RUN, without saying whose.

    \b
    noctuary evaluate pool fts.json ours.json -k 10 --out judge.jsonl
    {"query_id": "q1", "grades": {"17": null, "204": null}}

    Write an integer in the place of every null (0: not relevant) and the file is a qrels file.
    """  # noqa: D301 (click wants the control character)
    with exit_on_error():
        from noctuary.core.files import write_text
        from noctuary.evaluate.metrics import build_pool

        built = build_pool(_read_runs(runs, k), k)
        write_text(out, _pool_lines(built, found_by))
    pairs = sum(map(len, built.values()))
    facts = {"k": k, "runs": len(runs), "queries": len(built), "pairs": pairs}
    said = (
        f"{pairs:,} pairs of {len(built):,} queries to judge, from the first {k} "
        f"of {len(runs)} run{'' if len(runs) == 1 else 's'}: {out}"
    )
    tell(facts, [said])


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
def holes(runs: tuple[Path, ...], judged: Path, k: int) -> None:
    """Say how much of the first results of every RUN nobody judged (unjudged@k).

    \b
    noctuary evaluate holes fts.json ours.json --judged ann.jsonl
    run   unjudged@10                  ids  queries
    fts         0.000  [0.000, 0.000]    0      100
    ours        0.214  [0.187, 0.243]  214      100

    What nobody judged counts as wrong: a run with many more holes than another was not given the
    same chance.
    """  # noqa: D301 (click wants the control character)
    with exit_on_error():
        from noctuary.evaluate.labels import read_qrels
        from noctuary.evaluate.metrics import unjudged_at_k

        known = read_qrels(judged)
        found = [unjudged_at_k(run, known, k) for run in _read_runs(runs, k)]
        intervals = [_holes_interval(one) for one in found]
    header = ["run", f"unjudged@{k}", "", "ids", "queries"]
    lines = column_lines([header, *map(_holes_row, found, intervals)])
    tell({"k": k, "runs": list(map(_holes_json, found, intervals))}, lines)
    for one in found:
        if one.without_judgements and not is_json():
            warn(
                f"{one.name}: {one.without_judgements:,} queries have no judgement at all and do "
                "not count"
            )


def _holes_interval(found: Holes) -> Interval | None:
    if not found.per_query:
        return None
    import numpy as np

    from noctuary.evaluate.statistics import mean_interval

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
    from noctuary.evaluate.run import read_run

    runs = [read_run(path)[0] for path in paths]
    for path, run in zip(paths, runs, strict=True):
        if run.depth < k:
            raise ValueError(f"{path} is a run of depth {run.depth}; -k {k} looks deeper")
    return runs


# The group `noctuary evaluate` and its commands.


@click.group()
def evaluate() -> None:
    """Measure recall on labelled sets, and judge whether a difference is real.

    \b
    noctuary evaluate check SET                        does the set load; every fault with its line
    noctuary nightly SET                           build a snapshot of the set's corpus
    noctuary evaluate run SET --out ours.json          ask its queries, score them, keep the run
    noctuary evaluate run SET --retriever my:Search --out theirs.json
    noctuary evaluate compare ours.json theirs.json --queries SET
    noctuary evaluate pool ours.json theirs.json --out judge.jsonl
    noctuary evaluate kappa ann.jsonl bob.jsonl
    noctuary evaluate holes ours.json theirs.json --judged ann.jsonl

    A SET is a folder with corpus.jsonl(.gz) and queries.jsonl. Formats, and how to read intervals
    and p-values: docs/evaluation.md.
    """  # noqa: D301 (click wants the control character)


for command in (check, run, compare, pool, holes, kappa):
    evaluate.add_command(command)
