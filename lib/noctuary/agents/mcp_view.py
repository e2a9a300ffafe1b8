"""What one MCP server may see and answers: a store, a user and a wing, fixed when it starts.

Answers are the library's own records as JSON values, inside the view: default deny, as in every
recall (`noctuary.recall.search`).
"""

from __future__ import annotations

import difflib
import logging
import re
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from noctuary import __version__
from noctuary.agents.hooks import visible_positions
from noctuary.context.assemble import assemble
from noctuary.context.inject import wordings_of
from noctuary.core.errors import NoctuaryError, StoreError
from noctuary.core.files import hash_json
from noctuary.core.store import (
    OWN_FILE,
    OWN_PREFIX,
    StorePaths,
    find_home,
    find_store,
    last_night_hours,
    store_for_source,
)
from noctuary.core.types import MemoryRecord, Origin
from noctuary.curate import reviews
from noctuary.graph.fold import ROLES
from noctuary.graph.view import GraphSource, NameBook, describe_concept, evidence_line, open_graph
from noctuary.graph.walk import OPEN_END_US
from noctuary.recall.api import find_serving, recall, staleness
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import expand_from, explain_memory
from noctuary.recall.profile import (
    RetrievalProfile,
    current_settings,
    resolve_for_recall,
)
from noctuary.recall.query import Mask, Query, Scope, build_mask, check_arguments
from noctuary.recall.reader import SnapshotReader, telling_damage
from noctuary.recall.result import RecallWarning
from noctuary.recall.rows import Seen as LiveSeen
from noctuary.recall.rows import see
from noctuary.sources.injected import TAG, append_injection
from noctuary.sources.own_store import remember
from noctuary.text.marks import iso, visible

MemoryId = int | str
Fields = dict[str, Any]

ITEM_URI = "memory://item/{id}"
CLUSTER_URI = "memory://cluster/{id}"
CONCEPT_URI = "memory://concept/{name}"

FACETS = ("wing", "room", "category")  # the filters of a recall
MAX_MEMORIES = 50  # of one recall: agents cut what a tool returns beyond some 25,000 tokens
MAX_CONTENT_CHARS = 4_000  # of one memory in a list: one pasted file must not displace all others
MAX_CONTEXT_TOKENS = 20_000  # of one context, as of a recall
DEADLINE_SHARE = 0.8  # of the time limit, so that a partial answer still arrives in time
_LOOK_MS = 1_000.0  # for changes in the store: whoever reads one memory waits longer than a prompt
_NEAR_SHOWN = 3  # similar values offered where one is unknown
_SCORE_DIGITS = 6  # decimals of numbers in answers; more would only cost tokens

# First in every answer with texts of memories: a night knows it in a transcript by this field.
ORIGIN = {"origin": TAG}


def _address(template: str, value: MemoryId) -> str:
    return template[: template.index("{")] + quote(str(value), safe="")


item_uri = partial(_address, ITEM_URI)
cluster_uri = partial(_address, CLUSTER_URI)
concept_uri = partial(_address, CONCEPT_URI)


