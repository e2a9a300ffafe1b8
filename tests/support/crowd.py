"""A store in which every word is in memories of every user and of nobody."""

from __future__ import annotations

from noctuary.core.types import UNDATED_US, MemoryRecord
from tests.support.store import day_us, memory, renumber, turns

USERS = ("ana", "ben", "eva")
WINGS = ("home", "work")
WORDS = ("cat", "key", "boiler", "invoice", "flight", "doctor", "release", "door", "Atlas")


def crowded() -> list[MemoryRecord]:
    """Every word in memories of every user and of nobody, linked by name and by turn."""
    rows: list[MemoryRecord] = []
    for number, word in enumerate(WORDS):
        for user in (None, *USERS):
            wing = WINGS[number % 2]
            rows.append(
                memory(
                    f"Atlas {word}: the {word} of {user or 'the house'} needs a release.",
                    wing=wing,
                    room="hall" if number % 3 else None,
                    user=user,
                    importance=number / 10,
                    created_at_us=UNDATED_US if number == 4 else day_us(number + 1),
                )
            )
    for user, other in zip(USERS, (*USERS[1:], USERS[0]), strict=True):
        texts = [f"{user}: what about the Atlas {word} and the {word}?" for word in WORDS]
        texts[::3] = [f"{text} Let us ask {other}." for text in texts[::3]]
        texts[1::3] = [f"{text} It was there yesterday." for text in texts[1::3]]
        rows += turns("shared-session", *texts, user=user)
    return renumber(rows)
