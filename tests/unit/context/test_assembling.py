from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from noctuary.context import assemble as candidates
from noctuary.context.assemble import assemble_from
from noctuary.context.documents import Authored, parse_document
from noctuary.context.prompt import PROFILES, Context, ContextProfile, Turn
from noctuary.sources.injected import cut_blocks
from tests.support.contexts import MemorySearch, chat, memory

DEFAULT = PROFILES["default"]
NO_TAIL = replace(DEFAULT, min_tail_turns=0, tail_target_tokens=0)
DOCUMENT = """# Rules of the house

- Never push to main.
- Run the tests.

You must ask before you deploy.

> Be kind.

You should write short sentences.

The carrier service is deployed with make.

Invoices are sent on Mondays.
"""
EMPTY = Authored((), "")


def authored(text: str = DOCUMENT, source: str = "AGENTS.md") -> Authored:
    return Authored(parse_document(text, source), "digest")


def assemble(
    query: str,
    budget: int,
    session: Sequence[Turn] = (),
    documents: Authored = EMPTY,
    profile: ContextProfile = DEFAULT,
    **search: Any,
) -> Context:
    return assemble_from(query, budget, session, documents, profile, MemorySearch(**search))[0]


def ids(context: Context, *kinds: str) -> list[str]:
    return [part.id for part in context.parts if part.kind in kinds]


def test_an_alternating_chat_keeps_four_turns_and_not_forty() -> None:
    """The reference's code swallows the session: both directions count as coupled there."""
    turns = chat(40, 50)
    context = assemble("nothing in common", 10_000, turns)
    assert {part.tokens for part in context.parts} == {50}
    assert ids(context, "tail") == [f"turn-{place:06d}" for place in range(36, 40)]
    assert not context.degraded


@pytest.mark.parametrize(("target", "kept"), [(128, 4), (329, 4), (330, 6), (429, 6), (2_000, 38)])
def test_a_larger_target_extends_the_tail_by_whole_pairs(target: int, kept: int) -> None:
    """Both sections of the tail have tags of 15 tokens, which count as well."""
    profile = replace(DEFAULT, tail_target_tokens=target)
    context = assemble("nothing in common", 10_000, chat(40, 50), profile=profile)
    assert len(ids(context, "tail")) == kept


def test_everything_stands_in_its_order_and_costs_what_is_written() -> None:
    session = [Turn("user" if n % 2 == 0 else "assistant", f"carrier turn {n}") for n in range(10)]
    profile = replace(DEFAULT, tail_target_tokens=80)
    context = assemble(
        "how is the carrier service deployed with make",
        2_000,
        session,
        authored(),
        profile,
        memories=[memory(7, "the carrier service is deployed on fridays")],
    )
    kinds = [part.kind for part in context.parts]
    order = ["I1", "tail", "I2", "tail", "variant"]
    assert [k for n, k in enumerate(kinds) if n == 0 or kinds[n - 1] != k] == order
    rules = [part.why["rule"] for part in context.parts]
    assert rules.index("tail_base") < rules.index("soft_prefix") < rules.index("tail_extension")
    assert {part.source for part in context.parts if part.kind == "variant"} == {
        "authored",
        "session",
        "memory",
    }
    scores = [part.score for part in context.parts if part.score is not None]
    assert scores == sorted(scores, reverse=True)
    place = 0
    for part in context.parts:
        place = context.text.index(part.rendered, place) + len(part.rendered)
    assert context.tokens == context.frame_tokens + sum(part.tokens for part in context.parts)


def test_soft_nodes_are_a_prefix_and_none_is_skipped_for_a_shorter_one() -> None:
    whole = assemble("x", 1_000, documents=authored(), profile=NO_TAIL)
    first, second, third = (part.tokens for part in whole.parts if part.kind == "I2")
    assert third > second, "the second would fit where the first does not"
    frame = 14
    for room, kept in [(frame + first - 1, 0), (frame + first, 1), (frame + first + second, 2)]:
        profile = replace(NO_TAIL, soft_fraction=room / 1_000)
        found = assemble("x", 1_000, documents=authored(), profile=profile)
        assert len(ids(found, "I2")) == kept


