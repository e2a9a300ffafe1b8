"""`noctuary evaluate`: labelled sets, runs and comparisons from the shell."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from noctuary.cli import main as cli
from noctuary.core import errors
from noctuary.core.files import hash_file, tree_bytes
from noctuary.core.settings import Settings
from noctuary.core.store import find_home, store_for_source
from noctuary.evaluate import labels, metrics, run, statistics
from noctuary.evaluate.abstain import Abstention, judge_abstention
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile, configured_profile
from noctuary.recall.query import Scope

# The group, and what its commands share.


class _Measuring(cli.NamedGroup):
    """Turns what the input is to blame for (ValueError, TypeError) into a sentence, exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except errors.NoctuaryError as error:
            if isinstance(cause := error.__cause__, Exception):
                cli.warn(f"caused by {type(cause).__name__}: {cause}")
            raise
        except (ValueError, TypeError) as error:
            raise errors.SourceFormatError(str(error)) from None


@click.group(cls=_Measuring)
def evaluate() -> None:
    """Measure recall on labelled sets, and test whether a difference is real.

    \b
    noctuary evaluate check SET                        does the set load; every fault with its line
    noctuary nightly SET                               build a snapshot of the set's corpus
    noctuary evaluate run SET --out ours.json          ask its queries, score them, keep the run
    noctuary evaluate run SET --retriever my:Search --out theirs.json
    noctuary evaluate compare ours.json theirs.json --queries SET

    A SET is a folder with corpus.jsonl(.gz) and queries.jsonl. Formats, and how to read intervals
    and p-values: docs/evaluation.md.
    """  # noqa: D301 (click wants the control character)


PATH = click.Path(path_type=Path)  # whether a file is there is for its reader to say


def _check_metrics(
    _context: click.Context, _parameter: click.Parameter, names: Sequence[str]
) -> tuple[str, ...]:
    for name in names:
        try:
            metrics.parse_metric(name)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return tuple(dict.fromkeys(names)) or metrics.DEFAULT_METRICS


_metric_option = cli.option(
    "--metric NAME",
    "wanted",
    "A metric, e.g. ndcg@10; may be repeated "
    "[default: recall@5, recall@10, all_relevant@10, precision@5, ndcg@10, mrr@50, map@50].",
    multiple=True,
    callback=_check_metrics,
)


def _ends(found: statistics.Interval | None, sign: str = "") -> str:
    """Return an interval as text; a dash where there are too few queries for one."""
    return "-" if found is None else f"[{found.low:{sign}.3f}, {found.high:{sign}.3f}]"


# `noctuary evaluate check`: does a labelled set load.


@evaluate.command()
@click.argument("sets", metavar="SET...", nargs=-1, required=True, type=PATH)
@cli.json_option
def check(sets: tuple[Path, ...]) -> None:
    """Load every SET and describe it, or name the faulty lines.

    \b
    noctuary evaluate check data/locomo data/scifact
    locomo   ok    5,882 memories  745 queries in 4 strata  223 unanswerable
    scifact  FAIL  data/scifact/queries.jsonl has 1 fault:
                     line 17: query '42' names ids that the corpus lacks: ['9001']

    Exit code 1 if any of them does not load; the others are still checked.
    """  # noqa: D301 (click wants the control character)
    rows = [_describe(directory) for directory in sets]
    cli.tell({"sets": rows}, _set_lines(rows))
    if any("error" in row for row in rows):
        sys.exit(cli.EXIT_FAILED)


def _describe(directory: Path) -> dict[str, Any]:
    try:
        found = labels.load_labelled_set(directory)
    except (errors.NoctuaryError, OSError) as error:
        faults = error.faults if isinstance(error, errors.FileFaultsError) else ()
        return {
            "name": directory.absolute().name,
            "error": type(error).__name__,
            "message": str(error),
            "faults": [{"line": f.line, "kind": f.kind, "message": f.message} for f in faults],
        }
    ranked = found.queries.ranked
    return {
        "name": found.name,
        "memories": len(found.corpus_ids),
        "queries": len(ranked),
        "strata": dict(sorted(Counter(query.stratum for query in ranked).items())),
        "unanswerable": len(found.unanswerable),
    }


