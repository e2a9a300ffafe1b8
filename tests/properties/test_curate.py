"""What holds of proposals whatever the memories are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US, MemoryRecord, content_hash
from noctuary.curate.finders import MAX_PARTS, read_mark
from noctuary.curate.proposals import Fields, Proposal, joined_text, united, why_not_held, words_of
from noctuary.text.marks import buried, is_tombstone
from tests.support.claude_memory import proposals_for
from tests.support.store import day_us, memory

WORDS = st.sampled_from(["harbour", "crane", "tide", "noon", "12", "not", "the", "Rome", "x"])
TEXTS = st.one_of(
    st.lists(WORDS, min_size=1, max_size=6).map(" ".join),
    st.builds(
        "{} (part {} of {}): {}".format,
        st.sampled_from(["Log", "log", ""]), st.integers(1, 3), st.integers(2, 3), WORDS,
    ),
    st.builds("Port: {}".format, st.sampled_from(["1", "2"])),
    st.text(max_size=20).filter(lambda t: t.strip() != ""),
)  # fmt: skip


@st.composite
def corpora(draw: st.DrawFn) -> list[MemoryRecord]:
    records: list[MemoryRecord] = []
    for place in range(draw(st.integers(0, 10))):
        record = memory(
            draw(TEXTS),
            position=place,
            memory_id=str(place),
            tags=draw(st.sampled_from(["", "a", "b,c"])),
            user=draw(st.sampled_from([None, "mia"])),
            wing=draw(st.sampled_from([None, "w"])),
            created_at_us=draw(st.sampled_from([UNDATED_US, day_us(1), day_us(9)])),
            is_turn=draw(st.integers(0, 9)) == 0,
        )
        records.append(record._replace(content_hash=content_hash(record)))
    return records


def sides(proposals: list[Proposal], *roles: str) -> list[int]:
    return [t.position for p in proposals for t in p.targets if t.role in roles]


@settings(max_examples=40)
@given(corpora())
def test_no_scope_is_mixed_no_turn_touched_and_no_row_written_twice(
    records: list[MemoryRecord],
) -> None:
    found = proposals_for(records)
    for proposal in found:
        mine = [records[t.position] for t in proposal.targets]
        assert {(r.user, r.wing) for r in mine} == {(proposal.user, proposal.wing)}
        assert not any(r.is_turn for r in mine)
        assert 0.0 <= proposal.confidence <= 1.0
        roles = {t.role for t in proposal.targets}
        assert (roles == {"looked_at"}) is (proposal.action == "NOOP")
        assert bool(proposal.pieces) is (proposal.action == "ADD")
        assert bool(proposal.fields) is (proposal.action == "UPDATE")
    written = sides(found, "superseded", "updated")
    assert len(written) == len(set(written))
    assert len({p.proposal_id for p in found}) == len(found)


@settings(max_examples=40)
@given(corpora())
def test_every_superseded_memory_leads_to_one_that_stays_or_to_an_added_one(
    records: list[MemoryRecord],
) -> None:
    found = proposals_for(records)
    gone = set(sides(found, "superseded"))
    stands_for: dict[int, int] = {}
    for proposal in found:
        kept = [t.position for t in proposal.having("kept", "updated")]
        assert len(kept) == (proposal.action in ("SUPERSEDE", "UPDATE"))
        for target in proposal.having("superseded"):
            if kept:
                stands_for[target.position] = kept[0]
    for position in gone:
        seen: set[int] = set()
        while position in stands_for:
            assert position not in seen
            seen.add(position)
            position = stands_for[position]


@settings(max_examples=40)
@given(corpora(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_makes_no_difference(
    records: list[MemoryRecord], random: object
) -> None:
    shuffled = list(records)
    random.shuffle(shuffled)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert proposals_for(shuffled) == proposals_for(records)


@settings(max_examples=40)
@given(corpora())
def test_a_joined_text_is_made_of_the_parts_words_in_order(records: list[MemoryRecord]) -> None:
    texts = {r.memory_id: r.content for r in records}
    for proposal in proposals_for(records):
        text = joined_text(proposal.pieces, texts)
        for piece in proposal.pieces:
            part = texts[piece.memory_id][piece.start : piece.end]
            assert part in text
            assert piece.before in ("", ": ", "\n")
        bare = sum(len(p.before) + p.end - p.start for p in proposal.pieces)
        assert len(text) == bare


FIELDS = st.builds(
    Fields,
    st.lists(st.sampled_from(["a", "A", "b", "c d"]), max_size=3).map(",".join),
    st.lists(st.sampled_from(["x", "y", "Z"]), max_size=3).map(" ".join),
    st.floats(0, 1),
)


@given(FIELDS, st.lists(FIELDS, max_size=4))
def test_uniting_loses_nothing_and_twice_is_once(kept: Fields, others: list[Fields]) -> None:
    after = united(kept, others)
    for one in others:
        assert {t.casefold() for t in one.tags.split(",")} <= {
            "", *(t.casefold() for t in after.tags.split(","))
        }  # fmt: skip
    assert after.importance == max([kept.importance, *(o.importance for o in others)])
    assert united(after, others) == after


@given(st.text(max_size=80))
def test_a_text_holds_itself_and_reading_never_fails(text: str) -> None:
    assert (why_not_held(text, text) is None) is bool(words_of(text).content)
    mark = read_mark(text)
    if mark is not None:
        assert 1 <= mark.number <= mark.of <= MAX_PARTS
        assert 0 <= mark.start <= mark.end <= len(text)
    assert is_tombstone(buried(text))
    assert buried(text).endswith(text)


@given(st.lists(WORDS, max_size=8), st.lists(WORDS, max_size=8), st.lists(WORDS, max_size=8))
def test_holding_is_transitive(one: list[str], two: list[str], three: list[str]) -> None:
    a, b, c = (" ".join(words) for words in (one, two, three))
    if why_not_held(a, b) is None and why_not_held(b, c) is None:
        assert why_not_held(a, c) is None


@given(st.integers(0, 99), st.integers(0, 120), st.text(alphabet="abc \n", max_size=20))
def test_a_worded_mark_at_the_start_is_read_exactly_in_range(
    number: int, of: int, body: str
) -> None:
    found = read_mark(f"Part {number} of {of}: {body}")
    assert (found is not None) is (1 <= number <= of and 2 <= of <= MAX_PARTS)