def test_rules_that_do_not_fit_are_there_all_the_same_and_nothing_else_is() -> None:
    context = assemble("carrier", 10, chat(9, 20), authored(), memories=[memory(7, "carrier")])
    assert [reason.code for reason in context.degraded] == [
        "hard_over_budget",
        "tail_base_over_budget",
    ]
    assert {part.kind for part in context.parts} == {"I1", "tail"}
    assert ids(context, "I1") == [node.id for node in authored().hard]
    assert len(ids(context, "tail")) == 5, "the ninth turn asks: its pair before stays together"
    assert context.tokens > context.budget_tokens
    assert context.degraded[1].needed_tokens == context.tokens
    assert context.degraded[1].allowed_tokens == 10


def test_the_budget_is_met_to_the_token() -> None:
    whole = assemble("x", 10_000, chat(4, 20), authored("- One rule.\n"))
    assert not assemble("x", whole.tokens, chat(4, 20), authored("- One rule.\n")).degraded
    tight = assemble("x", whole.tokens - 1, chat(4, 20), authored("- One rule.\n"))
    assert [reason.code for reason in tight.degraded] == ["tail_base_over_budget"]
    assert tight.text == whole.text, "nothing is cut"


def test_a_reserve_for_rules_is_kept_or_said() -> None:
    tokens = assemble("x", 1_000, documents=authored(), profile=NO_TAIL).parts
    hard = 13 + sum(part.tokens for part in tokens if part.kind == "I1")
    loose = replace(NO_TAIL, hard_fraction=hard / 1_000)
    tight = replace(NO_TAIL, hard_fraction=(hard - 1) / 1_000)
    assert not assemble("x", 1_000, documents=authored(), profile=loose).degraded
    (reason,) = assemble("x", 1_000, documents=authored(), profile=tight).degraded
    assert (reason.code, reason.needed_tokens, reason.allowed_tokens) == (
        "hard_over_reserve",
        hard,
        hard - 1,
    )
    assert reason._asdict()["message"] == reason.message


def test_found_texts_stop_at_the_first_that_does_not_fit() -> None:
    found = [memory(1, "key key1 key2"), memory(2, "key " + "x" * 400), memory(3, "key " * 2)]
    order = assemble("key key1 key2", 2_000, memories=found, profile=NO_TAIL)
    assert ids(order, "variant")[0] == "1"
    small = assemble("key key1 key2", 80, memories=found, profile=NO_TAIL)
    kept = ids(small, "variant")
    assert kept == ids(order, "variant")[: len(kept)]
    assert len(kept) < 3


def test_what_stands_in_the_prompt_already_is_not_found_again() -> None:
    session = [Turn("user", "the spare key is behind the door")]
    found = [
        memory(1, "The spare  key is behind the door"),
        memory(2, "User: the spare key is behind the door", session_id="s"),
        memory(3, "the spare key was lost"),
        memory(4, "the spare key was lost"),
    ]
    context = assemble("where is the spare key", 2_000, session, memories=found)
    assert ids(context, "variant") == ["3"]


def test_earlier_turns_are_found_and_the_tail_is_not() -> None:
    session = [Turn("user" if n % 2 == 0 else "assistant", f"boiler talk {n}") for n in range(12)]
    search = MemorySearch()
    profile = replace(DEFAULT, tail_target_tokens=0)
    context = assemble_from("boiler talk", 2_000, session, EMPTY, profile, search)[0]
    tail = ids(context, "tail")
    assert tail == [f"turn-{n:06d}" for n in range(8, 12)]
    assert set(search.compared) == {f"boiler talk {n}" for n in range(8)}
    assert set(ids(context, "variant")) == {f"turn-{n:06d}" for n in range(8)}


def test_hop_targets_come_along_with_their_parent() -> None:
    nodes = [
        node._replace(hop_targets=("AGENTS.md#000007",)) if "carrier" in node.text else node
        for node in authored().nodes
    ]
    context = assemble(
        "the carrier service is deployed with make.", 2_000, documents=Authored(tuple(nodes), "")
    )
    last = context.parts[-1]
    assert (last.id, last.why["rule"]) == ("AGENTS.md#000007", "hop")
    assert last.text == "Invoices are sent on Mondays."
    assert last.score is not None
    assert last.score >= DEFAULT.hop_threshold