def _set_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        name = row["name"].ljust(width)
        if "error" in row:
            margin = " " * (width + len("  FAIL  "))
            yield f"{name}  FAIL  " + row["message"].replace("\n", f"\n{margin}")
            continue
        strata = f"{len(row['strata'])} {'stratum' if len(row['strata']) == 1 else 'strata'}"
        parts = [f"{row['memories']:>7,} memories", f"{row['queries']:,} queries in {strata}"]
        parts += [f"{row[key]:,} {key}" for key in ("unanswerable",) if row[key]]
        yield f"{name}  ok    {'  '.join(parts)}"


# `noctuary evaluate run`: ask the queries of a set, score what comes back, keep the run.

DEPTH = 50  # results wanted in all, at least: of the deepest default metric


@evaluate.command("run")
@click.argument("set_", metavar="SET", type=PATH)
@cli.option(
    "--retriever MODULE:NAME", "A class, object or function to ask [default: the current snapshot]."
)
@cli.option("--name", "Name of the run [default: the retriever's own name].")
@cli.flag("--in-wing", "Search only the wing that a query names.")
@cli.option("-k", "Results per timed call.", default=10, type=cli.AT_LEAST_1)
@cli.option("--limit", "Ask only this many queries, from the first.", type=cli.AT_LEAST_1)
@_metric_option
@cli.option("--out", "Keep the run in this file; compressed if it ends in .gz.", type=PATH)
@cli.store_options
def run_set(
    set_: Path,
    retriever: str | None,
    name: str | None,
    in_wing: bool,
    k: int,
    limit: int | None,
    wanted: tuple[str, ...],
    out: Path | None,
    store: str | None,
) -> None:
    """Ask the queries of SET and score the answers, with 95 % intervals.

    \b
    noctuary nightly data/locomo                       (once: builds the snapshot)
    noctuary evaluate run data/locomo --out ours.json
    noctuary evaluate run data/locomo --retriever my_search:Bm25 --out bm25.json.gz

    Without --retriever this asks the current snapshot of --store, by default the store built from
    SET. A retriever is a function of query and k, or has retrieve(query, k); it returns ids, best
    first. It also asks unanswerable queries, and judges them apart.
    """  # noqa: D301 (click wants the control character)
    if retriever is not None and (store is not None or in_wing):
        raise click.UsageError("--store and --in-wing are for the snapshot, not for --retriever")
    labelled = labels.load_labelled_set(set_)
    ranked, unanswerable = labelled.queries.ranked[:limit], labelled.unanswerable[:limit]
    if not ranked:
        message = "no query has a label: there is nothing to score"
        fault = errors.LineFault(0, "empty_file", message)
        raise errors.EmptyQuerySetError(set_ / labels.QUERIES_FILE, [fault])
    plan = run.RunPlan(k=k, depth=max(k, DEPTH, *(int(m.partition("@")[2]) for m in wanted)))
    queries = (*ranked, *unanswerable)
    if retriever is None:
        snapshot = _open_snapshot(set_, store, in_wing)
        manifest, asks = snapshot.recaller.reader.manifest, cast("Any", snapshot)
        with closing(snapshot.recaller.reader):
            _require_labels(snapshot.recaller, queries, set_)
            found = run.run_retriever(asks, queries, plan, name=name)
        digests: Any = manifest.corpus_digest, manifest.encoder_digest
        asked: dict[str, Any] = {
            "snapshot_digest": manifest.digest,
            "profile": snapshot.profile.to_json(),
            "in_wing": in_wing,
        }
    else:
        imported = _import_retriever(retriever)
        builds = run.index_builder_of(imported) is not None
        corpus = list(labels.read_corpus_rows(set_)) if builds else None
        found = run.run_retriever(imported, queries, plan, name=name, corpus=corpus)
        digests, asked = (hash_file(labels.find_corpus(set_)), None), {"retriever": retriever}
    files = [set_ / file for file in (labels.QUERIES_FILE, labels.ADVERSARIAL_FILE)]
    described = run.describe_run(
        statistics.STANDARD.seed,
        *digests,
        set=set_.absolute().name,
        query_digests={path.name: hash_file(path) for path in files if path.is_file()},
        limit=limit,
        asked=asked,
    )
    report, abstention = _score(found, ranked, unanswerable, wanted)
    if out is not None:
        run.write_run(out, found, described)
    shown = {
        "report": report.to_json(),
        "abstention": None if abstention is None else abstention.to_json(),
        "build_ms": found.build_ms,
        "index_bytes": found.index_bytes,
        "manifest": described,
    }
    kept = [] if out is None else [f"\nkept in {out}"]
    cli.tell(shown, [*_score_lines(report, found, abstention), *kept])


