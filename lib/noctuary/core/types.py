"""The nouns and protocols that every room shares, and the hooks that watch a recall or a night."""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

from noctuary.core.files import hash_text, sha256

NOTHING: Mapping[str, Any] = {}
"""The empty mapping of a default; no proxy, which could be neither pickled nor copied."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DAY_US = 86_400_000_000  # microseconds of a day
UNDATED_US = -(2**63)  # `created_at_us` of a memory whose source gave no date (the smallest int64)

# Kinds of sources whose new rows a recall reads itself: a SQLite file, a database, a small file
# that is read whole, and several of them.
HELD_KINDS = ("markdown", "mcp-memory", "mem0-json", "csv")
SEVERAL = "several"  # the stores that a configuration file lists
LIVE_KINDS = ("claude-memory-sqlite", "claude-memory-postgres", *HELD_KINDS, SEVERAL)

DAMAGED_TEXT = "(the text of this memory is damaged: `noctuary doctor` says what to do)"
"""In the place of a text that is not the one that was published."""


class Origin(StrEnum):
    """Who wrote a memory, the most trusted first; only a reader that knows says so."""

    USER = "user"  # typed by its user
    ASSISTANT = "assistant"  # said or noted by an agent
    IMPORT = "import"  # of a store that does not tell
    FILE = "file"  # read from a note or a page
    TOOL = "tool"  # calls and results of tools, and nothing else


INJECTED_ORIGINS = tuple(origin.value for origin in Origin if origin is not Origin.TOOL)
"""Whose memories go into prompts where `hook.origins` does not say otherwise."""


def least_trusted(origins: Iterable[str]) -> str:
    """Return the least trusted of some origins: what is made of several is trusted like it."""
    return max(map(Origin, origins), key=list(Origin).index, default=Origin.IMPORT)


def with_origin(fields: dict[str, object]) -> dict[str, object]:
    """Return a row of a SQLite store; its column `origin`, as the own store has it, is believed."""
    origin = fields.get("origin")
    return {**fields, "origin": Origin(origin)} if origin in set(Origin) else fields


class MemoryRecord(NamedTuple):
    """One exported memory: the input of every builder."""

    position: int  # 0-based rank in the source's key order; rows of every array of a snapshot
    memory_id: str  # the source's own id, as text
    content: str  # NUL-free, never empty
    category: str  # possibly empty, as are the next two
    tags: str  # comma-separated, as authored, the scope tags included
    expanded_keywords: str  # space-separated
    importance: float  # in [0, 1]
    created_at_us: int  # microseconds since the epoch, UTC; UNDATED_US where unknown
    updated_at_us: int
    session_id: str | None
    wing: str | None  # the project or area
    room: str | None  # the topic inside the wing
    user: str | None  # whose memory it is
    is_turn: bool  # a turn of a conversation, as against a distilled memory
    content_hash: str  # over every field that a derived artifact may depend on, not the position
    origin: str = Origin.IMPORT  # an `Origin`; nothing is derived from it, so no hash holds it
    valid_until_us: int | None = None  # from this moment on only `as_of` finds it


CONTENT_HASH_VERSION = "memory/1"
"""Part of every content hash; raise it when the meaning of a field changes."""


def content_hash(record: MemoryRecord) -> str:
    """Return the SHA-256 over every field of a memory except its position and its origin."""
    optional = (record.session_id, record.wing, record.room, record.user)
    return hash_text(
        CONTENT_HASH_VERSION,
        record.memory_id,
        record.content,
        record.category,
        record.tags,
        record.expanded_keywords,
        repr(record.importance),
        str(record.created_at_us),
        str(record.updated_at_us),
        str(record.is_turn),
        *("-" if value is None else f"+{value}" for value in optional),
        *(() if record.valid_until_us is None else (f"until {record.valid_until_us}",)),
    )


def corpus_digest(content_hashes: Iterable[str]) -> str:
    """Return the digest of the memories with these content hashes, in their order."""
    digest = sha256(CONTENT_HASH_VERSION.encode())
    for known in content_hashes:
        digest.update(bytes.fromhex(known))
    return digest.hexdigest()


def published_text(row: Mapping[str, Any]) -> str:
    """Return the content of a row of `memories`, DAMAGED_TEXT where its hash is of another row."""
    try:
        # A record by its names, without the cost of making one.
        record: Any = SimpleNamespace(**row)
        record.is_turn = bool(record.is_turn)
        if content_hash(record) == row["content_hash"]:
            return str(row["content"])
    except (AttributeError, TypeError):
        pass  # not even the types are right
    return DAMAGED_TEXT


def summary_id(cluster_id: str, method: str, text: str) -> str:
    """Return the id of a summary: equal for equal cluster, method and text, on every night."""
    return hash_text("summary", cluster_id, method, text)[:16]


def to_micros(moment: datetime) -> int:
    """Return microseconds since the epoch of an aware datetime."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime | None:
    """Return the UTC datetime of a microsecond count, or None for UNDATED_US."""
    if micros == UNDATED_US:
        return None
    return _EPOCH + timedelta(microseconds=micros)


class Progress(Protocol):
    """Receives the progress of a named piece of work; decides how to show it."""

    def update(self, task: str, done: int, total: int) -> None:
        """Report that `done` of `total` units of `task` are finished; may be called often."""
        ...


class SilentProgress:
    """A progress that shows nothing; the default of every library function."""

    def update(self, task: str, done: int, total: int) -> None:
        """Ignore the report."""


SILENT = SilentProgress()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Hooks: the caller's functions, which observe a recall or a night and change nothing.
#
# A hook gets a copy of the facts, so that writing to it changes nothing; one that raises is
# reported as a warning. Without hooks every call is one dictionary lookup.


HOOK_NAMES = (
    "post_model_guard",
    "post_cross_wing",
    "post_score_event",
    "post_batch",
    "post_compaction_plan",
)
"""When a hook may run; see RFC 914, phases 10 to 14."""

Hook = Callable[[dict[str, Any]], object]

_hooks: dict[str, tuple[Hook, ...]] = {}
_lock = threading.Lock()


def register_hook(name: str, function: Hook) -> Callable[[], None]:
    """Call a function with a dictionary of facts whenever an event occurs in this process.

    Args:
        name: One of `HOOK_NAMES`.
        function: Takes one dictionary. Its return value is ignored; if it raises, the recall gets
            the warning "hook_failed".

    Returns:
        A function that removes the hook; calling it twice is harmless.

    Raises:
        ValueError: If there is no such hook.
    """
    if name not in HOOK_NAMES:
        raise ValueError(f"hook must be one of {', '.join(HOOK_NAMES)}, found {name!r}")
    # Wrapped, so that the same function registered twice is two hooks that go one at a time.
    entry: Hook = lambda context: function(context)  # noqa: E731

    def unregister() -> None:
        with _lock:
            _hooks[name] = tuple(h for h in _hooks.get(name, ()) if h is not entry)

    with _lock:
        _hooks[name] = (*_hooks.get(name, ()), entry)
    return unregister


def has_hooks(name: str) -> bool:
    """Return whether any hook listens, so that a context need not be built in vain."""
    return bool(_hooks.get(name))


def fire(name: str, context: Mapping[str, Any]) -> list[str]:
    """Call every hook of a name with its own copy of the facts; return the errors."""
    import copy  # most processes have no hooks

    faults: list[str] = []
    for hook in _hooks.get(name, ()):
        try:
            hook(copy.deepcopy(dict(context)))
        except Exception as error:
            faults.append(f"a {name} hook raised {type(error).__name__}: {error}")
    return faults
