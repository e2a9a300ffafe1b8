"""Which memories a newer one replaces, and which intervals that closes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.duplicates import (
    REASONS,
    Corpus,
    Link,
    MemoryColumns,
    Moment,
    NearDuplicates,
    NearMemo,
    NearPair,
    find_near_duplicates,
    is_dated,
    moment_of,
    wing_of,
    wings_agree,
)
from noctuary.graph.replacements import explicit_links, links_of_group, value_groups
from noctuary.graph.successors import DAY_US, confidence_of
from noctuary.graph.tables import NO_SPAN, ArrowTable, Evidence, GraphTables, Supersession

if TYPE_CHECKING:
    import polars as pl

# One direct successor per memory, without cycles, and the head of every chain.
#
# Links are chosen strongest source first (REASONS), then newest successor. A link gives way to the
# next best of its older memory where it
#
# - closes a cycle: the one that leads to the oldest memory of the cycle goes against time and is
#   dropped, the others stay;
# - leads, over a memory without a wing, to a head of another wing: what holds for pairs holds for
#   chains.
#
# Linear in the links, but for rounds: each drops at least one link, and few links are ever
# dropped.


_RANK = {reason: rank for rank, reason in enumerate(REASONS)}


class Resolved(NamedTuple):
    """The links that count."""

    chosen: Mapping[int, Link]  # the direct successor's link, by older position
    # last memory of the chain, by position of every older or newer memory
    head_of: Mapping[int, int]
    others: tuple[Link, ...]


def resolve(links: Iterable[Link], memories: MemoryColumns, rejected: Counter[str]) -> Resolved:
    """Choose one successor per memory; the order of the links makes no difference."""
    waiting = _by_older(set(links), memories)
    chosen = {older: candidates.pop() for older, candidates in waiting.items()}
    others: list[Link] = []
    while True:
        dropped, reason = _cycle_closers(chosen, memories), "cycle"
        if not dropped:
            dropped, reason = _scope_breakers(chosen, memories), "chain_scope"
        if not dropped:
            break
        rejected[reason] += len(dropped)
        for older in dropped:
            del chosen[older]
            if waiting[older]:
                chosen[older] = waiting[older].pop()
    for older, candidates in waiting.items():
        others += [link for link in candidates if _says_more(link, chosen[older])]
    return Resolved(chosen, _heads(chosen), tuple(sorted(others, key=_order)))


def _by_older(links: set[Link], memories: MemoryColumns) -> dict[int, list[Link]]:
    """Return the candidates of every older memory, the best one last."""
    found: dict[int, list[Link]] = defaultdict(list)
    for link in sorted(links, key=_order, reverse=True):
        found[link.older].append(link)
    for candidates in found.values():
        candidates.sort(key=lambda link: (-_RANK[link.reason], _moment(memories, link.newer)))
    return dict(sorted(found.items()))


def _says_more(link: Link, chosen: Link) -> bool:
    if link.reason == "near_duplicate":
        return False
    return (link.newer, link.concept_id) != (chosen.newer, chosen.concept_id)


def _order(link: Link) -> tuple[int, int, int, int, str, tuple[int, int, int]]:
    return (
        link.older, _RANK[link.reason], -link.confidence, link.newer, link.concept_id,
        (link.evidence.position, link.evidence.start, link.evidence.end),
    )  # fmt: skip


def _cycle_closers(chosen: Mapping[int, Link], memories: MemoryColumns) -> list[int]:
    """Return, per cycle, the older memory whose link leads to the cycle's oldest memory."""
    done: set[int] = set()
    closers: list[int] = []
    for start in chosen:
        path: dict[int, None] = {}
        here = start
        while here in chosen and here not in done and here not in path:
            path[here] = None
            here = chosen[here].newer
        if here in path:
            walked = list(path)
            cycle = walked[walked.index(here) :]
            closers.append(min(cycle, key=lambda p: _moment(memories, chosen[p].newer)))
        done.update(path)
    return closers


