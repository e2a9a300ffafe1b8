"""The ten runtime invariants of libravdb mathematics 7.10, over whatever an agent may bring along.

Real documents, the real assembly, real counters; the store is a list of memories (`MemorySearch`),
and a built one at the end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.context.assemble import assemble, assemble_from
from noctuary.context.documents import HARD, SOFT, VARIANT, Node, parse_document
from noctuary.context.prompt import (
    ESTIMATE,
    Context,
    ContextProfile,
    Part,
    TokenCounter,
    Turn,
    vocabulary_counter,
)
from noctuary.embed.wordpiece import WordPiece
from tests.support.contexts import MemorySearch, memory, naive_base
from tests.support.store import Store

WORDS = ["key", "door", "boiler", "ключ", "дверь", "鍵", "deploy", "you", "must", "never", "a<b"]
VOCABULARY = WordPiece(
    "\n".join(
        ["[UNK]", "[CLS]", "[SEP]", "key", "door", "##s", "-", ">", "<", "/", "noctuary"]
    ).encode()
)
COUNTERS: list[TokenCounter] = [ESTIMATE, vocabulary_counter("tiny", VOCABULARY)]
TAGS = ["</noctuary-context>", '<noctuary-recall id="0123456789abcdef" memories="1">']

phrases = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
odd = st.text(max_size=20) | st.sampled_from([*TAGS, "x" * 300, "\ud800", "a\nUser: b"])
texts = phrases | odd | st.builds("{} {}".format, phrases, odd)


def _block(opening: str, text: str) -> str:
    """Return a Markdown block of a file in UTF-8."""
    words = text.encode("utf-8", "ignore").decode().split()
    return opening + " ".join(words)


openings = st.sampled_from(["- ", "> ", "", "You must ", "# ", "    ", "1. "])
blocks = st.builds(_block, openings, texts)
documents = st.lists(blocks, max_size=8).map("\n\n".join)
turns = st.builds(
    Turn,
    role=st.sampled_from(["user", "assistant", "tool", ""]),
    text=texts,
    id=st.none(),
    at_us=st.none() | st.integers(0, 2**52),
    bundle=st.sampled_from([None, None, None, "a", "b"]),
)
memories = st.lists(st.tuples(texts, st.floats(-5, 4000), st.floats(0, 1)), max_size=10).map(
    lambda rows: [
        memory(place, text, age_days=age, importance=share)
        for place, (text, age, share) in enumerate(rows)
    ]
)
profiles = st.builds(
    ContextProfile,
    coarse_threshold=st.sampled_from([-1.0, 0.0, 0.2, 0.9]),
    coarse_depth=st.integers(4, 16),
    final_depth=st.integers(1, 4),
    hop_decay=st.floats(0.01, 0.99),
    hop_threshold=st.sampled_from([0.0, 0.15, 1.0]),
    authority_floor=st.floats(0, 1),
    soft_fraction=st.sampled_from([0.0, 0.3, 0.5]),
    tail_target_tokens=st.sampled_from([0, 40, 128, 1_000]),
    min_tail_turns=st.integers(0, 5),
)


class Case(NamedTuple):
    """One assembly with all that went into it."""

    context: Context
    session: list[Turn]
    authored: list[Node]
    profile: ContextProfile
    search: MemorySearch

    def parts(self, *kinds: str) -> list[Part]:
        return [part for part in self.context.parts if part.kind in kinds]


def with_hops(parsed: tuple[Node, ...], links: list[tuple[int, int]]) -> list[Node]:
    """Return the documents with hops between their variants, circles included."""
    variants = [node.id for node in parsed if node.tier == VARIANT]
    targets: dict[str, list[str]] = {}
    for start, goal in links:
        if variants:
            start_id = variants[start % len(variants)]
            targets.setdefault(start_id, []).append(variants[goal % len(variants)])
    return [node._replace(hop_targets=tuple(targets.get(node.id, ()))) for node in parsed]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    session = draw(st.lists(turns, max_size=12))
    parsed = parse_document(draw(documents), "A.md")
    links = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6))
    authored = with_hops(parsed, links)
    search = MemorySearch(
        memories=draw(memories),
        counter=draw(st.sampled_from(COUNTERS)),
        knows_cosines=draw(st.booleans()),
        quality=draw(st.sampled_from([1.0, 0.5, math.nan, -1.0, 7.0])),
        refusal=draw(st.sampled_from(["", "", "below the threshold"])),
    )
    profile = draw(profiles)
    budget = draw(st.integers(0, 120) | st.integers(0, 3_000))
    query = draw(texts)
    context = assemble_from(query, budget, session, authored, profile, search)[0]
    return Case(context, session, authored, profile, search)


def said(session: list[Turn]) -> list[str]:
    """The ids of the turns that say something."""
    return [f"turn-{place:06d}" for place, turn in enumerate(session) if turn.text.strip()]


def base_ids(case: Case) -> list[str]:
    speaking = [turn for turn in case.session if turn.text.strip()]
    return said(case.session)[naive_base(speaking, case.profile.min_tail_turns) :]


def check_1_every_hard_node_is_there_whole(case: Case) -> None:
    parts = case.parts("I1")
    assert [(p.id, p.text) for p in parts] == [
        (n.id, n.text) for n in case.authored if n.tier == HARD
    ]
    assert all(part.rendered in case.context.text for part in parts)


def check_2_soft_nodes_are_a_prefix_in_authored_order(case: Case) -> None:
    taken = [part.id for part in case.parts("I2")]
    assert taken == [node.id for node in case.authored if node.tier == SOFT][: len(taken)]


def check_3_the_tiers_share_nothing_and_neither_do_tail_and_rest(case: Case) -> None:
    shown = [(part.source, part.id) for part in case.context.parts]
    assert len(shown) == len(set(shown)), "nothing stands twice"
    tiers = {node.id: node.tier for node in case.authored}
    kinds = {"I1": 1, "I2": 2, "variant": 0}
    for part in case.context.parts:
        if part.source == "authored":
            assert tiers[part.id] == kinds[part.kind]
    tail = {part.id for part in case.parts("tail")}
    found = {part.id for part in case.parts("variant") if part.source == "session"}
    assert not tail & found
    assert tail | found <= set(said(case.session))


def check_4_the_last_turns_are_there_whole(case: Case) -> None:
    tail = [part.id for part in case.parts("tail")]
    assert set(base_ids(case)) <= set(tail)
    by_id = {part.id: part for part in case.parts("tail")}
    for place, turn in enumerate(case.session):
        part = by_id.get(f"turn-{place:06d}")
        if part is not None:
            assert part.text == turn.text
            assert part.rendered in case.context.text


def check_5_scores_lie_between_0_and_1(case: Case) -> None:
    for part in case.parts("variant"):
        assert part.score is not None
        assert 0.0 <= part.score <= 1.0
    scores = [part.score for part in case.parts("variant")]
    assert scores == sorted(scores, key=lambda score: -(score or 0.0))


def check_6_the_budget_is_kept_or_its_breach_is_said_and_nothing_is_cut(case: Case) -> None:
    context, counter = case.context, case.search.counter
    assert context.token_counter == counter.label
    assert context.tokens == context.frame_tokens + sum(part.tokens for part in context.parts)
    assert all(part.tokens == counter.count(part.rendered) for part in context.parts)
    frames = context.text
    for part in context.parts:
        frames = frames.replace(part.rendered, "\0", 1)
    tags = [piece for piece in frames.split("\0") if piece]
    assert (context.frame_tokens > 0) == bool(tags)
    if counter.label != "estimate":
        assert context.tokens == counter.count(context.text), "nothing else is written"
    if context.degraded:
        assert {part.kind for part in context.parts} <= {"I1", "tail"}
        assert [part.id for part in case.parts("tail")] == base_ids(case)
        assert not case.search.asked
        assert all(d.needed_tokens > d.allowed_tokens for d in context.degraded)
        assert {d.code for d in context.degraded} <= {"hard_over_budget", "tail_base_over_budget"}
        assert context.tokens > context.budget_tokens
    else:
        assert context.tokens <= context.budget_tokens


def check_7_the_tail_is_a_suffix_and_only_what_is_before_it_is_searched(case: Case) -> None:
    """What may be compacted is what is searched: V_rest, never the tail."""
    order = said(case.session)
    tail = sorted((part.id for part in case.parts("tail")), key=order.index)
    assert tail == order[len(order) - len(tail) :]
    before = {case.session[int(name[-6:])].text for name in order[: len(order) - len(tail)]}
    authored = {node.text for node in case.authored if node.tier == VARIANT}
    assert set(case.search.compared) <= before | authored


def check_8_hops_end_after_one_step(case: Case) -> None:
    rules = {part.id: part for part in case.parts("variant") if part.source == "authored"}
    targets = {node.id: node.hop_targets for node in case.authored}
    for part in rules.values():
        if part.why["rule"] == "hop":
            parent = part.why["parent"]
            assert part.id in targets[parent]
            assert part.score is not None
            assert case.profile.hop_threshold <= part.score < 1.0
            if parent in rules:
                assert rules[parent].why["rule"] == "two_pass"


def check_9_there_is_always_an_answer_in_plain_finite_numbers(case: Case) -> None:
    plain = case.context.to_json()
    json.dumps(plain, allow_nan=False)
    assert case.context.tokens >= 0
    assert all(part.tokens >= 0 for part in case.context.parts)


INVARIANTS: list[Callable[[Case], None]] = [
    check_1_every_hard_node_is_there_whole,
    check_2_soft_nodes_are_a_prefix_in_authored_order,
    check_3_the_tiers_share_nothing_and_neither_do_tail_and_rest,
    check_4_the_last_turns_are_there_whole,
    check_5_scores_lie_between_0_and_1,
    check_6_the_budget_is_kept_or_its_breach_is_said_and_nothing_is_cut,
    check_7_the_tail_is_a_suffix_and_only_what_is_before_it_is_searched,
    check_8_hops_end_after_one_step,
    check_9_there_is_always_an_answer_in_plain_finite_numbers,
]


@pytest.mark.parametrize("check", INVARIANTS, ids=lambda check: check.__name__)
@settings(max_examples=30)
@given(case=cases())
def test_an_invariant_holds(check: Callable[[Case], None], case: Case) -> None:
    check(case)


@pytest.mark.slow
@settings(max_examples=3_000)
@given(cases())
def test_the_invariants_hold_together(case: Case) -> None:
    for check in INVARIANTS:
        check(case)


@given(
    st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.lists(st.floats(0, 4000), min_size=1)
)  # fmt: skip
def test_10_quality_takes_a_bounded_share(
    confidence: float, penalty: float, importance: float, ages: list[float]
) -> None:
    """Q = 1 - delta (1 - confidence) multiplies a summary's score: it never lifts it."""
    quality = 1.0 - penalty * (1.0 - confidence)
    found = [
        memory(place, f"key {place}", age_days=age, importance=importance)
        for place, age in enumerate(ages[:8])
    ]

    def scores(share: float) -> dict[str, float]:
        search = MemorySearch(memories=found, quality=share)
        profile = ContextProfile(coarse_threshold=-1.0)
        made = assemble_from("key", 5_000, [], [], profile, search)[0]
        return {part.id: part.score or 0.0 for part in made.parts}

    plain, judged = scores(1.0), scores(quality)
    assert plain.keys() == judged.keys()
    for name, score in judged.items():
        assert (1.0 - penalty) * plain[name] - 1e-12 <= score <= plain[name] + 1e-12


