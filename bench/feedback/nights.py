"""Real nights on a store of one's own: the nightly job in this process, with the guard or without.

The switch that bypasses the guard exists here alone: the product has none.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.feedback.days import Recalled
from noctuary.core.types import MemoryRecord
from noctuary.recall.api import recall
from noctuary.sources.echo import EchoGuard, Verdict

RECALLED = 5
"""Memories per prompt: what a hook asks for."""


class PassEverything(EchoGuard):
    """A guard that knows nothing, not even its own tag."""

    def judge(self, record: MemoryRecord) -> Verdict:
        """Return the row as it is."""
        return Verdict(record.content)


@contextmanager
def guarded(on: bool) -> Generator[None]:
    """Let the nights of this block export with the guard, or without."""
    if on:
        yield
        return
    with patch("noctuary_assets.ingest.EchoGuard", PassEverything):
        yield


def pass_night(source: Path, store: Path) -> str:
    """Run the whole nightly job and return how it went: "published", "unchanged", "refused" ..."""
    from noctuary_pipelines.nightly import run_night
    from noctuary_pipelines.site import export_environment, prepare_instance, resolve_site

    site = resolve_site(str(source), str(store))
    prepare_instance(site.paths)
    os.environ.update(export_environment(site))
    outcome = run_night(site)
    return outcome.status if outcome.exit_code == 0 else f"{outcome.status}: {outcome.message}"


def ask(store: Path, question: str) -> Recalled:
    """Recall as a hook does."""
    found: Any = recall(question, RECALLED, store=store)
    return found.to_json()
