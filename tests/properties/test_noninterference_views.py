"""The same two stores (see test_noninterference) through `why`, the MCP server, contexts, hooks."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noctuary.agents.hooks import fetch_memories
from noctuary.agents.mcp_view import (
    Seen,
    View,
    plain,
    read_cluster,
    read_item,
    read_state,
    recall_in_view,
    relate,
)
from noctuary.context.assemble import assemble
from noctuary.core.errors import NoctuaryError
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import explain_memory
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Query, Scope
from tests.support.neighbours import (
    ANA,
    CANARY,
    KINDS,
    NEIGHBOUR,
    comparable,
    joined,
    open_store,
    padded,
    visible,
)
from tests.support.store import Store, memory, renumber

CROWD = [(number * 5, number, number * 7) for number in range(4 * KINDS)]
OWN = tuple(row.memory_id for row in visible())
MISSING = "qzb-none"
CONCEPTS = ("Atlas", "Nina", ANA, "Dan", "boiler", "Qzborlun Works", "Qzbatlas", "Qzbspeaker")
BY_MEANING = RetrievalProfile(lexical_weight=0.0, graph_weight=0.0, exact_match_bonus=0.0)
_SNAPSHOT = re.compile(r"\d{8}T\d{12}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


@pytest.fixture(scope="module")
def quiet() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as directory:
        yield open_store(Path(directory) / "quiet", padded(CROWD))


@pytest.fixture(scope="module")
def crowded() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as directory:
        yield open_store(Path(directory) / "crowded", joined(CROWD))


def said(answer: Callable[[], Any]) -> Any:
    """Return an answer, or the words of its refusal, as plain values without moments."""
    try:
        found: Any = answer()
    except NoctuaryError as error:
        found = {"refused": str(error)}
    text = json.dumps(found, default=str)
    return comparable(json.loads(_SNAPSHOT.sub("-", text)))


def look(store: Store, user: str | None) -> dict[str, Any]:
    """Return everything that the MCP server tells one user, by what was asked."""
    view = View(store.root, user=user)
    told = {"status": said(lambda: plain(read_state(view)))}
    with view.open() as seen:
        for concept in CONCEPTS:
            told[f"concept {concept}"] = _related(seen, None, concept)
        for item in (*OWN, MISSING):
            told[f"related {item}"] = _related(seen, item, None)
            told[f"item {item}"] = _item(seen, item)
        for summary in seen.recaller.reader.summaries.ids:
            if seen.position_of(summary) is not None:
                told[f"cluster {summary}"] = _cluster(seen, summary)
    for wing in ("hom", "qzbwing", "qzb"):
        told[f"wing {wing}"] = _warned(view, wing)
    return told


def _related(seen: Seen, item: str | None, concept: str | None) -> Any:
    return said(lambda: plain(relate(seen, item, concept, 100)))


def _item(seen: Seen, item: str) -> Any:
    return said(lambda: plain(read_item(seen, item)))


def _cluster(seen: Seen, summary: str) -> Any:
    return said(lambda: plain(read_cluster(seen, summary)))


def _warned(view: View, wing: str) -> Any:
    answer = recall_in_view(view, "boiler", 5, wing=wing)
    return answer["warnings"]


@pytest.mark.parametrize("user", [ANA, None])
def test_the_mcp_server_tells_what_it_tells_without_the_neighbour(
    quiet: Store, crowded: Store, user: str | None
) -> None:
    """Every item, connection, concept, relation, count, suggestion, refusal."""
    one, two = look(quiet, user), look(crowded, user)
    assert list(one) == list(two)
    for asked, answer in one.items():
        # What asks by a name of the neighbour is told it back.
        assert two[asked] == answer, asked
        assert CANARY in asked.lower() or CANARY not in json.dumps(two[asked]).lower()


def test_the_mcp_server_tells_the_neighbour(crowded: Store) -> None:
    """Guards the test above: there is something to tell."""
    told = look(crowded, NEIGHBOUR)
    assert "qzb-" in json.dumps(told["concept Qzborlun Works"])
    assert told["status"]["wings"]["qzbwing"] > 0


@pytest.mark.parametrize("user", [ANA, None])
def test_an_id_of_the_neighbour_is_an_id_of_nothing(crowded: Store, user: str | None) -> None:
    """By `why`, by every tool, and where a hook restores what was injected."""
    recaller = Recaller.open(crowded.root)
    theirs = [i for i in recaller.reader.memory_ids(range(recaller.reader.count)).values()
              if i.startswith(CANARY)]  # fmt: skip
    assert len(theirs) == len(CROWD)

    def why(item: str) -> Any:
        scope = Scope(user=user)
        asked = Query("boiler", 3, BY_MEANING, "p", scope, "relevance", None, True)
        return explain_memory(recaller, asked, item).to_json()

    with View(crowded.root, user=user).open() as seen:

        def answers(item: str) -> str:
            told = (why(item), _related(seen, item, None), _item(seen, item))
            return json.dumps(told).replace(item, MISSING)

        for item in theirs[:: len(theirs) // 6]:
            assert answers(item) == answers(MISSING)
    assert fetch_memories(recaller.reader, theirs, user) == []
    assert len(fetch_memories(recaller.reader, theirs, NEIGHBOUR)) == len(theirs)


def test_why_says_of_an_own_memory_what_it_says_without_the_neighbour(
    quiet: Store, crowded: Store
) -> None:
    """Ranks, how many there are to rank, and how many are taken."""
    asked = Query("boiler", 3, BY_MEANING, "p", Scope(user=ANA), "relevance", None, True)
    recallers = Recaller.open(quiet.root), Recaller.open(crowded.root)
    assert recallers[1].reader.count > asked.depth(10**6), "others could fill what is taken"
    stages: set[str] = set()
    for item in OWN:
        one, two = (said(lambda r=r, i=item: explain_memory(r, asked, i).to_json())
                    for r in recallers)  # fmt: skip
        assert one == two
        stages.add(one["stage"])
    assert {"below_limit", "returned"} <= stages


def test_why_counts_what_the_legs_took_among_what_may_be_seen(crowded: Store) -> None:
    """Ana sees fewer than a leg takes: how many it took of all is how many others have."""
    by_words = RetrievalProfile(dense_weight=0.0, graph_weight=0.0)
    asked = Query("boiler", 3, by_words, "p", Scope(user=ANA), "relevance", None, True)
    recaller = Recaller.open(crowded.root)
    told = [explain_memory(recaller, asked, item) for item in OWN]
    facts = [why.facts for why in told if why.stage == "not_found"]
    assert facts
    assert {(f["allowed"], f["depth"]) for f in facts} == {(len(OWN), len(OWN))}


@pytest.mark.parametrize("user", [ANA, None])
def test_a_context_holds_nothing_of_the_neighbour(crowded: Store, user: str | None) -> None:
    for query in ("the Atlas boiler", "who leads Atlas?", "ana: what of the flight?"):
        context = assemble(query, 2_000, store=crowded.root, user=user, dry_run=True)
        text = json.dumps(context.to_json()).lower()
        assert "atlas" in text
        assert CANARY not in text
    theirs = assemble("the Atlas boiler", 2_000, store=crowded.root, user=NEIGHBOUR, dry_run=True)
    assert CANARY in json.dumps(theirs.to_json()).lower()


def test_what_is_a_name_at_all_is_decided_for_the_whole_store(tmp_path: Path) -> None:
    """The known limit (docs/scopes.md): a word that another user tags with is a name for all."""
    tagged = [*visible(), memory("A list.", user=NEIGHBOUR, tags="flight", memory_id="qzb-000")]
    stores = [
        open_store(tmp_path / name, renumber(rows))
        for name, rows in (("alone", visible()), ("tagged", tagged))
    ]
    answers: list[Any] = []
    for store in stores:
        with View(store.root, user=ANA).open() as seen:
            answers.append(_related(seen, None, "flight"))
    assert "refused" in answers[0]
    assert answers[1]["totals"]["memories"] == sum("flight" in r.content for r in visible())
    assert CANARY not in json.dumps(answers[1])