@settings(max_examples=30)
@given(cases(), st.data())
def test_equal_inputs_give_equal_bytes(case: Case, data: st.DataObject) -> None:
    again = assemble_from(
        case.context.query,
        case.context.budget_tokens,
        data.draw(st.sampled_from([case.session, tuple(case.session)])),
        case.authored,
        case.profile,
        case.search,
    )[0]
    assert json.dumps(again.to_json()) == json.dumps(case.context.to_json())


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.lists(
        st.sampled_from(["spare", "key", "feline", "Atlas", "boiler", "flight", "code", "鍵"]),
        max_size=4,
    ).map(" ".join),
    budget=st.integers(0, 400),
    session=st.lists(turns, max_size=6),
    user=st.sampled_from([None, "ana", "ben", "nobody"]),
    damage=st.sampled_from(["", "", "no encoder"]),
)
def test_a_built_store_keeps_the_invariants_too(
    dense_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    budget: int,
    session: list[Turn],
    user: str | None,
    damage: str,
) -> None:
    from noctuary.context import assemble as real

    with monkeypatch.context() as patch:
        if damage:
            patch.setattr(real, "text_encoder", _missing)
        made = assemble(query, budget, session=session, user=user, store=dense_store.root)
    assert made.degraded or made.tokens <= budget
    assert made.token_counter == ("estimate" if damage else "tokenizer:word-axes")
    assert ("keywords_only" in {w.code for w in made.warnings}) == bool(damage)
    for part in made.parts:
        if part.kind == "variant":
            assert part.score is not None
            assert 0.0 <= part.score <= 1.0
        if part.source == "memory":
            owner = {"106": "ana", "107": "ben"}.get(part.id)
            assert owner in (None, user), "nobody sees the memories of another"
    json.dumps(made.to_json(), allow_nan=False)


def _missing(*_: Any) -> Callable[..., Any]:
    from noctuary.core.errors import EncoderError

    raise EncoderError("there is none")
