"""Two users of one store: what one may see, and everything the other does to be seen there.

All that belongs to the neighbour alone (ids, name, wing, room, category, tags, names of things and
at least one word of nearly every text) holds `CANARY`, so that one search through an answer finds
any of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noctuary.core.types import MemoryRecord
from noctuary.recall.engine import Recaller
from noctuary.recall.result import RecallResult
from noctuary.usage.query_log import append_query
from tests.support.lean import write_encoder
from tests.support.store import Store, day_us, memory, new_store, renumber, turns
from tests.support.usage import count_retrievals

CANARY = "qzb"
ANA = "ana"
NEIGHBOUR = "qzbenno"
TOPICS = ("cat", "key", "boiler", "invoice", "flight", "doctor", "release")
SESSION = "shared-session"

_TIMED = ("made_at", "replay_id", "snapshot_id", "store", "phase_timing_ms", "built_at", "now_us")
"""Names of fields that two stores, or two moments, never have in common."""


def visible() -> list[MemoryRecord]:
    """Return what Ana may see: her own memories and nobody's, with a conversation of each."""
    rows: list[MemoryRecord] = []
    for number, topic in enumerate(TOPICS):
        for user in (None, ANA):
            rows.append(
                memory(
                    f"Atlas {topic}: the {topic} of {user or 'the house'} is looked after by Nina.",
                    wing=("home", "work")[number % 2],
                    room="hall" if number % 3 else None,
                    tags="pinned" if number == 1 else "",
                    user=user,
                    importance=0.9 - number / 10,
                    created_at_us=day_us(number + 1),
                )
            )
    # Braces stand for positions inside explanations: nobody may reach others' ids by writing them.
    rows.append(memory("The {2} boiler and the {5} key.", user=ANA, wing="{4}", tags="{1},{7}"))
    for user in (None, ANA):
        said = [f"{user or 'Dan'}: what of the Atlas {topic} and the {topic}?" for topic in TOPICS]
        rows += turns(SESSION, *said, user=user)
    return [row._replace(memory_id=f"a-{i:03}") for i, row in enumerate(rows)]


def hostile(original: MemoryRecord, kind: int) -> MemoryRecord:
    """Return a memory of the neighbour that is made to get in the way of one of Ana's sight."""
    text = original.content
    topic = TOPICS[len(text) % len(TOPICS)]
    theirs = original._replace(user=NEIGHBOUR, updated_at_us=day_us(30))
    newer = theirs._replace(created_at_us=day_us(30), importance=1.0)
    kinds = (
        newer,
        newer._replace(content=f"{text} qzbtail"),
        theirs._replace(content=f"Qzborlun Works\nSupplies the Atlas {topic} to Nina.", wing=None),
        theirs._replace(content=f"Atlas, also known as Qzbatlas, is the {topic} project."),
        newer._replace(content="Nina no longer works on Atlas. Qzbnina leads Atlas now."),
        theirs._replace(wing="qzbwing", room="qzbroom", category="qzbcategory"),
        theirs._replace(tags="pinned,qzbtag", content=f"qzbword {topic} " * 9),
        theirs._replace(content=f"Qzbspeaker: the Atlas {topic}? Ask ana.", session_id=SESSION,
            is_turn=True, category="turn", wing="home", created_at_us=day_us(20),
        ),
    )  # fmt: skip
    return kinds[kind % len(kinds)]


KINDS = 8
"""Of `hostile`."""


def joined(added: Sequence[tuple[int, int, int]]) -> list[MemoryRecord]:
    """Return Ana's sight with memories of the neighbour in between.

    Args:
        added: Per memory of the neighbour: which of the visible ones it is made from, of which
            kind it is, and before which place it stands.
    """
    rows = visible()
    originals = list(rows)
    for number, (original, kind, place) in enumerate(added):
        made = hostile(originals[original % len(originals)], kind)
        rows.insert(place % (len(rows) + 1), made._replace(memory_id=f"qzb-{number:03}"))
    return renumber(rows)


def padded(added: Sequence[tuple[int, int, int]]) -> list[MemoryRecord]:
    """Return Ana's sight with harmless memories of a third user where `joined` has others.

    One product of a matrix rounds by how many rows it has and where they stand: so padded, two
    stores agree to the last digit.
    """
    rows = visible()
    for number, (_, _, place) in enumerate(added):
        made = memory(f"Note {number}.", user="zoe", memory_id=f"zoe-{number:03}")
        rows.insert(place % (len(rows) + 1), made)
    return renumber(rows)


def open_store(root: Path, records: Sequence[MemoryRecord], **changes: Any) -> Store:
    """Publish the memories, with some use of them: the neighbour's, too, where there is one."""
    store = new_store(root, encoder=write_encoder(root / "encoders"))
    store.publish(records, **{"id_kind": "str", **changes})
    own = [["a-001", "a-003"], ["a-003"], ["a-001", "a-000"]]
    theirs = [r.memory_id for r in records if r.user == NEIGHBOUR]
    others = [[i, "a-000", "a-002"] for i in theirs] * 3
    count_retrievals(store, [*own, *others])
    _note_query(store, "the boiler of the house", ["a-004", "a-005"], ANA)
    if theirs:
        _note_query(store, "qzbquestion of the boiler", [*theirs, "a-002"], NEIGHBOUR)
        _note_query(store, "the Atlas boiler", [*theirs, "a-002"], NEIGHBOUR)
    return store


def open_recaller(root: Path, records: Sequence[MemoryRecord]) -> Recaller:
    """Return a recaller of a store of these memories."""
    return Recaller.open(open_store(root, records).root)


def _note_query(store: Store, text: str, found: Sequence[str], user: str) -> None:
    assert store.encoder is not None
    fault = append_query(
        store.paths.queries,
        text=text,
        vector=store.encoder.encode_query(text),
        memory_ids=found,
        encoder_digest=store.encoder.fingerprint.digest,
        asked_us=time.time_ns() // 1000,
        user=user,
    )
    assert fault is None


def everything_told(result: RecallResult) -> str:
    """Return all that an answer says, as one text in lower case."""
    return json.dumps(result.to_json(), ensure_ascii=False).lower()


def comparable(value: Any) -> Any:
    """Return plain values without what names a store or a moment; of timings, which there are."""
    if isinstance(value, dict):
        items: dict[str, Any] = value
        kept = {k: comparable(v) for k, v in items.items() if k not in _TIMED}
        timed = items.get("phase_timing_ms")
        return kept if timed is None else {**kept, "phase_timing_ms": sorted(timed)}
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    return value
