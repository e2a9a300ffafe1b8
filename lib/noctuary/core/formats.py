"""Every file format that noctuary writes: its version, and how other versions are handled.

A version is listed here if files record it and a reader checks it. Raise it with every change that
would make a reader of the previous version fail or misread. Versions that only cause
recomputation are defined with their algorithm: the version of a stage, an extractor, a tokenizer
or a prompt is part of a stamp or of a key, so older results are not found.
"""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
from typing import Literal, NamedTuple

Fate = Literal["read", "migrated", "rebuilt", "refused"]
"""How a file of another version is handled. "read": it is used as far as it is understood.
"migrated": the next write upgrades it. "rebuilt": the next night, or hook, recreates it.
"refused": an error names it and a remedy, and the file is not changed."""

UPDATE = "update noctuary"
"""Part of every message about a file that a newer noctuary made; `noctuary doctor` then gives no
other remedy."""


class Format(NamedTuple):
    """One format on disk."""

    version: int  # 0: its files have none
    # Patterns of paths below the home; STORE is a store, and a directory includes all below it.
    files: tuple[str, ...]
    is_kept: bool  # it cannot be recreated
    older: Fate | None  # None: there is none
    newer: Fate


def _kept(version: int, *files: str, older: Fate | None = None, newer: Fate = "refused") -> Format:
    return Format(version, files, is_kept=True, older=older, newer=newer)


def _made(version: int, *files: str) -> Format:
    older: Fate | None = None if version == 1 else "rebuilt"
    return Format(version, files, is_kept=False, older=older, newer="rebuilt")


OWN_STORE = _kept(3, "memories.sqlite", older="migrated")
TURNS = _kept(1, "STORE/turns.sqlite")
ARCHIVE = _kept(1, "STORE/archive.sqlite")
ACCESS_LOG = _kept(1, "STORE/access.sqlite")
QUERY_LOG = _kept(1, "STORE/queries.sqlite")
INJECTIONS = _kept(1, "STORE/injected.sqlite")
REPLAY_LOG = _kept(1, "STORE/replays.sqlite")
REPLAY_PACKET = _kept(2, "STORE/replays.sqlite", older="refused")  # a row of it
RECALL_SUMS = _kept(2, "STORE/work/usage/folded.json", older="rebuilt")
TOMBSTONES = _kept(2, "STORE/forgotten.json", older="migrated")
RECEIPT = _kept(1, "STORE/receipts", newer="read")
INSTALL_RECEIPTS = _kept(1, "hooks/installs.json", "hooks/mcp_installs.json")
KEYED = _kept(
    0, "*.toml", "*.jsonl", "STORE/*.toml", "hooks/journal*.jsonl", "init.json",
    older="read", newer="read",
)  # fmt: skip

SNAPSHOT = _made(6, "STORE/snapshots", "STORE/candidates")
ENCODER = _made(2, "STORE/encoders/*/encoder.json")
HOSTED_MODEL = _made(1, "STORE/encoders/*/hosted.json")
USAGE = _made(1, "STORE/usage.sqlite")
CONTENT = _made(2, "STORE/work/content")
EXPORT_REPORT = _made(2, "STORE/work/corpus/report.json")
GRAPH_STATE = _made(4, "STORE/work/graph.duckdb")
HOOK_COUNTS = _made(1, "hooks/counters.json", "hooks/sessions")
REST = _made(
    0, "STORE/work", "STORE/lance", "STORE/encoders", "STORE/rotations", "STORE/verdicts",
    "STORE/reports", "STORE/dagster", "STORE/ledger.json", "STORE/hashes.json",
    "STORE/quiet.json", "STORE/CURRENT", "STORE/LAST_NIGHT",
    "STORE/purge.pending", "STORE/*.lock", "hooks/*.lock", "init.lock", "init", "merge.lock",
    "night.log", "mcp_token", "cache",
)  # fmt: skip

# Files at a path of the user's choice: FILE is the one of `noctuary evaluate run --out`.
BACKUP = _kept(1, "DIRECTORY/backups")
EVALUATION_RUN = _kept(1, "FILE")

FORMATS = {name: value for name, value in vars().items() if isinstance(value, Format)}
"""All formats by name. If two match a file, the first applies."""
