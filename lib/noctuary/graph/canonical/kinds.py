"""Which kinds of concept may be one thing. A table; names are compared elsewhere."""

from __future__ import annotations

from typing import Literal

Family = Literal["words", "speaker", "code", "exact"]

_FAMILIES: dict[str, Family] = {
    "title": "words",
    "heading": "words",
    "key": "words",
    "label": "words",
    "leading": "words",
    "tag": "words",
    "keyword": "words",
    "quoted": "words",
    "name": "words",
    "run": "words",
    "speaker": "speaker",
    "identifier": "code",
}

OWN_NAMES = frozenset({"title"})
"""Kinds that an author gave as a whole memory's name: two of them are two things unless they are
one spelling. `leading`, `key` and `label` name a subject in passing and are not among them."""


def family(kind: str) -> Family:
    """Return what a kind may merge with; dates, sessions, tickets and unknown kinds: nothing.

    A kind that is not in the table is kept exact on purpose: a new extractor must be judged first.
    """
    return _FAMILIES.get(kind, "exact")


def may_be_one(left: str, right: str, *, spelled: bool) -> bool:
    """Say whether names of two kinds may stand for one concept.

    Args:
        left: Kind of one name.
        right: Kind of the other.
        spelled: They differ in spacing or accents only: code names may then be words as well.
    """
    families = {family(left), family(right)}
    if "exact" in families:
        return False
    if "code" in families:
        return spelled and "speaker" not in families
    return True
