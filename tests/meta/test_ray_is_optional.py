"""What it costs not to need Ray: nothing of it is installed, imported or asked for by default."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.meta.test_import_budget import loaded_after
from tests.support.imports import imports_of, lazy_imports_of, modules

ROOT = Path(__file__).resolve().parents[2]
RAY = frozenset({"ray", "lance_ray", "dagster_ray"})
DISTRIBUTIONS = frozenset({"ray", "lance-ray", "dagster-ray", "pylance", "pandas"})
"""`pandas` as well: Ray Data brings it, and no code of ours may come to lean on it."""

RESOURCE = "noctuary_pipelines.resources"
"""What Dagster hands to heavy assets: nothing, or a Ray where the settings name one."""

OURS = sorted(
    name
    for name in modules()
    if name.split(".")[0] in {"noctuary", "noctuary_assets", "noctuary_pipelines"}
)


def lists() -> dict[str, list[str]]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def distribution(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return found[0].lower().replace("_", "-")


def tops(names: frozenset[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_only_its_own_extra_installs_ray() -> None:
    asked = {name: {distribution(r) for r in needed} for name, needed in lists().items()}
    assert {"ray", "lance-ray", "dagster-ray"} <= asked["ray"]
    others = {name: found & DISTRIBUTIONS for name, found in asked.items() if name != "ray"}
    assert {name: found for name, found in others.items() if found} == {}


def test_make_setup_does_not_ask_for_the_extra() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    recipes = re.findall(r"^\$\((?:READY|TOOLS)\):.*?\n\n", text, re.DOTALL | re.MULTILINE)
    assert len(recipes) == 2
    asked = re.findall(r"\[([a-z,]+)\]", "".join(recipes))
    assert asked
    assert not any("ray" in extras.split(",") for extras in asked)


def test_no_module_imports_ray_at_its_top() -> None:
    """By AST; what a module of ours imports is another module of ours, or is seen here."""
    assert len(OURS) > 100
    wrong = {m for m in OURS if tops(imports_of(m, eager_only=True)) & (RAY | {"pandas"})}
    assert wrong == set()


def test_only_the_modules_that_are_about_ray_name_it() -> None:
    wrong = {
        m: found
        for m in OURS
        if (found := tops(imports_of(m, eager_only=True) | lazy_imports_of(m)) & RAY)
        and m != RESOURCE
        and "ray" not in m.rpartition(".")[2].split("_")
    }
    assert wrong == {}


def test_no_module_of_ours_imports_pandas() -> None:
    named = {m for m in OURS if "pandas" in tops(imports_of(m) | lazy_imports_of(m))}
    assert named == set()


@pytest.mark.parametrize("module", ["noctuary", "noctuary_assets.night"])
def test_a_fresh_process_that_imports_it_has_no_ray(module: str) -> None:
    added = loaded_after(f"import {module}")
    assert not tops(frozenset(added)) & RAY


def test_opening_the_default_runner_imports_no_ray() -> None:
    code = """
from pathlib import Path
from noctuary.core.store import StorePaths
from noctuary_assets.night import Night
assert type(Night(StorePaths(Path("store")), Path("source")).runner).__name__ == "LocalRunner"
"""
    assert not tops(frozenset(loaded_after(code))) & RAY
