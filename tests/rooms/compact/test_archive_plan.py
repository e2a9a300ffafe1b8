"""Candidates: all three criteria hold, and nothing that is protected is among them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.compact import archive_plan
from noctuary.compact.archive_plan import (
    NO_VECTORS,
    ArchiveRules,
    Candidate,
    Encoding,
    Group,
    Scan,
    consolidate,
    find_candidates,
    scan_start,
)
from noctuary.core.sqlite import connect_immutable
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.usage.reader import Usage
from tests.support.archive import NOW_US, Replaced, versions, write_rows
from tests.support.store import DAY_US, day_us, memory, renumber, turns

Use = dict[str, tuple[int, int]]
"""By memory: retrievals inside the window, days since the last one."""

RULES = ArchiveRules()


def look_up(use: Use) -> Any:
    def counts(ids: Sequence[str]) -> Usage:
        recent = np.array([use.get(i, (0, 0))[0] for i in ids], dtype=np.int64)
        last = np.array(
            [NOW_US - use[i][1] * DAY_US if i in use else UNDATED_US for i in ids], dtype=np.int64
        )
        return Usage(recent, np.minimum(recent, 1), last)

    return counts


def scan(
    tmp_path: Path,
    records: Sequence[MemoryRecord],
    links: Sequence[Replaced],
    rules: ArchiveRules = RULES,
    use: Use | None = None,
    *,
    archived: Sequence[str] = (),
    as_of_us: int = NOW_US,
) -> tuple[list[Candidate], Scan]:
    path = tmp_path / "rows.sqlite"
    path.unlink(missing_ok=True)
    write_rows(path, records, links)
    with closing(connect_immutable(path)) as rows:
        return find_candidates(
            rows, look_up(use or {}), rules, as_of_us=as_of_us, archived=archived
        )


def ids(found: Sequence[Candidate]) -> list[str]:
    return [c.memory_id for c in found]


def tagged(tags: str) -> list[MemoryRecord]:
    return [r._replace(tags=tags) if r.memory_id == "105" else r for r in versions()[0]]


OLD = ["101", "102", "103"]
# 0.3 * ln(1 + 3) = 0.42 and 0.3 * ln(1 + 2) = 0.33 are not below 0.3.
USED = {"101": (3, 60), "102": (0, 10), "103": (2, 100)}

# What is given besides the versions, the candidates, and what was left and why.
SCANS: dict[str, tuple[dict[str, Any], list[str], dict[str, int]]] = {
    "every criterion is needed": ({"use": USED}, ["105"], {"used": 2, "recent": 1}),
    "an old habit": ({"use": {"105": (4, 60)}}, OLD, {"used": 1}),
    "decay lets an old habit fade": (
        {"use": {"105": (4, 60)}, "rules": ArchiveRules(decay_lambda=0.02)}, [*OLD, "105"], {},
    ),
    "pinned": ({"records": tagged("pinned")}, OLD, {"pinned": 1}),
    "pinned besides": ({"records": tagged("key, Pinned ")}, OLD, {"pinned": 1}),
    "pinned in capitals": ({"records": tagged("PINNED,wing:home")}, OLD, {"pinned": 1}),
    "a tag that only holds the word": ({"records": tagged("pinned-down")}, [*OLD, "105"], {}),
    "archived already": ({"archived": ["101", "105"]}, ["102", "103"], {"archived": 2}),
    "sure by its text": ({"links": [Replaced(4, 5, "explicit", 1)]}, ["105"], {}),
    "sure by is_now": ({"links": [Replaced(4, 5, "is_now", 2)]}, ["105"], {}),
    "a guess": ({"links": [Replaced(4, 5, "newer_value", 0)]}, [], {"unsure": 1}),
    "nearly a near duplicate": (
        {"links": [Replaced(4, 5, "near_duplicate", 1, 0.9, 20)]}, [], {"unsure": 1},
    ),
    "a near duplicate": ({"links": [Replaced(4, 5, "near_duplicate", 2, 0.95, 40)]}, ["105"], {}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "candidates", "left"), SCANS.values(), ids=[name.replace(" ", "-") for name in SCANS]
)
def test_these_are_candidates(
    tmp_path: Path, given: dict[str, Any], candidates: list[str], left: dict[str, int]
) -> None:
    records, links = versions()
    given = {"records": records, "links": links, **given}
    found, seen = scan(tmp_path, **given)
    assert (ids(found), seen.left) == (candidates, Counter(left))


def test_what_was_replaced_and_is_old_and_unused_is_a_candidate(tmp_path: Path) -> None:
    found, seen = scan(tmp_path, *versions())
    assert ids(found) == ["101", "102", "103", "105"]
    assert [c.successor_id for c in found] == ["102", "103", "104", "106"]
    assert [c.head_id for c in found] == ["104", "104", "104", "106"]
    assert (seen.total, seen.scanned, seen.not_scanned, dict(seen.left)) == (4, 4, 0, {})


def test_the_threshold_is_exclusive_and_the_age_inclusive(tmp_path: Path) -> None:
    records, links = versions()
    score = (1.0 + 0.3 * math.log1p(1)) - 1.0  # rounded as the formula rounds
    for threshold, expected in ((score, False), (math.nextafter(score, 1), True)):
        rules = ArchiveRules(compaction_threshold=threshold)
        found, _ = scan(tmp_path, records, links, rules, {"105": (1, 90)})
        assert ("105" in ids(found)) is expected
    for days, expected in ((29, False), (30, True)):
        found, _ = scan(tmp_path, records, links, use={"105": (0, days)})
        assert ("105" in ids(found)) is expected


def test_never_recalled_counts_from_creation_and_undated_is_not_old(tmp_path: Path) -> None:
    records, links = versions()
    records = [r._replace(created_at_us=UNDATED_US) if r.memory_id == "105" else r for r in records]
    young = [r._replace(created_at_us=NOW_US - 29 * DAY_US) if r.memory_id == "101" else r
             for r in records]  # fmt: skip
    found, seen = scan(tmp_path, young, links)
    assert ids(found) == ["102", "103"]
    assert seen.left["recent"] == 2
    assert ids(scan(tmp_path, records, links, ArchiveRules(compaction_age_days=0))[0])[-1] == "105"


def conversation(user: str | None = None) -> list[MemoryRecord]:
    said = [f"Ana: the flight number is {n}." for n in range(8)]
    return renumber([*turns("s1", *said, user=user), memory("Later.", created_at_us=day_us(90))])


def test_the_tail_of_a_session_is_never_a_candidate(tmp_path: Path) -> None:
    records = conversation()
    links = [Replaced(n, 8) for n in range(8)]
    found, seen = scan(tmp_path, records, links)
    assert ids(found) == ["101", "102", "103", "104"]
    assert seen.left == Counter(tail=4)
    rules = ArchiveRules(protected_tail_turns=8)
    assert scan(tmp_path, records, links, rules)[0] == []


def test_a_shared_session_id_is_two_conversations(tmp_path: Path) -> None:
    records = renumber([*conversation("ana")[:8], *conversation("ben")])
    records = [r._replace(memory_id=str(n), position=n) for n, r in enumerate(records)]
    found, _ = scan(tmp_path, records, [Replaced(n, 16) for n in range(16)])
    assert ids(found) == ["0", "1", "2", "3", "8", "9", "10", "11"]


def test_batches_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = scan(tmp_path, *versions())
    monkeypatch.setattr(archive_plan, "BATCH_ROWS", 1)
    found, seen = scan(tmp_path, *versions())
    assert found == whole
    assert (seen.timings.rows, seen.timings.offsets) == ([1, 1, 1, 1], [0, 1, 2, 3])
    assert seen.pagination_state() == {
        "total": 4, "batches_processed": 4, "last_offset": 0, "scan_depth_reached": False,
    }  # fmt: skip


def test_a_bounded_scan_says_what_it_left_and_every_memory_has_its_turn(tmp_path: Path) -> None:
    rules = ArchiveRules(max_scan_depth=3)
    found: set[str] = set()
    for day in range(2):
        some, seen = scan(tmp_path, *versions(), rules, as_of_us=NOW_US + day * DAY_US)
        assert (seen.scanned, seen.not_scanned, len(some)) == (3, 1, 3)
        assert seen.pagination_state()["scan_depth_reached"]
        found |= set(ids(some))
    assert found == {"101", "102", "103", "105"}


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 40_000))
def test_bounded_scans_of_consecutive_days_follow_one_another(
    total: int, depth: int, day: int
) -> None:
    start = scan_start(total, depth, day * DAY_US)
    if not 0 < depth < total:
        assert start == 0
        return
    assert 0 <= start < total
    assert scan_start(total, depth, (day + 1) * DAY_US) == (start + depth) % total
    assert scan_start(total, depth, day * DAY_US + DAY_US - 1) == start


USE = st.dictionaries(
    st.sampled_from([str(n) for n in range(101, 111)]),
    st.tuples(st.integers(0, 12), st.integers(0, 120)),
)


@settings(max_examples=40)
@given(
    use=USE,
    threshold=st.floats(0, 1),
    age=st.integers(0, 500),
    decay=st.sampled_from([0.0, 0.01, 0.1]),
    grades=st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
def test_candidates_are_those_of_a_naive_reading_of_the_rfc(
    tmp_path_factory: pytest.TempPathFactory, use: Use, threshold: float, age: int, decay: float,
    grades: list[int],
) -> None:  # fmt: skip
    """Differential: one memory at a time, in floats, no arrays and no batches."""
    records, links = versions()
    links = [replace(link, confidence=g) for link, g in zip(links, grades, strict=True)]
    rules = ArchiveRules(threshold, age, decay_lambda=decay)
    expected: list[str] = []
    for link in links:
        record = records[link.older]
        recent, days = use.get(record.memory_id, (0, (NOW_US - record.created_at_us) / DAY_US))
        score = min(max(1 + 0.3 * math.log(1 + recent), 1.0), 2.0) - 1.0
        if score * math.exp(-decay * days) < threshold and link.confidence >= 1 and days >= age:
            expected.append(record.memory_id)
    found, seen = scan(tmp_path_factory.mktemp("rows"), records, links, rules, use)
    assert ids(found) == expected
    assert len(found) + seen.left.total() == seen.scanned == 4
    for candidate in found:
        trace = candidate.trace(rules, None)
        assert trace["decayed_ltp"] <= trace["ltp_score"] <= 1.0
        assert candidate.decayed_ltp < threshold
        assert trace["is_superseded"] is True
        assert trace["days_since_access"] >= age


def test_a_trace_has_the_rfcs_keys_and_says_all_three_reasons(tmp_path: Path) -> None:
    rules = ArchiveRules(decay_lambda=0.01)
    found, _ = scan(tmp_path, *versions(), rules, {"105": (1, 47)})
    last = found[-1]
    assert last.ltp_score == pytest.approx(0.3 * math.log1p(1))
    assert last.decayed_ltp == pytest.approx(last.ltp_score * math.exp(-0.01 * 47))
    trace = last.trace(rules, "summary-7")
    assert trace.keys() >= {
        "memory_id", "action", "reason", "ltp_score", "decayed_ltp", "superseded_by",
        "days_since_access", "consolidated_into",
    }  # fmt: skip
    assert trace["reason"] == (
        "ltp=0.13 < 0.3 (decayed from 0.21), superseded_by=106 (explicit, high), "
        "last_accessed=47 days ago >= 30"
    )
    assert (trace["action"], trace["consolidated_into"]) == ("compact", "summary-7")


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
    assert not any(text in found.reason for text in TEXTS.values()), "it quotes no memory"
    candidates = [candidate(0), candidate(1), candidate(2, head_id="98")]
    alone = consolidate(candidates, lambda ids: {i: TEXTS[i] for i in ids}, None, RULES)
    assert [(g.is_archived, g.reason) for g in alone] == [(False, NO_VECTORS), (True, "")]


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
