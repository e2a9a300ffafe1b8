from __future__ import annotations

from pathlib import Path

import pytest

from noctuary.core.errors import ConfigError
from noctuary.graph.canonical import MergeRules


def _read(tmp_path: Path, text: str) -> MergeRules:
    path = tmp_path / "merges.toml"
    path.write_text(text, encoding="utf-8")
    return MergeRules.read(path)


def test_a_store_without_the_file_has_no_rules(tmp_path: Path) -> None:
    assert MergeRules.read(tmp_path / "merges.toml") == MergeRules()


def test_names_are_folded_and_pairs_put_in_order(tmp_path: Path) -> None:
    rules = _read(tmp_path, 'never = [["Quick-Silver", "Mercury"]]\nsame = [["k8s","Kube\'s"]]\n')
    assert rules == MergeRules(never=(("mercury", "quick silver"),), same=(("k8s", "kube"),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("never = [", "is no TOML"),
        ("nevr = []", "unknown key 'nevr'; the nearest known one is never"),
        ('never = "a"', "never is 'a', expected a list of pairs"),
        ('same = [["a"]]', r"same, entry 1 is \['a'\], expected two names"),
        ('same = [["a", 3]]', "expected two names"),
        ('same = [["a", "b", "c"]]', "expected two names"),
        ('same = [["a", "..."]]', "without letters or digits"),
        ('never = [["E-mail", "e mail"]]', "both read 'e mail'"),
        ('never = [["a", "c"]]\nsame = [["a", "b"], ["b", "c"]]', "take one of these rules out"),
    ],
)
def test_a_bad_file_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        _read(tmp_path, text)
    assert "merges.toml" in str(caught.value)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        _read(tmp_path, "never = [1]\nsame = [2]\nsome = 3\n")
    assert str(caught.value).count("\n") == 3


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "merges.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is no TOML"):
        MergeRules.read(path)
    with pytest.raises(ConfigError, match="cannot read"):
        MergeRules.read(tmp_path)


def test_rules_made_in_code_are_checked_as_well() -> None:
    with pytest.raises(ConfigError, match="take one of these rules out"):
        MergeRules(never=(("a", "b"),), same=(("a", "b"),))
