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
        "agents", "archive", "authored", "cli", "compact", "context", "corpus", "curate",
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
    "noctuary.corpus", "noctuary.curate", "noctuary.night", "noctuary.work", "noctuary.compact",
    "noctuary.hosted.answers", "noctuary.hosted.batches", "noctuary.hosted.chat",
    "noctuary.hosted.endpoint", "noctuary.hosted.retrying", "noctuary.evaluate",
    "noctuary.diagnosis", "noctuary.cli", "noctuary.promote",
    "noctuary.reports", "noctuary.exchange", "noctuary.sql", "noctuary.shards",
    "noctuary.mcp_server",
    "noctuary.agents.install",
    "noctuary.snapshot.build", "noctuary.snapshot.checks", "noctuary.snapshot.publish",
    "noctuary.snapshot.verdict", "noctuary.usage.statistics", "noctuary.usage.folding",
    "noctuary.usage.retention", "noctuary.usage.scoring", "noctuary.usage.window",
    "noctuary.usage.writing",
    "noctuary.archive.applying", "noctuary.archive.candidate", "noctuary.archive.consolidation",
    "noctuary.archive.history", "noctuary.archive.last_look", "noctuary.archive.plan",
    "noctuary.archive.planning", "noctuary.archive.rules", "noctuary.archive.scan",
    "noctuary.archive.snapshot_rows", "noctuary.archive.summaries", "noctuary.archive.summary_row",
    "noctuary.archive.writing",
    "noctuary.injection.exported", "noctuary.injection.known", "noctuary.injection.recogniser",
    "noctuary.injection.retention",
    "noctuary.transcripts.turns_source",
    "noctuary.vectors.cells", "noctuary.vectors.dirty", "noctuary.vectors.embed",
    "noctuary.vectors.lance", "noctuary.vectors.rotation", "noctuary.vectors.thresholds",
    "noctuary.vectors.tiers", "noctuary.vectors.tier_index", "noctuary.vectors.tier_states",
    "noctuary.vectors.embed_task", "noctuary.vectors.norms",
    "noctuary.graph.build", "noctuary.graph.dictionary", "noctuary.graph.glance",
    "noctuary.graph.state",
    "noctuary.graph.extract", "noctuary.graph.extraction", "noctuary.graph.canonical",
    "noctuary.graph.aliases", "noctuary.graph.clauses", "noctuary.graph.patterns",
    "noctuary.graph.phrases",
    "noctuary.graph.possessives", "noctuary.graph.reader", "noctuary.graph.runs",
    "noctuary.graph.model",
    "noctuary.graph.names", "noctuary.graph.pack", "noctuary.graph.subjects",
    "noctuary.graph.tables",
    "noctuary.graph.told",
    "noctuary.graph.llm_answers", "noctuary.graph.merge", "noctuary.graph.relation_words",
    "noctuary.graph.supersession.cells",
    "noctuary.graph.supersession.explicit", "noctuary.graph.supersession.find",
    "noctuary.graph.supersession.intervals", "noctuary.graph.supersession.links",
    "noctuary.graph.supersession.memo", "noctuary.graph.supersession.memories",
    "noctuary.graph.supersession.near", "noctuary.graph.supersession.resolve",
    "noctuary.graph.supersession.statements", "noctuary.graph.supersession.topics",
    "noctuary.graph.supersession.values", "noctuary.graph.view",
    "noctuary.lexical.counting", "noctuary.lexical.merging", "noctuary.lexical.postings",
    "noctuary.lexical.tokenizing",
    "noctuary.encode.batching", "noctuary.encode.bert_weights", "noctuary.encode.export",
    "noctuary.encode.known", "noctuary.encode.locate", "noctuary.encode.sentence",
    "noctuary.encode.onnx_encoder", "noctuary.encode.onnx_export", "noctuary.encode.onnx_format",
    "noctuary.encode.hosted.documents",
)  # fmt: skip
HEAVY = frozenset(
    {
        "dagster", "dagster_webserver", "lancedb", "lance", "torch", "transformers",
        "sentence_transformers", "safetensors", "tokenizers", "pandas", "pydantic", "polars",
        "pyarrow", "duckdb", "rich", "click", "matplotlib", "jinja2", "PIL",
        "onnx", "onnxruntime", "psycopg", "httpx", "tenacity", "chromadb", "scipy",
        "mcp", "mcp_types", "anyio", "markdown_it", "yaml", "ray", "lance_ray", "dagster_ray",
    }
)  # fmt: skip
READ_SIDE_LIBRARIES = frozenset({"numpy", "snowballstemmer"})
RECALL = [name for name in modules() if package_of(name) == "recall" and name != "noctuary"]

