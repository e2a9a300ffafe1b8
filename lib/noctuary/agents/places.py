"""Where the hooks keep their state: below noctuary's home and in no store.

What belongs here: paths. What does not: what stands in the files (`journal`, `counters`,
`sessions`). A hook has to count its failures where the store itself is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

DIRECTORY = "hooks"
"""Name of the directory below noctuary's home."""


class HookPlaces(NamedTuple):
    """The files of the hooks of one home.

    Attributes:
        home: Noctuary's home (`noctuary.locate.find_home`); need not exist.
    """

    home: Path

    @property
    def directory(self) -> Path:
        """Where all of them are; made by the first hook, for its user only."""
        return self.home / DIRECTORY

    @property
    def journal(self) -> Path:
        """One JSON object per line: compactions, stops and ends of sessions (`journal`)."""
        return self.directory / "journal.jsonl"

    @property
    def counters(self) -> Path:
        """Calls, failures and times of every agent and event (`counters`)."""
        return self.directory / "counters.json"

    @property
    def sessions(self) -> Path:
        """One small file per session: ids of what was injected into it (`sessions`)."""
        return self.directory / "sessions"