def plain(value: Any) -> Any:
    """Return JSON values as they are sent: hidden characters marked, fields without a value out."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, float):
        return round(value, _SCORE_DIGITS)
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        held = ((k, v) for k, v in cast("Fields", value).items() if v is not None)
        return {visible(str(key)): plain(item) for key, item in held}
    return value


def cut_content(content: str, most: int = MAX_CONTENT_CHARS) -> Fields:
    """Return the field of a content, at most so long, with a mark where it was cut."""
    return {"content": content[:most], "truncated": True if len(content) > most else None}


def _warned(warnings: Sequence[RecallWarning]) -> list[Fields]:
    return [dict(warning.to_json()) for warning in warnings]


class UnknownItemError(StoreError):
    """Nothing of this id or name is there for this server."""


class AskedWronglyError(NoctuaryError, ValueError):
    """What no store could honour: another wing, no moment, neither or both of two arguments."""


class Seen(NamedTuple):
    """A pinned snapshot, and the mask of visible memories."""

    recaller: Recaller
    allowed: Mask  # which memories, shape (n,)
    user: str | None  # shows this user's memories besides unowned ones
    wing: str | None  # shows this wing only
    person: bool  # besides what holds for the user in every project
    warnings: tuple[RecallWarning, ...]

    def position_of(self, item_id: str) -> int | None:
        """Return the position of a memory or summary, or None if it is not visible."""
        if not _is_text(item_id):
            return None
        reader = self.recaller.reader
        found = visible_positions(reader, self.allowed, [item_id])
        # Another spelling of an id counts where it can mean one memory only.
        found = found or visible_positions(reader, self.allowed, reader.other_ids(item_id))
        return found[0] if len(found) == 1 else None

    def live_memory(self, item_id: str) -> MemoryRecord | None:
        """Return a memory that the store has gained since the snapshot, as recall finds it."""
        if not _is_text(item_id):
            return None
        live = self.see_live(Scope(wing=self.wing, user=self.user, person=self.person))
        rows = {} if live is None else {r.memory.memory_id: r.memory for r in live.state.rows}
        others = self.recaller.reader.other_ids(item_id)
        found = [rows[one] for one in (item_id, *others) if one in rows]
        return found[0] if found and (len(found) == 1 or item_id in rows) else None

    def see_live(self, scope: Scope, mask: Mask | None = None) -> LiveSeen | None:
        """Return what the store has beyond the snapshot; None for nothing."""
        settings, _ = current_settings()
        longer = settings.live._replace(deadline_ms=max(settings.live.deadline_ms, _LOOK_MS))
        inputs = self.recaller.inputs_now(self.user).with_store(settings._replace(live=longer))
        state = inputs.live()
        return None if state is None else see(state, self.recaller.reader, scope, mask)

    def find(self, item_id: str) -> int:
        """Return the position of a memory or summary, or raise an `UnknownItemError`."""
        position = self.position_of(item_id)
        if position is None:
            raise UnknownItemError(
                f"there is no memory {item_id!r} here: ids are those that recall returns. It may "
                "be newer than the last night, forgotten since, or not for this server to see"
            )
        return position

    def unknown_facets(self, asked: Mapping[str, str | None]) -> list[RecallWarning]:
        """Return a warning for every value that no visible memory has, with similar ones."""
        # Recall's own warnings look at the whole snapshot: they would reveal wings of other users.
        warnings: list[RecallWarning] = []
        for facet, wanted in asked.items():
            values = {} if wanted is None else self.count_by(facet)
            if wanted is None or wanted in values:
                continue
            near = difflib.get_close_matches(wanted, sorted(values), n=_NEAR_SHOWN, cutoff=0.5)
            hint = f"near: {', '.join(near)}" if near else f"there are {len(values)}"
            message = f"no memory here has {facet} {wanted!r}; {hint}"
            warnings.append(RecallWarning(f"unknown_{facet}", message))
        return warnings

    def count_by(self, facet: str) -> dict[str, int]:
        """Return how many visible memories have each value of a facet, most first."""
        found = self.recaller.reader.facets[facet]
        codes: NDArray[np.int32] = found.codes[self.allowed]
        counts = np.bincount(codes[codes >= 0], minlength=len(found.values)).tolist()
        held = [(value, n) for value, n in zip(found.values, counts, strict=True) if n]
        return dict(sorted(held, key=lambda pair: (-pair[1], pair[0])))

    @contextmanager
    def graph(self) -> Generator[tuple[GraphSource, NameBook]]:
        """Open the graph as far as it may be seen; for one thread. An old snapshot has none."""
        reader = self.recaller.reader
        with open_graph(
            reader.directory,
            self.allowed,
            reader.created_at_us,
            reader.relations,
            ids_are_integers=reader.id_kind == "int",
        ) as source:
            yield source, NameBook(source)


class View:
    """What a server answers for; safe to share between threads."""

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        user: str | None = None,
        wing: str | None = None,
        person: bool = False,
    ) -> None:
        """Take the store, None for the configured or only one, whose memories, and which wing.

        `person` shows besides a wing what holds for the user in every project.
        """
        self.user, self.wing, self.person = user, wing, person
        self._asked = store
        self._directory: Path | None = None
        self._lock = threading.Lock()
        self.store_warnings: tuple[RecallWarning, ...] = ()  # about the choice of the store

    def store(self) -> Path:
        """Return the store directory: the first one found, for as long as the server runs."""
        # Another store that publishes later must not take this one's place between two calls.
        with self._lock:
            if self._directory is None:
                directory, guessed = find_store(self._asked, home=find_home())
                if guessed:
                    message = (
                        f"several stores exist; this server answers for {directory.name}, which "
                        "published last when it was first asked: start it with --store"
                    )
                    self.store_warnings = (RecallWarning("store_guessed", message),)
                self._directory = directory
            return self._directory

    @contextmanager
    def open(self) -> Generator[Seen]:
        """Pin the serving snapshot for one call; raise a `StoreError` if it cannot be read."""
        recaller, warnings = find_serving(self.store())
        reader = recaller.reader
        scope = Scope(wing=self.wing, user=self.user, person=self.person)
        mask, _ = build_mask(scope, reader.facets, reader.created_at_us)
        if mask is None:
            mask = np.ones(reader.count, dtype=np.bool_)
        with telling_damage(recaller.snapshot_id):
            yield Seen(
                recaller, mask, self.user, self.wing, self.person, (*self.store_warnings, *warnings)
            )

    def narrowed_to(self, wing: str | None) -> str | None:
        """Return the wing that a call searches; an `AskedWronglyError` for another one's."""
        if self.wing is None or wing is None or wing == self.wing:
            return self.wing if wing is None else wing
        raise AskedWronglyError(
            f"this server answers for the wing {self.wing!r} only, and {wing!r} was asked for: "
            "leave wing out"
        )

    def note_handed_out(self, memories: Sequence[Mapping[str, Any]], query: str = "") -> None:
        """Put hashes of some memories, and of the question, on the store's record; never raises."""
        # An agent's transcript holds what its tools returned; read as a memory store, it would
        # bring every recalled memory back as a new one.
        if memories:
            path = StorePaths(self.store()).injections
            now_us = time.time_ns() // 1000
            fault = append_injection(path, wordings_of(memories, query), now_us=now_us)
            if fault is not None:
                logging.getLogger(__name__).warning("%s", fault)


