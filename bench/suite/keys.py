"""What a finished run depends on, as one digest: equal digests mean that it need not run again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.datasets import CHECKOUT
from noctuary.core.files import hash_file, hash_json

RANKING_CODE = (
    "lib/noctuary/recall",
    "lib/noctuary/lexical",
    "lib/noctuary/text",
    "lib/noctuary/graph",
    "lib/noctuary/embed",
    "lib/noctuary/evaluate/run.py",
    "lib/noctuary/evaluate/labels.py",
    "bench/arms",
)
"""Files and folders that decide a ranking. Metrics and statistics are not among them: they are
computed anew every time, from the kept rankings."""

SCORING_CODE = ("lib/noctuary/evaluate", "lib/noctuary/reports", "bench/suite")
"""What turns rankings into a result file."""


def code_digest(parts: Iterable[str], root: Path = CHECKOUT) -> str:
    """Return a digest over names and contents of the Python files of some folders and files."""
    files: list[Path] = []
    for part in parts:
        path = root / part
        files.extend(sorted(path.rglob("*.py")) if path.is_dir() else [path])
    return hash_json({str(f.relative_to(root)): hash_file(f) for f in files if f.is_file()})


def run_key(**parts: Any) -> str:
    """Return the digest of everything that a run depends on, given as plain values."""
    return hash_json(parts)
