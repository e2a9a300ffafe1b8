from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noctuary.graph.extract import KINDS, decode_extraction, encode_extraction, extract
from noctuary.graph.fold import fold_name
from noctuary.graph.patterns import spellings
from noctuary.graph.tables import NO_SPAN

_PIECES = [
    "I", "my", "manager", "Dana", "Lee", "Dana's", "is", "now", "a", "nurse", "not", "depends on",
    "Redis", "and", "switched from", "to", "replaced by", "no longer", "supersedes #12", "[[m-7]]",
    "see", "12 May 2024", "2024-05", "also known as", "(AL)", "```", "?", ".", ",", ":", "\n", '"',
    "’s", "part of", "lives in", "Lisbon", "likes", "better", "резерв", "李明", "שָׁלוֹם", "½", "İ",
]  # fmt: skip
_CONTENTS = st.one_of(
    st.lists(st.sampled_from(_PIECES), max_size=30).map(" ".join),
    st.lists(st.sampled_from(_PIECES), max_size=30).map("".join),
    st.text(max_size=200),
)


@given(_CONTENTS, st.booleans())
@example("B À", False)
def test_every_finding_slices_to_its_surface(content: str, is_turn: bool) -> None:
    for found in extract(content, is_turn=is_turn).found:
        assert found.kind in KINDS
        assert found.name
        assert fold_name(found.surface) == found.name
        literal = content[max(found.start, 0) : max(found.end, 0)]
        written = spellings(literal) if found.role == "about" else [literal]
        assert found.start == NO_SPAN or found.surface in written


@given(_CONTENTS, st.booleans())
def test_every_statement_names_findings_and_lies_in_the_text(content: str, is_turn: bool) -> None:
    extraction = extract(content, is_turn=is_turn)
    names = {found.name for found in extraction.found}
    for item in extraction.stated:
        assert 0 <= item.start < item.end <= len(content)
        assert item.object
        assert item.subject != item.object
        for side in (item.subject, item.object):
            assert not side or side.startswith("#") or side in names


@given(_CONTENTS)
def test_an_alias_is_folded_and_never_its_own_canonical_name(content: str) -> None:
    for alias, canonical, detail in extract(content).aliases:
        assert alias != canonical
        assert (fold_name(alias), fold_name(canonical)) == (alias, canonical)
        assert alias
        assert canonical
        assert detail


@given(_CONTENTS, st.text(max_size=20), st.booleans())
def test_extraction_is_pure_and_survives_json(content: str, tags: str, is_turn: bool) -> None:
    first = extract(content, tags, is_turn=is_turn)
    extract("Dana Lee works at Acme.")
    assert extract(content, tags, is_turn=is_turn) == first
    assert decode_extraction(encode_extraction(first)) == first
    assert list(first.stated) == sorted(set(first.stated), key=lambda s: (s[3], s[4], s[1], *s))


def _calls(run: Callable[[], object]) -> int:
    """Count the calls that a function makes, its own and those into C."""
    count = 0

    def tally(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(tally)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    "unit",
    [
        "I ", "my ", "my dog Rex ", ".", "Dana's ", "is a ", "is now ", "not ", "depends on ",
        "replaced ",
        "A and ", "A, ", "no longer x ", "see [[", "supersedes #", "aka ", "also known as (",
        "(AB) ", "May 2024 ", "2024-05-", "2024 ", "1.2.2024 ", "``` ", "? ", "x: ", "Ab. ",
        "of Of ",
        "switched from a ", "likes a ", '"a ', "a/", "1.", "'s ",
    ],
)  # fmt: skip
def test_work_grows_with_the_text_and_not_with_its_square(unit: str) -> None:
    # Eight times the text makes about eight times the calls; a search anew at each word, 64 times.
    small = _calls(lambda: extract(unit * 100))
    large = _calls(lambda: extract(unit * 800))
    assert large < 12 * small
