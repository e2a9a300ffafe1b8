"""How often a store without labels answers prompts it should not; writes silence.json.

`python -m bench.silence --stores DIR [--sets NAME...]`

Each set is cut to some memories (`cut_set`) and a night without labels runs on it, below DIR; a
store that is there is used again. Then it gets questions of its own, everyday prompts that
calibrated nothing (prompts.txt), and questions of other sets. Exit codes: 0 done; 1 a night failed;
2 the sets are not there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.datasets import find_shared
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from bench.suite.loading import LoadedSet, load_set
from bench.suite.night import build_store
from noctuary.context.render import worth_injecting
from noctuary.core.errors import NoctuaryError
from noctuary.evaluate.decide import words_only
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import auroc
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import Inputs
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.result import SIGNALS, WORDS
from noctuary_pipelines import sample

SAMPLE = "sample"
FOREIGN_SETS = ("hotpotqa", "scifact", "realmem", "locomo")
"""Whose questions the others get too: trivia, science, a user's life, two friends' talk."""

SEED = 20_251
RESULT = RESULTS_DIR / "silence.json"
SETS = (SAMPLE, "locomo", "realmem", "2wikimultihopqa", "hotpotqa", "memdaily_zh", "prefeval")

INJECTED = 3
"""Memories of one injection at most, as `hook.memories` has it."""

FOREIGN_PER_SET = 40

CURVE = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3)
"""Shares of the everyday prompts let through at which the recall kept is told."""

PROMPTS = Path(__file__).with_name("prompts.txt")
DIGITS = 4


class Told(NamedTuple):
    """What came of one question.

    Attributes:
        score: Of the answer, in [0, 1].
        found: Labelled memories among the first INJECTED, as a share of the labelled.
        kept: The same among those that are injected.
        right: Labelled memories that are injected.
        injected: Memories that are injected.
        hits: Labelled memories among the first INJECTED.
        returned: Memories among the first INJECTED.
    """

    score: float
    found: float
    kept: float
    right: int
    injected: int
    hits: int
    returned: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the sets that are asked for, write what is known after each, return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stores", type=Path, required=True, help="a folder with a store per set")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="names of sets")
    parser.add_argument("--out", type=Path, default=RESULT, help="where the JSON goes")
    options = parser.parse_args(arguments)
    shared = find_shared()
    if shared is None:
        print("no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED")
        return 2
    data, stores = (shared / "data").absolute(), options.stores.absolute()
    found: dict[str, Any] = {}
    try:
        for name in options.sets:
            found[name] = _measure(name, data, stores)
            document = {"kind": "silence", "sets": found, "manifest": describe_run()}
            write_result(options.out, document)
    except NoctuaryError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _measure(name: str, data: Path, stores: Path) -> dict[str, Any]:
    cut = _cut(name, data, stores / "_sets")
    build_store(cut.folder, stores / name, stores / f"{name}.log")
    recaller = Recaller.open(stores / name)
    with closing(recaller.reader):
        asked = {
            "own": list(cut.queries),
            "unanswerable": list(cut.unanswerable),
            "everyday": _queries(PROMPTS.read_text(encoding="utf-8").splitlines()),
            "foreign": _foreign(name, data),
        }
        world: Any = RememberedVectors(recaller.inputs_now())
        signals = {signal: _signal(recaller, world, asked, signal) for signal in SIGNALS}
        print(name, {s: (v["everyday_let_through"], v["recall_kept"]) for s, v in signals.items()},
              flush=True)  # fmt: skip
        return {
            "memories": recaller.reader.count,
            "questions": {kind: len(queries) for kind, queries in asked.items()},
            "signals": signals,
        }


def _cut(name: str, data: Path, folder: Path) -> Cut:
    if name != SAMPLE:
        return cut_set(load_set(data / name), folder / name)
    whole = load_set(write_sample_set(folder / "_labelled" / SAMPLE).absolute())
    found = cut_set(replace(whole, unanswerable=()), folder / name)
    return found._replace(unanswerable=whole.unanswerable)


def _foreign(name: str, data: Path) -> list[Query]:
    others = [s for s in dict.fromkeys((*SETS, *FOREIGN_SETS)) if s not in (name, SAMPLE)]
    found: list[Query] = []
    for other in others:
        found += draw(load_set(data / other).queries, FOREIGN_PER_SET)
    return _queries([query.text for query in found])


def _queries(texts: Sequence[str]) -> list[Query]:
    return [Query(f"prompt-{n}", text, "prompt", ()) for n, text in enumerate(texts)]


def _signal(
    recaller: Recaller, world: Any, asked: dict[str, list[Query]], signal: str
) -> dict[str, Any]:
    profile = RetrievalProfile(**recaller.reader.adopted)
    if signal == WORDS:
        profile = words_only(profile)
    told = {
        kind: [_ask(recaller, world, profile, query) for query in queries]
        for kind, queries in asked.items()
    }
    own = told["own"]
    scores = {kind: np.array([t.score for t in ts]) for kind, ts in told.items()}
    found = np.array([t.found for t in own])
    let = {
        kind: float(np.mean([t.injected > 0 for t in told[kind]])) for kind in told if told[kind]
    }
    curve = [
        {"let_through": share,
         "recall_kept": _share(found * (scores["own"] > _at(scores["everyday"], share)), found)}
        for share in CURVE
    ]  # fmt: skip
    unanswerable = scores["unanswerable"]
    return {
        "threshold": recaller.calibration.thresholds[signal] if recaller.calibration else None,
        "everyday_let_through": round(let["everyday"], DIGITS),
        "foreign_let_through": round(let["foreign"], DIGITS),
        "answerable_let_through": round(let["own"], DIGITS),
        "recall_at_3": round(float(found.mean()), DIGITS),
        "recall_kept": _share(np.array([t.kept for t in own]), found),
        "precision_before": _ratio(own, "hits", "returned"),
        "precision": _ratio(own, "right", "injected"),
        "injected": sum(t.injected for t in own),
        "auroc_everyday": round(auroc(scores["own"], scores["everyday"]), DIGITS),
        "auroc_foreign": round(auroc(scores["own"], scores["foreign"]), DIGITS),
        "auroc_unanswerable": (
            round(auroc(scores["own"], unanswerable), DIGITS) if unanswerable.size else None
        ),
        "curve": curve,
    }


def _ask(recaller: Recaller, world: Any, profile: RetrievalProfile, query: Query) -> Told:
    scope = Scope(as_of=query.as_of)
    result = recaller.recall(query.text, INJECTED, profile=profile, scope=scope, inputs=world)
    plain = result.to_json()
    first = [str(m["id"]) for m in plain["memories"]]
    chosen = [str(m["id"]) for m in worth_injecting(plain)]
    wanted = set(query.relevant_ids)
    hits, right = len(wanted.intersection(first)), len(wanted.intersection(chosen))
    score = 0.0 if result.answerability is None else result.answerability.score
    n = max(len(wanted), 1)
    return Told(score, hits / n, right / n, right, len(chosen), hits, len(first))


def _at(scores: Any, share: float) -> float:
    """Return the score that at most a share of prompts lies above."""
    return float(np.sort(scores)[::-1][int(share * scores.size)])


def _share(part: Any, whole: Any) -> float:
    return round(float(part.sum() / whole.sum()), DIGITS) if whole.sum() else 0.0


def _ratio(told: Sequence[Told], part: str, whole: str) -> float:
    total = sum(getattr(t, whole) for t in told)
    return round(sum(getattr(t, part) for t in told) / total, DIGITS) if total else 0.0


# A set cut small and without labels.

MEMORIES = 1_200
"""Memories kept of a set, at least where it has as many: more take longer for six nights."""

QUESTIONS = 200
"""Questions with an answer that are asked of each."""


class Cut(NamedTuple):
    """What is left of a set.

    Attributes:
        folder: Holds the memories and no label.
        queries: Labelled queries, each with every labelled memory kept.
        unanswerable: Queries that nothing answers, about what was kept.
    """

    folder: Path
    queries: tuple[Query, ...]
    unanswerable: tuple[Query, ...]


def cut_set(loaded: LoadedSet, folder: Path) -> Cut:
    """Write some of a set's memories into a folder and return what can be asked of them.

    Whole wings where every question names one, so that a conversation keeps its company; else what
    answers the questions, filled up with others.
    """
    rows = loaded.rows
    if loaded.has_wings:
        sizes = Counter(str(row["wing"]) for row in rows)
        wings: set[str] = set()
        for wing in sorted(sizes):
            if sum(sizes[w] for w in wings) < MEMORIES:
                wings.add(wing)
        rows = [row for row in rows if row["wing"] in wings]
        queries = draw([q for q in loaded.queries if q.wing in wings], QUESTIONS)
        unanswerable = tuple(q for q in loaded.unanswerable if q.wing in wings)
    else:
        queries, unanswerable = draw(loaded.queries, QUESTIONS), loaded.unanswerable
        wanted = {i for query in queries for i in query.relevant_ids}
        order = np.random.default_rng(SEED).permutation(len(rows))
        others = [i for i in order.tolist() if str(rows[i]["id"]) not in wanted]
        chosen = set(others[: max(0, MEMORIES - len(wanted))])
        rows = [row for i, row in enumerate(rows) if str(row["id"]) in wanted or i in chosen]
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / "corpus.jsonl.gz", "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return Cut(folder, tuple(queries), unanswerable)


def draw(queries: Sequence[Query], at_most: int) -> list[Query]:
    """Return some of many queries in their order, always the same."""
    order = np.random.default_rng(SEED).permutation(len(queries))
    return [queries[i] for i in sorted(order[:at_most].tolist())]


_COLUMNS = ("id", "content", "category", "tags", "expanded_keywords", "importance", "is_sensitive")
_TIMES = ("created_at", "updated_at")


def write_sample_set(directory: Path) -> Path:
    """Write corpus.jsonl.gz and queries.jsonl into a folder, and return the folder."""
    directory.mkdir(parents=True, exist_ok=True)
    columns = (*_COLUMNS, *_TIMES)
    database = sample.place_sample(directory / "source")
    with (
        closing(sqlite3.connect(database)) as db,
        gzip.open(directory / "corpus.jsonl.gz", "wt", encoding="utf-8") as lines,
    ):
        for row in db.execute(f"SELECT {', '.join(columns)} FROM memories ORDER BY id"):
            values = dict(zip(columns, row, strict=True))
            values["is_sensitive"] = bool(values["is_sensitive"])
            lines.write(json.dumps(values, ensure_ascii=False) + "\n")
    shutil.copyfile(sample.QUERIES, directory / "queries.jsonl")
    return directory


class RememberedVectors:
    """A world that encodes every query once."""

    def __init__(self, world: Inputs) -> None:
        self._world = world
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        """Return the vector of a query."""
        if text not in self._vectors:
            self._vectors[text] = self._world.query_vector(text)
        return self._vectors[text]


if __name__ == "__main__":
    sys.exit(main())
