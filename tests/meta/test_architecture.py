"""Imports point one way, and the read side reaches no builder. Read from the source, by AST."""

from __future__ import annotations

import sys
from collections import defaultdict

import pytest

from tests.support.imports import (
    imports_of,
    lazy_imports_of,
    modules,
    package_of,
    reachable_from,
    why,
)

FOUNDATION = frozenset(
    {
        "types",
        "errors",
        "hashing",
        "files",
        "hooks",
        "immutable",
        "progress",
        "settings",
        "locate",
        "source_name",
        "foreign_file",
        "foreign_json",
        "text",
        "values",
        "cores",
        "arrow",
    }
)
FEATURES = frozenset(
    {
        "agents", "archive", "authored", "capture", "cli", "compact", "context", "corpus", "curate",
        "diagnosis", "encode", "evaluate", "exchange", "graph",
        "hosted", "injection", "lexical", "live", "mcp_server", "night", "postgres",
        "promote", "recall", "reports", "sensitive", "serve", "shards", "snapshot", "sql",
        "transcripts",
        "usage", "vectors",
        "work",
    }
)  # fmt: skip
# What only a night needs: whole packages, then single modules of packages that both sides share.
BUILDERS = (
    "mnemon.capture",
    "mnemon.corpus", "mnemon.curate", "mnemon.night", "mnemon.work", "mnemon.compact",
    "mnemon.hosted", "mnemon.evaluate", "mnemon.diagnosis", "mnemon.cli", "mnemon.promote",
    "mnemon.reports", "mnemon.exchange", "mnemon.sql", "mnemon.shards",
    "mnemon.mcp_server",
    "mnemon.agents.install",
    "mnemon.snapshot.build", "mnemon.snapshot.checks", "mnemon.snapshot.publish",
    "mnemon.snapshot.verdict", "mnemon.usage.statistics", "mnemon.usage.folding",
    "mnemon.usage.retention", "mnemon.usage.scoring", "mnemon.usage.window",
    "mnemon.usage.writing",
    "mnemon.archive.applying", "mnemon.archive.candidate", "mnemon.archive.consolidation",
    "mnemon.archive.history", "mnemon.archive.last_look", "mnemon.archive.plan",
    "mnemon.archive.planning", "mnemon.archive.rules", "mnemon.archive.scan",
    "mnemon.archive.snapshot_rows", "mnemon.archive.summaries", "mnemon.archive.summary_row",
    "mnemon.archive.writing",
    "mnemon.injection.exported", "mnemon.injection.known", "mnemon.injection.recogniser",
    "mnemon.injection.retention",
    "mnemon.transcripts.turns_source",
    "mnemon.vectors.cells", "mnemon.vectors.dirty", "mnemon.vectors.embed",
    "mnemon.vectors.lance", "mnemon.vectors.rotation", "mnemon.vectors.thresholds",
    "mnemon.vectors.tiers", "mnemon.vectors.tier_index", "mnemon.vectors.tier_states",
    "mnemon.vectors.embed_task", "mnemon.vectors.norms", "mnemon.vectors.object_tables",
    "mnemon.graph.build", "mnemon.graph.dictionary", "mnemon.graph.glance", "mnemon.graph.state",
    "mnemon.graph.extract", "mnemon.graph.extraction", "mnemon.graph.canonical",
    "mnemon.graph.aliases", "mnemon.graph.clauses", "mnemon.graph.patterns", "mnemon.graph.phrases",
    "mnemon.graph.possessives", "mnemon.graph.reader", "mnemon.graph.runs",
    "mnemon.graph.model",
    "mnemon.graph.names", "mnemon.graph.pack", "mnemon.graph.subjects", "mnemon.graph.tables",
    "mnemon.graph.told",
    "mnemon.graph.plugins", "mnemon.graph.supersession.cells",
    "mnemon.graph.supersession.explicit", "mnemon.graph.supersession.find",
    "mnemon.graph.supersession.intervals", "mnemon.graph.supersession.links",
    "mnemon.graph.supersession.memo", "mnemon.graph.supersession.memories",
    "mnemon.graph.supersession.near", "mnemon.graph.supersession.resolve",
    "mnemon.graph.supersession.statements", "mnemon.graph.supersession.topics",
    "mnemon.graph.supersession.values", "mnemon.graph.view",
    "mnemon.lexical.counting", "mnemon.lexical.merging", "mnemon.lexical.postings",
    "mnemon.lexical.tokenizing",
    "mnemon.encode.batching", "mnemon.encode.bert_weights", "mnemon.encode.export",
    "mnemon.encode.known", "mnemon.encode.locate", "mnemon.encode.sentence",
    "mnemon.encode.onnx_encoder", "mnemon.encode.onnx_export", "mnemon.encode.onnx_format",
    "mnemon.encode.hosted.cost", "mnemon.encode.hosted.documents",
    "mnemon.encode.hosted.opening", "mnemon.encode.hosted.retrying",
)  # fmt: skip
HEAVY = frozenset(
    {
        "dagster", "dagster_webserver", "lancedb", "lance", "torch", "transformers",
        "sentence_transformers", "safetensors", "tokenizers", "pandas", "pydantic", "polars",
        "pyarrow", "duckdb", "rich", "click", "matplotlib", "jinja2", "PIL",
        "onnx", "onnxruntime", "psycopg", "httpx", "chromadb", "scipy", "mcp", "mcp_types", "anyio",
        "markdown_it", "yaml", "ray", "lance_ray", "dagster_ray", "boto3", "moto",
    }
)  # fmt: skip
READ_SIDE_LIBRARIES = frozenset({"numpy", "snowballstemmer"})
RECALL = [name for name in modules() if package_of(name) == "recall" and name != "mnemon"]

