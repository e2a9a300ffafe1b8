"""Which memories a newer one replaces, and which intervals that closes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import DAY_US, UNDATED_US
from noctuary.graph.duplicates import (
    REASONS,
    Corpus,
    Link,
    Memories,
    Memory,
    MemoryColumns,
    Moment,
    Sighting,
    Timeline,
    find_near_duplicates,
    is_dated,
    wings_agree,
)
from noctuary.graph.extract import Extraction, Stated
from noctuary.graph.fold import concept_id, fold_name, unsegmented_script
from noctuary.graph.successors import confidence_of
from noctuary.graph.tables import (
    ID_MARK,
    NO_SPAN,
    ArrowTable,
    Evidence,
    GraphTables,
    Supersession,
    to_table,
)
from noctuary.graph.word_lists import FUNCTION_WORDS, GENERIC_KEYS
from noctuary.text.marks import is_tombstone

if TYPE_CHECKING:
    import polars as pl

# Memories replaced by a newer one: four sources, and one direct successor per memory.
#
# A turn of a conversation can be replaced by a statement, never by a near duplicate. A
# memory that is marked as superseded replaces none. Undated memories are replaced, and replace, by
# explicit "#id" links alone.

# Most confidence in another value of one sentence: "My friend is Ann" may have two answers.
_OF_A_VALUE = 1


class Supersessions(NamedTuple):
    """Supersessions, other contradictions and rejection counts."""

    found: tuple[Supersession, ...]  # one per superseded memory, sorted by older position
    # Further contradictions of the same memories (one moved and changed jobs, in two newer
    # memories): not for recall, but `close_intervals` needs them. Sorted, then by strength.
    others: tuple[Supersession, ...]
    rejected: Mapping[str, int]  # statements and links that came to nothing, by reason, sorted


def find_supersessions(
    corpus: Corpus, canonical_of: Mapping[str, str], vectors: NDArray[np.float32] | None
) -> Supersessions:
    """Return which memories are superseded; the order of the input makes no difference.

    `vectors` are unit rows by position, (n, d); None leaves near duplicates out.
    """
    memories = corpus.columns
    if vectors is not None and (vectors.ndim != 2 or len(vectors) < len(memories)):
        raise ValueError(
            f"found vectors of shape {vectors.shape}, expected ({len(memories)}, d): one row per "
            "position"
        )
    rejected: Counter[str] = Counter()
    links = [
        *explicit_links(corpus, canonical_of, rejected),
        *value_links(corpus.stating, canonical_of, rejected),
    ]
    near = [] if vectors is None else find_near_duplicates(memories, vectors)
    for older, newer, similarity in near:
        confidence = confidence_of(similarity, _age_gap_days(older, newer, memories))
        reason, evidence = "near_duplicate", Evidence(newer, NO_SPAN, NO_SPAN)
        if memories.marks[older] != memories.marks[newer]:
            reason, confidence = "newer_value", min(confidence, _OF_A_VALUE)
        links.append(Link(older, newer, reason, confidence, similarity, "", evidence))
    links = [link for link in links if not memories.tombstones[link.newer]]
    chosen, others = resolve(links, memories, rejected)
    heads = _heads(chosen)

    def to_row(link: Link) -> Supersession:
        older, newer = link.older, link.newer
        # An explicit link may go against the dates; nothing ends before it began.
        end_us = int(max(memories.created_at_us[newer], memories.created_at_us[older]))
        return Supersession(
            older, newer, heads.get(newer, newer), link.reason, link.confidence, link.similarity,
            _age_gap_days(older, newer, memories), link.concept_id, link.evidence,
            valid_to_us=end_us, recorded_at_us=int(memories.updated_at_us[newer]),
        )  # fmt: skip

    found = tuple(to_row(chosen[older]) for older in sorted(chosen))
    return Supersessions(found, tuple(map(to_row, others)), dict(sorted(rejected.items())))


def _age_gap_days(older: int, newer: int, memories: MemoryColumns) -> int:
    one, other = int(memories.created_at_us[older]), int(memories.created_at_us[newer])
    return 0 if UNDATED_US in (one, other) else max(other - one, 0) // DAY_US


# One direct successor per memory, without cycles: the strongest source (REASONS), then the newest.
# A link gives way to the next best where it closes a cycle (the one to the cycle's oldest memory
# goes), or leads over a memory without a wing to a head of another wing.

_RANK = {reason: rank for rank, reason in enumerate(REASONS)}


def resolve(
    links: Iterable[Link], memories: MemoryColumns, rejected: Counter[str]
) -> tuple[dict[int, Link], list[Link]]:
    """Choose one successor per memory; the order of the links makes no difference.

    Returns the chosen link by older position, and the other links of superseded memories, sorted:
    to other successors, or about other subjects. Dropped links are counted.
    """
    waiting: dict[int, list[Link]] = defaultdict(list)
    for link in sorted(set(links), key=_order, reverse=True):
        waiting[link.older].append(link)
    for candidates in waiting.values():  # the best one last
        candidates.sort(key=lambda link: (-_RANK[link.reason], _moment(memories, link.newer)))
    chosen = {older: candidates.pop() for older, candidates in sorted(waiting.items())}
    while True:
        cycles = _cycle_closers(chosen, memories)
        dropped = cycles or _scope_breakers(chosen, memories)
        if not dropped:
            break
        rejected["cycle" if cycles else "chain_scope"] += len(dropped)
        for older in dropped:
            del chosen[older]
            if waiting[older]:
                chosen[older] = waiting[older].pop()
    others = [
        link
        for older, candidates in waiting.items()
        for link in candidates
        if link.reason != "near_duplicate"
        and (link.newer, link.concept_id) != (chosen[older].newer, chosen[older].concept_id)
    ]
    return chosen, sorted(others, key=_order)


def _order(link: Link) -> tuple[int, int, int, int, str, tuple[int, int, int]]:
    return (
        link.older, _RANK[link.reason], -link.confidence, link.newer, link.concept_id,
        (link.evidence.position, link.evidence.start, link.evidence.end),
    )  # fmt: skip


def _moment(memories: MemoryColumns, position: int) -> Moment:
    return int(memories.created_at_us[position]), position


def _chains(chosen: Mapping[int, Link]) -> Iterator[tuple[list[int], int]]:
    """Yield each path of memories not visited before, and the position that follows it."""
    done: set[int] = set()
    for start in chosen:
        path: dict[int, None] = {}
        here = start
        while here in chosen and here not in done and here not in path:
            path[here] = None
            here = chosen[here].newer
        done.update(path)
        yield list(path), here


def _cycle_closers(chosen: Mapping[int, Link], memories: MemoryColumns) -> list[int]:
    """Return, per cycle, the older memory whose link leads to the cycle's oldest memory."""
    return [
        min(path[path.index(here) :], key=lambda p: _moment(memories, chosen[p].newer))
        for path, here in _chains(chosen)
        if here in path
    ]


