"""The sections about the memory store that is read: which, and what of it is live.

What belongs here: declarations. What does not: the other sections (sections.py), ranges (rules.py),
reading (tree.py).
"""

from __future__ import annotations

from noctuary.values import dataclass


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The memory store to read.

    Attributes:
        path: SQLite file, JSONL(.gz) file, data set folder, MemPalace palace, or a PostgreSQL
            database as `env:NAME` (a variable that holds its address) or `postgresql://...`; empty
            means the bundled sample.
        user: Of a PostgreSQL database: only this user's rows and what is shared with them; empty
            means everyone's.
    """

    path: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What recall sees of the store itself, since the snapshot.

    Attributes:
        enabled: Look at all.
        max_rows: Newest rows that are taken in at most; more is a warning.
        deadline_ms: Time for the look; after it the snapshot answers alone.
    """

    enabled: bool = True
    max_rows: int = 2_000
    deadline_ms: float = 50.0


@dataclass(frozen=True, slots=True)
class SensitiveSettings:
    """Rows that never leave the store.

    Attributes:
        recall: Let `recall_sensitive` look into them, in the store itself; nothing is kept.
    """

    recall: bool = False


@dataclass(frozen=True, slots=True)
class SensorSettings:
    """When a change of the store starts a night of its own, once the sensor is switched on.

    Attributes:
        poll_seconds: Time between two looks at the store's change marker.
        minimum_minutes: Least time between two nights that it asks for.
    """

    poll_seconds: float = 60.0
    minimum_minutes: float = 15.0
