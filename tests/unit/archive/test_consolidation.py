"""Groups of candidates: what belongs together, and what follows from the summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.compact.archive_plan import (
    NO_VECTORS,
    ArchiveRules,
    Candidate,
    Encoding,
    Group,
    consolidate,
)
from tests.support.store import day_us

TEXTS = {str(n): f"The spare key number {n} hangs in the hall." for n in range(40)}


def candidate(position: int, **fields: Any) -> Candidate:
    values: dict[str, Any] = {
        "position": position, "memory_id": str(position), "content_hash": f"h{position}",
        "created_at_us": day_us(1 + position), "user": None, "wing": None, "session_id": None,
        "head_id": "99", "successor_id": "99", "successor_hash": "h99",
        "supersede_reason": "explicit", "confidence": 2, "ltp_score": 0.0, "decayed_ltp": 0.0,
        "idle_days": 90.0, "was_recalled": False, **fields,
    }  # fmt: skip
    return Candidate(**values)


def same_direction(count: int) -> NDArray[np.float32]:
    return np.tile(np.array([1.0, 0.0], dtype=np.float32), (count, 1))


def opposite(texts: list[str]) -> NDArray[np.float32]:
    return -same_direction(len(texts))


def encoding(encode: Any = None) -> Encoding:
    def vectors_of(positions: Sequence[int]) -> NDArray[np.float32]:
        return same_direction(len(positions))

    def in_one_direction(texts: list[str]) -> NDArray[np.float32]:
        return same_direction(len(texts))

    return Encoding(vectors_of, encode or in_one_direction)


def group(candidates: Sequence[Candidate], encode: Any = None, **rules: Any) -> list[Group]:
    return consolidate(
        candidates, lambda ids: {i: TEXTS[i] for i in ids}, encoding(encode), ArchiveRules(**rules)
    )


def test_versions_of_one_fact_share_a_summary_and_one_alone_needs_none() -> None:
    found = group([candidate(0), candidate(1), candidate(2), candidate(3, head_id="98")])
    assert [[c.memory_id for c in g.members] for g in found] == [["0", "1", "2"], ["3"]]
    assert [g.is_archived for g in found] == [True, True]
    summary = found[0].summary
    assert summary is not None
    assert summary.source_ids == ("0", "1", "2")
    assert 0 < summary.summary_tokens < summary.source_tokens
    assert (found[1].summary, found[1].summary_id) == (None, None)


SCOPES = st.tuples(
    st.sampled_from([None, "ana", "ben"]), st.sampled_from([None, "home"]),
    st.sampled_from(["97", "98", "99"]),
)  # fmt: skip


@given(st.lists(SCOPES, max_size=30), st.integers(-1, 6))
def test_every_candidate_is_in_one_group_of_its_own_scope(scopes: list[Any], size: int) -> None:
    candidates = [
        candidate(n, user=user, wing=wing, head_id=head)
        for n, (user, wing, head) in enumerate(scopes)
    ]
    found = group(candidates, group_size=size)
    members = [c for g in found for c in g.members]
    assert sorted(members, key=lambda c: c.position) == candidates
    assert len({g.group_id for g in found}) == len(found)
    for g in found:
        assert len({(c.user, c.wing, c.head_id) for c in g.members}) == 1
        assert len(g.members) <= (size if size > 0 else 20)
        assert [c.created_at_us for c in g.members] == sorted(c.created_at_us for c in g.members)
        assert g.is_archived == (not g.reason)
        assert (g.summary is not None) == (g.is_archived and len(g.members) > 1)


def test_a_group_whose_summary_is_declined_is_not_archived() -> None:
    (found,) = group([candidate(0), candidate(1), candidate(2)], opposite)
    assert not found.is_archived
    assert found.summary is None
    assert found.reason.startswith("summary declined: align -1.0000 is below 0.6500")


def test_a_declined_group_quotes_no_memory() -> None:
    for found in group([candidate(0), candidate(1), candidate(2)], opposite):
        assert not any(text in found.reason for text in TEXTS.values())


def test_without_vectors_only_single_memories_are_archived() -> None:
    rules = ArchiveRules()
    candidates = [candidate(0), candidate(1), candidate(2, head_id="98")]
    found = consolidate(candidates, lambda ids: {i: TEXTS[i] for i in ids}, None, rules)
    assert [(g.is_archived, g.reason) for g in found] == [(False, NO_VECTORS), (True, "")]


def test_only_groups_of_several_are_read_and_encoded() -> None:
    asked: list[list[str]] = []

    def contents(ids: Sequence[str]) -> dict[str, str]:
        asked.append(list(ids))
        return {i: TEXTS[i] for i in ids}

    def never(texts: list[str]) -> NDArray[np.float32]:
        pytest.fail(f"encoded {texts}")

    singles = [candidate(n, head_id=str(n)) for n in range(3)]
    consolidate(singles, contents, encoding(never), ArchiveRules())
    assert asked == []


def test_a_group_keeps_its_id_until_a_member_changes() -> None:
    first, again = (group([candidate(0), candidate(1)])[0] for _ in range(2))
    edited = group([candidate(0), candidate(1, content_hash="other")])[0]
    assert first == again
    assert first.group_id != edited.group_id
