"""What noctuary writes to disk: every format, its version, and what becomes of another version.

A version stands here where a file says its own and a reader looks at it. Raise it with every change
that would make a reader of the version before fail or misread. What only makes a night compute
again stands beside its algorithm: a version of a stage, an extractor, a tokenizer or a prompt is
part of a stamp or of a key, and what another one made is not found.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Fate = Literal["read", "migrated", "rebuilt", "refused"]
"""Of a file of another version. "read": what is known of it counts. "migrated": the next write
brings it to this one. "rebuilt": the next night makes it anew. "refused": a sentence names it and
says what to do, and it stays as it is."""


UPDATE = "update noctuary"
"""Stands in every message about a file that a newer noctuary made; `noctuary doctor` then gives no
other remedy."""


class Format(NamedTuple):
    """One format on disk."""

    version: int  # 0: its files say none; keys that a reader does not know are passed over
    # Patterns of paths. STORE is a store below the home; a directory stands for all below it.
    files: tuple[str, ...]
    is_kept: bool  # nothing else can make it again
    older: Fate
    newer: Fate


def _log(name: str) -> Format:
    return Format(1, (f"STORE/{name}",), is_kept=True, older="refused", newer="refused")


def _made(version: int, *files: str) -> Format:
    return Format(version, files, is_kept=False, older="rebuilt", newer="rebuilt")


def _taken_along(version: int, *files: str) -> Format:
    return Format(version, files, is_kept=True, older="refused", newer="refused")


# What nothing can make again.
OWN_STORE = Format(2, ("memories.sqlite",), is_kept=True, older="migrated", newer="refused")
TURNS = _log("turns.sqlite")
ARCHIVE = _log("archive.sqlite")
ACCESS_LOG = _log("access.sqlite")
QUERY_LOG = _log("queries.sqlite")
REPLAY_LOG = _log("replays.sqlite")
INJECTIONS = _log("injected.sqlite")
REPLAY_PACKET = _taken_along(2, "STORE/replays.sqlite")  # a row of it
RECALL_SUMS = _taken_along(2, "STORE/work/usage/folded.json")
TOMBSTONES = _taken_along(1, "STORE/forgotten.json")
RECEIPT = Format(1, ("STORE/receipts",), is_kept=True, older="read", newer="read")
INSTALL_RECEIPTS = _taken_along(1, "hooks/installs.json", "hooks/mcp_installs.json")
YOURS = Format(
    0, ("*.toml", "*.jsonl", "STORE/*.toml", "hooks/journal*.jsonl", "hooks/init.json"),
    is_kept=True, older="read", newer="refused",
)  # fmt: skip

# What a night makes anew.
SNAPSHOT = _made(5, "STORE/snapshots", "STORE/candidates")
ENCODER = _made(1, "STORE/encoders/*/encoder.json")
HOSTED_MODEL = _made(1, "STORE/encoders/*/hosted.json")
USAGE = _made(1, "STORE/usage.sqlite")
CONTENT = _made(2, "STORE/work/content")
EXPORT_REPORT = _made(1, "STORE/work/corpus/report.json")
GRAPH_STATE = _made(3, "STORE/work/graph.duckdb")
HOOK_COUNTS = _made(1, "hooks/counters.json", "hooks/sessions")
WORK = _made(
    0, "STORE/work", "STORE/lance", "STORE/encoders", "STORE/rotations", "STORE/verdicts",
    "STORE/reports", "STORE/dagster", "STORE/ledger.json", "STORE/CURRENT", "STORE/LAST_NIGHT",
    "STORE/purge.pending", "STORE/*.lock", "*.lock", "hooks/*.lock",
)  # fmt: skip

# What you put elsewhere.
BACKUP = _taken_along(1, "DIRECTORY/backups")
EXPORT = _taken_along(3, "DIRECTORY/manifest.json")
EVALUATION_RUN = _taken_along(1, "FILE of `noctuary evaluate run --out`")

FORMATS = {name: value for name, value in globals().items() if isinstance(value, Format)}
