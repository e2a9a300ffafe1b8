"""Asking a recaller for everything, and archiving by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallResult
from tests.support.archive_file import Span, write_archive


def ids(result: RecallResult) -> list[str]:
    """Return the ids of an answer as text, best first."""
    return [str(m.id) for m in result.memories]


def deep(recaller: Recaller, query: str, profile: RetrievalProfile, **how: Any) -> RecallResult:
    """Return everything that is found at all."""
    return recaller.recall(query, 100, profile=profile.replaced(depth=1000), **how)


def archive(
    recaller: Recaller, entries: dict[str, str], spans: Sequence[Span] = ((1, None),)
) -> Recaller:
    """Archive memories by one plan; a fresh recaller of the same store."""
    write_archive(recaller.paths.archive, recaller.reader, {"p1": entries}, {"p1": spans})
    return Recaller.open(recaller.paths.root)


def codes(result: RecallResult) -> list[str]:
    """Return the codes of an answer's warnings, in order."""
    return [w.code for w in result.warnings]


def said(result: RecallResult, code: str) -> str:
    """Return what an answer's only warning of a code says."""
    (message,) = [w.message for w in result.warnings if w.code == code]
    return message
