"""Imports point one way, and the read side reaches no builder. Read from the source, by AST."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable

import pytest

from tests.support.imports import (
    imports_of,
    lazy_imports_of,
    modules,
    package_of,
    reachable_from,
    tree_of,
    why,
)

ROOMS = (
    "core", "text", "work", "sources", "embed", "lexical", "usage", "graph", "compact", "curate",
    "snapshot", "recall", "evaluate", "context", "agents", "cli",
)  # fmt: skip
"""From the ground up: a room imports only from rooms before it."""

ROOM_FILES = sorted(name for name in modules() if name.count(".") == 2 and name[:9] == "noctuary.")
RECALL = [name for name in ROOM_FILES if package_of(name) == "recall"]

HEAVY = frozenset(
    {
        "dagster", "dagster_webserver", "lancedb", "lance", "torch", "transformers",
        "sentence_transformers", "safetensors", "tokenizers", "pandas", "pydantic", "polars",
        "pyarrow", "duckdb", "rich", "click", "jinja2",
        "onnx", "onnxruntime", "psycopg", "httpx", "tenacity", "chromadb", "scipy", "mcp",
        "mcp_types", "anyio", "markdown_it", "yaml", "ray", "lance_ray", "dagster_ray",
    }
)  # fmt: skip
READ_SIDE_LIBRARIES = frozenset({"numpy", "snowballstemmer"})

LAZY_DOORS = {
    ("noctuary.recall.rerank", "sentence_transformers"): (
        "a cross-encoder is loaded when a profile names a reranker and a recall asks it"
    ),
    ("noctuary.recall.rerank", "transformers"): (
        "the same library's progress bar, kept quiet while that model is loaded"
    ),
    ("noctuary.work.http", "httpx"): (
        "a provider is asked for a query's vector, where one made the snapshot's"
    ),
    ("noctuary.work.http", "tenacity"): "the same request, made again",
    ("noctuary.recall.inputs", "noctuary.embed.onnx"): (
        "a model that the lean encoder cannot read is asked through its ONNX export"
    ),
    ("noctuary.sources.live", "noctuary.sources.export"): (
        "rows of the store itself are judged by the export's own rules; most recalls find none"
    ),
    ("noctuary.sources.live", "noctuary.sources.open"): (
        "a source of files is read by the reader of the nights"
    ),
    ("noctuary.sources.live", "noctuary.sources.source"): "the same",
    ("noctuary.sources.live", "noctuary.sources.normalize"): "the same",
    ("noctuary.sources.live", "noctuary.sources.postgres"): "the same, of a database",
    ("noctuary.sources.live", "noctuary.sources.echo"): (
        "what recall injected is told from what was said, by the night's rules"
    ),
}
"""Imports inside functions by which recall may leave the read side: from, to, and what for. What a
hook pays for is what is imported at the top of a module: no door there."""

READ_SIDE = frozenset(
    {
        "core.errors", "core.files", "core.foreign_json", "core.formats", "core.locks",
        "core.manifest", "core.settings", "core.sqlite", "core.store", "core.tombstones",
        "core.types",
        "text.dates", "text.flags", "text.kinds", "text.marks", "text.orders", "text.reach",
        "text.tokens",
        "sources.live",
        "embed.default_model", "embed.fingerprint", "embed.lean", "embed.wordpiece",
        "lexical.search",
        "usage.access_log", "usage.reader",
        "graph.fold", "graph.sessions", "graph.successors", "graph.walk", "graph.word_lists",
        "snapshot.arrays",
    }
)  # fmt: skip
"""Files of other rooms that recall imports at the top of its own."""

READ_SIDE_LAZILY = frozenset(
    {
        # Where something was archived; without archive.sqlite it is not loaded.
        "compact.archive",
        # Where the store is large enough for a short tier.
        "embed.funnel",
        # Where a provider made the snapshot's vectors, it is asked for the query's.
        "embed.hosted", "work.http",
        # Where the store has something that the snapshot lacks.
        "sources.injected",
        "usage.query_log",
        # Where a question, or what a hook injects, is to be kept.
        "text.secret_forms", "text.secrets",
    }
)  # fmt: skip
"""Those that only a function of recall imports."""

INNER_DOORS = {
    ("cli.entry", "cli.main"): "a hook's event is answered before the commands are loaded",
}
"""Imports inside functions that close a circle inside a room: from, to, and what for."""


def tops(names: frozenset[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def files_among(names: frozenset[str]) -> set[str]:
    return {name.removeprefix("noctuary.") for name in names if name in ROOM_FILES}


def other_rooms(names: frozenset[str]) -> set[str]:
    return {name for name in files_among(names) if not name.startswith("recall.")}


def libraries_among(names: frozenset[str]) -> set[str]:
    """What is neither of the standard library nor of the project."""
    return tops(names) - sys.stdlib_module_names - {"noctuary", "__future__"}


def circle_in(edges: Callable[[str], set[str]]) -> list[str]:
    """Return a way from a file back to itself, empty where there is none."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        for target in sorted(edges(name)) if name not in done else ():
            if found := visit(target, [*path, name]):
                return found
        done.add(name)
        return []

    return next(filter(None, (visit(n.removeprefix("noctuary."), []) for n in ROOM_FILES)), [])