LAZY_DOORS = {
    ("mnemon.recall.reranking", "sentence_transformers"): (
        "a cross-encoder is loaded when a profile names a reranker and a recall asks it"
    ),
    ("mnemon.recall.reranking", "transformers"): (
        "the same library's progress bar, kept quiet while that model is loaded"
    ),
    ("mnemon.encode.hosted.client", "httpx"): (
        "a provider is asked for a query's vector, where one made the snapshot's"
    ),
    ("mnemon.encode.warm", "mnemon.encode.onnx_encoder"): (
        "ONNX Runtime encodes queries in a process that keeps asking, never in a hook"
    ),
    ("mnemon.recall.query_encoder", "mnemon.encode.onnx_encoder"): (
        "a model that the lean encoder cannot read is asked through its ONNX export"
    ),
    ("mnemon.recall.query_encoder", "mnemon.encode.onnx_format"): "the same model's header",
    ("mnemon.recall.encoder_identity", "mnemon.encode.onnx_format"): "the same model's header",
    ("mnemon.live.judging", "mnemon.corpus"): (
        "rows of the store itself are judged by the export's own rules; most recalls find none"
    ),
    ("mnemon.live.judging", "mnemon.corpus.sift"): (
        "rows of the store itself are judged by the export's own rules; most recalls find none"
    ),
    ("mnemon.live.judging", "mnemon.corpus.source"): (
        "rows of the store itself are judged by the export's own rules; most recalls find none"
    ),
    ("mnemon.live.judging", "mnemon.injection.known"): (
        "what recall injected is told from what was said, by the night's rules"
    ),
    ("mnemon.live.judging", "mnemon.injection.recogniser"): (
        "what recall injected is told from what was said, by the night's rules"
    ),
    ("mnemon.live.postgres_look", "mnemon.corpus"): (
        "a database is read by the source of the nights, where a store is one"
    ),
    ("mnemon.live.postgres_look", "mnemon.corpus.changes"): (
        "a database is read by the source of the nights, where a store is one"
    ),
    ("mnemon.live.postgres_look", "mnemon.corpus.source"): (
        "a database is read by the source of the nights, where a store is one"
    ),
    ("mnemon.graph.transitions", "scipy"): (
        "sparse matrices, where a profile says graph_mode=ppr; the walk answers without them"
    ),
}
"""Imports inside functions by which recall may leave the read side: from, to, and what for. What a
hook pays for is what is imported at the top of a module: no door there."""

