"""Synthetic memories that name each other's subjects, of any number, equal for equal seeds.

A third are titled notes, a third name two subjects, a third state where a person works; every tenth
is a turn of a conversation. Half as many subjects as memories, named unevenly: names grow with the
corpus as those of a real store do. Graph-shaped, unlike the texts of `bench.speed.corpus`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from noctuary.core.types import MemoryRecord

WORDS = 30
"""Plain words of a memory."""

VOCABULARY = 20_000
"""Distinct plain words; the cube of an even draw makes some of them frequent."""

MEMORIES_PER_SUBJECT = 2
SESSION_TURNS = 20
WINGS = 7
SECOND_US = 1_000_000
FIRST_US = 1_704_067_200_000_000

_SYLLABLES = ("ba", "ne", "ko", "ri", "ta", "lu", "me", "so", "vi", "da", "po", "ga", "zu", "fe")


@dataclass(frozen=True, slots=True)
class _Lexicon:
    words: list[str]
    subjects: list[str]


def make_records(size: int, seed: int = 0) -> list[MemoryRecord]:
    """Return so many memories, by position."""
    drawn = random.Random(seed)
    lexicon = _Lexicon(
        [_word(drawn) for _ in range(VOCABULARY)],
        [_subject(drawn) for _ in range(max(size // MEMORIES_PER_SUBJECT, 1))],
    )
    return [_record(drawn, lexicon, position) for position in range(size)]


def _record(drawn: random.Random, lexicon: _Lexicon, position: int) -> MemoryRecord:
    is_turn = position % 10 == 9
    moment_us = FIRST_US + position * 1000 * SECOND_US
    return MemoryRecord(
        position=position,
        memory_id=str(position),
        content=_content(drawn, lexicon, position),
        category="",
        tags="",
        expanded_keywords="",
        importance=0.5,
        created_at_us=moment_us,
        updated_at_us=moment_us,
        session_id=f"s{position // SESSION_TURNS}" if is_turn else None,
        wing=f"w{position % WINGS}",
        room=None,
        user=None,
        is_turn=is_turn,
        content_hash=f"{position:064x}",
    )


def _content(drawn: random.Random, lexicon: _Lexicon, position: int) -> str:
    subjects = lexicon.subjects
    body = " ".join(lexicon.words[int(VOCABULARY * drawn.random() ** 3)] for _ in range(WORDS))
    own = subjects[position // MEMORIES_PER_SUBJECT % len(subjects)]
    other = subjects[int(len(subjects) * drawn.random() ** 1.5)]
    match position % 3:
        case 0:
            return f"{own}\n{body} with {other}. {body[:40]}"
        case 1:
            return f"{body} {other} and {drawn.choice(subjects)} {body[:60]}."
        case _:
            return f"{own} works at {other}. {body}."


def _subject(drawn: random.Random) -> str:
    return f"{_word(drawn).capitalize()} {_word(drawn).capitalize()}"


def _word(drawn: random.Random) -> str:
    return "".join(drawn.choice(_SYLLABLES) for _ in range(drawn.randint(2, 4)))
