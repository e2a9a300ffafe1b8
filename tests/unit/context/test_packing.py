from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noctuary.context.prompt import (
    ESTIMATE,
    Section,
    TokenCounter,
    fit_found,
    fit_prefix,
    price_section,
    vocabulary_counter,
)
from noctuary.embed.lean import WordPiece
from noctuary.sources.injected import Line, render_block

# Knows parts of a block's id, so that what the tags cost depends on the lines.
VOCABULARY = WordPiece(
    "\n".join(
        ["[UNK]", "[CLS]", "[SEP]", *"0123456789abcdef", *(f"##{c}" for c in "0123456789")]
    ).encode()
)
counters = st.sampled_from([ESTIMATE, vocabulary_counter("tiny", VOCABULARY)])
texts = st.lists(st.text("ab 中", max_size=30).map(lambda t: f"{t}\n"), max_size=6)
lines = st.lists(
    st.builds(
        Line,
        st.text("0123", min_size=1),
        st.just("undated"),
        st.text("ab <&", max_size=30),
        st.just("home"),
    ),
    max_size=6,
)


def price_of(found: list[Line], counter: TokenCounter) -> int:
    """What a block costs: its two opening lines, each memory, its closing tag."""
    written = render_block(found).splitlines()
    if not written:
        return 0
    pieces = [f"{written[0]}\n{written[1]}\n", *(f"{line}\n" for line in written[2:])]
    return sum(map(counter.count, pieces))


def test_nothing_costs_nothing() -> None:
    assert price_section("rules", [], ESTIMATE) == Section()
    assert Section().tokens == 0
    assert Section().text == ""


@given(texts, counters)
def test_a_section_costs_its_pieces_and_its_tags(pieces: list[str], counter: TokenCounter) -> None:
    section = price_section("rules", pieces, counter)
    assert list(section.costs) == [counter.count(piece) for piece in pieces]
    if pieces:
        opening, closing = '<noctuary-context part="rules">\n', "</noctuary-context>\n"
        assert section.text == opening + "".join(pieces) + closing
        assert section.frame_tokens == counter.count(opening) + counter.count(closing)
    assert section.tokens == sum(section.costs) + section.frame_tokens


@given(texts, counters, st.integers(-5, 120))
def test_the_longest_prefix_that_fits_is_taken(
    pieces: list[str], counter: TokenCounter, room: int
) -> None:
    naive = [
        count
        for count in range(1, len(pieces) + 1)
        if price_section("guidance", pieces[:count], counter).tokens <= room
    ]
    section = fit_prefix("guidance", pieces, counter, room)
    assert section.pieces == tuple(pieces[: max(naive, default=0)])


@given(lines, counters, st.integers(-5, 250))
def test_found_lines_are_taken_until_the_first_that_does_not_fit(
    found: list[Line], counter: TokenCounter, room: int
) -> None:
    section = fit_found(found, counter, room)
    taken = len(section.pieces)
    assert section.text == (f"{render_block(found[:taken])}\n" if taken else "")
    assert section.tokens == price_of(found[:taken], counter)
    assert all(price_of(found[:count], counter) <= room for count in range(1, taken + 1))
    if taken < len(found):
        assert price_of(found[: taken + 1], counter) > room