class _Snapshot(NamedTuple):
    """The serving snapshot of a store as a retriever, asked the way `recall` asks it."""

    recaller: Recaller
    profile: RetrievalProfile
    in_wing: bool
    name: str = "noctuary"

    def retrieve_hits(self, query: labels.Query, k: int) -> list[tuple[str, float]]:
        """Return ids with their final scores, best first, of what existed at `query.as_of`."""
        scope = Scope(wing=query.wing if self.in_wing else None, as_of=query.as_of)
        found = self.recaller.recall(query.text, k, profile=self.profile, scope=scope)
        return [(str(memory.id), memory.final_score) for memory in found.memories]

    @property
    def index_size_bytes(self) -> int:
        """Size of the snapshot's directory."""
        return tree_bytes(self.recaller.reader.directory)


def _open_snapshot(directory: Path, store: str | None, in_wing: bool) -> _Snapshot:
    """Pin what serves in a store, by default in the one that was built from the set."""
    settings = Settings.load(home=find_home())
    if store is None and (store_for_source(find_home(), directory) / "CURRENT").is_file():
        store = str(directory)
    recaller = Recaller.open(cli.open_paths(store).root)
    profile = configured_profile(settings, recaller.reader.adopted)
    return _Snapshot(recaller, profile, in_wing)


def _require_labels(recaller: Recaller, queries: Sequence[labels.Query], directory: Path) -> None:
    """Warn of labels that the snapshot does not hold; refuse a snapshot that holds none of them."""
    labels = {memory_id for query in queries for memory_id in query.relevant_ids}
    missing = sorted(labels - recaller.reader.content_hashes(sorted(labels)).keys())
    where = f"snapshot {recaller.snapshot_id} of {recaller.paths.root}"
    if len(missing) == len(labels):
        raise errors.SourceFormatError(
            f"{where} holds none of the {len(labels)} labelled memories of {directory.name}: it "
            f"was built from another source. Run `noctuary nightly {directory}` or pass --store"
        )
    if missing:
        cli.warn(
            f"labels_not_in_snapshot: {where} lacks {len(missing)} of {len(labels)} labelled "
            f"memories; they count as not found. The first: {missing[:10]}"
        )


def _import_retriever(spec: str) -> Any:
    """Return what module:name names, also below the current directory; a class is instantiated."""
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


def _score(
    found: run.Run,
    ranked: Sequence[labels.Query],
    unanswerable: Sequence[labels.Query],
    wanted: Sequence[str],
) -> tuple[metrics.Report, Abstention | None]:
    (report,) = metrics.summarize([metrics.score_run(found, ranked, wanted)])
    report = replace(report, latency=metrics.latency_of(found))
    if not unanswerable:
        return report, None
    place = {query_id: row for row, query_id in enumerate(found.query_ids)}
    rows = [place[query.query_id] for query in unanswerable]
    apart = replace(
        found,
        query_ids=tuple(found.query_ids[row] for row in rows),
        rankings=tuple(found.rankings[row] for row in rows),
        top_scores=tuple(found.top_scores[row] for row in rows),
        latency_ms=None,
    )
    metric = f"recall@{found.k}"
    scores = metrics.score_run(found, ranked, [metric])
    return report, judge_abstention(found, apart, scores, metric)


def _score_lines(
    report: metrics.Report, found: run.Run, abstention: Abstention | None
) -> Iterator[str]:
    yield f"{report.name} on {report.n:,} queries\n"
    rows = [["metric", "mean", "95 % interval", "macro"]]
    rows += [[*_mean_row(n, m), f"{report.macro[n]:.3f}"] for n, m in report.overall.items()]
    yield from cli.columns(rows, "<>")
    for stratum, means in report.strata.items() if len(report.strata) > 1 else ():
        yield f"\n{stratum} ({next(iter(means.values())).n:,} queries)"
        rows = [_mean_row(name, mean) for name, mean in means.items()]
        yield from cli.columns(rows, "<>", indent="  ")
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
            f"{_ends(abstention.interval)} over {abstention.n_answerable:,} answerable "
            f"and {abstention.n_unanswerable:,} unanswerable queries; area under risk-coverage "
            f"{abstention.curve.area:.3f}"
        )
    elif len(found.query_ids) > report.n:
        yield "abstention: the retriever gives no scores, so it cannot be judged"


