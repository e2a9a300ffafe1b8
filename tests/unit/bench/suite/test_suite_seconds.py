from __future__ import annotations

from pathlib import Path

import pytest

from bench.suite.keys import code_digest, run_key
from bench.suite.seconds import Ledger


def test_a_resumed_suite_still_knows_its_whole_cost(tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    first = Ledger(path)
    first.begin(afresh=False)
    first.record("tiny", "night", 10.0)
    first.close()
    second = Ledger(path)
    second.begin(afresh=False)
    second.record("tiny", "evaluate", 5.0)
    second.record("other", "night", 2.5)
    found = second.to_json()
    assert found["sets"] == {"other": {"night": 2.5}, "tiny": {"night": 10.0, "evaluate": 5.0}}
    assert found["sum_seconds"] == 17.5
    assert len(found["wall_seconds"]) == 2
    assert second.has("tiny", "night")


def test_a_fresh_suite_counts_from_nothing(tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    ledger = Ledger(path)
    ledger.begin(afresh=False)
    ledger.record("tiny", "night", 10.0)
    again = Ledger(path)
    again.begin(afresh=True)
    again.forget("tiny")
    assert again.to_json()["sum_seconds"] == 0.0
    assert len(again.to_json()["wall_seconds"]) == 1
    assert not again.has("tiny", "night")


def test_the_code_digest_sees_a_changed_a_renamed_and_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    file = tmp_path / "part" / "a.py"
    file.write_text("x = 1\n", encoding="utf-8")
    seen = [code_digest(["part", "gone"], tmp_path)]
    file.write_text("x = 2\n", encoding="utf-8")
    seen.append(code_digest(["part"], tmp_path))
    file.rename(tmp_path / "part" / "b.py")
    seen.append(code_digest(["part"], tmp_path))
    (tmp_path / "part" / "c.py").write_text("", encoding="utf-8")
    seen.append(code_digest(["part"], tmp_path))
    assert len(set(seen)) == 4
    (tmp_path / "part" / "notes.txt").write_text("no code", encoding="utf-8")
    assert code_digest(["part"], tmp_path) == seen[-1]
    assert code_digest(["part/b.py"], tmp_path) != seen[-1]


@pytest.mark.parametrize("changed", [{"arm": "b"}, {"depth": 11}, {"settings": {"k": 2}}])
def test_a_key_depends_on_every_part(changed: dict[str, object]) -> None:
    parts: dict[str, object] = {"arm": "a", "depth": 10, "settings": {"k": 1}}
    assert run_key(**parts) == run_key(**dict(reversed(parts.items())))
    assert run_key(**parts) != run_key(**{**parts, **changed})
