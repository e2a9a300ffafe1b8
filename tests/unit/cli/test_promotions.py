from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.promotions import Nights, turn
from tests.unit.cli.conftest import Run

RunJson = Callable[..., Any]


@pytest.fixture
def nights(tmp_path: Path, home: Path) -> Nights:
    found = Nights(tmp_path)
    found.write(
        turn("User: I work at Initech, since 2019.", 1, wing="shop"),
        turn("User: I have two brothers.", 2),
        turn("User: ok", 3),
        turn("User: my sister Ana lives in Lyon since 2020", 4, user="ana"),
    )
    found.run()
    return found


@pytest.fixture
def store(nights: Nights) -> str:
    return str(nights.paths.root)


def test_the_best_come_first_with_their_text_and_numbers(run: Run, store: str) -> None:
    shown = run("proposals", "promotions", "--store", store)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == "[1]  propose  G 0.50  2026-03-01  (shop)  date, fact"
    assert lines[1] == "    User: I work at Initech, since 2019."
    assert lines[2].startswith("    new to what you keep; technical 0.00; ")
    assert "novelty 1.00" in lines[2]
    assert lines[3].startswith("[2]  propose  G 0.47  2026-03-01  fact, quantity")
    assert lines[-1].startswith("2 of 3 turns are proposed (G of 0.35 and more); 2 shown.")
    assert "Nothing is written" in lines[-1]
    assert "Lyon" not in shown.stdout


def test_what_was_left_alone_and_how_many(run: Run, store: str) -> None:
    shown = run("proposals", "promotions", "--all", "--store", store).stdout
    assert "[3]  leave" in shown
    assert "says nothing that stands alone" in shown
    one = run("proposals", "promotions", "--all", "-n", "1", "--store", store).stdout
    assert "[1]" in one
    assert "[2]" not in one
    assert "1 shown" in one


def test_the_turns_of_a_user_are_only_shown_to_whoever_asks_for_them(
    run_json: RunJson, store: str
) -> None:
    plain = run_json("proposals", "promotions", "--all", "--store", store)
    assert {row["turn_id"] for row in plain["promotions"]} == {"1", "2", "3"}
    assert plain["counts"] == {"nothing_said": 1, "proposed": 2}
    own = run_json("proposals", "promotions", "--user", "ana", "--store", store)
    assert [row["turn_id"] for row in own["promotions"]] == ["4"]
    assert own["counts"] == {"proposed": 1}
    assert (
        run_json("proposals", "promotions", "--user", "zoe", "--store", store)["promotions"] == []
    )


def test_as_json_every_number_is_there(run_json: RunJson, store: str) -> None:
    found = run_json("proposals", "promotions", "--store", store)
    assert (found["enabled"], found["threshold"]) == (True, 0.35)
    first = found["promotions"][0]
    assert first["text"] == "User: I work at Initech, since 2019."
    assert first["g"] == first["gconv"] == 0.5
    assert (first["decision"], first["reason"]) == ("propose", "proposed")
    assert first["marks"] == ["date", "fact"]


def test_a_turn_that_changed_since_is_shown_without_text(
    run_json: RunJson, store: str, nights: Nights
) -> None:
    from noctuary_assets.ingest import export_memories
    from noctuary_assets.night import Night

    nights.write(turn("User: I left Initech."))
    export_memories(Night(nights.paths, nights.source))
    assert run_json("proposals", "promotions", "--store", store)["promotions"][0]["text"] is None


def test_switched_off_it_says_how_to_switch_it_on(run: Run, nights: Nights) -> None:
    nights.run(enabled=False)
    shown = run("proposals", "promotions", "--store", str(nights.paths.root))
    assert (shown.exit_code, "set promotion.enabled" in shown.stdout) == (0, True)


def test_before_the_first_night_it_says_what_to_do(
    run: Run, run_json: RunJson, tmp_path: Path
) -> None:
    (tmp_path / "empty" / "work").mkdir(parents=True)
    shown = run("proposals", "promotions", "--store", str(tmp_path / "empty"))
    assert (shown.exit_code, "run the night" in shown.stderr) == (1, True)
    refused = run_json("proposals", "promotions", "--store", str(tmp_path / "empty"), code=1)
    assert refused["error"] == "StoreError"