LAZY_DOORS = {
    ("noctuary.recall.reranking", "sentence_transformers"): (
        "a cross-encoder is loaded when a profile names a reranker and a recall asks it"
    ),
    ("noctuary.recall.reranking", "transformers"): (
        "the same library's progress bar, kept quiet while that model is loaded"
    ),
    ("noctuary.hosted.client", "httpx"): (
        "a provider is asked for a query's vector, where one made the snapshot's"
    ),
    ("noctuary.encode.warm", "noctuary.encode.onnx_encoder"): (
        "ONNX Runtime encodes queries in a process that keeps asking, never in a hook"
    ),
    ("noctuary.recall.query_encoder", "noctuary.encode.onnx_encoder"): (
        "a model that the lean encoder cannot read is asked through its ONNX export"
    ),
    ("noctuary.recall.query_encoder", "noctuary.encode.onnx_format"): "the same model's header",
    ("noctuary.recall.encoder_identity", "noctuary.encode.onnx_format"): "the same model's header",
    ("noctuary.live.judging", "noctuary.corpus"): (
        "rows of the store itself are judged by the export's own rules; most recalls find none"
    ),
    ("noctuary.live.judging", "noctuary.corpus.sift"): (
        "rows of the store itself are judged by the export's own rules; most recalls find none"
    ),
    ("noctuary.live.judging", "noctuary.corpus.source"): (
        "rows of the store itself are judged by the export's own rules; most recalls find none"
    ),
    ("noctuary.live.judging", "noctuary.injection.known"): (
        "what recall injected is told from what was said, by the night's rules"
    ),
    ("noctuary.live.judging", "noctuary.injection.recogniser"): (
        "what recall injected is told from what was said, by the night's rules"
    ),
    ("noctuary.live.postgres_look", "noctuary.corpus"): (
        "a database is read by the source of the nights, where a store is one"
    ),
    ("noctuary.live.postgres_look", "noctuary.corpus.postgres_source"): (
        "a database is read by the source of the nights, where a store is one"
    ),
}
"""Imports inside functions by which recall may leave the read side: from, to, and what for. What a
hook pays for is what is imported at the top of a module: no door there."""

SHARED = frozenset(
    {
        "noctuary.encode", "noctuary.encode.base", "noctuary.encode.bert_math",
        "noctuary.encode.bert_ranges", "noctuary.encode.fingerprint", "noctuary.encode.lean",
        "noctuary.encode.lean_format", "noctuary.encode.warm", "noctuary.encode.wordpiece",
        "noctuary.graph", "noctuary.graph.arrays", "noctuary.graph.walk",
        "noctuary.graph.conversation",
        "noctuary.graph.fold", "noctuary.graph.linking", "noctuary.graph.named",
        "noctuary.graph.scripts",
        "noctuary.graph.sessions", "noctuary.graph.supersession",
        "noctuary.graph.supersession.grades",
        # Only the phase `supersede` imports them: what two memories must not differ in.
        "noctuary.graph.dates", "noctuary.graph.identifiers", "noctuary.graph.lexicon",
        "noctuary.graph.supersession.guards",
        "noctuary.lexical", "noctuary.lexical.search",
        # Only `overlay` imports them, where the store has something that the snapshot lacks.
        "noctuary.lexical.bm25", "noctuary.lexical.fields", "noctuary.live", "noctuary.live.state",
        "noctuary.live.words",
        "noctuary.snapshot", "noctuary.snapshot.layout", "noctuary.snapshot.manifest",
        "noctuary.snapshot.nights", "noctuary.snapshot.summary_arrays",
        # LTP multiplies by a formula that the night uses as well; usage.sqlite is only read.
        "noctuary.usage", "noctuary.usage.access_log", "noctuary.usage.log_writer",
        "noctuary.usage.ltp",
        "noctuary.usage.reading", "noctuary.usage.usage_file",
        "noctuary.vectors", "noctuary.vectors.cascade",
    }
)  # fmt: skip
"""Modules of other packages that recall imports at the top of its own."""

