"""The pages on the read path name every step, phase, warning and hook of the code, no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.types import HOOK_NAMES, register_hook
from noctuary.embed.lean import LeanEncoder
from noctuary.recall.api import recall
from noctuary.recall.engine import PHASES
from noctuary.recall.profile import FIELD_NAMES
from noctuary.recall.search import BREAKDOWN_KEYS
from noctuary.sources.live import PARTIAL, UNREACHABLE
from tests.support.imports import ROOT, tree_of
from tests.support.lean import write_encoder
from tests.support.store import Store, household, new_store

DOCS = ROOT / "docs"
RECALL_PAGE = (DOCS / "recall.md").read_text(encoding="utf-8")
HOOKS_PAGE = (DOCS / "hooks.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", HOOKS_PAGE, re.MULTILINE | re.DOTALL)

# What stands in the braces of a code that is put together: f"deadline_{self.name}".
BRACES = {
    "self.name": [step.name for step in PHASES if step.is_slow],
    "name": ["wing", "room", "category"],
}


def section(page: str, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def constants_of(node: ast.expr, module: ast.Module) -> Iterator[str]:
    """Yield what an expression may be: a text, one of two, one that a name was given."""
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.IfExp):
        yield from constants_of(node.body, module)
        yield from constants_of(node.orelse, module)
    elif isinstance(node, ast.JoinedStr):
        yield from _expanded(node)
    elif isinstance(node, ast.Name):
        for place in ast.walk(module):
            if isinstance(place, ast.Assign) and node.id in {ast.unparse(t) for t in place.targets}:
                yield from constants_of(place.value, module)


def _expanded(node: ast.JoinedStr) -> Iterator[str]:
    (before, braces) = node.values
    assert isinstance(before, ast.Constant)
    assert isinstance(braces, ast.FormattedValue)
    for name in BRACES[ast.unparse(braces.value)]:
        yield f"{before.value}{name}"


def warning_codes() -> set[str]:
    """Every code that a recall may warn with, read from the source."""
    # Faults of a look into the store reach a recall as pairs of code and message.
    codes = {PARTIAL, UNREACHABLE}
    for path in sorted((ROOT / "lib" / "noctuary" / "recall").rglob("*.py")):
        module = tree_of(path)
        for node in ast.walk(module):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = ast.unparse(node.func)
            if called == "RecallWarning" or called.endswith("run.warn") or called == "self.warn":
                codes |= set(constants_of(node.args[0], module))
    return codes


def documented_codes() -> list[str]:
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`) \|", section(page, "What recall warns about"), re.MULTILINE)
    return [code for row in rows for code in re.findall(r"`(\w+)`", row)]


def test_the_reading_of_the_codes_finds_each_form() -> None:
    assert {
        "dense_unavailable",
        "deadline_query_expansion",
        "unknown_room",
        "reranker_timeout",
        "model_guard_blocked",
        "no_snapshot",
        "supersede_without_vectors",
        "bad_profile",
        "replay_log",
    } <= warning_codes()


def test_every_warning_is_documented_once_and_no_other() -> None:
    assert sorted(documented_codes()) == sorted(warning_codes())


def test_every_warning_says_what_to_do() -> None:
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `.*$", section(page, "What recall warns about"), re.MULTILINE)
    assert rows
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 3
        assert all(cells), row


def test_every_phase_has_its_section_in_the_order_of_the_code() -> None:
    sections = re.findall(r"^### (\w+)$", section(RECALL_PAGE, "Phases"), re.MULTILINE)
    assert sections == [step.name for step in PHASES]


@pytest.mark.parametrize("step", PHASES, ids=lambda step: step.name)
def test_a_phase_has_flag_formula_and_source(step: Any) -> None:
    found = re.search(rf"^### {step.name}$(.*?)(?=^##)", RECALL_PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert re.findall(r"^- \*\*(Flag|Formula|Source)\*\*: ", found[1], re.MULTILINE) == [
        "Flag",
        "Formula",
        "Source",
    ]


def test_the_table_of_steps_has_the_order_of_the_code() -> None:
    table = section(RECALL_PAGE, "Every step, in order")
    named = [n for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
             for n in re.findall(r"`(\w+)`", row)]  # fmt: skip
    phases = [step.name for step in PHASES]
    assert [n for n in named if n in phases] == phases
    # "scorer" takes the place of fusion; importance has no time of its own.
    own = set(BREAKDOWN_KEYS) - {"scorer", "importance", "exact_match"}
    assert own <= set(named)


def test_every_flag_that_the_page_names_is_one() -> None:
    flags = re.findall(r"^- \*\*Flag\*\*: (.*?)(?=^- \*\*)", RECALL_PAGE, re.MULTILINE | re.DOTALL)
    named = {name for text in flags for name in re.findall(r"`([a-z_]+)`", text)}
    phases = {step.name for step in PHASES}
    assert {n for n in named if not n.startswith("_")} <= set(FIELD_NAMES) | phases | {"filter"}
    assert "mmr_lambda" in named


def hook_rows() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `(post_\w+)` \| .*? \| (.*) \|$", HOOKS_PAGE, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", context)) for name, context in rows}


def test_the_hooks_of_the_page_are_those_of_the_code() -> None:
    assert list(hook_rows()) == list(HOOK_NAMES)
    assert re.findall(r"^## (post_\w+)$", HOOKS_PAGE, re.MULTILINE) == list(HOOK_NAMES)
    for name in HOOK_NAMES:
        assert f'register_hook("{name}", ' in section(HOOKS_PAGE, name)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks of a test do not outlive it."""
    monkeypatch.setattr("noctuary.core.types._hooks", {})


@pytest.fixture
def store(home: Path, encoder: LeanEncoder) -> Store:
    made = new_store(home / "house", encoder=encoder)
    made.publish(household())
    return made


@pytest.fixture
def encoder(home: Path) -> LeanEncoder:
    return write_encoder(home / "house" / "encoders")


@pytest.mark.usefixtures("registered", "store")
@pytest.mark.parametrize("source", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(source: str) -> None:
    exec(compile(source, "docs/hooks.md", "exec"), {})


@pytest.mark.usefixtures("registered", "store")
def test_a_context_has_what_the_page_says() -> None:
    seen: dict[str, dict[str, Any]] = {}
    in_recall = [n for n in HOOK_NAMES if n not in {"post_batch", "post_compaction_plan"}]
    for name in in_recall:
        register_hook(name, lambda facts, name=name: seen.setdefault(name, facts))
    recall("door", profile={"mmr_enabled": True, "wing_diversity_weight": 0.3})
    assert set(seen) == set(in_recall)
    rows = hook_rows()
    for name, facts in seen.items():
        inner = {key for row in facts.get("candidates_after", ()) for key in row}
        assert rows[name] == {*facts, *inner}