def _is_text(name: str) -> bool:
    """Say whether a name can be one of anything: half a character outside of UTF-8 cannot."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# Remembering: in the own store, under the view's user and wing.


def remember_in_view(
    view: View,
    text: str,
    *,
    wing: str | None = None,
    room: str | None = None,
    tags: Sequence[str] = (),
    importance: float | None = None,
    supersedes: MemoryId | None = None,
    until: date | None = None,
    wait_s: float,
    origin: str = Origin.ASSISTANT,
) -> Fields:
    """Keep a memory, and say whether this view's recall finds it."""
    kept = remember(
        text, wing=view.narrowed_to(wing), room=room, user=view.user, tags=tags,
        importance=importance, supersedes=supersedes, wait_s=wait_s, origin=origin,
        valid_until=until,
    )  # fmt: skip
    is_here, note = False, f"recall finds it after `noctuary nightly {kept.source}`"
    if kept.is_live:
        with suppress(NoctuaryError):
            is_here = view.store().resolve() == kept.store.resolve()
        note = f"this server reads another store: start one with --store {kept.source}"
    return {
        "id": kept.id,
        "supersedes": kept.supersedes,
        "similar": [{"id": one.id, "similarity": one.similarity} for one in kept.similar],
        "recallable": is_here,
        "note": None if is_here else note,
    }


# Rows of the own store that a view shows: what they say may be changed through it.


def own_prefix(seen: Seen) -> str | None:
    """Return what begins the ids of the own store's rows here; None where there are none."""
    root, source = seen.recaller.paths.root, seen.recaller.reader.manifest.source
    own = find_home() / OWN_FILE
    if str(source.get("location")) == str(own) or root == store_for_source(find_home(), own):
        return ""
    return OWN_PREFIX if OWN_PREFIX.rstrip(":") in (source.get("members") or {}) else None


def own_row(seen: Seen, item_id: str) -> Fields:
    """Return the row of a visible memory; raise an `UnknownItemError` where it may not change."""
    live, prefix, row = seen.live_memory(item_id), own_prefix(seen), None
    if live is None:
        position = seen.find(item_id)
        memory_id = str(seen.recaller.reader.public_ids([position])[position])
    else:
        memory_id = live.memory_id
    if prefix is not None and memory_id.startswith(prefix):
        number = memory_id.removeprefix(prefix)
        if re.fullmatch(r"[0-9]{1,18}", number):  # else it is a turn or a summary
            row = reviews.read_row(find_home() / OWN_FILE, int(number))
    if row and row["user"] in (None, seen.user) and seen.wing in (None, row["wing"]):
        return row
    raise UnknownItemError(
        f"the memory {memory_id!r} is not one of your own store that may be changed here; "
        "nothing was changed"
    )