def test_the_walk_sees_the_project() -> None:
    """Guards every test below against an empty graph."""
    assert len(ROOM_FILES) > 100
    assert "noctuary.recall.engine" in imports_of("noctuary.recall.api")
    assert "noctuary.recall.api" in imports_of("noctuary.recall"), "imports inside functions count"
    assert "noctuary.recall.api" in lazy_imports_of("noctuary.recall"), "and are told apart"
    assert "noctuary.recall.engine" in imports_of("noctuary.recall.api", eager_only=True)
    assert "noctuary.graph" in imports_of("noctuary.recall.legs"), "packages on the way count"
    assert "numpy" in imports_of("noctuary.recall.engine")
    assert "dagster" in tops(reachable_from("noctuary_pipelines.definitions"))
    assert "lancedb" in tops(reachable_from("noctuary.embed.tiers"))
    assert "lancedb" not in tops(reachable_from("noctuary.embed.tiers", eager_only=True))
    assert why("noctuary.recall", "numpy")[-1] == "numpy"
    assert "numpy" not in reachable_from(
        "noctuary.lexical.search", without=frozenset({("noctuary.lexical.search", "numpy")})
    )


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        (
            "noctuary",
            {
                "noctuary_assets",
                "noctuary_pipelines",
                "dagster",
                "dagster_webserver",
                "tests",
                "bench",
            },
        ),
        ("noctuary_assets", {"noctuary_pipelines", "tests", "bench"}),
        ("noctuary_pipelines", {"tests", "bench"}),
    ],
)
def test_imports_point_from_pipelines_to_assets_to_noctuary(
    package: str, forbidden: set[str]
) -> None:
    wrong = {
        module: bad
        for module in modules()
        if module.split(".")[0] == package
        if (bad := tops(imports_of(module, typing_only=True)) & forbidden)
    }
    assert not wrong


NAMED_DOORS = {
    "noctuary.cli.main": "`noctuary nightly` and `ui` load what runs them, where it is installed"
}
"""Files of the library that import the build side by its name, which no arrow shows."""


def test_the_library_names_the_build_side_in_stated_doors_only() -> None:
    named = {
        module
        for module in ROOM_FILES
        for node in ast.walk(tree_of(modules()[module]))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.split(".")[0] in {"noctuary_assets", "noctuary_pipelines"}
    }
    assert named == NAMED_DOORS.keys()


def test_the_rooms_are_those_of_the_house() -> None:
    """A new room has to be given its floor; a file stands in a room, not beside them."""
    assert {package_of(name) for name in modules() if name.startswith("noctuary.")} == set(ROOMS)
    deeper = [name for name in modules() if name.startswith("noctuary.") and name.count(".") > 2]
    assert not deeper


def test_an_arrow_between_rooms_points_down() -> None:
    """Imports inside functions count, and those of a type checker."""
    wrong = {
        (module, name)
        for module in ROOM_FILES
        for name in imports_of(module, typing_only=True)
        if name.startswith("noctuary.")
        if ROOMS.index(package_of(name)) > ROOMS.index(package_of(module))
    }
    assert not wrong


