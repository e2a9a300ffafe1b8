"""One thing that was looked at. What belongs here: the shape; what was found does not."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        level: "ok", "warn" or "fail".
        message: What was found.
        remedy: What to do, or "".
    """

    name: str
    level: str
    message: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        return asdict(self)
