from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from noctuary.work.stage import (
    Stage,
    StageOutput,
    StageResult,
    forget_result,
    load_result,
    run_stage,
)

STAGE = Stage("letters", "1", ("out/letters.txt", "out/count.json"))
FACTS_ONLY = Stage("counting", "1")


@dataclass
class Work:
    """A body that writes its letters, and how often it ran."""

    root: Path
    letters: str = "abc"
    runs: int = 0
    facts: dict[str, Any] = field(default_factory=lambda: {"vowels": 1})
    notes: dict[str, Any] = field(default_factory=dict[str, Any])

    def body(self) -> StageOutput:
        self.runs += 1
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(self.letters)
        (self.root / "out" / "count.json").write_text(str(len(self.letters)))
        return StageOutput(len(self.letters), self.facts, self.notes)

    @property
    def path(self) -> Path:
        return self.root / "out" / "letters.txt"

    @property
    def stamp(self) -> Path:
        return self.root / "stamps" / "letters.json"

    def run(self, stage: Stage = STAGE, *, always: bool = False, **inputs: Any) -> StageResult:
        return run_stage(self.root, stage, {"corpus": "c1", **inputs}, self.body, always=always)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_the_first_run_says_what_came_out(work: Work) -> None:
    result = work.run()
    assert (result.name, result.reused, result.rows, result.facts) == (
        "letters",
        False,
        3,
        {"vowels": 1},
    )
    assert result.cost["bytes_on_disk"] == 4
    assert result.cost["wall_ms"] >= 0
    assert result.cost["peak_rss_bytes"] > 1_000_000


def test_a_second_run_with_equal_inputs_does_nothing(work: Work) -> None:
    first, second = work.run(), work.run()
    assert work.runs == 1
    assert second.reused
    assert (second.digest, second.rows, second.facts) == (first.digest, first.rows, first.facts)
    assert second.cost["bytes_on_disk"] == 4
    assert "cpu_ms" not in second.cost


@pytest.mark.parametrize(
    ("stage", "inputs"),
    [(STAGE, {"corpus": "c2"}), (STAGE, {"more": None}), (replace(STAGE, version="2"), {})],
    ids=["another input", "one input more", "another version"],
)
def test_another_input_or_version_runs_again(
    work: Work, stage: Stage, inputs: dict[str, Any]
) -> None:
    work.run()
    assert not work.run(stage, **inputs).reused
    assert work.runs == 2


def test_going_back_to_earlier_inputs_runs_again(work: Work) -> None:
    """One stamp per stage: yesterday's outputs were overwritten."""
    work.run(corpus="c1")
    work.run(corpus="c2")
    work.run(corpus="c1")
    assert work.runs == 3


@pytest.mark.parametrize("change", ["edited", "deleted"])
def test_an_output_that_was_touched_runs_again(work: Work, change: str) -> None:
    work.run()
    if change == "edited":
        work.path.write_text("abd")
    else:
        work.path.unlink()
    assert load_result(work.root, STAGE) is None
    assert not work.run().reused
    assert work.path.read_text() == "abc"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"{}", b"\xff", b'{"key": 1}', b'"key outputs rows facts"'],
)
def test_a_damaged_stamp_runs_again(work: Work, content: bytes) -> None:
    work.run()
    work.stamp.write_bytes(content)
    assert load_result(work.root, STAGE) is None
    assert not work.run().reused
    assert work.runs == 2


@pytest.mark.parametrize("field_name", ["rows", "facts", "outputs", "key", "left"])
def test_a_stamp_with_a_field_of_another_type_runs_again(work: Work, field_name: str) -> None:
    work.run()
    stamp = json.loads(work.stamp.read_text())
    work.stamp.write_text(json.dumps({**stamp, field_name: None}))
    assert load_result(work.root, STAGE) is None
    assert not work.run().reused


def test_the_digest_is_that_of_the_outputs(work: Work) -> None:
    first = work.run(corpus="c1")
    assert work.run(corpus="c2").digest == first.digest
    work.letters = "xyz"
    assert work.run(corpus="c3").digest != first.digest


def test_a_stage_without_outputs_is_known_by_its_facts(work: Work) -> None:
    first = work.run(FACTS_ONLY)
    assert work.run(FACTS_ONLY).reused
    work.facts = {"vowels": 2}
    assert work.run(FACTS_ONLY, corpus="c2").digest != first.digest


def test_always_runs_and_says_whether_anything_changed(work: Work) -> None:
    assert not work.run(always=True).reused
    assert work.run(always=True).reused
    work.facts = {"vowels": 2}
    assert not work.run(always=True).reused
    work.letters = "xyz"
    assert not work.run(always=True).reused
    assert not work.run(always=True, corpus="c2").reused
    assert work.runs == 5


def test_a_body_that_fails_leaves_no_stamp(work: Work) -> None:
    work.run()

    def broken() -> StageOutput:
        work.path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(work.root, STAGE, {"corpus": "c2"}, broken)
    assert not work.stamp.exists()
    assert load_result(work.root, STAGE) is None
    assert not work.run().reused


def test_load_gives_what_was_left_on_disk(work: Work) -> None:
    assert load_result(work.root, STAGE) is None
    result = work.run()
    loaded = load_result(work.root, STAGE)
    assert loaded is not None
    assert loaded.reused
    assert (loaded.digest, loaded.rows, loaded.facts) == (result.digest, 3, {"vowels": 1})


def test_a_forgotten_stage_runs_again(work: Work) -> None:
    work.run()
    forget_result(work.root, STAGE)
    forget_result(work.root, STAGE)
    assert not work.run().reused


def test_stages_do_not_see_each_other(work: Work) -> None:
    work.run()
    work.run(replace(STAGE, name="other"))
    assert work.run().reused


def test_notes_are_of_the_run_that_made_them_and_in_no_digest(work: Work) -> None:
    work.notes = {"computed": 3}
    first = work.run()
    assert first.notes == {"computed": 3}
    assert work.run().notes == {}
    work.notes = {"computed": 0}
    again = work.run(always=True)
    assert (again.reused, again.notes) == (True, {"computed": 0})
    assert again.digest == first.digest
