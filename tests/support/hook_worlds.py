"""A world in memory for the pure core of the hooks: it keeps what it is told, and fails on demand.

It stands for files, processes and clocks alone; what is decided is the real core's.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from noctuary.agents.hooks import Failure, HookEvent, HookProcess
from noctuary.agents.state import SessionState
from noctuary.core.settings import HookSettings


def memory(memory_id: int | str, content: str, score: float = 0.5, **fields: Any) -> dict[str, Any]:
    """One memory of an answer, as `to_json` gives it."""
    return {
        "id": memory_id, "content": content, "created_at": "2026-03-01T08:00:00+00:00",
        "wing": None, "room": None, "user": None, "session_id": None, "final_score": score,
        **fields,
    }  # fmt: skip


def answer(*memories: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """An answer, as `to_json` gives it."""
    return {"query": "", "store": "/s", "memories": list(memories), "warnings": [], **fields}


class MemoryWorld(HookProcess):
    """The outside in memory.

    Attributes:
        hook_settings: What `settings` returns.
        result: What `recall` returns.
        known: What `fetch` finds.
        sessions: By session id.
        calls: Names of everything that was called.
        asked: Arguments of every recall.
        entries: Events in the journal.
        captured: Transcripts.
        counted: Event and code of every call that was counted.
        tells: What `count` returns for a failure.
    """

    def __init__(self, agent: str = "claude", **settings: Any) -> None:
        super().__init__(agent, None, None, 0.0)
        self.hook_settings: HookSettings | Failure = HookSettings(**settings)
        self.result: Mapping[str, Any] | Failure = answer()
        self.known: Mapping[str, Any] | Failure = answer()
        self.sessions: dict[str, SessionState] = {}
        self.calls: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.entries: list[HookEvent] = []
        self.captured: list[str] = []
        self.counted: list[tuple[str, str | None]] = []
        self.tells = True

    def settings(self) -> HookSettings | Failure:
        self._called("settings")
        return self.hook_settings

    def recall(self, query: str, **asked: Any) -> Mapping[str, Any] | Failure:
        self._called("recall")
        self.asked.append({"query": query, **asked})
        if isinstance(self.result, Failure):
            return self.result
        return {**self.result, "memories": self.result["memories"][: asked["k"]]}

    def has_time(self) -> bool:
        return True

    def _store_directory(self) -> str:
        return ""

    def fetch(self, memory_ids: Sequence[str], *, user: str | None) -> Mapping[str, Any] | Failure:
        self._called("fetch")
        if isinstance(self.known, Failure):
            return self.known
        found = [m for m in self.known["memories"] if str(m["id"]) in set(memory_ids)]
        return {**self.known, "memories": found}

    def read_session(self, session_id: str) -> SessionState:
        self._called("read_session")
        return self.sessions.get(session_id, SessionState())

    def is_known(self, session_id: str) -> bool:
        return session_id in self.sessions

    def write_session(self, session_id: str, state: SessionState) -> None:
        self._called("write_session")
        self.sessions[session_id] = state

    def journal(self, event: HookEvent) -> Failure | None:
        self._called("journal")
        self.entries.append(event)
        return None

    def capture(self, transcript_path: str) -> Failure | None:
        self._called("capture")
        self.captured.append(transcript_path)
        return None

    def prepare(self) -> None:
        self._called("prepare")

    def count(self, event: str, failure: Failure | None) -> bool:
        self._called("count")
        self.counted.append((event, None if failure is None else failure.code))
        return failure is not None and self.tells

    def _called(self, name: str) -> None:
        self.calls.append(name)


class BrokenWorld(MemoryWorld):
    """The same, with calls that raise and return what they must not, by chance."""

    def __init__(self, rng: random.Random, agent: str) -> None:
        super().__init__(
            agent,
            scope=rng.choice(["store", "project"]),
            memories=rng.choice([0, 1, 8]),
            budget_tokens=rng.choice([0, 40, 1_500, 10**9]),
            in_subagents=rng.random() < 0.5,
        )
        self._rng = rng
        self._share = rng.choice([0.0, 0.1, 0.5])
        some = [memory(i, rng.choice(["the spare key", "x" * 9_000, "\ud800", ""])) for i in (1, 2)]
        self.result = self.known = rng.choice(
            [
                answer(), answer(*some), answer(*some, answerability={"abstain": True}),
                answer(*some, answerability=rng.choice([None, 1, {"abstain": "yes"}])),
                answer(warnings=[{"code": "no_snapshot", "message": "run\nit " * 200}]),
                Failure("timeout", "slow"), {"memories": None}, {"memories": [{}]}, {},
            ]
        )  # fmt: skip
        if rng.random() < 0.1:
            self.hook_settings = Failure("bad_settings", "two faults")

    def _called(self, name: str) -> None:
        super()._called(name)
        if self._rng.random() < self._share:
            raise self._rng.choice([OSError(28, "full"), ValueError, KeyError, MemoryError])
