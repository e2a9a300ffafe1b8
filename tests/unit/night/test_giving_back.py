"""A night gives freed memory back after every stage that worked, and after no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from noctuary.work.stage import Stage, StageOutput
from noctuary_assets import night as context
from noctuary_assets.night import Night
from tests.support.promotions import Nights


def test_after_a_stage_that_worked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nights, done = Nights(tmp_path), list[str]()
    monkeypatch.setattr(context, "give_back", lambda: done.append("given back"))
    night = Night(nights.paths, nights.source)

    def body() -> StageOutput:
        done.append("worked")
        return StageOutput(1, {})

    night.run(Stage("letters", "1"), {"of": 1}, body)
    assert done == ["worked", "given back"]
    assert night.run(Stage("letters", "1"), {"of": 1}, body).reused
    assert done == ["worked", "given back"], "nothing was freed"
