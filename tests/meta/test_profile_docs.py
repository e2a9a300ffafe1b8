"""docs/profiles.md has every shipped profile, and on the site every flag, as the code has them."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from noctuary.core.settings import Settings
from noctuary.recall.profile import (
    FLAGS,
    GROUPS,
    SHIPPED,
    RetrievalProfile,
    list_profiles,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "profiles.md").read_text(encoding="utf-8")


def test_the_site_adds_the_default_the_range_and_the_meaning_of_every_flag() -> None:
    commands = runpy.run_path(str(DOCS / "commands.py"))
    page = SimpleNamespace(file=SimpleNamespace(src_uri="profiles.md"))
    text = commands["on_page_markdown"](PAGE, page)
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert [heading.lower() for heading in headings] == [group.lower() for group in GROUPS]
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \| (.+) \| (.+) \|$", text, re.MULTILINE)
    assert [(name, meaning) for name, _, _, meaning in rows] == [
        (name, flag.meaning) for name, flag in FLAGS.items()
    ]
    shown = {name: (default, span) for name, default, span, _ in rows}
    assert shown["fusion"] == ("cc", "`cc` or `rrf`")
    assert shown["reranker"] == ("empty", "text")
    assert shown["mmr_enabled"] == ("false", "true or false")
    assert shown["coarse_threshold"] == ("0.2", "-1 to 1")
    assert shown["depth"] == ("50", "1 to 2147483647")
    assert shown["half_life_days"] == ("90.0", "1e-06 to 1000000000")


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
        entries = list_profiles(Settings(profiles=tables))
        assert [fault for entry in entries for fault in entry.faults] == []