def _scope_breakers(chosen: Mapping[int, Link], memories: MemoryColumns) -> list[int]:
    """Return the memories whose wing differs from one that their chain leads through."""
    wing_ahead: dict[int, str] = {}
    breakers: list[int] = []
    for start in chosen:
        path: list[int] = []
        here = start
        while here in chosen and here not in wing_ahead:
            path.append(here)
            here = chosen[here].newer
        ahead = wing_ahead.setdefault(here, wing_of(memories.sighting(here)))
        for position in reversed(path):
            own = wing_of(memories.sighting(position))
            if not wings_agree(own, ahead):
                breakers.append(position)
                ahead = own
            ahead = wing_ahead[position] = own or ahead
    return breakers


def _heads(chosen: Mapping[int, Link]) -> dict[int, int]:
    heads: dict[int, int] = {}
    for start in chosen:
        path: list[int] = []
        here = start
        while here in chosen and here not in heads:
            path.append(here)
            here = chosen[here].newer
        head = heads.setdefault(here, here)
        heads.update((position, head) for position in path)
    return heads


def _moment(memories: MemoryColumns, position: int) -> Moment:
    return moment_of(memories.sighting(position))


# What supersession ends in the graph: intervals close, nothing is deleted.
#
# A superseded memory does not lose its edges for that. What ends is only
#
# - a concept edge whose every piece of evidence is contradicted: the memory it stands in is
#   superseded by one that states the same subject and relation with another object and does not
#   repeat the old one ("is now" also ends what the subject "is");
# - a memory edge that rests on the object inside such a statement, unless the successor leads to
#   the same memory;
# - for a near duplicate, only a memory edge that the newer memory restates: same concept, relation
#   and target. Its facts are the newer one's too, so no concept edge ends.
#
# Order of turns, and edges of other memories that lead to the superseded one, stay as they are.


CLOSABLE = ("mentions_subject", "mentions_tag")
"""Memory edges that rest on what a text says; the order of turns rests on the session."""

ENDED_BY_IS_NOW = ("is_now", "is_a")
"""Relations that a different `is_now` of the same subject contradicts. What it has, it may keep."""

_END = ("valid_to_us", "retracted_at_us")
_NEAR = "near_duplicate"


def close_intervals(tables: GraphTables, found: Sequence[Supersession]) -> GraphTables:
    """Return the tables with the intervals closed that the supersessions end.

    The same edges in the same order; closed ones keep their end, so that a second call changes
    nothing. `found` holds `Supersessions.found` and `Supersessions.others` of the same corpus.
    """
    if not found:
        return tables
    items = _items(found)
    stated = _evidence_rows(tables.concept_edges)
    contradicted = _contradictions(stated, items)
    return replace(
        tables,
        concept_edges=_with_ends(tables.concept_edges, _statement_ends(stated, contradicted)),
        edges=_with_ends(tables.edges, _step_ends(tables.edges, items, contradicted)),
    )


def _items(found: Sequence[Supersession]) -> pl.DataFrame:
    import polars as pl

    columns = {
        "older": [item.older_position for item in found],
        "newer": [item.newer_position for item in found],
        "valid_to_us": [item.valid_to_us for item in found],
        "retracted_at_us": [item.recorded_at_us for item in found],
    }
    said = {"reason": [i.reason for i in found], "subject": [i.concept_id for i in found]}
    return pl.DataFrame({**columns, **said}).with_row_index("item")


def _evidence_rows(concept_edges: ArrowTable) -> pl.DataFrame:
    """Return a row per piece of evidence, with the row of its edge."""
    import polars as pl

    names = ["src_concept", "relation", "dst_concept", "evidence"]
    edges = pl.DataFrame(concept_edges.select(names)).with_row_index("row")
    return edges.explode("evidence").unnest("evidence").with_row_index("place")


def _contradictions(stated: pl.DataFrame, items: pl.DataFrame) -> pl.DataFrame:
    """Return evidence by item that states another object for the same subject and relation."""
    import polars as pl

    is_now = stated.filter(pl.col("relation") == "is_now").with_columns(relation=pl.lit("is_a"))
    said = pl.concat([stated, is_now]).group_by("position", "src_concept", "relation")
    objects = said.agg(objects=pl.col("dst_concept")).rename({"position": "newer"})
    speaks = (pl.col("reason") == "explicit") | (pl.col("subject") == pl.col("src_concept"))
    return (
        stated.join(items.filter(pl.col("reason") != _NEAR), left_on="position", right_on="older")
        .filter(speaks)
        .join(objects, on=["newer", "src_concept", "relation"])
        .filter(~pl.col("dst_concept").is_in(pl.col("objects")))
    )


