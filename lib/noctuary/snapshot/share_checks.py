"""The gate's sentence about shares. Pure reading, by other code than what packed them.

What belongs here: what must hold for the shares of a candidate. What does not: which shares a store
has (noctuary.corpus), what they open (noctuary.recall.scope).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from noctuary.foreign_json import parse_json
from noctuary.snapshot import layout
from noctuary.snapshot.graph_checks import judged
from noctuary.snapshot.share_arrays import ShareArrays
from noctuary.snapshot.verdict import CheckResult

if TYPE_CHECKING:
    from noctuary.snapshot.checks import Candidate, GateContext

_NAME = "every_share_is_of_an_owned_memory"


def every_share_is_of_an_owned_memory(c: Candidate, x: GateContext) -> CheckResult:
    """Each share opens a memory that belongs to a named user, to another one, and once.

    A snapshot without shares has neither their arrays nor a count of them.
    """
    there = [name in c.manifest.files for name in layout.SHARE_FILES]
    named = c.rows.execute("SELECT value FROM meta WHERE key = ?", [layout.SHARED_WITH]).fetchone()
    counted = c.manifest.counts.get("shares", 0)
    if not any(there) and named is None and counted == 0:
        return CheckResult(_NAME, True, {"shares": 0, "note": "nobody shares"})
    if not all(there) or named is None:
        return CheckResult(_NAME, False, {"shares": counted, "fault": "parts are missing"})
    shares = ShareArrays(parse_json(named[0]), *map(c.array, layout.SHARE_FILES))
    owners = [owner for (owner,) in c.rows.execute('SELECT "user" FROM memories ORDER BY position')]
    size = int(shares.positions.size)
    if not shares.is_aligned(len(owners)):
        return CheckResult(_NAME, False, {"shares": size, "fault": "arrays differ"})
    of_nobody = with_the_owner = twice = 0
    for reader, positions in shares.by_reader(len(owners)).items():
        theirs = [owners[p] for p in positions.tolist()]
        of_nobody += sum(not owner for owner in theirs)
        with_the_owner += theirs.count(reader)
        twice += int((np.diff(positions) <= 0).sum())
    found: dict[str, int | float | str] = {
        "shares": size,
        "uncounted": abs(size - counted),
        "unsorted_readers": int(list(shares.readers) != sorted(shares.readers)),
        "of_nobody": of_nobody,
        "with_the_owner": with_the_owner,
        "twice": twice,
    }
    return judged(_NAME, found, "shares")