SHARED = frozenset(
    {
        "mnemon.encode", "mnemon.encode.base", "mnemon.encode.bert_math",
        "mnemon.encode.bert_ranges", "mnemon.encode.fingerprint", "mnemon.encode.lean",
        "mnemon.encode.lean_format", "mnemon.encode.warm", "mnemon.encode.wordpiece",
        "mnemon.graph", "mnemon.graph.arrays", "mnemon.graph.walk", "mnemon.graph.conversation",
        "mnemon.graph.fold", "mnemon.graph.linking", "mnemon.graph.named", "mnemon.graph.scripts",
        "mnemon.graph.sessions", "mnemon.graph.supersession", "mnemon.graph.supersession.grades",
        # Only the phase `supersede` imports them: what two memories must not differ in.
        "mnemon.graph.dates", "mnemon.graph.identifiers", "mnemon.graph.lexicon",
        "mnemon.graph.supersession.guards",
        # The keyword search of the seed store; only `fts5_leg` imports it, for lexical_mode="fts5".
        "mnemon.lexical", "mnemon.lexical.fts_seed", "mnemon.lexical.search",
        # Only `overlay` imports them, where the store has something that the snapshot lacks.
        "mnemon.lexical.bm25", "mnemon.lexical.fields", "mnemon.live", "mnemon.live.state",
        "mnemon.live.words",
        "mnemon.snapshot", "mnemon.snapshot.layout", "mnemon.snapshot.manifest",
        "mnemon.snapshot.nights", "mnemon.snapshot.summary_arrays",
        # LTP multiplies by a formula that the night uses as well; usage.sqlite is only read.
        "mnemon.usage", "mnemon.usage.access_log", "mnemon.usage.log_writer", "mnemon.usage.ltp",
        "mnemon.usage.reading", "mnemon.usage.usage_file",
        "mnemon.vectors", "mnemon.vectors.cascade",
    }
)  # fmt: skip
"""Modules of other packages that recall imports at the top of its own."""

SHARED_LAZILY = frozenset(
    {
        # Where something was archived; without archive.sqlite neither is loaded.
        "mnemon.archive", "mnemon.archive.ledger_file", "mnemon.archive.reading",
        # Where a provider made the snapshot's vectors, it is asked for the query's.
        "mnemon.encode.hosted", "mnemon.encode.hosted.answers", "mnemon.encode.hosted.client",
        "mnemon.encode.hosted.description", "mnemon.encode.hosted.faults",
        "mnemon.encode.hosted.model", "mnemon.encode.hosted.models",
        "mnemon.encode.hosted.queries", "mnemon.encode.hosted.shapes",
        "mnemon.encode.hosted.texts",
        "mnemon.graph.hubs", "mnemon.graph.ppr", "mnemon.graph.push",
        "mnemon.graph.supersession.reading",
        "mnemon.graph.transitions",
        # Who else may read what; without shares it is not loaded.
        "mnemon.snapshot.share_arrays",
        # Where the store has something that the snapshot lacks.
        "mnemon.injection", "mnemon.injection.wording",
        "mnemon.live.found", "mnemon.live.judging", "mnemon.live.looking",
        "mnemon.live.postgres_look", "mnemon.live.sqlite_look",
        "mnemon.usage.query_log",
    }
)  # fmt: skip
"""Those that only a function of recall imports: query expansion and PageRank are off unless a
profile says so."""