def _statement_ends(stated: pl.DataFrame, contradicted: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of concept edges of which no evidence stands, and when the last one fell."""
    import polars as pl

    # The first contradiction ended a piece of evidence; later ones only say more.
    fallen = contradicted.sort(*_END).unique("place", keep="first", maintain_order=True)
    ended = fallen.group_by("row").agg(pl.col(_END).max(), fallen=pl.len())
    whole = ended.join(stated.group_by("row").len(), on="row")
    return whole.filter(pl.col("fallen") == pl.col("len")).select("row", *_END)


def _step_ends(edges: ArrowTable, items: pl.DataFrame, contradicted: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of memory edges that end, and when."""
    import polars as pl

    # Of memories on either side of a supersession: there are some millions of edges.
    sides = pl.concat([items["older"], items["newer"]]).unique()
    rows = np.flatnonzero(np.isin(edges["src_position"].to_numpy(), sides.to_numpy()))
    names = ["src_position", "dst_position", "relation", "concept_id", "evidence_position"]
    steps = pl.DataFrame(edges.select([*names, "evidence_start", "evidence_end"]).take(rows))
    steps = steps.with_columns(row=pl.Series(rows, dtype=pl.UInt32))
    resting = steps.filter(
        pl.col("relation").is_in(CLOSABLE), pl.col("evidence_position") == pl.col("src_position")
    ).join(items, left_on="src_position", right_on="older")
    is_near = pl.col("reason") == _NEAR
    same = ["dst_position", "relation", "concept_id"]
    restated = resting.filter(is_near).join(
        steps, left_on=["newer", *same], right_on=["src_position", *same], how="semi"
    )
    lost = (
        resting.filter(
            ~is_near, pl.col("evidence_start") != NO_SPAN, pl.col("newer") != pl.col("dst_position")
        )
        .join(
            steps,
            left_on=["newer", "dst_position"],
            right_on=["src_position", "dst_position"],
            how="anti",
        )
        .join(contradicted, left_on=["item", "concept_id"], right_on=["item", "dst_concept"])
        .filter(
            pl.col("start") <= pl.col("evidence_start"), pl.col("evidence_end") <= pl.col("end")
        )
    )
    ended = pl.concat([found.select("row", *_END) for found in (restated, lost)])
    return ended.sort(*_END).unique("row", keep="first", maintain_order=True)


def _with_ends(table: ArrowTable, ends: pl.DataFrame) -> ArrowTable:
    """Return the table with the ends of some rows that are open; nothing ends before it begins."""
    import polars as pl

    if ends.is_empty():
        return table
    held = pl.DataFrame(table.select(["valid_from_us", *_END])).with_row_index("row")
    both = held.join(ends, on="row", how="left", suffix="_new", maintain_order="left")
    ending = pl.col("valid_to_us").is_null() & pl.col("valid_to_us_new").is_not_null()
    end = pl.max_horizontal("valid_to_us_new", "valid_from_us")
    closed = both.select(
        valid_to_us=pl.when(ending).then(end).otherwise("valid_to_us"),
        retracted_at_us=pl.when(ending).then("retracted_at_us_new").otherwise("retracted_at_us"),
    )
    for name in _END:
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, closed[name].to_arrow())
    return table


# Which memories a newer one replaces: the four sources together.
#
# Incremental use. Explicit links and values cost one pass over what was extracted, values are
# found group by group (`values.links_of_group`), and choosing is linear in the links: all of that
# is done every night. Only comparing vectors is expensive, and `known_near` takes over what did
# not change.
#
# Turns of a conversation can be replaced by what is said (explicit, is_now, newer value), never
# for being a near duplicate. A memory that is marked as superseded in its source replaces none
# (`noctuary.text.marks`). Undated memories are replaced, and replace, by explicit "#id" links
# alone.


_OF_A_VALUE = 1
"""Most confidence in another value of one sentence: "My friend is Ann" may have two answers."""


