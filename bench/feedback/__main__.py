"""`python -m bench.feedback [--nights 30] [--out FILE.json] [--plot FILE]`.

Simulates a month on a copy of the sample: whole nights, recall between them, an agent that writes
down what it was given. Three arms: the guard off, on, and on with an agent that rewords. Whole
nights but for the evaluation, some five minutes of CPU for each arm.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench.feedback.arms import ARMS, run_arm
from bench.feedback.days import NEW_MEMORIES_A_DAY, PROMPTS_A_DAY
from bench.feedback.measure import NEAR_COSINE
from bench.feedback.nights import RECALLED
from bench.feedback.plot import write_plot
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result

NIGHTS = 30


def summary_of(nights: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how an arm's numbers went from the first night to the last."""
    names = ("rows_not_own", "chars_not_own", "exact_duplicates", "near_duplicates")
    return {
        **{name: [nights[0][name], nights[-1][name]] for name in names},
        "own_rows_lost": max(night["own_rows_lost"] for night in nights),
        "echoes_among_injected": round(
            sum(n["echoes_among_injected"] * n["injected"] for n in nights)
            / max(sum(n["injected"] for n in nights), 1),
            4,
        ),
        "nights_not_published": sum(night["outcome"] != "published" for night in nights),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the result and its plot."""
    parser = argparse.ArgumentParser(prog="python -m bench.feedback", description=__doc__)
    parser.add_argument("--nights", type=int, default=NIGHTS)
    parser.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=list(ARMS))
    parser.add_argument("--jobs", type=int, default=2, help="arms at a time [2]")
    parser.add_argument("--out", type=Path, default=RESULTS_DIR / "feedback.json")
    parser.add_argument("--plot", type=Path, help="default: beside the plots of the suite")
    options = parser.parse_args(arguments)
    run = describe_run()
    # A process for each arm: a night takes its store and its settings from the environment.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=spawn, max_tasks_per_child=1) as pool:
        waiting = {name: pool.submit(run_arm, name, options.nights) for name in options.arms}
        arms = {name: future.result() for name, future in waiting.items()}
    write_result(
        options.out,
        {
            "kind": "feedback",
            "manifest": run,
            "day": {
                "prompts": PROMPTS_A_DAY,
                "recalled_per_prompt": RECALLED,
                "new_memories": NEW_MEMORIES_A_DAY,
                "near_cosine": NEAR_COSINE,
            },
            "summary": {name: summary_of(nights) for name, nights in arms.items()},
            "arms": arms,
        },
    )
    write_plot(options.plot or RESULTS_DIR.parent / "plots" / "feedback.png", arms)
    return 0


if __name__ == "__main__":
    sys.exit(main())
