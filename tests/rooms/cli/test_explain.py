from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from noctuary.core import store as layout
from noctuary.core.manifest import read_pointer
from noctuary.core.sqlite import append_rows
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.replay import REPLAY_LOG, append_packet, list_packets
from tests.support.graph_snapshot import GraphSpec, office, publish_graph
from tests.support.replays import log_recall
from tests.support.store import Store, memory, new_store, renumber

Run = Callable[..., Result]
RunJson = Callable[..., Any]


def test_a_memory_below_k_is_printed_beside_the_last_returned_one(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    result = run("why", "Nina key", "103", "-k", "2")
    steps = {s["phase"]: s for s in run_json("why", "Nina key", "103", "-k", "2")["steps"]}
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "[103] was found, at place 3 of 12; 2 were asked for."
    assert lines[2].split() == ["[103]", "[104]"]
    assert lines[3].split() == ["lexical", "+0.000", "+0.385"]
    gain, others = (steps["graph"][name] for name in ("delta", "delta_of_last_returned"))
    assert gain > others >= 0.0
    assert max(steps["graph_scale"][n] for n in ("delta", "delta_of_last_returned")) < 0.0
    assert lines[5].split()[:3] == ["graph", f"{gain:+.3f}", f"{others:+.3f}"]
    assert lines[5].endswith("[104] by mentions_subject, beside words of the query")
    assert "! user_required" in result.stderr
    found = run_json("why", "Nina key", "103", "-k", "2")
    assert set(found) == {"memory_id", "stage", "sentences", "facts", "steps", "warnings"}
    assert (found["warnings"][0]["code"], found["facts"]["place"]) == ("user_required", 3)


def test_a_returned_memory_is_printed_with_its_running_sum(run: Run, dense_store: Store) -> None:
    lines = run("why", "Nina key", "101").stdout.splitlines()
    assert lines[0].startswith("[101] came back at place 1 of 10")
    assert lines[1].split() == ["score", "change", "step", "why"]
    assert lines[2].split()[:3] == ["0.500", "+0.500", "lexical"]
    assert lines[-1].split()[:3] == ["0.485", "-0.015", "importance"]


def test_filters_profiles_and_flags_are_those_of_recall(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    assert "Its wing is 'home'" in run("why", "key", "101", "--wing", "work").stdout
    assert "It was created 2026-01-02" in run("why", "key", "101", "--as-of", "2026-01-01").stdout
    stage = run_json("why", "door code", "107")["stage"]
    assert stage == "unknown"
    assert run_json("why", "door code", "107", "--user", "ben")["stage"] == "returned"
    recency = run_json("why", "key", "101", "-k", "1", "--sort-by", "recency")
    assert recency["steps"][-1]["phase"] == "sort_by"
    off = run_json("why", "Nina", "103", "--profile", "off", "--set", "dense_weight=0")
    assert off["stage"] == "not_found"
    assert off["sentences"][2] == "dense: off (dense_weight 0)."
    assert off["sentences"][3] == "graph: off (graph_weight 0)."
    aged = run_json("why", "key", "101", "--profile", "synapse")
    assert {"time_decay"} <= {step["phase"] for step in aged["steps"]}
    assert "unknown_profile" in run("why", "key", "101", "--profile", "nope").stderr


def test_nothing_is_logged(run: Run, dense_store: Store) -> None:
    for memory_id in ("101", "103"):
        assert run("why", "Nina key", memory_id, "--set", "replay_log=true").exit_code == 0
    assert not dense_store.paths.access_log.exists()
    assert not dense_store.paths.replays.exists()
    assert not dense_store.paths.queries.exists()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "call", [("why", "key", "101"), ("why", "--replay"), ("graph", "top"), ("graph", "show", "x")]
)
def test_no_store_is_exit_code_1(run: Run, run_json: RunJson, call: tuple[str, ...]) -> None:
    assert run(*call).exit_code == 1
    assert run_json(*call, code=1)["error"] == "SnapshotMissingError"


@pytest.mark.parametrize("call", [("why", "key", "101"), ("graph", "show", "nina")])
def test_a_snapshot_that_is_damaged_inside_is_a_sentence(
    run: Run, dense_store: Store, call: tuple[str, ...]
) -> None:
    rows = dense_store.snapshot(read_pointer(dense_store.paths).snapshot_id) / layout.ROWS_FILE
    content = bytearray(rows.read_bytes())
    content[8192:] = bytes(len(content) - 8192)
    rows.write_bytes(content)
    result = run(*call)
    assert result.exit_code == 1
    assert result.stderr.startswith("noctuary: ")
    assert "noctuary doctor" in result.stderr


def keep(store: Store, query: str, k: int = 3) -> dict[str, Any]:
    """Recall and keep it; the packet."""
    log_recall(
        Recaller.open(store.root),
        query,
        k,
        log_path=store.paths.replays,
        profile=RetrievalProfile(replay_log=True),
        profile_used="default",
        scope=Scope(user="ana"),
    )
    return list_packets(store.paths.replays, 1).packets[0]


def test_without_an_id_the_kept_recalls_are_listed_oldest_first(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    nothing = run("why", "--replay")
    assert nothing.exit_code == 0
    assert "--set replay_log=true" in nothing.stdout
    assert run_json("why", "--replay") == {"packets": [], "unreadable": 0}
    first, second = keep(dense_store, "spare key"), keep(dense_store, "x " * 60 + "\udcff", 7)
    lines = run("why", "--replay").stdout.splitlines()
    assert len(lines) == 2
    snapshot = first["snapshot_id"]
    moment = first["made_at"][:19]
    assert lines[0] == f"{first['replay_id']}  {moment}  k 3      3 found  {snapshot}  spare key"
    assert lines[1].endswith(" ...")
    found = run_json("why", "--replay", "--last", "1")
    assert [p["replay_id"] for p in found["packets"]] == [second["replay_id"]]
    assert found["unreadable"] == 0
    append_rows(dense_store.paths.replays, REPLAY_LOG, [("00", '{"format":1,', 12)])
    assert "! 1 of the last packets cannot be read" in run("why", "--replay").stderr


def test_a_replay_is_identical_also_when_a_newer_snapshot_serves(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    packet = keep(dense_store, "spare key")
    for _ in range(2):
        result = run("why", "--replay", packet["replay_id"][:6])
        assert result.exit_code == 0
        assert result.stdout == "identical: 3 memories, same order, same scores\n"
        assert result.stderr == ""
        dense_store.publish(renumber([memory("Another spare key.")], 900))
    assert run_json("why", "--replay", packet["replay_id"]) == {
        "replay_id": packet["replay_id"], "made_at": packet["made_at"], "query": "spare key",
        "k": 3, "snapshot_id": packet["snapshot_id"], "results": 3, "identical": True,
        "differences": [], "notes": [], "memories": 3,
    }  # fmt: skip


def test_each_difference_is_a_line_and_the_exit_code_is_1(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    packet = keep(dense_store, "spare key")
    packet["replay_id"] = "ffff00000000"
    packet["results"][0]["final_score"] = 0.125
    packet["made_by"] = "0.0.1"
    append_packet(dense_store.paths.replays, packet)
    result = run("why", "--replay", "ffff")
    assert result.exit_code == 1
    assert result.stdout.startswith("[101] has another score: 0.125 then, ")
    assert "! the packet was made by noctuary 0.0.1" in result.stderr
    assert run_json("why", "--replay", "ffff", code=1)["identical"] is False
    dense_store.publish(renumber([memory("Another spare key.")], 900))
    shutil.rmtree(dense_store.snapshot(packet["snapshot_id"]))
    gone = run("why", "--replay", "ffff")
    assert gone.exit_code == 1
    assert f"snapshot {packet['snapshot_id']} is gone" in gone.stdout


@pytest.mark.parametrize("wrong", ["abc", "ж", "\udcff", '"'])
def test_an_id_that_is_not_kept_is_exit_code_1(
    run: Run, run_json: RunJson, dense_store: Store, wrong: str
) -> None:
    keep(dense_store, "key")
    result = run("why", "--replay", wrong)
    assert result.exit_code == 1
    assert "noctuary: no packet" in result.stderr
    assert run_json("why", "--replay", wrong, code=1)["error"] == "StoreError"


def test_a_log_that_cannot_be_read_is_a_sentence(run: Run, dense_store: Store) -> None:
    dense_store.paths.replays.mkdir()
    for arguments in ([], ["abc"]):
        result = run("why", "--replay", *arguments)
        assert result.exit_code == 1
        assert result.stderr.startswith("noctuary: ")


@pytest.fixture
def office_store(home: Path) -> Store:
    """The office's memories, with a graph written by hand."""
    store = new_store(home / "office")
    publish_graph(store, office())
    return store


@pytest.mark.usefixtures("office_store")
def test_show_prints_the_concept_and_its_json_has_one_shape(run: Run, run_json: RunJson) -> None:
    result = run("graph", "show", "  NINA", "--user", "ana", "--limit", "2")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "Nina  (name, 5 memories)"
    assert "memories (2 of 5)" in lines
    assert "  -> works at  Globex         since 2026-03-01, open; said by [104] [106]" in lines
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
        "written_by": "import",
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
    later = run("graph", "show", "lighthouse", "--as-of", "2025-01-01")
    assert later.exit_code == 3
    assert "nothing held at that moment 'lighthouse'" in later.stderr


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


def test_merges_say_how_to_undo_them(
    run: Run, run_json: RunJson, office_store: Store, home: Path
) -> None:
    rules = str(office_store.root / "merges.toml")
    text = run("graph", "merges").stdout
    assert text.startswith('"atlas" is "atlas migration" (alias 1.00')
    assert rules in text
    found = run_json("graph", "merges", "--user", "ana", "--limit", "1")
    assert (found["total"], len(found["merges"]), found["rules_file"]) == (2, 1, rules)
    assert found["merges"][0]["undo"] == 'never = [["atlas", "atlas migration"]]'
    publish_graph(new_store(home / "bare"), GraphSpec(renumber([memory("Nothing named.")])))
    bare = ("--store", str(home / "bare"))
    assert run("graph", "top", *bare).stdout == "no such concept; kinds there are: none\n"
    assert run("graph", "merges", *bare).stdout == "no names were merged\n"
    assert run_json("graph", "show", "nina", *bare, code=3)["nearest"] == []


@pytest.mark.usefixtures("office_store")
def test_it_loads_no_builder_and_nothing_heavy() -> None:
    code = (
        "import json, sys\n"
        "from click.testing import CliRunner\n"
        "from noctuary.cli.main import main\n"
        "for words in (['show', 'nina'], ['path', 'nina', 'globex'], ['top']):\n"
        "    assert CliRunner().invoke(main, ['graph', *words]).exit_code == 0\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    heavy = {"duckdb", "pyarrow", "dagster", "jinja2", "scipy", "pandas", "polars"}
    assert not {name for name in loaded if name.split(".")[0] in heavy}
    builders = (
        "noctuary.graph.build",
        "noctuary.graph.extract",
        "noctuary.graph.state",
        "noctuary_assets",
    )
    assert not {name for name in loaded if name.startswith(builders)}
