"""What a scripted session should leave as turns, and how what was kept is compared with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.sources.ingest import ingest_transcripts
from noctuary.sources.turns import TranscriptSource
from tests.agents.model_server import ScriptedServer

INJECTED = "INJECTEDWORD"
"""Stands in everything that the rig's hook puts into a session."""

# Nothing that holds one of these is anybody's words; each script says what is written for it.
NOBODYS = (
    INJECTED, "SUMMARYWORD", "INSTRUCTIONSWORD", "KEEPWORD", "SUBTASKWORD", "CUSTOMBODY",
    "<task-notification", "<subagent_notification", "<turn_aborted", "<environment_context",
    "<usage>", "agentId:", "[Request interrupted", "Chunk ID", "Wall time",
    "want to proceed with this tool use", "You can now continue", "Read the answers carefully",
    "Async agent launched", "running in background with ID",
)  # fmt: skip


class Said(NamedTuple):
    """One turn that has to be kept."""

    role: str  # "user" or "assistant"
    text: str  # The whole turn, tool calls left out
    session: int = 0  # Turns of one conversation have one number
    is_part: bool = False  # The turn holds it among other words: an answer beside its question
    is_optional: bool = False  # Kept or not: its speaker took it back


class Kept(NamedTuple):
    """One turn that was kept."""

    id: str
    role: str
    text: str  # Without tool calls and results
    content: str
    at: str
    session: str
    wing: str


class Scenario(NamedTuple):
    """A script that an agent is driven through, and the turns that come of it, in order."""

    agent: str
    name: str
    drive: Callable[[Any, ScriptedServer], None]  # With the agent's driver
    turns: tuple[Said, ...]
    versions: Callable[[str], bool]  # In which of an agent's versions it can be played

    @property
    def id(self) -> str:
        """Its name among those of all agents."""
        return f"{self.agent}-{self.name}"


def scenario(
    table: list[Scenario], agent: str, *turns: Said, versions: Callable[[str], bool] = bool
) -> Callable[[Callable[[Any, ScriptedServer], None]], Callable[[Any, ScriptedServer], None]]:
    """Put a driving function into a table under its name."""

    def keep(
        drive: Callable[[Any, ScriptedServer], None],
    ) -> Callable[[Any, ScriptedServer], None]:
        table.append(Scenario(agent, drive.__name__.strip("_"), drive, turns, versions))
        return drive

    return keep


def user(text: str, session: int = 0, **fields: bool) -> Said:
    """Return what a user says."""
    return Said("user", text, session, **fields)


def agent(text: str, session: int = 0, **fields: bool) -> Said:
    """Return what an agent answers."""
    return Said("assistant", text, session, **fields)


def read_turns(roots: Iterable[Path], turns: Path) -> list[Kept]:
    """Return what the real ingest keeps of transcripts, by time."""
    for root in roots:
        if root.exists():
            report = ingest_transcripts(root, turns)
            assert report.faults == []
    with TranscriptSource(turns) as source:
        return sorted(map(_kept, (row.fields for row in source.rows())), key=lambda k: k.at)


def _kept(fields: Any) -> Kept:
    role, _, content = str(fields["content"]).partition(": ")
    is_call = re.compile(r"\[[^\n]+" if role == "Assistant" else r"(?!)")
    text = "\n".join(line for line in content.split("\n") if not is_call.match(line)).strip()
    where = (str(fields["session_id"]), str(fields["wing"]))
    return Kept(str(fields["id"]), role.lower(), text, content, str(fields["created_at"]), *where)


def differences(kept: Iterable[Kept], turns: Iterable[Said]) -> list[str]:
    """Return a line for each turn that is missing, is one too many or stands elsewhere."""
    found = [one for one in kept if one.text]
    lines = [f"nobody's words: {one.role}: {one.text}" for one in found if _is_nobodys(one)]
    rest, sessions, last = list(found), dict[int, str](), -1
    for turn in turns:
        place = next((one for one in rest if _is_it(one, turn)), None)
        if place is None:
            lines += [] if turn.is_optional else [f"missing: {turn.role}: {turn.text}"]
            continue
        rest.remove(place)
        if found.index(place) < last:
            lines.append(f"too early: {turn.role}: {turn.text}")
        last = found.index(place)
        if sessions.setdefault(turn.session, place.session) != place.session:
            lines.append(f"in another session: {turn.role}: {turn.text}")
    lines += [f"too many: {one.role}: {one.text}" for one in rest if not _is_nobodys(one)]
    if len(set(sessions.values())) != len(sessions):
        lines.append(f"two conversations are one session: {sessions}")
    return lines


def _is_it(kept: Kept, turn: Said) -> bool:
    return kept.role == turn.role and (
        turn.text in kept.text if turn.is_part else turn.text == kept.text
    )


def _is_nobodys(kept: Kept) -> bool:
    said = kept.content if kept.role == "user" else kept.text
    return any(word in said for word in NOBODYS)
