from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US, to_micros
from noctuary.recall.query import Facet, Mask, Scope, build_mask, private_mask

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def facet(*values: str | None) -> Facet:
    known = tuple(sorted({v for v in values if v is not None}))
    codes = [known.index(v) if v is not None else -1 for v in values]
    return Facet(known, np.array(codes, dtype=np.int32))


WINGS = facet("home", "work", None, "work")
FACETS = {
    "wing": WINGS,
    "room": facet("hall", None, None, "atlas"),
    "category": facet("fact", "fact", "turn", "decision"),
    "user": facet(None, None, None, None),
}
DATES = np.array(
    [to_micros(NOON - HOUR), to_micros(NOON), to_micros(NOON + HOUR), UNDATED_US], dtype=np.int64
)


def seen(mask: Mask | None) -> list[int]:
    return list(range(4)) if mask is None else np.flatnonzero(mask).tolist()


def masked(scope: Scope, **facets: Facet) -> tuple[list[int], list[str]]:
    mask, warnings = build_mask(scope, {**FACETS, **facets}, DATES)
    return seen(mask), [w.code for w in warnings]


def test_no_filter_hides_nothing_and_makes_no_mask() -> None:
    mask, warnings = build_mask(Scope(), FACETS, DATES)
    assert mask is None
    assert warnings == ()


@pytest.mark.parametrize(
    ("scope", "positions"),
    [
        (Scope(wing="work"), [1, 3]),
        (Scope(room="hall"), [0]),
        (Scope(category="fact"), [0, 1]),
        (Scope(wing="work", category="fact"), [1]),
        (Scope(wing="home", room="atlas"), []),
    ],
)
def test_filters_are_joined_by_and(scope: Scope, positions: list[int]) -> None:
    assert masked(scope) == (positions, [])


@pytest.mark.parametrize(
    ("scope", "code"),
    [
        (Scope(wing="elsewhere"), "unknown_wing"),
        (Scope(room="elsewhere"), "unknown_room"),
        (Scope(category="elsewhere"), "unknown_category"),
    ],
)
def test_an_unknown_value_hides_everything_and_is_reported(scope: Scope, code: str) -> None:
    assert masked(scope) == ([], [code])


def test_an_unknown_value_names_near_ones() -> None:
    _, (warning,) = build_mask(Scope(wing="wrok"), FACETS, DATES)
    assert warning.message == "no memory has wing 'wrok'; near: work"
    _, (warning,) = build_mask(Scope(wing="zzz"), FACETS, DATES)
    assert warning.message == "no memory has wing 'zzz'; there are 2"


def test_an_empty_name_is_a_name_that_nobody_has() -> None:
    assert masked(Scope(wing="")) == ([], ["unknown_wing"])


OWNED = facet(None, "ana", "ben", "ana")


@pytest.mark.parametrize(
    ("user", "positions", "codes"),
    [
        (None, [0], ["user_required"]),
        ("ana", [0, 1, 3], []),
        ("ben", [0, 2], []),
        ("eve", [0], []),
        ("", [0], []),
        ("Ana", [0], []),
    ],
)
def test_users_are_denied_by_default(
    user: str | None, positions: list[int], codes: list[str]
) -> None:
    assert masked(Scope(user=user), user=OWNED) == (positions, codes)


def test_an_unknown_user_is_not_told_the_names_of_others() -> None:
    _, warnings = build_mask(Scope(user="anna"), {**FACETS, "user": OWNED}, DATES)
    assert not any("ana" in w.message.replace("anna", "") for w in warnings)


def test_a_store_without_named_users_does_not_ask_for_one() -> None:
    assert masked(Scope(user="ana")) == ([0, 1, 2, 3], [])


@pytest.mark.parametrize(
    ("as_of", "positions"),
    [
        (NOON, [0, 1, 3]),
        (NOON - timedelta(microseconds=1), [0, 3]),
        (NOON - 2 * HOUR, [3]),
        (NOON + 2 * HOUR, [0, 1, 2, 3]),
        (NOON.replace(tzinfo=None), [0, 1, 3]),
        (NOON.astimezone(timezone(timedelta(hours=-7))), [0, 1, 3]),
        (datetime.min.replace(tzinfo=UTC), [3]),
        (datetime.max.replace(tzinfo=UTC), [0, 1, 2, 3]),
    ],
)
def test_as_of_keeps_what_existed_then_and_what_has_no_date(
    as_of: datetime, positions: list[int]
) -> None:
    assert masked(Scope(as_of=as_of)) == (positions, [])


