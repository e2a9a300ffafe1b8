"""What is promised of the read path's speed, and whether the measured documents keep it.

Pure arithmetic over documents; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.verify.verdict import Verdict

ENCODING_RATIO = 1.0
"""Most that a warm recall with query encoding takes, in p50 of the seed's FTS5 search."""

KNOWN_RATIO = 0.3
"""The same without encoding."""

NUMPY_RATIO = 1.6
"""Most that a one-shot recall takes, in `import numpy`; beyond, a hook is felt."""

LIBRARY_RATIO = 20.0
"""Least factor between a process that loads sentence-transformers and a one-shot recall."""

CLIENT_RATIO = 3.0
"""Most that a client of the warm server takes, in bare interpreters."""

IMPORT_RATIO = 1.3
"""Most that importing the recall function takes, in `import numpy`."""

GROWTH = 4.0
"""Most growth of p95 from the smallest to the largest synthetic store (10,000 to a million)."""

RESIDENT_MB = 1500.0
"""Most resident memory at the largest store."""

CREPT = ("import_recall_to_numpy", "recall_to_numpy", "client_to_bare")
"""Ratios of fresh processes that every hook pays: they are held against the committed ones."""

OKISH_GROWTH, MOST_GROWTH = 1.04, 1.08
"""Of such a ratio, before it is OKish and before it FAILs. Repeated runs of 11 rounds on a quiet
machine differ by 3 %; what crept in unseen once was 12 and 22 %."""


@dataclass(frozen=True, slots=True)
class Target:
    """One promise: `measured` must not be above `limit` (below it where `at_least`)."""

    name: str
    measured: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Say whether the promise is kept; a number that is none keeps nothing."""
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "met": self.met}


def judge(
    stores: Sequence[Mapping[str, Any]], oneshot: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Return every promise that the documents can tell about.

    Args:
        stores: Documents of `measure_warm` with their `resident` figures.
        oneshot: Document of `measure_oneshot`, or None.
    """
    targets = [target for document in stores for target in _warm_targets(document)]
    targets += _growth_targets([d for d in stores if d["synthetic"]])
    if oneshot is not None:
        targets += _oneshot_targets(oneshot["ratios"])
    return [target.to_json() for target in targets]


def compare(
    found: Mapping[str, float], committed: Mapping[str, float]
) -> list[tuple[str, float, float, Verdict]]:
    """Return name, committed and found ratio and the verdict, for each of CREPT that both have."""
    return [
        (name, committed[name], found[name], _grown(found[name] / committed[name]))
        for name in CREPT
        if name in found and name in committed
    ]


def _grown(by: float) -> Verdict:
    # Not "above": NaN must not pass.
    if not by <= MOST_GROWTH:
        return Verdict.FAIL
    return Verdict.OK if by <= OKISH_GROWTH else Verdict.OKISH


def _warm_targets(document: Mapping[str, Any]) -> list[Target]:
    ratios, store = document["ratio_to_fts_seed"], document["store"]
    return [
        Target(f"{store}: warm recall / FTS5, p50", ratios["recall"], ENCODING_RATIO),
        Target(
            f"{store}: warm recall without encoding / FTS5, p50",
            ratios["recall_known_vector"],
            KNOWN_RATIO,
        ),
    ]


def _growth_targets(synthetic: Sequence[Mapping[str, Any]]) -> list[Target]:
    if len(synthetic) < 2:
        return []
    ordered = sorted(synthetic, key=lambda document: document["memories"])
    small, large = ordered[0], ordered[-1]
    span = f"{small['memories']:,} to {large['memories']:,}"
    found = [
        Target(f"growth of p95, {what}, {span}", round(_p95(large, name) / _p95(small, name), 2),
               GROWTH)
        for what, name in (
            ("warm recall", "recall"),
            ("without encoding", "recall_known_vector"),
        )
    ]  # fmt: skip
    resident = large["resident"]["VmRSS"]
    return [*found, Target(f"resident MB at {large['memories']:,}", resident, RESIDENT_MB)]


def _p95(document: Mapping[str, Any], name: str) -> float:
    return float(document["systems"][name]["p95_ms"])


def _oneshot_targets(ratios: Mapping[str, float]) -> list[Target]:
    return [
        Target("one-shot recall / import numpy", ratios["recall_to_numpy"], NUMPY_RATIO),
        Target(
            "sentence-transformers process / one-shot recall",
            ratios["library_to_recall"],
            LIBRARY_RATIO,
            at_least=True,
        ),
        Target("client / bare interpreter", ratios["client_to_bare"], CLIENT_RATIO),
        Target(
            "import of the recall function / import numpy",
            ratios["import_recall_to_numpy"],
            IMPORT_RATIO,
        ),
    ]
