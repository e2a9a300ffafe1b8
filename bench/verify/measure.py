"""Index, verify, search: the numbers of a set as they are now."""

from __future__ import annotations

from pathlib import Path

from bench.arms import list_arms
from bench.arms.base import SetContext
from bench.suite.evaluation import ask_arm
from bench.suite.loading import LoadedSet
from bench.suite.night import build_store
from bench.verify.regression import SCORE_DIGITS, Regression, Value
from noctuary.core.files import hash_file
from noctuary.core.types import SILENT, Progress
from noctuary.evaluate.metrics import score_run
from noctuary.recall.engine import Recaller

ARMS = ("noctuary", "lexical_only", "dense", "fts_seed", "hybrid_seed")
METRICS = ("recall@5", "recall@10", "ndcg@10", "mrr@10")
COUNTS = ("memories", "turns", "terms", "postings", "concepts", "mentions", "edges", "summaries")


def index(loaded: LoadedSet, store: Path, log: Path) -> None:
    """First phase: a real night; an unchanged corpus in an existing store is not built again."""
    build_store(loaded.dataset.directory.absolute(), store, log)


def inspect(loaded: LoadedSet, recaller: Recaller) -> dict[str, Value]:
    """Second phase: what was read and what the index holds, before anyone looks at scores."""
    manifest = recaller.reader.manifest
    encoder = manifest.encoder or {}
    return {
        "corpus.sha256": hash_file(loaded.dataset.corpus),
        "corpus.queries_sha256": hash_file(loaded.dataset.queries),
        "corpus.digest": manifest.corpus_digest,
        **{f"index.{name}": manifest.counts.get(name) for name in COUNTS},
        "index.vector_dimension": encoder.get("dimension"),
        "index.encoder_digest": manifest.encoder_digest,
    }


def search(loaded: LoadedSet, recaller: Recaller, progress: Progress = SILENT) -> dict[str, Value]:
    """Third phase: the scores of a few arms over the whole corpus."""
    context = SetContext(
        dataset=loaded.dataset, rows=loaded.rows, recaller=recaller, scope="all", reranker=None
    )
    arms = {arm.name: arm for arm in list_arms(context)}
    found: dict[str, Value] = {}
    for name in ARMS:
        finished = ask_arm(arms[name], loaded.queries, progress, f"{loaded.name} {name}")
        scores = score_run(finished.run, loaded.queries, METRICS)
        for metric in METRICS:
            mean = float(scores.column(metric).mean())
            found[f"scores.{name}.{metric}"] = round(mean, SCORE_DIGITS)
    return found


def measure(loaded: LoadedSet, store: Path, log: Path, progress: Progress = SILENT) -> Regression:
    """Run all three phases and return the numbers.

    Raises:
        StoreError: If the night fails or its snapshot does not open.
    """
    index(loaded, store, log)
    recaller = Recaller.open(store)
    values = {**inspect(loaded, recaller), **search(loaded, recaller, progress)}
    return Regression(loaded.name, values)