def test_as_of_and_user_hold_together() -> None:
    assert masked(Scope(user="ana", as_of=NOON), user=OWNED) == ([0, 1, 3], [])
    assert masked(Scope(user="ben", as_of=NOON), user=OWNED) == ([0], [])


@pytest.mark.parametrize(
    ("user", "codes", "message"),
    [
        ("ben", [], None),
        ("ana", ["unknown_wing"], "no memory has wing 'work'; there are 2"),
        ("eve", ["unknown_wing"], "no memory has wing 'work'; there are 1"),
    ],
)
def test_a_wing_that_only_others_have_is_unknown_and_not_suggested(
    user: str, codes: list[str], message: str | None
) -> None:
    facets = {**FACETS, "user": OWNED, "wing": facet("home", "shed", "work", "shed")}
    mask, warnings = build_mask(Scope(wing="work", user=user), facets, DATES)
    assert [w.code for w in warnings] == codes
    assert [w.message for w in warnings if w.code == "unknown_wing"] == [message] * len(codes)
    assert seen(mask) == ([2] if user == "ben" else [])
    _, told = build_mask(Scope(wing="wrok", user=user), facets, DATES)
    assert ("near: work" in told[0].message) is (user == "ben")


names = st.sampled_from(["ana", "ben", "eva"])
owned = st.lists(st.one_of(st.none(), names), min_size=4, max_size=4)
shares = st.sets(st.tuples(st.integers(0, 3), names))


def with_shares(owners: list[str | None], shared: set[tuple[int, str]]) -> Facet:
    """Return the owners and what they share, of which some is with themselves or of nobody."""
    by_reader: dict[str, list[int]] = {}
    for position, reader in sorted(shared):
        by_reader.setdefault(reader, []).append(position)
    positions = {r: np.array(p, dtype=np.int32) for r, p in by_reader.items()}
    return facet(*owners)._replace(shared=positions or None)


@given(owned, shares, st.one_of(st.none(), names, st.just("zoe")))
def test_who_sees_what_equals_a_loop_over_owners_and_shares(
    owners: list[str | None], shared: set[tuple[int, str]], user: str | None
) -> None:
    facets = {"user": with_shares(owners, shared)}
    expected = [
        position
        for position, owner in enumerate(owners)
        if owner is None or owner == user or (position, user) in shared
    ]
    if any(owners):
        assert masked(Scope(user=user), **facets)[0] == expected
    else:
        assert masked(Scope(user=user), **facets) == ([0, 1, 2, 3], [])


@given(owned, shares, st.one_of(st.none(), names, st.just("zoe")))
def test_what_only_one_user_sees_equals_a_loop_over_owners_and_shares(
    owners: list[str | None], shared: set[tuple[int, str]], user: str | None
) -> None:
    mask = private_mask(with_shares(owners, shared), user)
    shared_at = {position for position, _ in shared}
    if not any(owners):
        assert mask is None
        return
    expected = [
        position
        for position, owner in enumerate(owners)
        if owner is not None and owner == user and position not in shared_at
    ]
    assert seen(mask) == expected


def test_a_share_opens_no_wing_of_others_to_suggestions() -> None:
    owners = with_shares(["ana", "ben", "ben", None], {(1, "ana")})
    wings = facet("home", "workshop", "warehouse", "garden")
    _, (warning,) = build_mask(
        Scope(user="ana", wing="workship"), {**FACETS, "user": owners, "wing": wings}, DATES
    )
    assert warning.message == "no memory has wing 'workship'; near: workshop"
    _, (warning,) = build_mask(
        Scope(user="ana", wing="warehouse"), {**FACETS, "user": owners, "wing": wings}, DATES
    )
    assert "warehouse'; there are 3" in warning.message


def test_masks_never_change_the_arrays_of_a_snapshot() -> None:
    owners = with_shares(["ana", "ben", None, "ben"], {(1, "ana"), (0, "ben")})
    before = owners.codes.copy()
    owners.codes.flags.writeable = False
    for user in (None, "ana", "ben"):
        build_mask(Scope(user=user), {**FACETS, "user": owners}, DATES)
        private_mask(owners, user)
    assert owners.codes.tolist() == before.tolist()
