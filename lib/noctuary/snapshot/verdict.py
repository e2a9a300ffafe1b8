"""Gate verdicts: what was checked on which candidate, stored under the candidate's digest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from noctuary.core.files import write_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.store import StorePaths

PASS = "PASS"
FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One sentence about the candidate, whether it holds, and the numbers behind it."""

    name: str
    passed: bool
    found: dict[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's judgement of exactly one candidate."""

    digest: str
    outcome: str
    checks: tuple[CheckResult, ...]
    judged_at: str


def store_verdict(paths: StorePaths, digest: str, checks: Sequence[CheckResult]) -> Verdict:
    """Store the verdict on a candidate.

    PASS only if every check holds and there is at least one.
    """
    passed = bool(checks) and all(c.passed for c in checks)
    verdict = Verdict(
        digest=digest,
        outcome=PASS if passed else FAIL,
        checks=tuple(checks),
        judged_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    write_text(paths.verdicts / f"{digest}.json", json.dumps(asdict(verdict), indent=1) + "\n")
    return verdict


def read_verdict(paths: StorePaths, digest: str) -> Verdict | None:
    """Return the verdict stored for a digest; a missing, damaged or foreign one is None."""
    try:
        raw = parse_json((paths.verdicts / f"{digest}.json").read_text(encoding="utf-8"))
        checks = tuple(CheckResult(**c) for c in raw.pop("checks"))
        verdict = Verdict(checks=checks, **raw)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return verdict if verdict.digest == digest else None