SHARED_LAZILY = frozenset(
    {
        # Where something was archived; without archive.sqlite neither is loaded.
        "noctuary.archive", "noctuary.archive.ledger_file", "noctuary.archive.reading",
        # Where a provider made the snapshot's vectors, it is asked for the query's.
        "noctuary.encode.hosted", "noctuary.encode.hosted.client",
        "noctuary.encode.hosted.model", "noctuary.encode.hosted.providers",
        "noctuary.encode.hosted.queries", "noctuary.hosted", "noctuary.hosted.client",
        "noctuary.graph.supersession.reading",
        # Who else may read what; without shares it is not loaded.
        "noctuary.snapshot.share_arrays",
        # Where the store has something that the snapshot lacks.
        "noctuary.injection", "noctuary.injection.wording",
        "noctuary.live.found", "noctuary.live.judging", "noctuary.live.looking",
        "noctuary.live.postgres_look", "noctuary.live.sqlite_look",
        "noctuary.usage.query_log",
    }
)  # fmt: skip
"""Those that only a function of recall imports: query expansion is off unless a profile says so."""


def tops(names: frozenset[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def builders_among(names: frozenset[str]) -> set[str]:
    return {n for n in names for b in BUILDERS if n == b or n.startswith(f"{b}.")}


def libraries_among(names: frozenset[str]) -> set[str]:
    """What is neither of the standard library nor of the project."""
    return tops(names) - sys.stdlib_module_names - {"noctuary", "__future__"}


def shared_among(names: frozenset[str]) -> set[str]:
    """Modules of the project's other features."""
    features = FEATURES - {"recall"}
    return {n for n in names if n.startswith("noctuary.") and package_of(n) in features}


def test_the_walk_sees_the_project() -> None:
    """Guards every test below against an empty graph."""
    assert len(modules()) > 100
    assert "noctuary.recall.engine" in imports_of("noctuary.recall.api")
    assert "noctuary.recall.api" in imports_of("noctuary.recall"), "imports inside functions count"
    assert "noctuary.recall.api" in lazy_imports_of("noctuary.recall"), "and are told apart"
    assert "noctuary.recall.engine" in imports_of("noctuary.recall.api", eager_only=True)
    assert "noctuary.snapshot" in imports_of("noctuary.recall.engine"), "packages on the way count"
    assert "numpy" in imports_of("noctuary.recall.engine")
    assert "dagster" in tops(reachable_from("pipelines.definitions"))
    assert "lancedb" in tops(reachable_from("noctuary.vectors.tiers"))
    assert "lancedb" not in tops(reachable_from("noctuary.vectors.tiers", eager_only=True))
    assert why("noctuary.recall", "numpy")[-1] == "numpy"
    assert "numpy" not in reachable_from(
        "noctuary.recall.ages", without=frozenset({("noctuary.recall.ages", "numpy")})
    )


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("noctuary", {"assets", "pipelines", "dagster", "dagster_webserver", "tests", "bench"}),
        ("assets", {"pipelines", "tests", "bench"}),
        ("pipelines", {"tests", "bench"}),
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


def test_every_part_of_noctuary_is_foundation_or_feature() -> None:
    """A new package has to be given its place here."""
    parts = {package_of(m) for m in modules() if m.startswith("noctuary.")}
    assert parts == FOUNDATION | FEATURES


def test_the_foundation_imports_no_feature() -> None:
    wrong = {
        (module, name)
        for module in modules()
        if module.startswith("noctuary.") and package_of(module) in FOUNDATION
        for name in imports_of(module, typing_only=True)
        if name.startswith("noctuary.") and package_of(name) not in FOUNDATION
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
        if not module.startswith("noctuary."):
            continue
        for name in imports_of(module):
            if name.startswith("noctuary.") and package_of(name) != package_of(module):
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
        if m.startswith("noctuary.") and package_of(m) != "recall"
        for name in imports_of(m)
        if name.startswith("noctuary.recall")
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
