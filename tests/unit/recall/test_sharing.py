"""What a user shares with another, through everything that a recall does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from noctuary.agents.mcp_view import View
from noctuary.core.types import MemoryRecord
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import UnknownSummaryError, expand_from
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.pack import build_candidate
from noctuary.sources.source import Share
from tests.support.lean import write_encoder
from tests.support.store import (
    Store,
    day_us,
    memory,
    new_store,
    pack_inputs,
    provenance,
    renumber,
    turns,
)
from tests.support.views import ids

SUMMARIES = RetrievalProfile(turn_view="summaries")
EVERY_LEG = RetrievalProfile(depth=500, graph_weight=2.0)
SAID = (
    "Ben: we need a flight to Lisbon in June.",
    "Bot: the morning flight is cheaper.",
    "Ben: then book the morning flight.",
    "Bot: the flight is booked for the ninth.",
    "Ben: put the invoice into the shared folder.",
    "Bot: done.",
)


def records() -> list[MemoryRecord]:
    """Ids from 101: one of nobody, one of Ana, three of Ben, Ben's conversation (106 to 111)."""
    return renumber(
        [
            memory("The spare key hangs behind the door.", created_at_us=day_us(2)),
            memory("Ana has a key for the boiler room.", user="ana", created_at_us=day_us(3)),
            memory(
                "# Zephyr Works\nBen's key supplier.",
                user="ben",
                wing="shop",
                created_at_us=day_us(4),
            ),
            memory("Ben hides a key at Zephyr Works.", user="ben", created_at_us=day_us(5)),
            memory("Ben's key code is under the mat.", user="ben", created_at_us=day_us(6)),
            *turns("s1", *SAID, user="ben"),
        ]
    )