def _mean_row(metric: str, found: metrics.Mean) -> list[str]:
    return [metric, f"{found.mean:.3f}", _ends(found.interval)]


# `noctuary evaluate compare`: is one run better than another, and could these queries tell.

HEADER = ("", "difference", "95 % interval", "p", "Holm", "detectable", "n", "won/lost/tied", "")


@evaluate.command()
@click.argument("run_a", metavar="RUN_A", type=PATH)
@click.argument("run_b", metavar="RUN_B", type=PATH)
@cli.option(
    "--queries FILE",
    "The labelled queries of both runs, or the folder of their set.",
    required=True,
    type=PATH,
)
@_metric_option
@cli.json_option
def compare(run_a: Path, run_b: Path, queries: Path, wanted: tuple[str, ...]) -> None:
    """Compare RUN_A with RUN_B, query by query; above zero, RUN_A is better.

    \b
    noctuary evaluate compare ours.json bm25.json --queries data/locomo --metric recall@10

    Per metric and stratum you get the mean difference with its BCa bootstrap interval, the p-value
    of a paired permutation test, the same after Holm's correction over the strata, and the smallest
    true difference that this many queries would find four times out of five. * marks differences
    whose interval excludes zero and whose corrected p-value is below 0.05.
    """  # noqa: D301 (click wants the control character)
    ours, baseline = run.read_run(run_a)[0], run.read_run(run_b)[0]
    file = queries / labels.QUERIES_FILE if queries.is_dir() else queries
    labelled = labels.read_queries(file).ranked
    asked = _asked_of_both(labelled, ours, baseline)
    pair = (metrics.score_run(ours, asked, wanted), metrics.score_run(baseline, asked, wanted))
    (found,) = metrics.compare([pair])
    some = (
        f"some_queries_not_asked: compared on {len(asked)} of {len(labelled)} labelled queries; "
        "the runs were not asked the others"
    )
    shown = {"queries": len(asked), "of": len(labelled), **found.to_json()}
    cli.tell(shown, _comparison_lines(found), [some] if len(asked) < len(labelled) else ())


def _asked_of_both(
    labelled: Sequence[labels.Query], ours: run.Run, baseline: run.Run
) -> list[labels.Query]:
    """Return the labelled queries that the runs were asked."""
    in_ours, in_baseline = frozenset(ours.query_ids), frozenset(baseline.query_ids)
    one_sided = [q.query_id for q in labelled if q.query_id in in_ours ^ in_baseline]
    if one_sided:
        raise ValueError(
            f"{len(one_sided)} labelled queries were asked of only one of {ours.name!r} and "
            f"{baseline.name!r}, the first: {one_sided[: errors.FAULTS_SHOWN]}; ask both the "
            "same queries"
        )
    asked = [q for q in labelled if q.query_id in in_ours]
    if not asked:
        raise ValueError(
            f"neither {ours.name!r} nor {baseline.name!r} was asked any of the {len(labelled)} "
            "labelled queries; are they runs of another set?"
        )
    return asked


def _comparison_lines(found: metrics.Comparison) -> Iterator[str]:
    yield f"{found.ours} - {found.baseline}\n"
    # Of a single stratum there is nothing to correct and nothing to add.
    strata: Mapping[str, Mapping[str, metrics.Difference]] = (
        found.strata if len(found.strata) > 1 else {}
    )
    rows: list[Sequence[str]] = [HEADER]
    for metric, overall in found.overall.items():
        rows.append(_row(metric, overall, ""))
        rows += [
            _row(f"  {stratum}", differences[metric], f"{differences[metric].p_holm:.4f}")
            for stratum, differences in strata.items()
        ]
    yield from cli.columns(rows, "<>")


def _row(name: str, found: metrics.Difference, holm: str) -> list[str]:
    detectable = found.minimum_detectable
    return [
        name,
        f"{found.mean:+.3f}",
        _ends(found.interval, "+"),
        f"{found.p_value:.4f}",
        holm,
        "-" if detectable is None else f"{detectable:.3f}",
        f"{found.n:,}",
        f"{found.wins}/{found.losses}/{found.ties}",
        "*" if found.significant else "",
    ]
