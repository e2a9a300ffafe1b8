"""Imports point one way, and the read side reaches no builder. Read from the source, by AST."""

from __future__ import annotations

import sys
from collections import defaultdict

import pytest

from tests.support.imports import (
    imports_of,
    modules,
    package_of,
    reachable_from,
    why,
)

FOUNDATION = frozenset(
    {"types", "errors", "hashing", "files", "progress", "settings", "locate", "text"}
)
FEATURES = frozenset(
    {
        "cli", "compact", "corpus", "diagnosis", "encode", "evaluate", "graph", "lexical", "night",
        "recall", "reports", "serve", "snapshot", "usage", "vectors", "work",
    }
)  # fmt: skip
# What only a night needs: whole packages, then single modules of packages that both sides share.
BUILDERS = (
    "mnemon.corpus", "mnemon.night", "mnemon.work", "mnemon.compact", "mnemon.vectors",
    "mnemon.evaluate", "mnemon.diagnosis", "mnemon.cli", "mnemon.reports",
    "mnemon.snapshot.build", "mnemon.snapshot.checks", "mnemon.snapshot.publish",
    "mnemon.snapshot.verdict", "mnemon.usage.statistics", "mnemon.usage.folding",
    "mnemon.usage.retention",
    "mnemon.graph.build", "mnemon.graph.concepts", "mnemon.graph.dictionary",
    "mnemon.graph.extract", "mnemon.graph.extraction", "mnemon.graph.fold",
    "mnemon.graph.lexicon", "mnemon.graph.model",
    "mnemon.graph.names", "mnemon.graph.pack", "mnemon.graph.subjects", "mnemon.graph.tables",
    "mnemon.lexical.fields", "mnemon.lexical.fts_seed", "mnemon.lexical.postings",
    "mnemon.encode.batching", "mnemon.encode.bert_weights", "mnemon.encode.export",
    "mnemon.encode.known", "mnemon.encode.locate", "mnemon.encode.sentence",
    "mnemon.encode.onnx_encoder", "mnemon.encode.onnx_export", "mnemon.encode.onnx_format",
)  # fmt: skip
HEAVY = frozenset(
    {
        "dagster", "dagster_webserver", "lancedb", "lance", "torch", "transformers",
        "sentence_transformers", "safetensors", "tokenizers", "pandas", "pydantic", "polars",
        "pyarrow", "duckdb", "rich", "click", "matplotlib", "jinja2", "PIL",
        "onnx", "onnxruntime",
    }
)  # fmt: skip
READ_SIDE_LIBRARIES = frozenset({"numpy", "snowballstemmer"})
RECALL = [name for name in modules() if package_of(name) == "recall" and name != "mnemon"]


def tops(names: frozenset[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_the_walk_sees_the_project() -> None:
    """Guards every test below against an empty graph."""
    assert len(modules()) > 100
    assert "mnemon.recall.engine" in imports_of("mnemon.recall.api")
    assert "mnemon.recall.api" in imports_of("mnemon.recall"), "imports inside functions count"
    assert "mnemon.snapshot" in imports_of("mnemon.recall.api"), "packages on the way count"
    assert "numpy" in imports_of("mnemon.recall.engine")
    assert "dagster" in tops(reachable_from("pipelines.definitions"))
    assert "lancedb" in tops(reachable_from("mnemon.vectors.tiers"))
    assert why("mnemon.recall", "numpy")[-1] == "numpy"


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("mnemon", {"assets", "pipelines", "dagster", "dagster_webserver", "tests", "bench"}),
        ("assets", {"pipelines", "tests", "bench"}),
        ("pipelines", {"tests", "bench"}),
    ],
)
def test_imports_point_from_pipelines_to_assets_to_mnemon(
    package: str, forbidden: set[str]
) -> None:
    wrong = {
        module: bad
        for module in modules()
        if module.split(".")[0] == package
        if (bad := tops(imports_of(module, typing_only=True)) & forbidden)
    }
    assert not wrong


def test_every_part_of_mnemon_is_foundation_or_feature() -> None:
    """A new package has to be given its place here."""
    parts = {package_of(m) for m in modules() if m.startswith("mnemon.")}
    assert parts == FOUNDATION | FEATURES


def test_the_foundation_imports_no_feature() -> None:
    wrong = {
        (module, name)
        for module in modules()
        if module.startswith("mnemon.") and package_of(module) in FOUNDATION
        for name in imports_of(module, typing_only=True)
        if name.startswith("mnemon.") and package_of(name) not in FOUNDATION
    }
    assert not wrong


@pytest.mark.parametrize("module", RECALL)
def test_recall_reaches_no_builder(module: str) -> None:
    for name in reachable_from(module):
        for builder in BUILDERS:
            chain = why(module, name)
            assert name != builder, chain
            assert not name.startswith(f"{builder}."), chain


@pytest.mark.parametrize("module", RECALL)
def test_recall_reaches_only_numpy_and_the_stemmer_outside_the_standard_library(
    module: str,
) -> None:
    outside = {
        name
        for name in tops(reachable_from(module))
        if name not in sys.stdlib_module_names and name not in {"mnemon", "__future__"}
    }
    assert outside <= READ_SIDE_LIBRARIES
    assert not outside & HEAVY


def test_every_builder_on_the_list_exists() -> None:
    """A renamed builder must not silently drop out of the rule above."""
    for builder in BUILDERS:
        assert builder in modules(), builder


def test_the_read_side_of_shared_packages_is_all_that_recall_reaches() -> None:
    """Every module that recall reaches is listed here by hand: an addition is a decision."""
    reached = {name for m in RECALL for name in reachable_from(m) if name.startswith("mnemon.")}
    shared = {name for name in reached if package_of(name) in FEATURES - {"recall"}}
    assert shared == {
        "mnemon.encode", "mnemon.encode.base", "mnemon.encode.bert_math",
        "mnemon.encode.bert_ranges", "mnemon.encode.fingerprint", "mnemon.encode.lean",
        "mnemon.encode.lean_format", "mnemon.encode.wordpiece",
        "mnemon.graph", "mnemon.graph.arrays", "mnemon.graph.walk",
        "mnemon.lexical", "mnemon.lexical.search",
        "mnemon.snapshot", "mnemon.snapshot.layout", "mnemon.snapshot.manifest",
        "mnemon.snapshot.nights",
        "mnemon.usage", "mnemon.usage.access_log",
    }  # fmt: skip


def package_graph() -> dict[str, set[str]]:
    edges: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        if not module.startswith("mnemon."):
            continue
        for name in imports_of(module):
            if name.startswith("mnemon.") and package_of(name) != package_of(module):
                edges[package_of(module)].add(package_of(name))
    return edges


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    edges = package_graph()
    done: set[str] = set()

    def visit(package: str, path: tuple[str, ...]) -> None:
        assert package not in path, " -> ".join((*path, package))
        if package not in done:
            for target in sorted(edges[package]):
                visit(target, (*path, package))
            done.add(package)

    for package in sorted(edges):
        visit(package, ())


def test_only_the_edges_of_the_system_import_recall() -> None:
    importers = {
        package_of(m)
        for m in modules()
        if m.startswith("mnemon.") and package_of(m) != "recall"
        for name in imports_of(m)
        if name.startswith("mnemon.recall")
    }
    assert importers <= {"cli", "night", "serve"}


def test_every_package_says_what_it_is() -> None:
    """Each folder with modules is a package with a docstring, not an accidental namespace."""
    for name, path in modules().items():
        init = path.with_name("__init__.py")
        assert init.is_file(), f"{path.parent} has no __init__.py ({name})"