def publish(root: Path, shared: Sequence[tuple[str, str]]) -> Store:
    store = new_store(root, encoder=write_encoder(root / "encoders"))
    store.publish(records(), shares=[Share(*share) for share in shared])
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Ben shares two memories with Ana and his conversation, but for its end, with Eva."""
    talk = [(str(n), "eva") for n in range(106, 110)]
    root = tmp_path_factory.mktemp("sharing") / "store"
    return publish(root, [("103", "ana"), ("104", "ana"), *talk])


def found(store: Store, query: str, user: str | None, wing: str | None = None) -> set[str]:
    recaller = Recaller.open(store.root)
    asked = Scope(user=user, wing=wing)
    return set(ids(recaller.recall(query, 100, profile=EVERY_LEG, scope=asked)))


def test_who_a_memory_is_shared_with_finds_it_and_nobody_else_does(store: Store) -> None:
    facts = {str(n) for n in range(101, 106)}
    assert found(store, "key", "ana") & facts == {"101", "102", "103", "104"}
    assert found(store, "key", "ben") & facts == {"101", "103", "104", "105"}
    assert found(store, "key", "eva") & facts == {"101"}
    assert found(store, "key", None) == {"101"}


def test_other_filters_hold_for_what_is_shared(store: Store) -> None:
    assert found(store, "key", "ana", wing="shop") == {"103"}
    assert found(store, "key", "eva", wing="shop") == set()


def test_the_graph_walks_between_shared_memories(store: Store) -> None:
    result = Recaller.open(store.root).recall(
        "Zephyr Works", 100, profile=EVERY_LEG, scope=Scope(user="ana")
    )
    told = {str(m.id): m.graph for m in result.memories}
    assert told["103"] is not None
    assert told["103"].concept == "Zephyr Works"
    with View(store.root, user="eva").open() as seen, seen.graph() as (_, book):
        assert book.find("Zephyr Works") is None


def test_a_shared_memory_keeps_its_owner(store: Store) -> None:
    result = Recaller.open(store.root).recall("Zephyr", 100, scope=Scope(user="ana"))
    assert {m.user for m in result.memories if str(m.id) in ("103", "104")} == {"ben"}


def test_a_summary_is_seen_by_who_may_see_all_that_it_stands_for(store: Store) -> None:
    recaller = Recaller.open(store.root)
    reader = recaller.reader
    by_turns = {tuple(reader.memory_ids(v.sources).values()): v for v in reader.summaries.views}
    ((turns_of, view),) = by_turns.items()
    assert set(turns_of) <= {str(n) for n in range(106, 110)}
    summary = reader.summaries.ids[view.position - reader.count]
    for user in ("eva", "ben"):
        recalled = ids(recaller.recall("flight", profile=SUMMARIES, scope=Scope(user=user)))
        assert summary in recalled
        assert [str(s.id) for s in expand_from(reader, "s", summary, user).sources] == list(
            turns_of
        )
    for user in ("ana", None):
        assert found(store, "flight", user) & {*turns_of, summary} == set()
        with pytest.raises(UnknownSummaryError):
            expand_from(reader, "s", summary, user)


def test_a_share_of_part_of_a_summary_shows_the_part_and_not_the_summary(tmp_path: Path) -> None:
    store = publish(tmp_path / "store", [("106", "eva"), ("107", "eva")])
    recaller = Recaller.open(store.root)
    recalled = ids(recaller.recall("flight", profile=SUMMARIES, scope=Scope(user="eva")))
    assert set(recalled) & {str(n) for n in range(106, 112)} == {"106", "107"}
    (summary,) = recaller.reader.summaries.ids
    assert summary not in recalled


def test_an_earlier_summary_that_was_not_shared_is_named_without_its_text(tmp_path: Path) -> None:
    """The summarizer was shown it; only all of its turns would show it to a reader."""
    longer = [*records(), *turns("s1", *[f"Ben: more of the flight, {n}." for n in range(6)])]
    both = renumber([r._replace(user="ben") if r.is_turn else r for r in longer])
    root = tmp_path / "store"
    store = new_store(root, encoder=write_encoder(root / "encoders"))
    inputs = pack_inputs(both, store.encoder)
    first, *_, last = sorted(inputs.summaries, key=lambda s: s.first_us)
    child = replace(last, parent_ids=(first.summary_id,))
    packed = replace(
        inputs,
        summaries=[child if s is last else s for s in inputs.summaries],
        shares=[Share(i, "eva") for i in last.source_ids],
    )
    directory = build_candidate(store.paths, packed, provenance(store.encoder))
    reader = SnapshotReader.open(directory)
    texts = {
        user: [p.text for p in expand_from(reader, "s", last.summary_id, user).parents]
        for user in ("ben", "eva")
    }
    assert texts == {"ben": [first.text], "eva": [None]}
    reader.close()


def test_a_revoked_share_goes_with_the_next_snapshot(tmp_path: Path) -> None:
    store = publish(tmp_path / "store", [("103", "ana")])
    assert "103" in found(store, "key", "ana")
    store.publish(records())
    assert "103" not in found(store, "key", "ana")


def test_a_reader_need_not_own_anything_and_an_owner_is_no_reader(store: Store) -> None:
    shared = Recaller.open(store.root).reader.facets["user"].shared
    assert shared is not None
    assert "eva" not in Recaller.open(store.root).reader.facets["user"].values
    assert found(store, "flight", "eva") >= {str(n) for n in range(106, 110)}
    assert not found(store, "flight", "eva") & {"110", "111"}


def test_a_share_supersedes_nothing_of_another_user(tmp_path: Path) -> None:
    """What Ben shares does not hide what Ana has, however alike and new it is."""
    old = memory("The key hangs at the door.", user="ana", created_at_us=day_us(1))
    new = old._replace(user="ben", created_at_us=day_us(200), content="The key hangs at the gate.")
    root = tmp_path / "store"
    store = new_store(root, encoder=write_encoder(root / "encoders"))
    store.publish(renumber([old, new]), shares=[Share("102", "ana")])
    profile = EVERY_LEG.replaced(supersede_filter_enabled=True)
    recalled = Recaller.open(root).recall("key", profile=profile, scope=Scope(user="ana"))
    assert set(ids(recalled)) == {"101", "102"}
    assert not [m.annotations for m in recalled.memories if "superseded_by" in m.annotations]
