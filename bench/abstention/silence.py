"""What a store without labels says to prompts that are none of its business; writes silence.json.

`python -m bench.abstention.silence --stores DIR [--sets NAME...]`

Each set is cut to some memories (`cut`) and a night without labels is run on it, below DIR; what is
there is used again. Then questions of its own are asked, everyday prompts that calibrated nothing
(prompts.txt), and questions of the other sets. Exit codes: 0 done; 1 a night failed; 2 the sets are
not there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.abstention.__main__ import measure_sets
from bench.abstention.cut import Cut, cut_set
from bench.abstention.questions import FOREIGN_SETS, sample
from bench.compaction.sample_set import SAMPLE, write_sample_set
from bench.constants.asking import RememberedVectors
from bench.results import RESULTS_DIR
from bench.suite.loading import load_set
from bench.suite.night import build_store
from noctuary.evaluate.decide import words_only
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import auroc
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.result import SIGNALS, WORDS
from noctuary.sources.injected import worth_injecting

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
    """Measure the sets that are asked for and return the exit code."""
    return measure_sets(__doc__ or "", arguments, _measure, SETS, RESULT, {"kind": "silence"})


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
        found += sample(load_set(data / other).queries, FOREIGN_PER_SET)
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


if __name__ == "__main__":
    sys.exit(main())
