"""Which memories a model is asked about, and what the night has when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from noctuary.core.errors import ConfigError
from noctuary.core.settings import Settings
from noctuary.core.store import StorePaths
from noctuary.core.types import MemoryRecord
from noctuary.graph.build import Extractions
from noctuary.graph.extract import Extraction, extract
from noctuary.graph.llm import (
    TRIPLES_KIND,
    Extended,
    extend_extractions,
    live_triples,
    llm_inputs,
)
from noctuary.work.http import MAX_MEMORY_CHARS
from noctuary_assets.graph import open_extractions
from noctuary_assets.night import Night
from tests.support.model_server import Fault
from tests.support.store import memory, renumber
from tests.support.triple_server import Row, TripleServer

CANARY = "canary-7731"
SHARED_TEXT = "Dia works at Initech"
RECORDS = renumber(
    [
        memory("Ann works at Acme", tags="ops"),
        memory(f"Bea works at Globex {CANARY}", user="bea"),
        memory(f"Cem works at Acme, password: Xk9$mQ2v!pL7 {CANARY}"),
        memory(SHARED_TEXT),
        memory(SHARED_TEXT, user="dia"),
    ]
)


@pytest.fixture
def server() -> Iterator[TripleServer]:
    with TripleServer() as running:
        yield running


def night_of(tmp_path: Path, **graph: str) -> Night:
    environ = {f"NOCTUARY_GRAPH_{name}".upper(): value for name, value in graph.items()}
    return Night(StorePaths(tmp_path), tmp_path, Settings.load(environ=environ))


def llm_night(tmp_path: Path, server: TripleServer, **graph: str) -> Night:
    return night_of(tmp_path, extractor="llm", llm_url=server.url, llm_model="m", **graph)


def extend(night: Night, records: list[MemoryRecord], extractions: list[Extraction]) -> Extended:
    store = night.content(TRIPLES_KIND)
    return extend_extractions(night.settings.graph, store, records, extractions)


def rules(records: list[MemoryRecord]) -> list[Extraction]:
    return [extract(r.content, r.tags, r.expanded_keywords) for r in records]


def test_without_a_model_nothing_is_asked_and_nothing_written(tmp_path: Path) -> None:
    night = night_of(tmp_path)
    assert type(open_extractions(night, [])) is Extractions
    assert llm_inputs(night.settings.graph) == {}
    assert live_triples(night.settings.graph, RECORDS) == []
    assert list(tmp_path.iterdir()) == []


def test_statements_are_added_to_what_the_rules_found(tmp_path: Path, server: TripleServer) -> None:
    base = [Extraction(e.found) for e in rules(RECORDS)]
    found = extend(llm_night(tmp_path, server), RECORDS, base)
    assert [[s[:3] for s in e.stated] for e in found.extractions] == [
        *[[("ann", "works_at", "acme")], [], [], [("dia", "works_at", "initech")], []]
    ]
    assert set(base[0].found) <= set(found.extractions[0].found)
    assert found.facts["added"]["stated"] == 2
    assert found.facts["left_out_named_users"] == 2
    assert found.facts["left_out_secret"] == 1
    assert "warnings" not in found.facts
    assert found.notes["requests"] == 1


def test_named_users_and_secrets_never_leave_the_machine(
    tmp_path: Path, server: TripleServer
) -> None:
    extend(llm_night(tmp_path, server), RECORDS, rules(RECORDS))
    assert server.asked
    assert CANARY not in server.everything
    assert "Xk9$mQ2v!pL7" not in server.everything
    assert "ops" not in server.asked[0].body["messages"][1]["content"], "contents only, no tags"


def test_named_users_are_shown_when_switched_on_secrets_never(
    tmp_path: Path, server: TripleServer
) -> None:
    night = llm_night(tmp_path, server, include_named_users="true")
    found = extend(night, RECORDS, [Extraction(())] * 5)
    assert [len(e.stated) for e in found.extractions] == [1, 1, 0, 1, 1]
    assert "Xk9$mQ2v!pL7" not in server.everything
    assert llm_inputs(night.settings.graph) != llm_inputs(
        llm_night(tmp_path, server).settings.graph
    )


def test_the_stage_depends_on_the_model_and_not_on_its_address(
    tmp_path: Path, server: TripleServer
) -> None:
    inputs = llm_inputs(llm_night(tmp_path, server).settings.graph)
    moved = {"extractor": "llm", "llm_url": "http://elsewhere/v1"}
    assert llm_inputs(night_of(tmp_path, **moved, llm_model="m").settings.graph) == inputs
    assert llm_inputs(night_of(tmp_path, **moved, llm_model="other").settings.graph) != inputs


def test_what_reads_like_a_redaction_is_not_sent_and_long_texts_are_counted(
    tmp_path: Path, server: TripleServer
) -> None:
    long = "Ann works at Acme0. " + "x" * MAX_MEMORY_CHARS
    records = renumber([memory("Bea [REDACTED] canary-8842"), memory(long)])
    found = extend(llm_night(tmp_path, server), records, rules(records))
    assert "canary-8842" not in server.everything
    assert (found.facts["left_out_secret"], found.facts["clipped"]) == (1, 1)
    assert (found.facts["answered"], found.facts["unanswered"]) == (1, 0)


def test_a_dead_endpoint_leaves_the_rules_and_a_warning(
    tmp_path: Path, server: TripleServer
) -> None:
    server.faults = [Fault(401)] * 9
    night, base = llm_night(tmp_path, server), rules(RECORDS)
    found = extend(night, RECORDS, base)
    assert found.extractions == base
    (warning,) = found.facts["warnings"]
    assert warning["code"] == "graph_endpoint_down"
    assert "HTTP 401; check the API key" in warning["message"]


def test_an_answer_about_another_memory_adds_nothing(tmp_path: Path, server: TripleServer) -> None:
    def swapped(rows: list[Row]) -> object:
        ids = [row["id"] for row in rows]
        return {"items": [{**r, "id": i} for r, i in zip(rows, reversed(ids), strict=True)]}

    server.twists = [swapped]
    base = rules(RECORDS)
    found = extend(llm_night(tmp_path, server), RECORDS, base)
    assert found.extractions == base
    assert found.facts["dropped"]["not_in_text"] >= 4


def test_the_content_store_holds_what_is_live_and_no_more(
    tmp_path: Path, server: TripleServer
) -> None:
    night = llm_night(tmp_path, server)
    extend(night, RECORDS, rules(RECORDS))
    live = live_triples(night.settings.graph, RECORDS)
    store = night.content(TRIPLES_KIND)
    assert set(store.get(live)) == {live[0], live[2]}
    assert store.prune(live) == 0
    assert store.prune(live_triples(night_of(tmp_path).settings.graph, RECORDS)) == 2


def test_an_endpoint_that_is_set_up_wrongly_says_what_to_do(
    tmp_path: Path, server: TripleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    wrong = [
        (llm_night(tmp_path, server, api_key_variable="NO_SUCH_KEY"), "NO_SUCH_KEY, which is not"),
        (night_of(tmp_path, extractor="llm", llm_url="ftp://h", llm_model="m"), "starts with http"),
    ]
    for night, sentence in wrong:
        with pytest.raises(ConfigError, match=sentence):
            extend(night, RECORDS, rules(RECORDS))
