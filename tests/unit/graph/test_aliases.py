from __future__ import annotations

import pytest

from noctuary.graph.extract import ALIASES_MAX, extract


def _aliases(content: str) -> list[tuple[str, str]]:
    return [(alias, canonical) for alias, canonical, _ in extract(content).aliases]


@pytest.mark.parametrize(
    ("content", "pairs"),
    [
        ("Kubernetes (aka K8s) runs.", [("k8s", "kubernetes")]),
        ("Kubernetes, a.k.a. K8s, runs.", [("k8s", "kubernetes")]),
        ("Ann Lee, also known as Al, left.", [("al", "ann lee")]),
        ("Ann Lee (born 1981), better known as Al, left.", [("al", "ann lee")]),
        ("the Retry Queue, also called “slow lane”, is off", [("slow lane", "retry queue")]),
        (
            "International Business Machines (IBM) sells it",
            [("ibm", "international business machines")],
        ),
        ("the Bank of New Lisbon (BNL) is closed", [("bnl", "bank of new lisbon")]),
        ("a first in first out (FIFO) queue", [("fifo", "first in first out")]),
        ("my manager Dana called. Then Dana Whitfield wrote.", [("dana", "dana whitfield")]),
        ("Ann Lee\nShe is here. They asked Ann for it.", [("ann", "ann lee")]),
        ("due on 12 May 2024", [("12 may 2024", "2024 05 12")]),
    ],
)
def test_another_name_is_read_from_the_text(content: str, pairs: list[tuple[str, str]]) -> None:
    assert _aliases(content) == pairs


@pytest.mark.parametrize(
    "content",
    [
        "International Business Machines (XYZ) sells it",
        "Big Blue (IBM) sells it",
        "it is known as fun",
        "my manager Dana called. Dana Whitfield wrote, Dana Lee too.",
        "we asked Interview panels and read Interview Notes",
        "my manager Dana Whitfield",
        "due on 2024-05-12",
        "User Preferences: the User prefers tea",
        "the slow one, also known as Al",
    ],
)
def test_what_is_no_alias_gives_none(content: str) -> None:
    assert _aliases(content) == []


def test_every_alias_says_why() -> None:
    details = {detail for _, _, detail in extract("Ann Lee (AL) aka Al on 1 May 2024").aliases}
    assert "initials (AL)" in details
    assert "same date" in details


def test_the_number_of_aliases_is_bounded() -> None:
    text = " ".join(f"{day} May {year}," for year in (2023, 2024) for day in range(1, 20))
    assert len(extract(text).aliases) == ALIASES_MAX
