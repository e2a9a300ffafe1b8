from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from noctuary.core import store as layout
from noctuary.core.manifest import read_pointer
from tests.support.graph_snapshot import GraphSpec, office, publish_graph
from tests.support.store import Store, memory, new_store, renumber

Run = Callable[..., Result]
RunJson = Callable[..., Any]


@pytest.fixture
def office_store(home: Path) -> Store:
    """The office's memories, with a graph written by hand."""
    store = new_store(home / "office")
    publish_graph(store, office())
    return store


@pytest.mark.usefixtures("office_store")
def test_show_prints_the_concept(run: Run) -> None:
    result = run("graph", "show", "  NINA", "--user", "ana", "--limit", "2")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "Nina  (name, 5 memories)"
    assert "memories (2 of 5)" in lines
    assert "  -> works at  Globex         since 2026-03-01, open; said by [104] [106]" in lines
    assert result.stderr == ""


@pytest.mark.usefixtures("office_store")
def test_show_as_json_has_one_shape(run_json: RunJson) -> None:
    found = run_json("graph", "show", "nina", "--user", "ana", "--as-of", "2026-03-01")
    assert set(found) == {
        "concept", "merges", "memories", "relations", "neighbours", "steps", "totals", "as_of",
        "known_at", "snapshot_id", "warnings",
    }  # fmt: skip
    assert set(found["concept"]) == {"name", "kind", "concept_id", "aliases", "memories", "roles"}
    assert set(found["memories"][0]) == {
        "id", "created_at", "role", "line", "span", "replaced_by", "replaced_at",
    }  # fmt: skip
    assert set(found["neighbours"][0]) == {"name", "kind", "shared", "held", "score"}
    assert set(found["steps"][0]) == {
        "id", "created_at", "line", "relation", "sources", "weight",
    }  # fmt: skip
    assert found["relations"][0] == {
        "relation": "works_at",
        "direction": "out",
        "other": "Globex",
        "weight": 0.5,
        "evidence": [104],
        "valid_from": "2026-03-01T00:00:00+00:00",
        "valid_to": None,
        "open": True,
        "closed_by": None,
    }
    assert found["as_of"] == "2026-03-01T00:00:00+00:00"
    assert found["warnings"] == []


@pytest.mark.usefixtures("office_store")
def test_moments_are_those_of_both_clocks(run_json: RunJson) -> None:
    def others(*options: str) -> list[tuple[str, bool]]:
        found = run_json("graph", "show", "nina", *options)
        return [(r["other"], r["open"]) for r in found["relations"]]

    assert others() == [("Globex", True), ("Initech", False)]
    assert others("--as-of", "2026-02-28T23:59:59+00:00") == [("Initech", False)]
    assert others("--as-of", "2026-03-01") == [("Globex", True)]
    assert others("--known-at", "2026-03-02") == [("Globex", True), ("Initech", True)]


@pytest.mark.usefixtures("office_store")
def test_others_memories_are_hidden_unless_their_user_asks(run: Run, run_json: RunJson) -> None:
    result = run("graph", "show", "secret garden")
    assert result.exit_code == 3
    assert "! user_required" in result.stderr
    assert "Secret Garden" not in result.output
    assert run("graph", "show", "secret garden", "--user", "ben").exit_code == 3
    assert run_json("graph", "show", "secret garden", "--user", "ana")["concept"]["memories"] == 1
    assert run_json("graph", "show", "nina")["warnings"][0]["code"] == "user_required"


@pytest.mark.usefixtures("office_store")
def test_an_unknown_name_offers_similar_ones(run: Run, run_json: RunJson) -> None:
    result = run("graph", "show", "globx")
    assert result.exit_code == 3
    assert result.stderr.splitlines()[-1] == (
        "noctuary: no concept has the name 'globx'; near: Globex"
    )
    found = run_json("graph", "path", "nina", "globx", code=3)
    assert found["error"] == "UnknownConcept"
    assert found["nearest"] == ["Globex"]


@pytest.mark.usefixtures("office_store")
def test_a_concept_that_came_later_is_said_to_be_later(run: Run) -> None:
    result = run("graph", "show", "globex", "--as-of", "2025-01-01", "--wing", "work")
    assert result.exit_code == 3
    result = run("graph", "show", "lighthouse", "--as-of", "2025-01-01")
    assert result.exit_code == 3
    assert "nothing held at that moment 'lighthouse'" in result.stderr


@pytest.mark.usefixtures("office_store")
def test_a_chart_takes_the_place_of_the_text(run: Run) -> None:
    shown = run("graph", "show", "nina", "--mermaid", "--limit", "1")
    assert shown.stdout.splitlines() == [
        "flowchart LR",
        '    n0["Nina"]',
        '    n1["Globex"]',
        '    n0 -->|"works at, since 2026-03-01, open"| n1',
        '    n0 -.-|"shares 2 of its 3 memories"| n1',
        '    n2["#91;104#93; #171;Nina#187; works at Globex now#46;"]',
        '    n0 ---|"about, 2026-03-01"| n2',
        '    n3["#91;102#93; Nina leads the Atlas migration#59; Atlas is part of Platform#46;"]',
        '    n0 -->|"leads to, from 1 memory"| n3',
    ]
    path = run("graph", "path", "boiler", "москва", "--mermaid").stdout.splitlines()
    assert path[0] == "flowchart LR"
    assert '    n0["boiler"]' in path
    assert '    n1["Москва"]' in path