def _scope_breakers(chosen: Mapping[int, Link], memories: MemoryColumns) -> list[int]:
    """Return the memories whose wing differs from one that their chain leads through."""
    wing_ahead: dict[int, str] = {}
    breakers: list[int] = []
    for path, here in _chains(chosen):
        ahead = wing_ahead.setdefault(here, memories.sighting(here).wing)
        for position in reversed(path):
            own = memories.sighting(position).wing
            if not wings_agree(own, ahead):
                breakers.append(position)
                ahead = own
            ahead = wing_ahead[position] = own or ahead
    return breakers


def _heads(chosen: Mapping[int, Link]) -> dict[int, int]:
    """Return the last memory of the chain of every older memory."""
    heads: dict[int, int] = {}
    for path, here in _chains(chosen):
        heads.update(dict.fromkeys(path, heads.get(here, here)))
    return heads


# Explicit links in a text: "supersedes #12", "replaced Jest", "switched from X to Y".
#
# "#id" is that memory, whatever its date; "#" alone the memory itself, which names its successor.
# A name is the newest strictly older memory about it; where the memory is itself about the name
# ("TSLint: replaced by ESLint"), its successor is the earliest later memory about the subject. A
# memory is about the subject at its beginning; if there is none, its tags count.

_BY_ID, _BY_SUBJECT, _BY_OBJECT_ONLY = 2, 1, 0