def test_no_room_holds_a_circle() -> None:
    def edges(name: str) -> set[str]:
        room = name.split(".")[0]
        found = files_among(imports_of(f"noctuary.{name}", typing_only=room == "recall"))
        shut = {goal for start, goal in INNER_DOORS if start == name}
        return {other for other in found if other.split(".")[0] == room} - shut

    assert not circle_in(edges), " -> ".join(circle_in(edges))


@pytest.mark.parametrize("room", ["sources"])
def test_a_room_holds_no_circle_of_lazy_or_type_imports_either(room: str) -> None:
    def edges(name: str) -> set[str]:
        found = files_among(imports_of(f"noctuary.{name}", typing_only=True))
        return {other for other in found if name.split(".")[0] == other.split(".")[0] == room}

    assert not circle_in(edges), " -> ".join(circle_in(edges))


@pytest.mark.parametrize("door", sorted(INNER_DOORS), ids="->".join)
def test_a_door_inside_a_room_is_lazy_and_closes_a_circle(door: tuple[str, str]) -> None:
    start, goal = (f"noctuary.{name}" for name in door)
    assert goal in lazy_imports_of(start)
    assert start in reachable_from(goal)


@pytest.mark.parametrize("module", RECALL)
def test_recall_needs_numpy_and_the_stemmer_only(module: str) -> None:
    """What a hook pays for has no door; what a call needs beyond it goes through a stated one."""
    at_import = reachable_from(module, eager_only=True)
    assert libraries_among(at_import) <= READ_SIDE_LIBRARIES
    doors = frozenset(LAZY_DOORS)
    outside = libraries_among(reachable_from(module, without=doors))
    assert outside <= READ_SIDE_LIBRARIES, [why(module, n, without=doors) for n in outside]
    assert not outside & HEAVY


def test_the_read_side_is_all_that_recall_reaches() -> None:
    """Every file that recall reaches is listed by hand: an addition is a decision."""
    at_import: set[str] = set()
    at_all: set[str] = set()
    for module in RECALL:
        at_import |= other_rooms(reachable_from(module, eager_only=True))
        at_all |= other_rooms(reachable_from(module, without=frozenset(LAZY_DOORS)))
    assert at_import == READ_SIDE
    assert at_all == READ_SIDE | READ_SIDE_LAZILY


@pytest.mark.parametrize("door", sorted(LAZY_DOORS), ids="->".join)
def test_a_door_out_of_recall_is_real_lazy_and_needed(door: tuple[str, str]) -> None:
    """A door that nobody uses would let the next import through unseen."""
    start, goal = door
    assert LAZY_DOORS[door]
    assert start.removeprefix("noctuary.") in READ_SIDE | READ_SIDE_LAZILY or start in RECALL
    lazy = {name for name in lazy_imports_of(start) if name == goal or name.startswith(f"{goal}.")}
    at_the_top = imports_of(start, eager_only=True)
    assert lazy
    assert not {name for name in at_the_top if name == goal or name.startswith(f"{goal}.")}
    known = READ_SIDE | READ_SIDE_LAZILY
    assert files_among(frozenset(lazy)) - known or tops(frozenset(lazy)) & HEAVY


def test_every_room_says_what_it_is() -> None:
    """Each folder with modules is a package with a docstring, not an accidental namespace."""
    for name, path in modules().items():
        init = path.with_name("__init__.py")
        assert init.is_file(), f"{path.parent} has no __init__.py ({name})"


RAW_ROWS = {
    "noctuary.core.tombstones": "opens the rows for every view, without what is being forgotten",
    "noctuary.snapshot.forget_plan": "searches them for what is being forgotten",
    "noctuary.snapshot.checks": "judges a candidate, which is no view",
    "noctuary.sources.echo": "keeps hashes of what a night exported, for the next one",
}


def test_whatever_shows_a_snapshot_opens_its_rows_without_what_is_being_forgotten() -> None:
    found = {
        name
        for name, path in modules().items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("connect_immutable")
        if {"ROWS_FILE", "serving", "rows_file"}
        & set(re.findall(r"\w+", ast.unparse(node.args[0])))
    }
    assert found == set(RAW_ROWS), "a view calls `open_rows`; what is none says here why"
