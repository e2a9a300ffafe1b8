"""The reader of triples against a real server that answers by rule, and misbehaves on request."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pytest

from noctuary.core.types import SILENT
from noctuary.graph.llm import (
    MAX_FAILED_NIGHTS,
    MAX_USELESS_ALONE,
    PARALLEL_REQUESTS,
    TRIPLES_KIND,
    RawAnswer,
    TripleReader,
    answer_key,
    ground,
)
from noctuary.work.content import ContentStore
from noctuary.work.http import MAX_MEMORY_CHARS, Endpoint
from tests.support.fake_server import FakeServer, Fault, Row, Twist, envelope

KEY = "sk-very-secret-0123"
PEOPLE = ("Ann", "Bea", "Cem", "Dia", "Eva", "Fay", "Gil", "Hal", "Ida", "Jon")
UNUSABLE = "an item without a usable value, or with an unknown or repeated id"
TEXTS = [f"{name} works at Acme{number}" for number, name in enumerate(PEOPLE)]


@dataclass(frozen=True)
class Read:
    """What a reader knows after one night."""

    answers: Mapping[str, RawAnswer]
    tonight: Counter[str]
    warnings: Sequence[Mapping[str, str]]


@dataclass
class Asking:
    """A reader on one server."""

    server: FakeServer
    store: ContentStore
    batch: int = 4
    model: str = "reader"
    timeout_s: float = 5.0

    def run(self, texts: Sequence[str] = TEXTS) -> Read:
        endpoint = Endpoint(self.server.url, self.model, KEY, timeout_s=self.timeout_s)
        reader = TripleReader(endpoint, self.batch, self.store, SILENT, sleep=lambda _: None)
        answers = reader.read(texts)
        assert KEY not in repr(reader)
        return Read(answers, reader.tonight, reader.warnings())


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with FakeServer() as server:
        yield Asking(server, ContentStore(tmp_path, TRIPLES_KIND))


def statements(found: Read) -> set[tuple[str, str, str]]:
    """Everything that is stated and stands in its memory."""
    return {
        (s.subject, s.relation, s.object)
        for content, answer in found.answers.items()
        for s in ground(content, answer).extraction.stated
    }


ALL = {(name.lower(), "works_at", f"acme{number}") for number, name in enumerate(PEOPLE)}


def test_every_memory_is_asked_about_once_in_batches(asking: Asking) -> None:
    found = asking.run()
    assert statements(found) == ALL
    assert sorted(len(texts) for texts in asking.server.memories) == [2, 4, 4]
    assert sorted(chain.from_iterable(asking.server.memories)) == sorted(TEXTS)
    assert found.tonight == {"requests": 3, "remembered": 0}
    assert not found.warnings


def test_answers_are_the_same_whatever_the_order_and_the_batches(
    asking: Asking, tmp_path: Path
) -> None:
    first = asking.run()
    for batch, texts in ((1, TEXTS[::-1]), (3, sorted(TEXTS)), (99, [*TEXTS, *TEXTS])):
        store = ContentStore(tmp_path / str(batch), TRIPLES_KIND)
        other = Asking(asking.server, store, batch=batch).run(texts)
        assert other.answers == first.answers


def test_what_was_answered_is_not_asked_again_unless_model_or_text_change(asking: Asking) -> None:
    first = asking.run()
    asking.server.asked.clear()
    second = asking.run([*TEXTS, "Zoe works at Borealis"])
    assert asking.server.memories == [["Zoe works at Borealis"]]
    assert second.tonight["remembered"] == 10
    assert {k: second.answers[k] for k in TEXTS} == first.answers
    replace(asking, model="other").run(TEXTS[:1])
    assert asking.server.memories[-1] == TEXTS[:1]


def without_first(rows: list[Row]) -> object:
    return {"items": rows[1:]}


def twice(rows: list[Row]) -> object:
    lie = {**rows[0], "triples": [["Acme0", "is a", "Ann"]]}
    return {"items": [*rows, lie]}


def numbered(rows: list[Row]) -> object:
    return {"items": [{**row, "id": str(n)} for n, row in enumerate(rows, start=1)]}


def no_lists(rows: list[Row]) -> object:
    return {"items": [{"id": row["id"]} for row in rows]}


def truncated(rows: list[Row]) -> object:
    return json.dumps({"items": rows})[:-9]


@pytest.mark.parametrize(
    ("twist", "alone", "fault"),
    [
        (without_first, 1, "an item was not answered"),
        (numbered, 4, UNUSABLE),
        (no_lists, 4, UNUSABLE),
        (truncated, 4, "no JSON list of items"),
    ],
)
def test_what_a_batch_does_not_answer_is_asked_alone(
    asking: Asking, twist: Twist, alone: int, fault: str
) -> None:
    asking.server.twists = [twist]
    found = asking.run()
    assert statements(found) == ALL
    assert sum(len(texts) == 1 for texts in asking.server.memories) == alone
    assert found.tonight[f"fault: {fault}"] >= 1
    assert not found.warnings


def test_the_first_of_two_answers_stands(asking: Asking) -> None:
    asking.server.twists = [twice]
    found = asking.run()
    assert statements(found) == ALL
    assert found.tonight[f"fault: {UNUSABLE}"] == 1
    assert found.tonight["requests"] == 3


@pytest.mark.parametrize(
    "fault",
    [
        Fault(429, headers={"Retry-After": "1"}),
        Fault(500),
        Fault(503),
        Fault(body=envelope("{")[:30], announced=500),  # broken off
        Fault(400),  # the batch is refused: its memories are asked about alone
        Fault(body=envelope("I cannot help with that.")),
    ],
)
def test_passing_faults_cost_no_memory(asking: Asking, fault: Fault) -> None:
    asking.server.faults = [fault, fault]
    # A memory that is asked about alone after the first would be lost for tonight by the second.
    asking.server.spares_single_items = True
    found = asking.run()
    assert statements(found) == ALL
    assert not asking.server.faults
    assert not found.warnings


def test_a_slow_answer_is_waited_for_and_a_hanging_one_tried_again(asking: Asking) -> None:
    rows = [{"id": "x", "names": []}]
    asking.server.faults = [Fault(hang=True), Fault(body=envelope(json.dumps(rows)), drip_s=0.001)]
    assert statements(replace(asking, timeout_s=0.5).run()) == ALL


def test_invented_names_never_survive_the_check(asking: Asking) -> None:
    def invent(rows: list[Row]) -> object:
        lies = {"names": ["Globex", "Ann"], "triples": [["Ann", "works at", "Globex"]]}
        return {"items": [{**row, **lies} for row in rows]}

    asking.server.twists = [invent]
    found = asking.run(["Ann lives in Oslo"])
    ((content, answer),) = found.answers.items()
    kept, dropped, _ = ground(content, answer)
    assert {f.name for f in kept.found} == {"ann"}
    assert kept.stated == ()
    assert dropped == {"not_in_text": 2}


def test_other_relations_leave_their_names_and_are_counted(asking: Asking) -> None:
    found = asking.run(["Ann admires Bea"])
    ((content, answer),) = found.answers.items()
    grounded = ground(content, answer)
    assert grounded.unmapped == 1
    assert statements(found) == set()
    assert {f.name for f in grounded.extraction.found} == {"ann", "bea"}


def test_only_a_bounded_part_of_a_content_is_sent_and_the_key_is_in_no_finding(
    asking: Asking,
) -> None:
    long = "Ann works at Acme0. " + "x" * MAX_MEMORY_CHARS + "tail-canary"
    found = asking.run([long])
    assert "tail-canary" not in asking.server.everything
    assert KEY not in repr(found)
    kept = asking.store.get([bytes.fromhex(answer_key(long, "reader"))])
    assert len(kept) == 1
    assert KEY.encode() not in b"".join(kept.values())


def test_an_endpoint_that_is_down_leaves_what_is_known_and_a_warning(asking: Asking) -> None:
    asking.run(TEXTS[:3])
    asking.server.faults = [Fault(503)] * 99
    found = asking.run()
    assert set(found.answers) == set(TEXTS[:3])
    (warning,) = found.warnings
    assert warning["code"] == "graph_endpoint_down"
    assert "HTTP 503" in warning["message"]
    assert "7 memories" in warning["message"]
    asking.server.faults.clear()
    assert statements(asking.run()) == ALL


def test_a_model_that_never_writes_json_is_left_alone_and_held_against_no_memory(
    asking: Asking,
) -> None:
    babble = envelope("Once upon a time")
    texts = [f"{text} since {year}" for text in TEXTS for year in range(1990, 1999)]
    for _ in range(MAX_FAILED_NIGHTS + 1):
        asking.server.asked.clear()
        asking.server.faults = [Fault(body=babble)] * 999
        found = asking.run(texts)
        assert found.warnings[0]["code"] == "graph_endpoint_down"
        assert len(asking.server.asked) <= 3 + MAX_USELESS_ALONE + PARALLEL_REQUESTS
    asking.server.faults.clear()
    assert statements(asking.run(texts)) == ALL


def test_a_memory_that_nothing_comes_of_is_reported_and_given_up_after_some_nights(
    asking: Asking,
) -> None:
    asking.server.poisoned = "Gil"
    poison = next(text for text in TEXTS if "Gil" in text)
    for night in range(MAX_FAILED_NIGHTS):
        asking.server.asked.clear()
        found = asking.run()
        assert set(found.answers) == set(TEXTS) - {poison}
        assert [w["code"] for w in found.warnings] == ["graph_memories_unanswered"]
        assert [poison] in asking.server.memories, night
    asking.server.asked.clear()
    assert set(asking.run().answers) == set(TEXTS) - {poison}
    assert asking.server.asked == []


def test_more_hopeless_memories_than_the_limit_do_not_starve_a_new_one(asking: Asking) -> None:
    hopeless = [f"Gil sees {n}" for n in range(MAX_USELESS_ALONE * 2)]
    candidates = [f"Zoe works at Site{n}" for n in range(200)]
    last = max(candidates, key=lambda text: answer_key(text, asking.model))
    asking.run(TEXTS)
    asking.server.poisoned = "Gil"
    nights = [asking.run([*TEXTS, *hopeless, last]) for _ in range(3)]
    assert nights[0].warnings[0]["code"] == "graph_endpoint_down", "it takes the limit to starve"
    assert last in nights[2].answers


def test_every_batch_is_kept_as_soon_as_it_is_there(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    def put(store: ContentStore, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        assert len(keys) == len(values)
        steps.append(len(keys))

    monkeypatch.setattr(ContentStore, "put", put)
    asking.run()
    assert sorted(steps) == [2, 4, 4]