@pytest.mark.parametrize("words", [["show", "nina"], ["path", "nina", "globex"]])
def test_a_chart_is_no_json(run: Run, words: list[str]) -> None:
    result = run("graph", *words, "--mermaid", "--json")
    assert result.exit_code == 2
    assert "--mermaid and --json exclude each other" in result.stderr


@pytest.mark.usefixtures("office_store")
def test_path_explains_or_says_that_there_is_none(run: Run, run_json: RunJson) -> None:
    lines = run("graph", "path", "boiler", "москва").stdout.splitlines()
    assert lines[0] == "boiler to Москва: 3 hops, cost 10.08"
    none = run("graph", "path", "nina", "lighthouse")
    assert none.exit_code == 0
    assert none.stdout == "Nina to Lighthouse: there is no path of at most 4 hops\n"
    found = run_json("graph", "path", "atlas", "platform", "--max-hops", "1")
    assert set(found) == {
        "from", "to", "found", "cost", "paths", "max_hops", "bounds", "snapshot_id", "warnings",
    }  # fmt: skip
    ((hop,),) = found["paths"]
    assert set(hop) == {"from", "to", "type", "relations", "shared", "shared_count"}
    assert (hop["type"], hop["relations"][0]["evidence"]) == ("stated", [102])
    ended = run_json("graph", "path", "nina", "initech", "--as-of", "2026-02-01")
    assert ended["paths"][0][0]["type"] == "stated"


@pytest.mark.usefixtures("office_store")
def test_top_lists_concepts_and_kinds(run: Run, run_json: RunJson) -> None:
    assert run("graph", "top", "--limit", "1").stdout.splitlines()[1].split()[:2] == [
        "Nina",
        "name",
    ]
    found = run_json("graph", "top", "--kind", "tag")
    assert [c["name"] for c in found["concepts"]] == ["Platform", "boiler"]
    assert found["kinds"] == ["heading", "name", "tag"]
    lost = run("graph", "top", "--kind", "nothing").stdout
    assert lost == "no such concept; kinds there are: heading, name, tag\n"


def test_merges_say_how_to_undo_them(run: Run, run_json: RunJson, office_store: Store) -> None:
    rules = str(office_store.root / "merges.toml")
    text = run("graph", "merges").stdout
    assert text.startswith('"atlas" is "atlas migration" (alias 1.00')
    assert rules in text
    found = run_json("graph", "merges", "--user", "ana", "--limit", "1")
    assert (found["total"], len(found["merges"]), found["rules_file"]) == (2, 1, rules)
    assert found["merges"][0]["undo"] == 'never = [["atlas", "atlas migration"]]'


def test_a_graph_without_concepts_answers(run: Run, run_json: RunJson, home: Path) -> None:
    publish_graph(new_store(home / "bare"), GraphSpec(renumber([memory("Nothing named.")])))
    assert run("graph", "top").stdout == "no such concept; kinds there are: none\n"
    assert run("graph", "merges").stdout == "no names were merged\n"
    assert run_json("graph", "show", "nina", code=3)["nearest"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "nina", "--as-of", "soon"],
        ["show", "nina", "--known-at", "x"],
        ["path", "a", "b", "--max-hops", "0"],
        ["top", "--limit", "-1"],
        ["show"],
    ],
)
@pytest.mark.usefixtures("office_store")
def test_arguments_that_mean_nothing_are_exit_code_2(run: Run, arguments: list[str]) -> None:
    assert run("graph", *arguments).exit_code == 2


@pytest.mark.usefixtures("home")
def test_no_store_is_exit_code_1(run: Run, run_json: RunJson) -> None:
    assert run("graph", "top").exit_code == 1
    assert run_json("graph", "show", "x", code=1)["error"] == "SnapshotMissingError"


def test_a_snapshot_that_is_damaged_inside_is_a_sentence(run: Run, office_store: Store) -> None:
    snapshot = office_store.snapshot(read_pointer(office_store.paths).snapshot_id)
    rows = snapshot / layout.ROWS_FILE
    content = bytearray(rows.read_bytes())
    content[8192:] = bytes(len(content) - 8192)
    rows.chmod(0o644)
    rows.write_bytes(content)
    result = run("graph", "show", "nina")
    assert result.exit_code == 1
    assert result.stderr.startswith("noctuary: ")


@pytest.mark.usefixtures("office_store")
def test_it_loads_no_builder_and_nothing_heavy() -> None:
    code = (
        "import json, sys\n"
        "from click.testing import CliRunner\n"
        "from noctuary.cli.main import main\n"
        "for words in (['show', 'nina', '--mermaid'], ['path', 'nina', 'globex'], ['top']):\n"
        "    assert CliRunner().invoke(main, ['graph', *words]).exit_code == 0\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    heavy = {"duckdb", "pyarrow", "dagster", "jinja2", "scipy", "pandas", "polars", "matplotlib"}
    assert not {name for name in loaded if name.split(".")[0] in heavy}
    builders = (
        "noctuary.graph.build",
        "noctuary.graph.extract",
        "noctuary.graph.state",
        "noctuary_assets",
    )
    assert not {name for name in loaded if name.startswith(builders)}
