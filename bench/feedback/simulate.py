"""Days and nights in turn on one store: ask, inject, write down what was said, pass the night."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench.feedback.days import (
    NEW_MEMORIES_A_DAY,
    Prompted,
    Recalled,
    Row,
    append_rows,
    prompts_of,
    saves_of,
    turns_of,
)
from bench.feedback.measure import measure_corpus
from noctuary.context.inject import inject
from noctuary.sources.corpus import read_records

Ask = Callable[[str], Recalled]
PassNight = Callable[[], str]


class Plan(NamedTuple):
    """What one arm is made of.

    Attributes:
        source: The SQLite store that grows; a copy.
        work: The work directory of noctuary's store.
        questions: Labelled questions.
        new: Memories to add, `NEW_MEMORIES_A_DAY` a day.
        ask: Recalls, and returns `RecallResult.to_json`.
        pass_night: Runs a night and says how it went.
        rewords: Whether the agent writes what it saves in other words.
        with_vectors: Whether nights embed.
    """

    source: Path
    work: Path
    questions: Sequence[str]
    new: Sequence[Row]
    ask: Ask
    pass_night: PassNight
    rewords: bool = False
    with_vectors: bool = True


@dataclass(slots=True)
class _Ledger:
    """Which rows of the source are their own, and how much they say."""

    ids: set[str] = field(default_factory=set[str])
    chars: int = 0


def simulate(plan: Plan, nights: int, told: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """Return the numbers after the first night and after each night that follows a day.

    Args:
        plan: The arm.
        nights: How many days and nights.
        told: Hears a line after each night.
    """
    outcome = plan.pass_night()
    first = _exported(plan)
    own = _Ledger({row[0] for row in first}, sum(len(row[1]) for row in first))
    memories = [content for _, content in first]
    rows = [_numbers(plan, own, 0, outcome, [])]
    for day in range(nights):
        prompted = [_prompt(plan, q) for q in prompts_of(plan.questions, memories, day)]
        _write_day(plan, own, prompted, day)
        rows.append(_numbers(plan, own, day + 1, plan.pass_night(), prompted))
        told(f"night {day + 1}: {rows[-1]}")
    return rows


def _prompt(plan: Plan, question: str) -> Prompted:
    result = plan.ask(question)
    return Prompted(question, result, inject(result))


def _write_day(plan: Plan, own: _Ledger, prompted: Sequence[Prompted], day: int) -> None:
    first = day * NEW_MEMORIES_A_DAY
    rows = [row for one in prompted for row in turns_of(one, day)]
    rows += saves_of(prompted, day, rewords=plan.rewords)
    rows += plan.new[first : first + NEW_MEMORIES_A_DAY]
    before = _last_id(plan.source)
    # A month in an hour: rows are dated when they are written, as injections are.
    append_rows(plan.source, rows, datetime.now(UTC).isoformat())
    own.ids |= {str(before + i) for i, row in enumerate(rows, start=1) if row.own}
    own.chars += sum(len(row.own) for row in rows)


def _numbers(
    plan: Plan, own: _Ledger, night: int, outcome: str, prompted: Sequence[Prompted]
) -> dict[str, Any]:
    injected = [str(m["id"]) for one in prompted for m in one.result["memories"]]
    echoes = sum(memory_id not in own.ids for memory_id in injected)
    numbers = measure_corpus(plan.work, own.ids, own.chars, with_vectors=plan.with_vectors)
    return {
        "night": night,
        "outcome": outcome,
        **numbers,
        "injected": len(injected),
        "echoes_among_injected": round(echoes / max(len(injected), 1), 4),
    }


def _exported(plan: Plan) -> list[tuple[str, str]]:
    return [(r.memory_id, r.content) for r in read_records(plan.work / "corpus")]


def _last_id(source: Path) -> int:
    """Return the last id that the store gave away, also if its row is gone."""
    sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'memories'"
    with closing(sqlite3.connect(source)) as db:
        return int(db.execute(sql).fetchone()[0])