def list_aged(seen: Seen, limit: int) -> Fields:
    """Return the visible memories that `noctuary review` goes through."""
    prefix = own_prefix(seen)
    if prefix is None:
        return {"memories": [], "total": 0, "is_own": False}
    now = datetime.now(UTC)
    aged = reviews.find_aged(seen.recaller.paths.root, prefix, now=now, user=seen.user)
    told = [{**one.to_json(), "id": f"{prefix}{one.id}"} for one in aged]
    shown = [m for m in told if seen.position_of(m["id"]) is not None or seen.live_memory(m["id"])]
    return {"memories": shown[:limit], "total": len(shown), "is_own": True}


def review_in_view(view: View, ids: Sequence[MemoryId], holds: bool, limit: int) -> Fields:
    """Return what has aged; or, with ids, confirm or end these memories, all or none."""
    with view.open() as seen:
        if not ids:
            found = list_aged(seen, limit)
            memories = [{**m, **cut_content(m["content"])} for m in found["memories"]]
            return {**ORIGIN, **found, "memories": memories}
        rows = [own_row(seen, str(one))["id"] for one in ids]
    path, now = find_home() / OWN_FILE, datetime.now(UTC)
    done = reviews.confirm(path, rows, now) if holds else reviews.end(path, rows, now, now)
    return {"confirmed" if holds else "ended": done}


# Forgetting visible memories, by a plan that a person has seen.

_TOKEN_CHARS = 16


def forget_in_view(
    view: View, ids: Sequence[MemoryId], token: str | None, night: Any = None
) -> Fields:
    """Return the plan of forgetting some memories; with its token, carry it out."""
    # Here: it takes as long to load as everything else, and few sessions forget.
    from noctuary.snapshot.forget import apply_forget
    from noctuary.snapshot.forget_plan import plan_forget

    def may_forget(record: MemoryRecord) -> bool:
        is_own = not record.user or record.user == view.user
        return is_own and view.wing in (None, record.wing)

    plan = plan_forget(view.store(), ids=ids, may_forget=may_forget)
    records = [memory.record for memory in plan.memories]
    # The user agreed to these texts: an edited memory makes another plan.
    own = hash_json([[one.memory_id, one.content] for one in records])[:_TOKEN_CHARS]
    told: Fields = {}
    if not records:
        told["message"] = "this server may forget no memory with these ids; nothing was changed"
    elif token is None:
        told["message"] = (
            f"{len(records)} memories would be forgotten for good; nothing is changed yet. Show "
            "them to the user, and call forget again with the same ids and this token if they agree"
        )
        told |= {"summaries": plan.summaries, "token": own}
    elif token != own:
        raise AskedWronglyError(
            "the token is of another plan, or a memory has changed since: call forget without a "
            "token, and show the user what would be forgotten; nothing was changed"
        )
    else:
        done = apply_forget(plan, night=None if night is None else night(plan))
        told = {"message": done.message, "forgotten": True, "more": done.warnings}
        told |= {"receipt": done.to_json()["receipt"], "removed": dict(done.removed)}
    return {
        **ORIGIN,
        "forgotten": told.pop("forgotten", False),
        "memories": [
            {
                "id": one.memory_id, "created_at": iso(one.created_at_us), "wing": one.wing,
                "user": one.user, "places": [p for p in memory.places if not p[0].isdigit()],
                "snapshots": sum(p[0].isdigit() for p in memory.places),
                **cut_content(one.content),
            }
            for memory, one in zip(plan.memories, records, strict=True)
        ],
        "unknown": list(plan.unknown) or None,
        "warnings": [*plan.notes, *told.pop("more", ())],
        **told,
    }  # fmt: skip


# Connections of a memory or of a concept, inside a view.

SUPERSEDES = "supersedes"
SUPERSEDED_BY = "superseded_by"
SUMMARIZES = "summarizes"  # like the two above no step of the graph


class Joined(NamedTuple):
    """A connection with another memory."""

    position: int
    relation: str
    outward: bool = True  # it leads to the other memory, and not from it
    weight: float = 1.0  # in (0, 1]
    concept: int = -1  # ordinal of the concept between them, -1 where it is their conversation