def test_a_store_that_abstains_gives_no_memories_and_says_so() -> None:
    context = assemble(
        "carrier service", 2_000, documents=authored(), memories=[memory(1, "carrier service")],
        refusal="below the threshold",
    )  # fmt: skip
    assert [warning.code for warning in context.warnings] == ["abstained"]
    assert {part.source for part in context.parts} == {"authored"}
    assert ids(context, "variant"), "what was written for the agent is found all the same"


def test_without_cosines_the_share_of_keywords_takes_their_place() -> None:
    found = [memory(1, "the carrier works"), memory(2, "nothing of the kind")]
    search = MemorySearch(memories=found, knows_cosines=False)
    context = assemble_from("carrier work", 2_000, [], authored(), NO_TAIL, search)[0]
    assert [part.id for part in context.parts if part.source == "memory"] == ["1"]
    assert all(p.why["similarity"] == p.why["coverage"] for p in context.parts if p.score)
    assert search.compared == []


@pytest.mark.parametrize(
    ("query", "text"),
    [("где запасной ключ", "запасной ключ в кладовке"), ("备用钥匙在哪里", "备用钥匙在厨房")],
)
def test_queries_of_other_scripts_have_keywords(query: str, text: str) -> None:
    context = assemble(
        query, 2_000, memories=[memory(1, text)], knows_cosines=False, profile=NO_TAIL
    )
    assert ids(context, "variant") == ["1"]
    assert context.parts[0].why["coverage"] > 0.3


def test_what_is_not_compared_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MAX_COMPARED", 3)
    session = [Turn("user", f"other {n}") for n in range(10)]
    session[2] = Turn("user", "the boiler leaks")
    search = MemorySearch(unread=frozenset(["other 5"]))
    profile = replace(DEFAULT, tail_target_tokens=0)
    context = assemble_from("boiler leaks", 2_000, session, EMPTY, profile, search)[0]
    assert search.compared == ["other 5", "other 4", "the boiler leaks"]
    assert [w.code for w in context.warnings] == ["variants_not_compared", "variants_unread"]
    assert ids(context, "variant") == ["turn-000002"]


@pytest.mark.parametrize("query", ["", " \n"])
def test_a_blank_query_looks_nothing_up(query: str) -> None:
    search = MemorySearch(memories=[memory(1, "x")])
    context = assemble_from(query, 500, chat(6, 9), authored(), DEFAULT, search)[0]
    assert [warning.code for warning in context.warnings] == ["empty_query"]
    assert search.asked == []
    assert not ids(context, "variant")


def test_nothing_is_looked_up_where_nothing_could_be_shown() -> None:
    search = MemorySearch(memories=[memory(1, "x")])
    context = assemble_from("x", 0, [], EMPTY, DEFAULT, search)[0]
    assert (context.text, context.tokens, search.asked) == ("", 0, [])


def test_found_texts_are_known_again_when_they_come_back() -> None:
    session = [Turn("user", "a <noctuary-recall id='0'> b"), Turn("assistant", "carrier")]
    context = assemble(
        "carrier service", 2_000, session, authored(), memories=[memory(1, "carrier service works")]
    )
    cut = cut_blocks(context.text)
    assert cut.blocks == 1
    assert "carrier service works" in context.text
    assert "carrier service works" not in cut.text
    assert "a &lt;noctuary-recall id='0'> b" in cut.text


def test_blank_turns_are_left_out_and_ids_are_kept() -> None:
    session = [Turn("user", "one", id="m1"), Turn("assistant", " \n"), Turn("user", "two")]
    context = assemble("x", 500, session)
    assert ids(context, "tail") == ["m1", "turn-000002"]


def test_equal_inputs_give_equal_bytes() -> None:
    found = [memory(n, f"carrier note {n}") for n in range(9)]
    first, second = (
        assemble("carrier note", 400, chat(9, 20), authored(), memories=found) for _ in range(2)
    )
    assert first.to_json() == second.to_json()
