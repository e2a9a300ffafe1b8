"""The night measures what a call that asks for nothing special will be answered with."""

from __future__ import annotations

from pathlib import Path

from noctuary.core.settings import RecallSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.recall.profile import RetrievalProfile
from noctuary_assets.evaluate import served_profile
from noctuary_assets.night import Night


def night(tmp_path: Path, settings: Settings | None = None) -> Night:
    return Night(StorePaths(tmp_path), tmp_path / "memory.db", settings or Settings())


def test_without_anything_it_is_the_built_in_profile(tmp_path: Path) -> None:
    assert served_profile(night(tmp_path)) == RetrievalProfile()


def test_every_layer_of_settings_and_store_counts(tmp_path: Path) -> None:
    settings = Settings(
        recall=RecallSettings(profile="mine", importance_prior=0.1),
        profiles={"default": {"depth": 40}, "mine": {"inherits": "synapse"}},
    )
    StorePaths(tmp_path).profiles.write_text("[default]\nrrf_k = 30\n[mine]\nmmr_lambda = 0.3\n")
    found = night(tmp_path, settings)
    expected = RetrievalProfile(
        fusion="rrf",
        importance_prior=0.1,
        depth=40,
        rrf_k=30,
        ltp_enabled=True,
        mmr_lambda=0.3,
        tagging_enabled=True,
        time_decay_enabled=True,
        decay_floor=0.0,
    )
    assert served_profile(found, {"fusion": "rrf"}) == expected


def test_what_only_watches_is_off(tmp_path: Path) -> None:
    """So that a night writes no query into the replay log, and measures nothing anew for it."""
    watching = {"explain": True, "candidate_trace": True, "replay_log": True}
    settings = Settings(profiles={"default": watching})
    assert served_profile(night(tmp_path, settings)) == RetrievalProfile()
