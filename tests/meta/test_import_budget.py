"""What a hook pays for: a fresh process that imports recall, asks once and leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest

from tests.support.store import Store

HEAVY = (
    "dagster", "jinja2", "lancedb", "lance", "torch", "transformers",
    "sentence_transformers", "tokenizers",
    "safetensors", "pandas", "pydantic", "polars", "pyarrow", "duckdb", "scipy", "sklearn", "rich",
    "click", "httpx", "tenacity", "noctuary_assets", "noctuary_pipelines", "ray", "lance_ray",
    "dagster_ray",
)  # fmt: skip
BUILDERS = (
    "noctuary_assets", "noctuary.compact", "noctuary.curate", "noctuary.evaluate", "noctuary.cli",
    "noctuary.work", "noctuary.sources.export", "noctuary.sources.source",
    "noctuary.sources.corpus", "noctuary.sources.normalize",
    "noctuary.embed.documents", "noctuary.embed.rotation",
    "noctuary.embed.tiers", "noctuary.embed.sentence", "noctuary.embed.onnx",
    "noctuary.embed.sentence",
    "noctuary.snapshot.pack", "noctuary.snapshot.checks", "noctuary.snapshot.publish",
    "noctuary.graph.build", "noctuary.graph.extract", "noctuary.graph.tables",
    "noctuary.lexical.build",
)  # fmt: skip


def loaded_after(code: str, home: str = "") -> set[str]:
    """Return the modules of a fresh process after it ran some code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    environ = {n: v for n, v in os.environ.items() if not n.startswith(("NOCTUARY_", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**environ, "NOCTUARY_HOME": home},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@cache
def bare() -> frozenset[str]:
    """What an interpreter of this environment loads before anything of ours."""
    return frozenset(loaded_after("pass"))


def test_import_noctuary_loads_nothing_to_speak_of() -> None:
    added = loaded_after("import noctuary") - bare()
    assert "numpy" not in added
    assert {name for name in added if name.startswith("noctuary")} == {"noctuary"}
    assert len(added) < 20, sorted(added)


def test_naming_recall_loads_no_heavy_module() -> None:
    added = loaded_after("from noctuary import recall") - bare()
    assert not {name for name in added if name.split(".")[0] in HEAVY}


@pytest.mark.parametrize(
    "entry", ["from noctuary import recall", "import noctuary.recall as recall"]
)
def test_a_real_recall_loads_no_heavy_module_and_no_builder(dense_store: Store, entry: str) -> None:
    code = f"""
{entry}
result = recall("where is the spare key and the Atlas migration", user="ana")
assert {{101, 103}} <= {{m.id for m in result.memories}}, result
assert any(m.lexical for m in result.memories)
assert any(m.dense for m in result.memories)
assert any(m.graph for m in result.memories)
assert not result.warnings, result.warnings
"""
    added = loaded_after(code, str(dense_store.root.parent)) - bare()
    assert "numpy" in added
    assert "noctuary.recall.engine" in added
    assert not {name for name in added if name.split(".")[0] in HEAVY}
    assert not {name for name in added if name.startswith(BUILDERS)}
    # One class of it costs as much as five named tuples.
    assert "dataclasses" not in added
    # With nothing archived, and turns searched as they are, neither costs more than a look.
    unused = ("noctuary.compact", "noctuary.recall.live", "noctuary.graph.word_lists")
    assert not {name for name in added if name.startswith(unused)}


def test_importing_recall_loads_no_hashes_of_openssl() -> None:
    assert "_hashlib" not in loaded_after("import noctuary.recall.api") - bare()


def test_a_recall_that_finds_no_store_loads_no_heavy_module(dense_store: Store) -> None:
    code = 'from noctuary import recall\nassert recall("x", store="nowhere").warnings'
    added = loaded_after(code, str(dense_store.root.parent)) - bare()
    assert not {name for name in added if name.split(".")[0] in HEAVY}


@pytest.mark.parametrize(
    "module", ["noctuary.cli.main", "noctuary.core.settings", "noctuary.core.store"]
)
def test_commands_and_settings_load_no_heavy_module(module: str) -> None:
    added = loaded_after(f"import {module}") - bare()
    assert not {name for name in added if name.split(".")[0] in set(HEAVY) - {"click"}}


def test_a_command_says_how_many_threads_before_numpy_is_there() -> None:
    """OpenBLAS reads the limit when it is loaded: one query on every core is six times slower."""
    assert "numpy" not in loaded_after("import noctuary.cli.main")


def test_importing_reads_no_variable_starts_no_thread_and_touches_no_logging() -> None:
    code = """
import logging, os, threading
class Recording(dict):
    asked = []
    def get(self, name, default=None):
        self.asked.append(name)
        return super().get(name, default)
    def __getitem__(self, name):
        self.asked.append(name)
        return super().__getitem__(name)
import numpy, snowballstemmer
os.environ = Recording(os.environ)
import noctuary.recall.api, noctuary.recall.engine
assert not [n for n in Recording.asked if n.startswith("NOCTUARY")], Recording.asked
assert threading.active_count() == 1
assert not logging.getLogger().handlers
"""
    assert "noctuary.recall.api" in loaded_after(code)