def tops(names: frozenset[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def builders_among(names: frozenset[str]) -> set[str]:
    return {n for n in names for b in BUILDERS if n == b or n.startswith(f"{b}.")}


def libraries_among(names: frozenset[str]) -> set[str]:
    """What is neither of the standard library nor of the project."""
    return tops(names) - sys.stdlib_module_names - {"mnemon", "__future__"}


def shared_among(names: frozenset[str]) -> set[str]:
    """Modules of the project's other features."""
    features = FEATURES - {"recall"}
    return {n for n in names if n.startswith("mnemon.") and package_of(n) in features}


def test_the_walk_sees_the_project() -> None:
    """Guards every test below against an empty graph."""
    assert len(modules()) > 100
    assert "mnemon.recall.engine" in imports_of("mnemon.recall.api")
    assert "mnemon.recall.api" in imports_of("mnemon.recall"), "imports inside functions count"
    assert "mnemon.recall.api" in lazy_imports_of("mnemon.recall"), "and are told apart"
    assert "mnemon.recall.engine" in imports_of("mnemon.recall.api", eager_only=True)
    assert "mnemon.snapshot" in imports_of("mnemon.recall.engine"), "packages on the way count"
    assert "numpy" in imports_of("mnemon.recall.engine")
    assert "dagster" in tops(reachable_from("pipelines.definitions"))
    assert "lancedb" in tops(reachable_from("mnemon.vectors.tiers"))
    assert "lancedb" not in tops(reachable_from("mnemon.vectors.tiers", eager_only=True))
    assert why("mnemon.recall", "numpy")[-1] == "numpy"
    assert "numpy" not in reachable_from(
        "mnemon.recall.ages", without=frozenset({("mnemon.recall.ages", "numpy")})
    )


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
def test_importing_recall_reaches_no_builder(module: str) -> None:
    """What a hook pays for: no door is open at the top of a module."""
    found = builders_among(reachable_from(module, eager_only=True))
    assert not found, [why(module, name, eager_only=True) for name in found]


@pytest.mark.parametrize("module", RECALL)
def test_calling_recall_reaches_a_builder_through_a_door_only(module: str) -> None:
    doors = frozenset(LAZY_DOORS)
    found = builders_among(reachable_from(module, without=doors))
    assert not found, [why(module, name, without=doors) for name in found]


@pytest.mark.parametrize("module", RECALL)
def test_importing_recall_needs_numpy_and_the_stemmer_only(module: str) -> None:
    outside = libraries_among(reachable_from(module, eager_only=True))
    assert outside <= READ_SIDE_LIBRARIES
    assert not outside & HEAVY


@pytest.mark.parametrize("module", RECALL)
def test_calling_recall_needs_more_through_a_door_only(module: str) -> None:
    doors = frozenset(LAZY_DOORS)
    outside = libraries_among(reachable_from(module, without=doors))
    assert outside <= READ_SIDE_LIBRARIES, [why(module, n, without=doors) for n in outside]
    assert not outside & HEAVY


@pytest.mark.parametrize("door", sorted(LAZY_DOORS), ids=" -> ".join)
def test_a_door_out_of_recall_is_real_lazy_and_needed(door: tuple[str, str]) -> None:
    """A door that nobody uses would let the next import through unseen."""
    start, goal = door
    assert LAZY_DOORS[door]
    assert start in set(RECALL) | SHARED | SHARED_LAZILY
    inside = {
        name for name in lazy_imports_of(start) if name == goal or name.startswith(f"{goal}.")
    }
    at_the_top = imports_of(start, eager_only=True)
    assert inside
    assert not {name for name in at_the_top if name == goal or name.startswith(f"{goal}.")}
    assert builders_among(frozenset(inside)) or tops(frozenset(inside)) & HEAVY


def test_every_builder_on_the_list_exists() -> None:
    """A renamed builder must not silently drop out of the rule above."""
    for builder in BUILDERS:
        assert builder in modules(), builder


def test_the_read_side_of_shared_packages_is_all_that_recall_reaches() -> None:
    """Every module that recall reaches is listed by hand: an addition is a decision."""
    at_import: set[str] = set()
    at_all: set[str] = set()
    for module in RECALL:
        at_import |= shared_among(reachable_from(module, eager_only=True))
        at_all |= shared_among(reachable_from(module, without=frozenset(LAZY_DOORS)))
    assert at_import == SHARED
    assert at_all == SHARED | SHARED_LAZILY


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
    # The doctor checks profiles, and an import what it built, as a recall would read them.
    edges = {"agents", "cli", "context", "diagnosis", "exchange", "mcp_server", "night", "serve"}
    edges |= {"evaluate"}  # it calibrates what a recall judges by
    assert importers <= edges


def test_every_package_says_what_it_is() -> None:
    """Each folder with modules is a package with a docstring, not an accidental namespace."""
    for name, path in modules().items():
        init = path.with_name("__init__.py")
        assert init.is_file(), f"{path.parent} has no __init__.py ({name})"
