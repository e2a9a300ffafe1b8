"""What must hold before an imported snapshot serves: the gate's sentences, as far as they apply.

What belongs here: which of the gate's checks, and what they are told. What does not: the checks
themselves (`mnemon.snapshot.checks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mnemon.immutable import connect_immutable
from mnemon.snapshot.checks import (
    DROP_CHECK,
    GATE_CHECKS,
    Candidate,
    GateContext,
    every_summary_preserves_its_sources,
    no_sensitive_row_is_anywhere,
)
from mnemon.snapshot.drops import DropReport
from mnemon.snapshot.layout import ROWS_FILE
from mnemon.snapshot.manifest import Manifest
from mnemon.snapshot.verdict import CheckResult

_NOT_AGAIN = frozenset({DROP_CHECK, every_summary_preserves_its_sources.__name__})
"""They compare with another snapshot, or ask the model: the night that made it did both."""


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