def relate(seen: Seen, item_id: str | None, concept: str | None, limit: int) -> Fields:
    """Return the connections of a memory or summary, or of a concept: give one of the two."""
    if (item_id is None) == (concept is None):
        raise AskedWronglyError("give either the id of a memory or a concept, not both or neither")
    with seen.graph() as (source, book):
        if item_id is not None:
            found = _around_memory(seen, source, book, item_id, limit)
        else:
            found = _around_concept(source, book, str(concept), limit)
    ends = {"warnings": _warned(seen.warnings), "snapshot_id": seen.recaller.snapshot_id}
    return {**ORIGIN, **found, **ends}


def _around_memory(
    seen: Seen, source: GraphSource, book: NameBook, item_id: str, limit: int
) -> Fields:
    """Return related memories, strongest first (for a summary: its sources, oldest first)."""
    position, reader = seen.find(item_id), seen.recaller.reader
    neighbours: list[Fields] = []
    if position >= reader.count:
        found = [Joined(int(p), SUMMARIZES) for p in reader.summaries.at(position).sources]
    else:
        found, neighbours = joined_with(source, position), _concepts_of(source, book, position)
    positions = [joined.position for joined in found[:limit]]
    ids, contents = source.ids(positions), source.column("content", positions)
    created = source.column("created_at_us", positions)
    memories = [
        {
            "id": ids[joined.position],
            "created_at": iso(created[joined.position]),
            "relation": joined.relation,
            "direction": "out" if joined.outward else "in",
            "line": evidence_line(contents[joined.position], -1, -1)[0],
            # Divided by all memories of the concept: it would reveal how many are hidden.
            "weight": None if source.hides else joined.weight,
            "concept": book.shown(joined.concept) if joined.concept >= 0 else None,
        }
        for joined in found[:limit]
    ]
    totals = {"memories": len(found), "neighbours": len(neighbours)}
    return {"memories": memories, "neighbours": neighbours[:limit], "totals": totals}


def joined_with(source: GraphSource, position: int) -> list[Joined]:
    """Return the visible memories joined with one, each by its strongest connection, in order."""
    indptr, steps = source.steps["indptr"], source.steps
    outward = np.arange(int(indptr[position]), int(indptr[position + 1]))
    inward = np.flatnonzero(steps["targets"] == position)
    rows = source.query(
        "SELECT older, newer FROM supersessions WHERE older = ? OR newer = ?", [position, position]
    )
    ends = [(n, SUPERSEDED_BY) if o == position else (o, SUPERSEDES) for o, n in rows]
    found = [Joined(int(p), name) for p, name in ends if source.seen[p]]
    for i in np.concatenate([outward, inward]).tolist():
        leads_out = int(steps["targets"][i]) != position
        other = int((steps["targets"] if leads_out else source.step_sources)[i])
        holds = int(steps["valid_to_us"][i]) == OPEN_END_US
        if holds and other != position and source.seen[other]:
            relation = source.relations[int(steps["relations"][i])]
            weight, concept = float(steps["weights"][i]), int(steps["concepts"][i])
            found.append(Joined(other, relation, leads_out, weight, concept))
    strongest: dict[int, Joined] = {}
    for joined in sorted(found, key=_by_strength):
        strongest.setdefault(joined.position, joined)
    return list(strongest.values())


def _by_strength(joined: Joined) -> tuple[bool, float, int, bool, str]:
    is_step = joined.relation not in (SUPERSEDES, SUPERSEDED_BY)
    return is_step, -joined.weight, joined.position, not joined.outward, joined.relation


def _concepts_of(source: GraphSource, book: NameBook, position: int) -> list[Fields]:
    """Return the concepts that a memory holds, by role, then by how few memories share them."""
    places = np.flatnonzero(source.mentions["positions"] == position)
    owners = np.searchsorted(source.mentions["indptr"], places, side="right") - 1
    strongest: dict[int, int] = {}
    roles = source.mentions["roles"][places]
    for ordinal, role in zip(owners.tolist(), roles.tolist(), strict=True):
        strongest[ordinal] = min(role, strongest.get(ordinal, role))
    held = {ordinal: int(source.holders(ordinal).size) for ordinal in strongest}
    order = sorted(strongest, key=lambda o: (strongest[o], held[o], o))
    named = ((ordinal, book.shown(ordinal)) for ordinal in order)
    return [
        {"name": name, "role": ROLES[strongest[o]], "shared": held[o]}
        for o, name in named
        if name is not None
    ]


