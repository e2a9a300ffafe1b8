from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata

import pytest

from noctuary.cli.main import WANTED, find_sdk_fault, is_supported
from tests.support.imports import ROOT


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        ("1.30.0", False),
        ("2.0.9", False),
        ("2.1.0", True),
        ("2.3.0", True),
        ("2.10.1", True),
        ("3.0.0", False),
        ("10.0", False),
        ("2.1.0rc1", True),
        ("local", True),
    ],
)
def test_versions_that_it_runs_on(version: str, supported: bool) -> None:
    assert is_supported(version) is supported


def test_the_installed_sdk_is_fine() -> None:
    assert find_sdk_fault() is None


def test_a_missing_sdk_is_a_sentence_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    fault = find_sdk_fault()
    assert fault is not None
    assert "not installed" in fault
    assert "pip install 'noctuary[mcp]'" in fault


def test_another_version_is_a_sentence_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(_: str) -> str:
        return "1.30.0"

    monkeypatch.setattr(metadata, "version", version)
    fault = find_sdk_fault()
    assert fault is not None
    assert WANTED in fault
    assert "found mcp 1.30.0" in fault


def test_the_wanted_version_is_the_one_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extra,) = project["optional-dependencies"]["mcp"]
    assert re.sub(r"\s", "", extra) == WANTED
