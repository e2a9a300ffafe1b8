"""docs/profiles.md has every flag and every shipped profile, with the values of the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from noctuary.recall.profile import (
    CHOICES,
    FIELD_NAMES,
    FIELD_TYPES,
    GROUPS,
    RANGES,
    SHIPPED,
    Layers,
    RetrievalProfile,
    table_faults,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "profiles.md").read_text(encoding="utf-8")
BUILT_IN = RetrievalProfile().to_json()
ROW = re.compile(r"^\| `([a-z_0-9]+)` \| `([^`]*)` \| (.*) \| (.+) \|$", re.MULTILINE)
FLAG_ROWS = {name: rest for name, *rest in ROW.findall(PAGE)}


def as_documented(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value != "" else "empty"


def range_as_documented(flag: str) -> str:
    if flag in CHOICES:
        return " or ".join(f"`{choice}`" for choice in CHOICES[flag])
    if flag in RANGES:
        low, high = re.findall(r"\[(.*), (.*)\]", RANGES[flag].sentence)[0]
        return f"{low} to {high}"
    return "true or false" if FIELD_TYPES[flag] is bool else "text; empty: none"


def test_every_flag_has_its_row_in_order() -> None:
    assert tuple(FLAG_ROWS) == FIELD_NAMES


@pytest.mark.parametrize("flag", FIELD_NAMES)
def test_a_row_has_the_default_and_the_range_of_the_code(flag: str) -> None:
    default, documented_range, trades = FLAG_ROWS[flag]
    assert default == as_documented(BUILT_IN[flag])
    assert documented_range == range_as_documented(flag)
    assert trades.strip()


def test_the_groups_are_the_headings() -> None:
    headings = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    assert [heading.lower() for heading in headings] == [group.lower() for group in GROUPS]


def shipped_rows() -> dict[str, str]:
    (section,) = re.findall(r"^## Shipped profiles$(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^\| `([a-z-]+)` \| .* \| (.*) \|$", section, re.MULTILINE))


def test_every_shipped_profile_has_its_row() -> None:
    assert list(shipped_rows()) == list(SHIPPED)


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_the_row_of_a_shipped_profile_has_its_values(name: str) -> None:
    cells = re.findall(r"`([a-z_]+)(?: = ([^`]+))?`", shipped_rows()[name])
    values = {flag: (tomllib.loads(f"x = {v}")["x"] if v else True) for flag, v in cells}
    expected = {**RetrievalProfile.off().to_json(), **SHIPPED[name].values}
    said = {flag: value for flag, value in values.items() if flag in SHIPPED[name].values}
    assert said == {flag: expected[flag] for flag in said}
    if name in ("synapse", "compact"):
        assert values == dict(SHIPPED[name].values)


def test_the_examples_are_sound() -> None:
    for page in (PAGE, (DOCS / "configuration.md").read_text(encoding="utf-8")):
        (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
        tables = tomllib.loads(example)["profiles"]
        assert tables
        layers = Layers(config=tables)
        assert [f for n, table in tables.items() for f in table_faults(n, table, layers)] == []