class Supersessions(NamedTuple):
    """What was found."""

    found: tuple[Supersession, ...]  # one per superseded memory, sorted by older position
    # further contradictions of the same memories (one moved and changed jobs, told by two newer
    # memories): not for recall, but `close_intervals` needs them. Sorted as above, then by strength
    others: tuple[Supersession, ...]
    # statements and links that came to nothing, by reason, sorted: unknown_id, self, scope,
    # undated, generic, no_target, many_values, cycle, chain_scope
    rejected: Mapping[str, int]
    near_memo: NearMemo
    pairs_asked: int


def find_supersessions(
    corpus: Corpus,
    canonical_of: Mapping[str, str],
    vectors: NDArray[np.float32] | None,
    known_near: NearMemo | None = None,
) -> Supersessions:
    """Return which memories are superseded; the order of the input makes no difference.

    Args:
        corpus: The memories, and what they say.
        canonical_of: Folded names that were merged away, and what stands for them.
        vectors: Unit rows by position, shape (n, d); None leaves near duplicates out.
        known_near: `near_memo` of an earlier call with vectors of the same encoder.
    """
    memories = corpus.columns
    near = NearDuplicates((), {}, 0)
    if vectors is not None:
        _check_rows(vectors, memories)
        near = find_near_duplicates(memories, vectors, known_near)
    rejected: Counter[str] = Counter()
    links = [
        *explicit_links(corpus, canonical_of, rejected),
        *_value_links(corpus, canonical_of, rejected),
        *(_near_link(pair, memories) for pair in near.pairs),
    ]
    links = [link for link in links if not memories.tombstones[link.newer]]
    resolved = resolve(links, memories, rejected)
    chosen = [resolved.chosen[older] for older in sorted(resolved.chosen)]
    heads = resolved.head_of
    return Supersessions(
        tuple(_supersession(link, heads, memories) for link in chosen),
        tuple(_supersession(link, heads, memories) for link in resolved.others),
        dict(sorted(rejected.items())),
        near.memo,
        near.asked,
    )


def _check_rows(vectors: NDArray[np.float32], memories: MemoryColumns) -> None:
    needed = len(memories)
    if vectors.ndim != 2 or len(vectors) < needed:
        raise ValueError(
            f"found vectors of shape {vectors.shape}, expected ({needed}, d): one row per position"
        )


def _value_links(
    corpus: Corpus, canonical_of: Mapping[str, str], rejected: Counter[str]
) -> Iterator[Link]:
    groups = value_groups(corpus.stating, canonical_of, rejected)
    for key in sorted(groups):
        yield from links_of_group(groups[key], corpus.stating, rejected)


def _near_link(pair: NearPair, memories: MemoryColumns) -> Link:
    confidence = confidence_of(pair.similarity, _age_gap_days(pair.older, pair.newer, memories))
    is_same = memories.marks[pair.older] == memories.marks[pair.newer]
    return Link(
        pair.older,
        pair.newer,
        "near_duplicate" if is_same else "newer_value",
        confidence if is_same else min(confidence, _OF_A_VALUE),
        pair.similarity,
        "",
        Evidence(pair.newer, NO_SPAN, NO_SPAN),
    )


def _supersession(link: Link, heads: Mapping[int, int], memories: MemoryColumns) -> Supersession:
    created_at_us = memories.created_at_us
    return Supersession(
        older_position=link.older,
        newer_position=link.newer,
        head_position=heads.get(link.newer, link.newer),
        reason=link.reason,
        confidence=link.confidence,
        similarity=link.similarity,
        age_gap_days=_age_gap_days(link.older, link.newer, memories),
        concept_id=link.concept_id,
        evidence=link.evidence,
        # An explicit link may go against the dates; nothing ends before it began.
        valid_to_us=int(max(created_at_us[link.newer], created_at_us[link.older])),
        recorded_at_us=int(memories.updated_at_us[link.newer]),
    )


def _age_gap_days(older: int, newer: int, memories: MemoryColumns) -> int:
    one, other = memories.sighting(older), memories.sighting(newer)
    if not (is_dated(one) and is_dated(other)):
        return 0
    return max(other.created_at_us - one.created_at_us, 0) // DAY_US