def explicit_links(
    corpus: Corpus, canonical_of: Mapping[str, str], rejected: Counter[str]
) -> Iterator[Link]:
    """Yield the links that memories state; others are counted by reason."""
    import polars as pl

    told = [
        (memory, stated)
        for memory in corpus.stating.values()
        for stated in memory.extraction.stated
        # The store's links between concepts have no span; its links between memories have an id.
        if stated.relation == "supersedes" and (stated.start != NO_SPAN or _names_id(stated))
    ]
    columns = corpus.columns
    ids = pl.Series([s.object[1:] for _, s in told if _names_id(s)], dtype=pl.String)
    places = columns.memory_ids.is_in(ids.implode()).arg_true()
    by_id = dict(zip(columns.memory_ids.gather(places), places, strict=True))
    subjects = _Subjects(corpus, [s for _, s in told if not _names_id(s)], canonical_of)
    for memory, stated in told:
        own = memory.record.position
        if not _names_id(stated):
            found = subjects.ends_of(memory, stated)
        elif (older := by_id.get(stated.object[1:])) is None:
            found = "unknown_id"
        elif older == own:
            found = "self"
        else:
            agree = memory.sighting.in_scope(columns.sighting(older))
            found = (older, own, _BY_ID) if agree else "scope"
        if isinstance(found, str):
            rejected[found] += 1
        else:
            older, newer, confidence = found
            evidence = Evidence(own, stated.start, stated.end)
            yield Link(older, newer, "explicit", confidence, None, "", evidence)


def _names_id(stated: Stated) -> bool:
    return stated.object.startswith(ID_MARK) and stated.object != ID_MARK


class _Subjects:
    """Which memories are about a name, or tagged with it: of the names that are asked for."""

    def __init__(
        self, corpus: Corpus, told: Sequence[Stated], canonical_of: Mapping[str, str]
    ) -> None:
        self._canonical_of = canonical_of
        wanted = {self._canonical(name) for s in told for name in (s.subject, s.object)}
        # Subjects first: a tag only classifies a text.
        tables = [defaultdict[tuple[str, str], list[Sighting]](list) for _ in range(2)]
        for position, extraction in corpus.outlines() if told else ():
            for table, names in zip(tables, self._names(extraction), strict=True):
                for name in names & wanted:
                    sighting = corpus.columns.sighting(position)
                    table[sighting.user, name].append(sighting)
        self._lines = [{key: Timeline(line) for key, line in t.items()} for t in tables]

    def ends_of(self, memory: Memory, stated: Stated) -> tuple[int, int, int] | str:
        """Return older, newer and confidence of a statement about a name, or why there is none."""
        subject, thing = self._canonical(stated.subject), self._canonical(stated.object)
        at = memory.sighting
        if not is_dated(at):
            return "undated"
        if thing in GENERIC_KEYS or thing in FUNCTION_WORDS:
            return "generic"
        own = set[str]().union(*self._names(memory.extraction))
        tells_of_itself = thing in own and subject and subject not in own
        if stated.object == ID_MARK or tells_of_itself:
            afters = (line.first_after(at) for line in self._of(at.user, subject))
            newer = next((p for p in afters if p is not None), None)
            return "no_target" if newer is None else (at.position, newer, _BY_SUBJECT)
        confidence = _BY_SUBJECT if not subject or subject in own else _BY_OBJECT_ONLY
        befores = (line.last_before(at) for line in self._of(at.user, thing))
        older = next((p for p in befores if p is not None), None)
        return "no_target" if older is None else (older, at.position, confidence)

    def _of(self, user: str, name: str) -> list[Timeline]:
        return [lines[user, name] for lines in self._lines if (user, name) in lines]

    def _names(self, extraction: Extraction) -> tuple[set[str], set[str]]:
        about = {self._canonical(f.name) for f in extraction.found if f.role == "about"}
        return about, {self._canonical(f.name) for f in extraction.found if f.kind == "tag"}

    def _canonical(self, name: str) -> str:
        return self._canonical_of.get(name, name)


