"""The arms of the simulation, each on a store of its own in a process of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from bench.feedback.days import NEW_MEMORIES_A_DAY, hold_out, read_questions
from bench.feedback.nights import ask, guarded, pass_night
from bench.feedback.simulate import Plan, simulate
from noctuary_pipelines import sample

ARMS = {"off": (False, False), "on": (True, False), "on_reworded": (True, True)}
"""Name -> whether the guard is on, whether the agent rewords."""


def run_arm(name: str, nights: int) -> list[Any]:
    """Return the nights of one arm, on a store of its own; changes this process's environment."""
    on, rewords = ARMS[name]
    folder = Path(tempfile.mkdtemp(prefix="noctuary-feedback-"))
    for variable in [v for v in os.environ if v.startswith("NOCTUARY_")]:
        del os.environ[variable]
    # Measuring is half of a small night, and nothing here reads it.
    os.environ.update({"NOCTUARY_HOME": str(folder), "NOCTUARY_EVALUATION_ENABLED": "false"})
    source, store = folder / "memory.db", folder / "store"
    sample.build(source)
    try:
        plan = Plan(
            source=source,
            work=store / "work",
            questions=read_questions(sample.QUERIES),
            new=hold_out(source, nights * NEW_MEMORIES_A_DAY),
            ask=partial(ask, store),
            pass_night=partial(pass_night, source, store),
            rewords=rewords,
        )
        with guarded(on):
            return simulate(plan, nights, told=lambda line: print(f"{name}: {line}", flush=True))
    finally:
        shutil.rmtree(folder)
