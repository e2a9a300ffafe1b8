"""What handling an event needs of the outside, as one protocol.

What belongs here: the seam between deciding (`handling`) and doing (`outside`). Implementations
return failures and need not catch what they did not expect: handling an event does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from noctuary.agents.journal import JournalEntry
from noctuary.agents.sessions import SessionState

if TYPE_CHECKING:
    from noctuary.settings.sections import HookSettings


class Failure(NamedTuple):
    """What could not be done.

    Attributes:
        code: Stable and machine-readable, for example "no_snapshot" or "timeout".
        message: What was found and what to do, in one sentence.
    """

    code: str
    message: str


class Block(NamedTuple):
    """What goes into a prompt.

    Attributes:
        text: The tagged block; "" where nothing fits.
        memories: How many of the memories it holds: the first ones.
    """

    text: str
    memories: int


class HookWorld(Protocol):
    """The outside of one event.

    Attributes:
        agent: Who sent it: "claude" or "codex".
    """

    agent: str

    def settings(self) -> HookSettings | Failure:
        """Return the settings in force, or what is wrong with them."""
        ...

    def now_us(self) -> int:
        """Return the present, microseconds since the epoch."""
        ...

    def project_of(self, cwd: str) -> str:
        """Return the wing of a folder's project; "" for none."""
        ...

    def recall(
        self, query: str, *, k: int, user: str | None, wing: str | None, session_id: str | None
    ) -> Mapping[str, Any] | Failure:
        """Return what `RecallResult.to_json` gives, within the deadline."""
        ...

    def fetch(self, memory_ids: Sequence[str], *, user: str | None) -> Mapping[str, Any] | Failure:
        """Return memories by id in the shape of a recall's answer.

        Without those that are gone or not this user's.
        """
        ...

    def inject(self, result: Mapping[str, Any], *, max_tokens: int) -> Block:
        """Return the block of an answer's memories and put it on record."""
        ...

    def read_session(self, session_id: str) -> SessionState:
        """Return what was injected into a session."""
        ...

    def write_session(self, session_id: str, state: SessionState) -> None:
        """Remember what was injected into a session, if that is possible."""
        ...

    def size_bytes(self, path: str) -> int | None:
        """Return how long a file is; None where it cannot be looked at."""
        ...

    def append(self, entry: JournalEntry) -> Failure | None:
        """Append to the journal."""
        ...

    def capture(self, transcript_path: str) -> Failure | None:
        """Keep a transcript's new turns, without making the agent wait."""
        ...

    def prepare(self) -> None:
        """Do what a beginning session makes worth while: prune, start a server if configured."""
        ...

    def count(self, event: str, failure: Failure | None) -> bool:
        """Count a call; True where the user is to be told of the failure now."""
        ...