# Statements about a subject that can only have one value at a time.

STATE = "state"  # slot of a subject's nature: the relations of STATE_RELATIONS
KEY = "key"  # slot of `key: value` memories
STATE_RELATIONS = ("is_now", "is_a", "has")  # ended by a later `is_now` about the same subject

# Relations of which a later, different value ends the earlier one.
SINGLE_VALUED = ("works_at", "lives_in", "owned_by")
# Longest value of a `key: value` memory that is compared. Longer ones are notes under a heading:
# two of them add to each other more often than one replaces the other.
KEY_VALUE_MAX_WORDS = 12
# Longest value of a `key: value` memory that is surely a value ("port: 8080") and not a remark
# ("Redis: only used as a cache"). Longer ones contradict with low confidence.
KEY_VALUE_SURE_WORDS = 3
UNSEGMENTED_WORD_CHARS = 2  # characters that count as one word in a script without spaces

_NO_SUBJECTS = (GENERIC_KEYS | FUNCTION_WORDS) - {"user"}

# Relations whose left-out subject is whoever the memory belongs to.
_ABOUT_THE_OWNER = frozenset({"works_at", "lives_in", "prefers"})
_CLAUSE = re.compile(r"[^.,;:!?\n。！？，；：]{0,60}")


class Statement(NamedTuple):
    """One value of one subject."""

    position: int
    subject: str  # canonical folded name; "" for the owner of the memory
    slot: str  # two statements contradict each other only in the same slot
    relation: str  # as stated; KEY for a `key: value` memory
    value: str  # canonical folded name
    # The slot was guessed, or the value is a remark: contradictions are of low confidence.
    is_vague: bool
    share: float  # part of the content that the statement takes, in [0, 1]
    evidence: Evidence


def statements_of(
    memory: Memory, canonical_of: Mapping[str, str], rejected: Counter[str]
) -> Iterator[Statement]:
    """Yield the statements of a memory; those about generic words are counted, not yielded."""
    position, content = memory.record.position, memory.record.content
    for stated in memory.extraction.stated:
        # Links from the store are evidence for the graph, not words of this memory to compare.
        slot = None if stated.start == NO_SPAN else _slot(stated, content)
        if slot is None:
            continue
        subject = canonical_of.get(stated.subject, stated.subject)
        if subject in _NO_SUBJECTS or (not subject and stated.relation not in _ABOUT_THE_OWNER):
            rejected["generic"] += 1
            continue
        name, value, is_vague = slot
        share = min(max((stated.end - stated.start) / max(len(content), 1), 0.0), 1.0)
        evidence = Evidence(position, stated.start, stated.end)
        value = canonical_of.get(value, value)
        yield Statement(position, subject, name, stated.relation, value, is_vague, share, evidence)
    keys = [item for item in memory.extraction.found if item.kind == KEY and item.role == "about"]
    if not keys:
        return
    # "Deploy key (prod)" is found with and without its parenthesis; only the whole one
    # distinguishes two keys.
    key = max(keys, key=lambda item: (-item.start, item.end))
    value = fold_name(content[key.end :])
    words = _word_count(value)
    if key.name not in GENERIC_KEYS and 0 < words <= KEY_VALUE_MAX_WORDS:
        subject = canonical_of.get(key.name, key.name)
        evidence = Evidence(position, key.start, len(content))
        is_remark = words > KEY_VALUE_SURE_WORDS
        yield Statement(position, subject, KEY, KEY, value, is_remark, 1.0, evidence)


def _slot(stated: Stated, content: str) -> tuple[str, str, bool] | None:
    if stated.relation in STATE_RELATIONS:
        return STATE, stated.object, False
    if stated.relation in SINGLE_VALUED:
        return stated.relation, stated.object, False
    if stated.relation != "prefers":
        return None
    rest = _CLAUSE.match(content, stated.end)
    preference = read_preference(stated.object, "" if rest is None else fold_name(rest.group()))
    if preference is None:
        return None
    topic, value, is_stated = preference
    return f"prefers {topic}", value, not is_stated