# Of a concept as `noctuary graph show --json` describes it. Merges and steps count hidden memories.
_OF_CONCEPT = ("concept", "memories", "relations", "neighbours")


def _around_concept(source: GraphSource, book: NameBook, name: str, limit: int) -> Fields:
    """Return the memories, concepts and stated relations around a concept; none names similar."""
    ordinal = book.find(name) if _is_text(name) else None
    if ordinal is None:
        near = book.nearest(name) if _is_text(name) else ()
        hint = f"; near: {', '.join(near)}" if near else ""
        raise UnknownItemError(f"no concept here has the name {name!r}{hint}")
    found = describe_concept(source, book, ordinal, limit)
    for relation in found["relations"]:
        del relation["weight"]  # as above
    totals = {part: found["totals"][part] for part in _OF_CONCEPT[1:]}
    return {**{part: found[part] for part in _OF_CONCEPT}, "totals": totals}


# One memory in full, or one summary with all its sources.

CONCEPTS_SHOWN = 12  # of a memory: its own come before those that it only mentions


def read_item(seen: Seen, item_id: str) -> Fields:
    """Return a memory or summary in full, with concepts, replacement and summary."""
    reader = seen.recaller.reader
    ends = {"snapshot_id": seen.recaller.snapshot_id}
    live = seen.live_memory(item_id)
    if live is not None and seen.position_of(item_id) is None:
        return {**ORIGIN, **live_fields(reader, live), **ends}
    position = seen.find(item_id)
    if position < reader.count:
        with seen.graph() as (source, book):
            names = [c["name"] for c in _concepts_of(source, book, position)[:CONCEPTS_SHOWN]]
        ends |= {"concepts": names or None, **_standing(seen, position)}
    # In its new form only, as recall shows it.
    told = memory_fields(reader, position) if live is None else live_fields(reader, live)
    return {**ORIGIN, **told, **ends}


def read_cluster(seen: Seen, item_id: str) -> Fields:
    """Return a summary, by its own id or its cluster's, and every memory that it is of."""
    reader = seen.recaller.reader
    if not _is_text(item_id):
        raise UnknownItemError(f"{item_id!r} is not the id of a cluster: it is not text")
    columns = "summary_id, cluster_id, session_id"
    found = [
        *reader.look_up("summaries", "summary_id", columns, [item_id]),
        *sorted(reader.look_up("summaries", "cluster_id", columns, [item_id])),
    ]
    visible_rows = [row for row in found if seen.position_of(row[0]) is not None]
    if not visible_rows:
        raise UnknownItemError(
            f"there is no summary or summarised cluster {item_id!r} here: ids are those of kind "
            '"summary" in a recall; they change when a night summarises again'
        )
    summary_id, cluster_id, session_id = visible_rows[0]
    whole = expand_from(reader, seen.recaller.snapshot_id, summary_id, seen.user).to_json()
    # Earlier summaries may be of another wing.
    told = {name: value for name, value in whole.items() if name != "parents"}
    return {**ORIGIN, **told, "cluster_id": cluster_id, "session_id": session_id}


_ROW_FIELDS = ("content", "category", "importance", "wing", "room", "session_id", "user")


def memory_fields(reader: SnapshotReader, position: int) -> Fields:
    """Return the fields of a memory or summary, its content whole."""
    row = reader.describe([position])[position]
    public = reader.public_ids([position, *row["sources"]])
    shown, sources = public[position], [public[p] for p in row["sources"]]
    return {
        "id": shown,
        "uri": (cluster_uri if sources else item_uri)(shown),
        "kind": "summary" if sources else "memory",
        "tags": list(row["tags"]),
        "created_at": iso(row["created_at_us"]),
        "sources": sources or None,
        **{name: row[name] for name in _ROW_FIELDS},
        "written_by": row["origin"],
    }


def live_fields(reader: SnapshotReader, record: MemoryRecord) -> Fields:
    """Return the fields of a memory that is newer than the snapshot."""
    shown = reader.public_id(record.memory_id)
    return {
        "id": shown,
        "uri": item_uri(shown),
        "kind": "memory",
        "tags": [tag.strip() for tag in record.tags.split(",") if tag.strip()],
        "created_at": iso(record.created_at_us),
        **{name: getattr(record, name) for name in _ROW_FIELDS},
        "written_by": record.origin,
    }


