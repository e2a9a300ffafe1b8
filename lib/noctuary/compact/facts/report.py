"""The verdict of the fact check on one text. What belongs here: the noun and its JSON form."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from noctuary.foreign_json import parse_json


@dataclass(frozen=True, slots=True)
class FactReport:
    """What a summary says beside its sources.

    Attributes:
        kept: Distinct facts of the sources that the summary repeats, at most `total`.
        total: Distinct facts of the sources, at least 0.
        introduced: Facts of the summary that no source holds, as "kind: what it says", sorted.
        contradicted: Facts that the sources hold otherwise, as "kind: what it says, sources: what
            they say", sorted.
    """

    kept: int
    total: int
    introduced: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Return kept / total, in [0, 1]; 1 where the sources hold no fact."""
        return self.kept / self.total if self.total else 1.0

    @property
    def passed(self) -> bool:
        """Say whether the text neither introduces nor contradicts anything."""
        return not self.introduced and not self.contradicted

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return one sentence per fault; empty where it passed."""
        return (
            *(f"introduces {fact}" for fact in self.introduced),
            *(f"contradicts {fact}" for fact in self.contradicted),
        )

    def to_json(self) -> str:
        """Return the report as canonical JSON, the share included for readers of the table."""
        document = {**asdict(self), "share": round(self.share, 6)}
        return json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> FactReport:
        """Return the report that `to_json` wrote.

        Raises:
            ValueError: The text is no report.
        """
        try:
            document: dict[str, Any] = parse_json(text)
            return FactReport(
                kept=int(document["kept"]),
                total=int(document["total"]),
                introduced=tuple(document["introduced"]),
                contradicted=tuple(document["contradicted"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"found {text[:80]!r}, expected a fact report as JSON") from error