def _word_count(folded: str) -> int:
    return sum(
        1 if unsegmented_script(word) is None else -(-len(word) // UNSEGMENTED_WORD_CHARS)
        for word in folded.split()
    )


# The topic of a preference, read from its object: "tabs for python" is about python.
#
# Folded names in, folded names out. A preference without a topic contradicts nothing: somebody may
# prefer tea and short answers.

_CONTRASTS = ("over", "rather than", "instead of", "than")
_PURPOSES = ("for", "as", "when", "while", "during", "in")
_STARTS = tuple(f"{word} " for word in (*_CONTRASTS, *_PURPOSES))
_DENIALS = frozenset({"not", "no", "never", "without", "longer", "isnt", "off", "non"})


def read_preference(name: str, after: str = "") -> tuple[str, str, bool] | None:
    """Return topic and value of a folded object and the rest of its clause, or None.

    The last is False where the topic is only the last word ("dark theme", "light theme").
    """
    whole = f"{name} {after}" if after.startswith(_STARTS) else name
    for word in _CONTRASTS:
        value, _, other = whole.partition(f" {word} ")
        if other:
            # Both ways round it is one question: tea or coffee.
            return "|".join(sorted((value, other))), value, True
    for word in _PURPOSES:
        value, _, purpose = whole.partition(f" {word} ")
        if purpose:
            return f"{word} {purpose}", value, True
    value, _, head = name.rpartition(" ")
    return None if not value or head in FUNCTION_WORDS else (head, value, False)


def restates(one: str, other: str) -> bool:
    """Return whether one value has all words of the other, and the rest holds no negation.

    "acme" and "acme corp" agree; "green" and "not green" do not.
    """
    some, others = set(one.split()), set(other.split())
    return (some <= others or others <= some) and not (some ^ others) & _DENIALS


# Links between memories with different statements about a subject: "X is now Y", newer value.
#
# An older statement ends at the *earliest* later one that differs, since it stopped holding then;
# later changes follow as a chain, so that the answer as of any moment is right. A later memory that
# repeats the older value next to another one (a list, a before-and-after) ends nothing; neither
# does one that rewords it: it confirms.

# Most different values of one subject and relation in one wing; more are happenings, not versions
# of a fact. Higher follows busier facts and hides more entries of lists.
VALUES_MAX = 12
# Least part of the older text that the ended statement takes for more than low confidence: a
# text with much other content is not out of date as a whole.
LEAST_SHARE = 0.5
_CONFIDENCE_OF_RELATION = {"is_now": 1, "is_a": 0, "has": 0}


def value_links(
    memories: Memories, canonical_of: Mapping[str, str], rejected: Counter[str]
) -> Iterator[Link]:
    """Yield one link per ended statement, group by group: one user, subject and slot."""
    groups: dict[tuple[str, str, str], list[Statement]] = defaultdict(list)
    for memory in memories.values():
        for statement in statements_of(memory, canonical_of, rejected):
            if is_dated(memory.record):
                key = (memory.sighting.user, statement.subject, statement.slot)
                groups[key].append(statement)
            else:
                rejected["undated"] += 1
    for _, statements in sorted(groups.items()):
        if len({statement.position for statement in statements}) < 2:
            continue
        # The values by wing and relation: many of them are a list of happenings.
        lines = [(memories[s.position].sighting.wing, s.relation) for s in statements]
        values: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for line, statement in zip(lines, statements, strict=True):
            values[line].add(statement.value)
        kept = [s for at, s in zip(lines, statements, strict=True) if len(values[at]) <= VALUES_MAX]
        if len(kept) < len(statements):
            rejected["many_values"] += len(statements) - len(kept)
        group = _Group(kept, memories)
        for older in kept:
            newer = group.first_to_differ(older)
            if newer is not None:
                reason = "is_now" if newer.relation == "is_now" else "newer_value"
                subject = concept_id(older.subject) if older.subject else ""
                ends, confidence = (older.position, newer.position), _confidence(older, newer)
                yield Link(*ends, reason, confidence, None, subject, newer.evidence)


class _Group:
    """The statements of a group that may end others, by wing and by value left out."""

    def __init__(self, statements: Sequence[Statement], memories: Memories) -> None:
        self._memories = memories
        self._said: dict[int, set[str]] = defaultdict(set)
        self._ending: dict[int, Statement] = {}
        self._by_wing: dict[str, list[int]] = defaultdict(list)
        for statement in statements:
            position = statement.position
            self._said[position].add(statement.value)
            ends = statement.slot != STATE or statement.relation == "is_now"
            # A memory that its owner marked as superseded no longer ends another.
            ends = ends and not is_tombstone(memories[position].record.content)
            if ends and position not in self._ending:
                self._ending[position] = statement
                self._by_wing[memories[position].sighting.wing].append(position)
        self._lines: dict[tuple[str, str], Timeline] = {}

    def first_to_differ(self, older: Statement) -> Statement | None:
        """Return the earliest strictly later statement in scope without the older value."""
        at = self._memories[older.position].sighting
        key = (at.wing, older.value)
        if key not in self._lines:
            wings = (at.wing, "") if at.wing else tuple(self._by_wing)
            # Runs of the same value are left out once and not walked again by all their members.
            self._lines[key] = Timeline(
                self._memories[p].sighting
                for wing in wings
                for p in self._by_wing.get(wing, ())
                if not any(restates(older.value, said) for said in self._said[p])
            )
        newer = self._lines[key].first_after(at)
        return None if newer is None else self._ending[newer]


def _confidence(older: Statement, newer: Statement) -> int:
    if older.share < LEAST_SHARE or older.is_vague or newer.is_vague:
        return 0
    if older.slot != STATE:
        return 1
    # "junior engineer" and "senior engineer" end alike.
    same_head = older.value.rpartition(" ")[2] == newer.value.rpartition(" ")[2]
    return _CONFIDENCE_OF_RELATION[older.relation] + same_head


# Effects of supersession on the graph: intervals close, nothing is deleted. These end:
#
# - a concept edge whose every piece of evidence is contradicted: a memory that supersedes it states
#   the same subject and relation with another object and does not repeat the old one;
# - a memory edge that rests on the object inside such a statement, unless the successor leads to
#   the same memory; for a near duplicate, one that the newer memory restates.

# Memory edges that rest on a text; the order of turns rests on the session.
CLOSABLE = ("mentions_subject", "mentions_tag")
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

    rows = pl.DataFrame(to_table("supersessions", found)).with_row_index("item")
    names = {
        "older_position": "older", "newer_position": "newer", "concept_id": "subject",
        "recorded_at_us": "retracted_at_us",
    }  # fmt: skip
    return rows.rename(names).select("item", "older", "newer", *_END, "reason", "subject")


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
    """Return the rows of concept edges whose evidence has all ended, and when the last one did."""
    import polars as pl

    # The first contradiction ended a piece of evidence; later ones only repeat that.
    fallen = contradicted.sort(*_END).unique("place", keep="first", maintain_order=True)
    ended = fallen.group_by("row").agg(pl.col(_END).max(), fallen=pl.len())
    whole = ended.join(stated.group_by("row").len(), on="row")
    return whole.filter(pl.col("fallen") == pl.col("len")).select("row", *_END)


def _step_ends(edges: ArrowTable, items: pl.DataFrame, contradicted: pl.DataFrame) -> pl.DataFrame:
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
    spoken = pl.col("evidence_start") != NO_SPAN, pl.col("newer") != pl.col("dst_position")
    ends, target = ["src_position", "dst_position"], ["newer", "dst_position"]
    inside = pl.col("start") <= pl.col("evidence_start"), pl.col("evidence_end") <= pl.col("end")
    lost = (
        resting.filter(~is_near, *spoken)
        .join(steps, left_on=target, right_on=ends, how="anti")
        .join(contradicted, left_on=["item", "concept_id"], right_on=["item", "dst_concept"])
        .filter(*inside)
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