def _standing(seen: Seen, position: int) -> Fields:
    """Return the visible replacement, older versions and summary of a memory."""
    reader, allowed = seen.recaller.reader, seen.allowed

    def visible_ends(column: str, other: str) -> list[int]:
        rows = reader.look_up("supersessions", column, other, [str(position)])
        return [int(p) for (p,) in rows if allowed[int(p)]]

    newer, older = visible_ends("older", "newer"), sorted(visible_ends("newer", "older"))
    inputs = seen.recaller.inputs_now()
    behind = seen.recaller.find_rows(RetrievalProfile(), inputs, allowed).stands_for(position)
    summary = reader.summaries.of_sources(np.array([position], dtype=np.int64)).get(position)
    ids = reader.public_ids([*newer, *older, *([] if behind is None else [behind])])
    return {
        "superseded_by": ids[newer[0]] if newer else None,
        "supersedes": [ids[p] for p in older] or None,
        "archived_behind": None if behind is None else ids[behind],
        "summarized_by": reader.summaries.ids[summary.position - reader.count]
        if summary is not None and allowed[list(summary.sources)].all()
        else None,
    }


# The state of the store inside a view: for an agent that wants to know whether to trust answers.


def read_state(view: View) -> Fields:
    """Return the state of the store; faults are warnings."""
    whose = {"version": __version__, "user": view.user, "wing": view.wing}
    try:
        with view.open() as seen:
            return {**whose, **_state(view, seen)}
    except (NoctuaryError, OSError) as error:
        return {**whose, "counts": {}, "wings": {}, "warnings": [_no_snapshot(error)]}


def _no_snapshot(error: Exception) -> Fields:
    return {"code": "no_snapshot", "message": str(error)}


def _state(view: View, seen: Seen) -> Fields:
    reader, paths, allowed = seen.recaller.reader, seen.recaller.paths, seen.allowed
    settings, bad_settings = current_settings()
    encoder, hours = reader.manifest.encoder, last_night_hours(paths)
    warnings = [*seen.warnings, *bad_settings]
    warnings += staleness(paths, settings.recall.stale_after_hours)
    if not allowed.any():
        asked = {"wing": view.wing, "user": view.user}
        named = [f"{name} {value!r}" for name, value in asked.items() if value]
        whom = ", ".join(named) or "no user named"
        message = f"this server may see no memory at all ({whom})"
        warnings.append(RecallWarning("nothing_visible", message))
    held = np.concatenate([[0], np.cumsum(allowed[reader.mentions.positions])])
    return {
        "store": str(paths.root),
        "snapshot_id": seen.recaller.snapshot_id,
        "built_at": reader.manifest.built_at,
        "last_night_hours": None if hours is None else round(hours, 2),
        "counts": {
            "memories": int(np.count_nonzero(allowed)),
            "turns": int(np.count_nonzero(reader.sessions.turns[allowed])),
            "summaries": int(np.count_nonzero(reader.summaries.arrays.where_all(allowed))),
            "concepts": int(np.count_nonzero(np.diff(held[reader.mentions.indptr]))),
        },
        "wings": seen.count_by("wing"),
        "encoder": None if encoder is None else str(encoder["model"]),
        "warnings": _warned(warnings),
    }


# A recall, why it is as it is, and a context, inside a view.

_FROM_THE_WHOLE_SNAPSHOT = frozenset(f"unknown_{facet}" for facet in FACETS)
"""Warnings of a recall that speak of memories beyond the view; `Seen.unknown_facets` does not."""

_USER_REQUIRED = (
    "this store holds memories of named users, and this server was started for none of them: "
    "`noctuary mcp --user NAME` shows that user's"
)

_EXPLAINS = ("profile_used", "pipeline", "phase_timing_ms")  # of a result, only with explain


