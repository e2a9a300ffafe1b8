"""What must hold before an imported snapshot serves: the gate's sentences, as far as they apply.

What belongs here: which of the gate's checks, and what they are told. What does not: the checks
themselves (`noctuary.snapshot.checks`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.fingerprint import EncoderFingerprint
from noctuary.errors import EncoderError
from noctuary.exchange import export_format
from noctuary.exchange.export_format import ExportFormatError
from noctuary.foreign_json import parse_json
from noctuary.immutable import connect_immutable
from noctuary.recall.answerability import SIGNALS
from noctuary.recall.reader import SnapshotReader
from noctuary.settings import Settings
from noctuary.snapshot.checks import (
    DROP_CHECK,
    GATE_CHECKS,
    Candidate,
    GateContext,
    every_summary_preserves_its_sources,
    no_sensitive_row_is_anywhere,
)
from noctuary.snapshot.drops import DropReport
from noctuary.snapshot.layout import (
    PACK_FORMAT_VERSION,
    RANKING_FILE,
    ROWS_FILE,
    TIER_EXITS_FILE,
)
from noctuary.snapshot.manifest import Manifest
from noctuary.snapshot.verdict import CheckResult
from noctuary.types import DAMAGED_TEXT, MemoryRecord, corpus_digest, published_text

_NOT_AGAIN = frozenset({DROP_CHECK, every_summary_preserves_its_sources.__name__})
"""They compare with another snapshot, or ask the model: the night that made it did both."""


_RANKING = frozenset({"adopted", "challenger", "reason", "evidence"})
_ABSTENTION = frozenset({"rule", "signals"})
_NONE = type(None)
_ADOPTED = frozenset({"fusion", "lexical_weight", "dense_weight", "graph_weight", "session_weight"})
"""What an evaluation may choose of a ranking: no other flag comes with a snapshot."""

_COUNTED = ("memories", "terms", "concepts", "concept_edges", "supersessions", "clusters",
            "summaries")  # fmt: skip
_ANEW = "somebody changed it, so export anew"


def require_sound_snapshot(export: Path, said: Mapping[str, Any]) -> None:
    """Refuse what a manifest says of its snapshot where no night says such a thing.

    Raises:
        ExportFormatError: Naming what is wrong.
    """
    if said.get("format_version") != PACK_FORMAT_VERSION:
        raise ExportFormatError(
            f"the snapshot in {export} has format {said.get('format_version')!r}, this noctuary "
            f"reads {PACK_FORMAT_VERSION}: use the noctuary that made it"
        )
    rules: Mapping[str, Callable[[Any], bool]] = {
        "id_kind": lambda v: v in ("int", "str"),
        "encoder_digest": lambda v: v == _digest_of(said["encoder"]),
        "counts": lambda v: all(type(n) is int and n >= 0 for n in (v["memories"], *v.values())),
        "corpus_digest": lambda v: isinstance(v, str),
        "built_at": lambda v: bool(datetime.fromisoformat(v)),
        "warnings": lambda v: all(
            isinstance(code, str) and isinstance(message, str) for code, message in v
        ),
        "settings": _are_settings,
    }
    for name, holds in rules.items():
        try:
            is_sound = holds(said[name])
        except (KeyError, TypeError, ValueError, AttributeError, EncoderError):
            is_sound = False
        if not is_sound:
            raise ExportFormatError(
                f"the manifest of {export} has a value under {name} that no snapshot has: {_ANEW}"
            )


def require_sound_files(directory: Path, manifest: Manifest) -> None:
    """Refuse a built snapshot that does not open, or whose files say what no night writes.

    Raises:
        ExportFormatError: Naming what is wrong.
        SnapshotCorruptError: It does not open.
    """
    for name in export_format.OTHER_FILES:
        if name in manifest.files:
            _require_known_flags(directory / name)
    SnapshotReader.open(directory).close()
    with closing(connect_immutable(directory / ROWS_FILE)) as rows:
        _require_published_rows(rows, manifest)
        for table in _COUNTED:
            (held,) = rows.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
            if held != manifest.counts[table]:
                raise ExportFormatError(
                    f"the export holds {held} {table} and its manifest says "
                    f"{manifest.counts[table]}: {_ANEW}"
                )


def _require_known_flags(path: Path) -> None:
    found = parse_json(path.read_text(encoding="utf-8"))
    if path.name == TIER_EXITS_FILE:
        odd = {d for d, at in found.items() if not d.isdecimal() or type(at) not in (float, _NONE)}
    elif path.name == RANKING_FILE:
        odd = {*found} - _RANKING | {*found["adopted"]} - _ADOPTED
    else:
        odd = {*found} - _ABSTENTION | {*found["signals"]} - {*SIGNALS}
    if odd:
        raise ExportFormatError(
            f"{path.name} of the export sets {', '.join(sorted(odd))}, which no night does"
        )


def _require_published_rows(rows: sqlite3.Connection, manifest: Manifest) -> None:
    names, hashes = MemoryRecord.__slots__, list[str]()
    for row in rows.execute(f"SELECT {', '.join(names)} FROM memories ORDER BY position"):
        memory = dict(zip(names, row, strict=True))
        hashes.append(memory["content_hash"])
        if published_text(memory) is DAMAGED_TEXT:
            raise ExportFormatError(
                f"a text in the export does not match its content hash: {_ANEW}"
            )
        if manifest.id_kind == "int" and str(int(memory["memory_id"])) != memory["memory_id"]:
            raise ExportFormatError(
                f"the manifest says that ids are numbers, and one is none: {_ANEW}"
            )
    if corpus_digest(hashes) != manifest.corpus_digest:
        raise ExportFormatError(f"the memories do not match the manifest's corpus_digest: {_ANEW}")


def judge_import(directory: Path, manifest: Manifest) -> list[CheckResult]:
    """Return what the gate says of a snapshot that was made from an export."""
    context = _context(manifest)
    with closing(connect_immutable(directory / ROWS_FILE)) as rows:
        candidate = Candidate(directory, manifest, rows)
        checks = [check for check in GATE_CHECKS if check.__name__ not in _NOT_AGAIN]
        return [check(candidate, context) for check in checks]


def find_sensitive(directory: Path, manifest: Manifest) -> str:
    """Return which rows of a snapshot look sensitive, by table and id; empty if none does."""
    with closing(connect_immutable(directory / ROWS_FILE)) as rows:
        candidate = Candidate(directory, manifest, rows)
        result = no_sensitive_row_is_anywhere(candidate, _context(manifest))
    return "" if result.passed else str(result.found.get("ids", result.found))


def _digest_of(encoder: Mapping[str, Any] | None) -> str | None:
    return None if encoder is None else EncoderFingerprint.from_json(encoder).digest


def _are_settings(said: Mapping[str, Mapping[str, Any]]) -> bool:
    """Say whether these are settings of this version, each of its type."""
    known = Settings().to_json()
    return all(
        isinstance(value, int | float)
        if type(default := known[section][key]) is float
        else type(value) is type(default)
        for section, values in said.items()
        for key, value in values.items()
    )


def _context(manifest: Manifest) -> GateContext:
    held = manifest.counts["memories"]
    return GateContext(
        source_counts={"source_rows": held, "exported": held, "quarantined": 0, "sensitive": 0},
        tier_rows={},
        tier_faults={},
        unindexed_rows={},
        encoder_digest=manifest.encoder_digest,
        preserve_threshold=0.0,
        encode=_refuse_to_encode,
        drops=DropReport(),
    )


def _refuse_to_encode(texts: Sequence[str]) -> NDArray[np.float32]:
    raise NotImplementedError(f"no model is asked during an import ({len(texts)} texts)")
