"""What happens between two nights: prompts, answers, an agent that saves what it was given.

Equal days make equal rows, but for what recall returned.
"""

from __future__ import annotations

import json
import sqlite3
import textwrap
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.context.inject import Injection
from noctuary.sources.injected import is_lookup
from noctuary.text.secrets import find_text_sensitivity

PROMPTS_A_DAY = 4
NEW_MEMORIES_A_DAY = 3
WRAP_CHARS = 60
"""Width at which an agent wraps a memory that it saves."""

_PROMPT_WORDS = 10

Recalled = dict[str, Any]
"""What `RecallResult.to_json` gives."""


class Prompted(NamedTuple):
    """One prompt of a day and what recall put before it."""

    question: str
    result: Recalled
    injection: Injection

    @property
    def only_asks(self) -> bool:
        """Say whether the prompt tells nothing of its own, so that its turn is no memory."""
        stored = [m for m in self.result["memories"] if m["session_id"] is None]
        return is_lookup(self.question, (m["content"] for m in stored))

    @property
    def texts(self) -> list[str]:
        """Return what was recalled, best first."""
        return [memory["content"] for memory in self.result["memories"]]


class Row(NamedTuple):
    """A row for the source.

    Attributes:
        own: What of its content is new; "" for a row that only repeats what was injected, or only
            asks for it.
    """

    content: str
    own: str
    category: str = "facts"
    tags: str = ""


def prompts_of(questions: Sequence[str], memories: Sequence[str], day: int) -> list[str]:
    """Return the questions of a day, no two days the same: labelled ones first, then what reminds.

    Args:
        questions: Labelled questions.
        memories: Texts of memories, for the questions that remind of them.
        day: From 0.
    """
    reminders = [f"Remind me: {' '.join(m.split()[:_PROMPT_WORDS])}" for m in memories]
    every = [*questions, *reminders]
    first = day * PROMPTS_A_DAY
    return [every[i % len(every)] for i in range(first, first + PROMPTS_A_DAY)]


def turns_of(prompted: Prompted, day: int) -> list[Row]:
    """Return the turns of a prompt: with the block before it, and an answer that quotes a line."""
    session = f"session:day-{day:02}"
    before = f"{prompted.injection.text}\n" if prompted.injection.text else ""
    # The line break between a speaker's name and the question stays where the block was.
    own = f"Mira: {chr(10) if before else ''}{prompted.question}"
    if prompted.only_asks:
        own = ""
    quoted = prompted.texts[0] if prompted.texts else "nothing"
    answer = (
        f"assistant: You asked: {prompted.question} What I have on that, as of day {day}, is:\n"
        f"- {' '.join(quoted.split())}\nTell me if that is out of date and I will look further."
    )
    return [
        Row(f"Mira: {before}{prompted.question}", own, "turn", session),
        Row(answer, answer, "turn", session),
    ]


def _block(prompted: Prompted) -> str:
    return prompted.injection.text


def _memory(prompted: Prompted) -> str:
    return prompted.texts[0]


def _lines(prompted: Prompted) -> str:
    return "\n".join(prompted.injection.text.splitlines()[2:-1])


def _labelled(prompted: Prompted) -> str:
    return f"Recalled memory: **{prompted.texts[0]}**"


def _wrapped(prompted: Prompted) -> str:
    return "\n".join(textwrap.wrap(" ".join(prompted.texts[0].split()), WRAP_CHARS))


def _bullets(prompted: Prompted) -> str:
    return "\n".join(f"* \u201c{' '.join(text.split())}\u201d" for text in prompted.texts[:2])


SAVES: tuple[Callable[[Prompted], str], ...] = (
    _block, _memory, _lines, _labelled, _wrapped, _bullets,
)  # fmt: skip
"""Ways in which an agent saves what it was given, in turn: the block, a memory, the block's lines
without its tag, a memory behind a label and in bold, wrapped, two of them as quoted bullets."""


def reworded(prompted: Prompted) -> str:
    """Return a memory in other words, as a model that summarises writes it: no rule knows it."""
    words = prompted.texts[0].split()
    kept = words[: max(len(words) * 3 // 4, 1)]
    return f"As was recorded earlier, {' '.join(kept)}, according to my notes."


def saves_of(prompted: Sequence[Prompted], day: int, *, rewords: bool) -> list[Row]:
    """Return what the agent saves of a day: one row per prompt that was given anything.

    Args:
        prompted: The day's prompts.
        day: From 0.
        rewords: Whether it writes every one in other words.
    """
    rows: list[Row] = []
    for i, one in enumerate(prompted):
        if one.texts:
            save = reworded if rewords else SAVES[(day * PROMPTS_A_DAY + i) % len(SAVES)]
            rows.append(Row(save(one), ""))
    return rows


def append_rows(source: Path, rows: Sequence[Row], made_at: str) -> None:
    """Append rows to a claude-memory store, dated as given (ISO 8601)."""
    with closing(sqlite3.connect(source)) as db, db:
        db.executemany(
            "INSERT INTO memories (content, category, tags, created_at, updated_at) "
            "VALUES (?, ?, ?, ?, ?)",
            [(row.content, row.category, row.tags, made_at, made_at) for row in rows],
        )


def hold_out(source: Path, count: int) -> list[Row]:
    """Take memories out of a store, spread over it, and return them: later they are new.

    Only such as the export lets through.
    """
    sql = (
        "SELECT id, content, category, tags FROM memories "
        "WHERE category <> 'turn' AND is_sensitive = 0 ORDER BY id"
    )
    with closing(sqlite3.connect(source)) as db, db:
        found = [row for row in db.execute(sql) if find_text_sensitivity(row[1]) is None]
        step = max(len(found) // count, 1) if count else 1
        chosen = found[::step][:count]
        db.executemany("DELETE FROM memories WHERE id = ?", [(row[0],) for row in chosen])
    return [Row(content, content, category, tags) for _, content, category, tags in chosen]


def read_questions(path: Path) -> list[str]:
    """Return the texts of a file of labelled queries."""
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