def recall_in_view(
    view: View,
    query: str,
    k: int = 10,
    *,
    as_of: str | None = None,
    explain: bool = False,
    dry_run: bool = False,
    timeout_s: float = 30.0,
    **facets: Any,
) -> Fields:
    """Return the memories that answer a question: `RecallResult.to_json` without what is not asked.

    A store that cannot answer is a warning, as in every recall; an `AskedWronglyError` or a
    Raises `ValueError` for arguments that no store could serve. Answers before `timeout_s`.
    """
    asked: Fields = {**facets, "wing": view.narrowed_to(facets.get("wing"))}
    moment = _read_moment(as_of)
    unknown: list[RecallWarning] = []
    try:
        store = view.store()
        # Only if the call names a facet: the view's own wing may still be empty.
        if any(value is not None for value in facets.values()):
            with view.open() as seen:
                unknown = seen.unknown_facets(facets)
    except StoreError as error:
        return {**ORIGIN, "query": query, "memories": [], "warnings": [_no_snapshot(error)]}
    found = recall(
        query, k, **asked, user=view.user, person=view.person, as_of=moment, explain=explain,
        dry_run=dry_run, deadline_ms=timeout_s * 1000 * DEADLINE_SHARE, store=store,
    ).to_json()  # fmt: skip
    shown = ("query", "snapshot_id", "answerability", *(_EXPLAINS if explain else ()))
    return {
        **ORIGIN,
        **{name: found.get(name) for name in shown},
        "memories": [_recalled(memory, explain=explain) for memory in found["memories"]],
        "warnings": _warned([*view.store_warnings, *unknown]) + _in_view(found["warnings"]),
    }


def _recalled(memory: Mapping[str, Any], *, explain: bool) -> Fields:
    unasked = () if explain else ("legs",)
    uri = cluster_uri if memory["kind"] == "summary" else item_uri
    told = {name: value for name, value in memory.items() if name not in unasked}
    return {**told, **cut_content(str(memory["content"])), "uri": uri(memory["id"])}


def _in_view(warnings: Sequence[Mapping[str, str]]) -> list[Fields]:
    """Return a recall's warnings as far as they are this view's, in its words."""
    return [
        {**w, "message": _USER_REQUIRED} if w["code"] == "user_required" else dict(w)
        for w in warnings
        if w["code"] not in _FROM_THE_WHOLE_SNAPSHOT
    ]


def explain_in_view(view: View, query: str, item_id: str, k: int, **facets: Any) -> Fields:
    """Return why a recall with these arguments returns a memory or does not."""
    narrowed: Fields = {**facets, "wing": view.narrowed_to(facets.get("wing"))}
    scope = Scope(user=view.user, person=view.person, **narrowed)
    check_arguments(query, k, "relevance", scope, None)
    with view.open() as seen:
        recaller, (settings, bad_settings) = seen.recaller, current_settings()
        used = resolve_for_recall(settings, recaller.reader.adopted)
        inputs = recaller.inputs_now(view.user).with_store(settings)
        asked = Query(query, k, used.profile, used.used, scope, dry_run=True)
        found = explain_memory(recaller, asked, item_id, inputs)
        # Live rows were already filtered by scope; otherwise a hidden memory is unknown.
        position = seen.find(item_id) if "live" not in found.facts else None
        shown = {} if position is None else recaller.reader.public_ids([position])
        warnings = [w.to_json() for w in (*seen.warnings, *bad_settings, *found.warnings)]
        told = found.to_json()
        asked_id = told.pop("memory_id")
        public = recaller.reader.public_id(asked_id) if position is None else shown[position]
        ends = {"warnings": _in_view(warnings), "snapshot_id": recaller.snapshot_id}
        return {**ORIGIN, "id": public, **told, **ends}


def assemble_in_view(
    view: View, query: str, budget_tokens: int, wing: str | None, timeout_s: float
) -> Fields:
    """Return the memories for a prompt about a question as one text, within a budget."""
    made = assemble(
        query, budget_tokens, wing=view.narrowed_to(wing), user=view.user, person=view.person,
        store=view.store(), deadline_ms=timeout_s * 1000 * DEADLINE_SHARE,
    )  # fmt: skip
    return {
        **ORIGIN,
        "query": query,
        "text": made.text,
        "tokens": made.tokens,
        "budget_tokens": budget_tokens,
        "token_counter": made.token_counter,
        "memories": [part.id for part in made.parts],
        "warnings": _warned(view.store_warnings) + _in_view([w.to_json() for w in made.warnings]),
        "snapshot_id": made.snapshot_id,
    }


def _read_moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise AskedWronglyError(
            f"as_of {text!r} is not an ISO-8601 date or time, e.g. 2026-03-01T08:00:00Z"
        ) from None
