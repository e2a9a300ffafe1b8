"""What handling an event does to the outside, for a real hook process.

What belongs here: `ProcessWorld`. What does not: decisions (`handling`), reading stdin and writing
stdout (`process`). Everything beyond the standard library is imported where it is used: most events
need none of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noctuary.agents.counters import note_call
from noctuary.agents.encoders import TELLING
from noctuary.agents.journal import JournalEntry, append_entry
from noctuary.agents.places import HookPlaces
from noctuary.agents.recalling import fetch_in_time, recall_in_time
from noctuary.agents.sessions import (
    SessionState,
    prune_sessions,
    read_session,
    session_file,
    write_session,
)
from noctuary.agents.small_files import make_private
from noctuary.agents.world import Block, Failure

if TYPE_CHECKING:
    from noctuary.settings.sections import HookSettings

MAX_DEADLINE_S = 20.0
"""Longest deadline, whatever the settings say: Claude drops what a prompt's hook says at 30."""


class ProcessWorld:
    """The outside of one hook process.

    Attributes:
        agent: "claude" or "codex".
    """

    def __init__(
        self,
        agent: str,
        store: str | None,
        home: Path | None,
        started_s: float,
        give_more_time: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Look at nothing yet.

        Args:
            agent: Who sent the event.
            store: As `noctuary.recall` takes it; None means the configured or only one.
            home: Noctuary's home; None where it leads nowhere: then nothing is counted.
            started_s: When the process began, of `time.monotonic`.
            give_more_time: Told how many seconds after its begin the process may be killed, where
                the settings ask for more than the default.
        """
        self.agent = agent
        self._store = store
        self._home = home
        self._places = None if home is None else HookPlaces(home)
        self._started_s = started_s
        self._give_more_time = give_more_time
        self._settings: HookSettings | Failure | None = None

    def settings(self) -> HookSettings | Failure:
        """Return the settings in force, or what is wrong with them."""
        if self._settings is None:
            self._settings = self._read_settings()
        return self._settings

    def now_us(self) -> int:
        """Return the present, microseconds since the epoch."""
        return time.time_ns() // 1000

    def project_of(self, cwd: str) -> str:
        """Return the wing of a folder's project; "" for none."""
        from noctuary.transcripts.projects import project_of

        return project_of(cwd)

    def recall(
        self, query: str, *, k: int, user: str | None, wing: str | None, session_id: str | None
    ) -> Mapping[str, Any] | Failure:
        """Return the answer of the store's server, else of this process, within the deadline."""
        asked = {"k": k, "user": user, "wing": wing, "session_id": session_id}
        until_s = self._until_s()
        found, was_served = recall_in_time(query, asked, store=self._store, until_s=until_s)
        if not was_served:
            self._start_server()
        return found

    def fetch(self, memory_ids: Sequence[str], *, user: str | None) -> Mapping[str, Any] | Failure:
        """Return memories by id, from this process."""
        return fetch_in_time(memory_ids, user, store=self._store, until_s=self._until_s())

    def inject(self, result: Mapping[str, Any], *, max_tokens: int) -> Block:
        """Return the block of an answer's memories and put it on record."""
        from noctuary.injection.injecting import inject

        done = inject(result, max_tokens=max_tokens)
        return Block(done.text, done.memories)

    def read_session(self, session_id: str) -> SessionState:
        """Return what was injected into a session."""
        if self._places is None or not session_id:
            return SessionState()
        return read_session(session_file(self._places.sessions, self.agent, session_id))

    def write_session(self, session_id: str, state: SessionState) -> None:
        """Remember what was injected into a session, if that is possible."""
        if self._places is not None and session_id and make_private(self._places.directory):
            write_session(session_file(self._places.sessions, self.agent, session_id), state)

    def size_bytes(self, path: str) -> int | None:
        """Return how long a file is; None where it cannot be looked at."""
        try:
            return Path(path).stat().st_size
        except (OSError, ValueError):
            return None

    def append(self, entry: JournalEntry) -> Failure | None:
        """Append to the journal."""
        if self._places is None or not make_private(self._places.directory):
            return Failure("journal", "there is no directory for the journal")
        fault = append_entry(self._places.journal, entry._replace(store=self._store_directory()))
        return None if fault is None else Failure("journal", fault)

    def capture(self, transcript_path: str) -> Failure | None:
        """Keep a transcript's new turns in a process of its own."""
        from noctuary.agents.capturing import start_capture

        return start_capture(transcript_path, agent=self.agent, store=self._store)

    def prepare(self) -> None:
        """Prune the state of old sessions and start a server where that is configured."""
        if self._places is not None:
            prune_sessions(self._places.sessions)
        self._start_server()

    def count(self, event: str, failure: Failure | None) -> bool:
        """Count a call; True where the user is to be told of the failure now."""
        if self._places is None or not make_private(self._places.directory):
            return False
        return note_call(
            self._places.counters,
            self.agent,
            event,
            code=None if failure is None else failure.code,
            took_ms=(time.monotonic() - self._started_s) * 1000,
            now_s=time.time(),
            may_tell=event in TELLING,
        )

    def _store_directory(self) -> str:
        """Return which store the event is for, as far as that can be said without opening it."""
        from noctuary.errors import StoreError
        from noctuary.locate import find_store

        try:
            return "" if self._home is None else str(find_store(self._store, home=self._home)[0])
        except (StoreError, OSError, ValueError):
            return ""

    def _until_s(self) -> float:
        settings = self.settings()
        deadline_ms = 0.0 if isinstance(settings, Failure) else settings.deadline_ms
        return self._started_s + min(deadline_ms / 1000, MAX_DEADLINE_S)

    def _read_settings(self) -> HookSettings | Failure:
        from noctuary.errors import ConfigError
        from noctuary.settings import Settings

        try:
            found = Settings.load(home=self._home).hook
        except (ConfigError, OSError) as error:
            return Failure("bad_settings", str(error))
        self._give_more_time(min(found.deadline_ms / 1000, MAX_DEADLINE_S))
        return found

    def _start_server(self) -> None:
        from noctuary.agents.warming import start_server

        settings = self.settings()
        if self._places is None or isinstance(settings, Failure) or not settings.start_server:
            return
        if make_private(self._places.directory):
            start_server(self._places.directory, self._store)


def environment_home() -> Path | None:
    """Return noctuary's home, None where it leads nowhere."""
    from noctuary.errors import StoreError
    from noctuary.locate import find_home

    try:
        return find_home(os.environ)
    except (StoreError, OSError, ValueError):
        return None
