"""What the decision adopts is what recall is then asked with."""

from __future__ import annotations

from pathlib import Path

import pytest

from noctuary.core.settings import Settings
from noctuary.core.store import StorePaths
from noctuary.evaluate.decide import SERVED, challenge, list_arms
from noctuary.recall.profile import RetrievalProfile
from noctuary_assets.evaluate import served_profile
from noctuary_assets.night import Night


def night(tmp_path: Path) -> Night:
    return Night(StorePaths(tmp_path), tmp_path / "memory.db", Settings())


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("sessions_0", {"session_weight": 0.0}),
        ("graph_0", {"graph_weight": 0.0}),
        ("graph_2", {"graph_weight": 2.0}),
        ("rrf", {"fusion": "rrf"}),
        ("cc_dense_0.3", {"fusion": "cc", "dense_weight": 0.3, "lexical_weight": 0.7}),
    ],
)
def test_a_challenger_changes_the_fields_of_its_name_and_no_other(
    name: str, fields: dict[str, object]
) -> None:
    served = RetrievalProfile()
    changed = challenge(name, served)
    assert changed == fields
    plain, found = served.to_json(), served.replaced(**changed).to_json()
    differing = {key: found[key] for key in found if found[key] != plain[key]}
    assert differing == {key: value for key, value in fields.items() if plain[key] != value}
    assert differing


def test_a_night_measures_recall_without_sessions() -> None:
    profiles = list_arms(RetrievalProfile())
    assert next(iter(profiles.items())) == (SERVED, RetrievalProfile())
    assert profiles["sessions_0"].session_weight == 0.0
    assert profiles["sessions_0"].graph_weight == RetrievalProfile().graph_weight > 0.0
    # Where the store asks no sessions anyway there is nothing to challenge.
    assert "sessions_0" not in list_arms(RetrievalProfile(session_weight=0.0))


def test_what_was_adopted_is_served(tmp_path: Path) -> None:
    adopted = challenge("sessions_0", RetrievalProfile())
    assert served_profile(night(tmp_path), adopted).session_weight == 0.0
    # The store's own profiles are of people, and stand above what a night found.
    StorePaths(tmp_path).profiles.write_text("[default]\nsession_weight = 0.5\n")
    assert served_profile(night(tmp_path), adopted).session_weight == 0.5
