from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.types import MemoryRecord
from noctuary.graph.build import find_rare_concepts, to_arrays
from noctuary.graph.extract import (
    GAP_MAX_CHARS,
    Dictionary,
    Extraction,
    Tokens,
    extract,
    find_matches,
)
from noctuary.graph.fold import concept_id, fold_name, words
from noctuary.graph.tables import NO_SPAN
from noctuary.graph.walk import (
    BRIDGE_WEIGHT,
    DAMPING_POWER,
    OPEN_END_US,
    RANK_DISCOUNT_POWER,
    RARE_OTHERS,
    RELATIONS,
    SHARES_CONCEPT,
    GraphArrays,
    MentionArrays,
    QueryWords,
    RareConcepts,
    bridge,
    walk,
)
from tests.support.graph_objects import Graph, to_tables
from tests.support.naive_graph import build_dictionary, naive_graph
from tests.support.store import memory

_WORDS = ["Fox", "fox", "Fox's", "Red", "red", "den", "Den", "bay", "Hill", "of", "7"]
_GAPS = [" ", ". ", " (", "\n", " & ", " ---- "]
_NAMES = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=4).map(" ".join)


@st.composite
def _texts(draw: st.DrawFn) -> str:
    chosen = draw(st.lists(st.sampled_from(_WORDS), min_size=1, max_size=14))
    gaps = draw(st.lists(st.sampled_from(_GAPS), min_size=len(chosen), max_size=len(chosen)))
    return "".join(word + gap for word, gap in zip(chosen, gaps, strict=True))


@st.composite
def _corpora(draw: st.DrawFn) -> list[MemoryRecord]:
    texts = draw(st.lists(st.tuples(_NAMES, _texts(), st.booleans()), min_size=0, max_size=6))
    return [
        _record(
            position,
            f"{name}\n{text}" if titled else text,
            tags=draw(st.sampled_from(["", "red fox", "den,wing:a", "Hill"])),
            is_turn=draw(st.booleans()),
            created_at_us=draw(st.integers(0, 3)),
        )
        for position, (name, text, titled) in enumerate(texts)
    ]


def _record(position: int, content: str, **fields: object) -> MemoryRecord:
    created = fields["created_at_us"]
    place = {"position": position, "memory_id": str(position), "session_id": "s"}
    return memory(content, **{**place, "updated_at_us": created, **fields})


def _extractions(records: Sequence[MemoryRecord]) -> list[Extraction]:
    return [extract(r.content, r.tags, is_turn=r.is_turn) for r in records]


def _graph(records: Sequence[MemoryRecord]) -> Graph:
    return naive_graph(records, _extractions(records))


@given(st.text(max_size=40))
def test_folding_twice_is_folding_once(name: str) -> None:
    assert fold_name(fold_name(name)) == fold_name(name)


@given(st.text(max_size=60), st.data())
def test_a_run_of_words_folds_like_its_slice(text: str, data: st.DataObject) -> None:
    found = words(text)
    if not found:
        return
    first = data.draw(st.integers(0, len(found) - 1))
    last = data.draw(st.integers(first, len(found) - 1))
    run = found[first : last + 1]
    assert fold_name(text[run[0].start : run[-1].end]) == " ".join(word.folded for word in run)


@given(_corpora())
def test_every_edge_rests_on_evidence_that_folds_to_its_concept(
    records: list[MemoryRecord],
) -> None:
    graph = _graph(records)
    about = {(m.position, m.concept_id) for m in graph.mentions if m.role in ("about", "author")}
    known = {concept.concept_id for concept in graph.concepts}
    for edge in graph.edges:
        evidence = records[edge.evidence_position]
        target = records[edge.dst_position]
        assert edge.src_position != edge.dst_position
        assert 0.0 < edge.weight <= 1.0
        assert edge.concept_id in known
        if edge.relation in ("next_turn", "previous_turn"):
            assert edge.concept_id == concept_id(fold_name(evidence.session_id or ""))
        else:
            span = evidence.content[edge.evidence_start : edge.evidence_end]
            assert concept_id(fold_name(span)) == edge.concept_id
            assert (edge.dst_position, edge.concept_id) in about
        born = max(evidence.created_at_us, target.created_at_us)
        assert not edge.holds_at(born - 1)
        assert edge.holds_at(born)


@given(_corpora())
def test_equal_corpora_give_equal_bytes(records: list[MemoryRecord]) -> None:
    first, second = _graph(records), _graph(list(records))
    assert first == second
    pairs = zip(
        to_arrays(to_tables(first), len(records)),
        to_arrays(to_tables(second), len(records)),
        strict=True,
    )
    assert all(a.tobytes() == b.tobytes() for a, b in pairs)


@given(st.one_of(st.text(max_size=60), _texts()))
def test_quick_tokens_are_the_words_of_a_text(text: str) -> None:
    tokens, plain = Tokens(text), words(text)
    assert tokens.folded == [word.folded for word in plain]
    assert tokens.spans == [(word.start, word.end) for word in plain]


@given(_texts(), st.lists(_NAMES, max_size=8), st.lists(_NAMES, max_size=2))
def test_the_dictionary_finds_what_a_naive_search_finds(
    text: str, surfaces: list[str], own: list[str]
) -> None:
    dictionary = build_dictionary((fold_name(s), s) for s in surfaces)
    own_names = {fold_name(s) for s in own}
    found = [(m.name, m.start, m.end) for m in find_matches(text, dictionary, own_names)]
    assert found == _naive_matches(text, dictionary, own_names)


def _naive_matches(text: str, dictionary: Dictionary, own: set[str]) -> list[tuple[str, int, int]]:
    """Try every name at every word, one comparison at a time."""
    parts = [(m.start(), m.end(), m.group()) for m in re.finditer(r"[A-Za-z0-9']+", text)]
    found: list[tuple[str, int, int]] = []
    index = 0
    while index < len(parts):
        fitting = [name for name in dictionary.cased if _fits(text, parts, index, name, dictionary)]
        best = max(fitting, key=lambda name: len(name.split()), default=None)
        if best is None:
            index += 1
            continue
        last = index + len(best.split()) - 1
        if best not in own:
            found.append((best, parts[index][0], parts[last][1]))
        index = last + 1
    return found


def _fits(
    text: str, parts: list[tuple[int, int, str]], index: int, name: str, dictionary: Dictionary
) -> bool:
    run = parts[index : index + len(name.split())]
    if [surface.lower().removesuffix("'s") for _, _, surface in run] != name.split():
        return False
    if dictionary.cased[name] and run[0][2].islower():
        return False
    gaps = [text[run[i][1] : run[i + 1][0]] for i in range(len(run) - 1)]
    return all(len(gap) <= GAP_MAX_CHARS and "\n" not in gap for gap in gaps)


@st.composite
def _small_arrays(draw: st.DrawFn) -> tuple[int, GraphArrays]:
    n = draw(st.integers(1, 7))
    node = st.integers(0, n - 1)
    code = st.integers(0, len(RELATIONS) - 1)
    pairs = draw(st.sets(st.tuples(node, code, node), max_size=20))
    rows = sorted(pair for pair in pairs if pair[0] != pair[2])
    size = len(rows)
    weights = draw(st.lists(st.sampled_from([0.25, 0.5, 1.0]), min_size=size, max_size=size))
    starts = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
    lengths = draw(st.lists(st.sampled_from([1, 3, None]), min_size=size, max_size=size))
    ends = [
        OPEN_END_US if length is None else start + length
        for start, length in zip(starts, lengths, strict=True)
    ]
    sources = np.array([row[0] for row in rows], dtype=np.int64)
    arrivals = [(row[1], row[2]) for row in rows]
    return n, GraphArrays(
        indptr=np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=n))]).astype(np.int64),
        targets=np.array([row[2] for row in rows], dtype=np.int32),
        weights=np.array(weights, dtype=np.float32),
        relations=np.array([row[1] for row in rows], dtype=np.int8),
        concepts=np.arange(size, dtype=np.int32),
        in_degrees=np.array([arrivals.count(pair) for pair in arrivals], dtype=np.int32),
        valid_from_us=np.array(starts, dtype=np.int64),
        valid_to_us=np.array(ends, dtype=np.int64),
        recorded_at_us=np.array(starts, dtype=np.int64),
        retracted_at_us=np.array(ends, dtype=np.int64),
        evidence_starts=np.full(size, NO_SPAN, dtype=np.int32),
        evidence_ends=np.full(size, NO_SPAN, dtype=np.int32),
    )


def _naive_walk(
    seeds: Sequence[tuple[int, float]],
    arrays: GraphArrays,
    weights: Mapping[str, float],
    mask: NDArray[np.bool_],
    as_of_us: int | None,
    seed_count: int,
) -> dict[int, dict[tuple[int, int, int], float]]:
    """Per target, every arrival by (seed, relation code, concept ordinal)."""
    allowed = [(p, s) for p, s in seeds if mask[p] and s > 0.0]
    ranked = sorted(allowed, key=lambda pair: (-pair[1], pair[0]))[:seed_count]
    arrivals: dict[int, dict[tuple[int, int, int], float]] = {}
    for rank, (seed, score) in enumerate(ranked, start=1):
        for edge in range(int(arrays.indptr[seed]), int(arrays.indptr[seed + 1])):
            target, code = int(arrays.targets[edge]), int(arrays.relations[edge])
            start, end = int(arrays.valid_from_us[edge]), int(arrays.valid_to_us[edge])
            holds = end == OPEN_END_US if as_of_us is None else start <= as_of_us < end
            carried = weights.get(RELATIONS[code], 0.0)
            if not mask[target] or not holds or carried == 0.0:
                continue
            value = score / rank**RANK_DISCOUNT_POWER * carried * float(arrays.weights[edge])
            value /= (1 + int(arrays.in_degrees[edge])) ** DAMPING_POWER
            path = (seed, code, int(arrays.concepts[edge]))
            arrivals.setdefault(target, {})[path] = value
    return arrivals


@given(
    _small_arrays(),
    st.lists(st.floats(-0.5, 1.0, allow_subnormal=False), min_size=7, max_size=7),
    st.lists(st.booleans(), min_size=7, max_size=7),
    st.dictionaries(st.sampled_from(RELATIONS), st.sampled_from([0.0, 0.3, 1.0])),
    st.one_of(st.none(), st.integers(-1, 9)),
    st.integers(0, 4),
)
def test_the_walk_does_what_a_loop_does(
    graph: tuple[int, GraphArrays],
    scores: list[float],
    visible: list[bool],
    weights: dict[str, float],
    as_of_us: int | None,
    seed_count: int,
) -> None:
    n, arrays = graph
    mask = np.array(visible[:n])
    positions = np.arange(n)
    given = np.array(scores[:n]), arrays, weights, mask
    found = walk(positions, *given, as_of_us=as_of_us, seed_count=seed_count)
    seeds = list(zip(range(n), scores[:n], strict=True))
    expected = _naive_walk(seeds, arrays, weights, mask, as_of_us, seed_count)
    assert found.positions.tolist() == sorted(expected)
    assert mask[found.positions].all()
    assert mask[found.seeds].all()
    for row, target in enumerate(found.positions.tolist()):
        path = (int(found.seeds[row]), int(found.relations[row]), int(found.concepts[row]))
        best = max(expected[target].values())
        np.testing.assert_allclose(found.scores[row], best, rtol=1e-12)
        np.testing.assert_allclose(expected[target][path], best, rtol=1e-12)


@given(_corpora(), st.lists(st.booleans(), min_size=6, max_size=6))
def test_nothing_outside_the_scope_is_reached_in_a_built_graph(
    records: list[MemoryRecord], visible: list[bool]
) -> None:
    n = len(records)
    mask = np.array(visible[:n], dtype=bool)
    found = walk(np.arange(n), np.ones(n), to_arrays(to_tables(_graph(records)), n), mask=mask)
    assert mask[found.positions].all()
    assert mask[found.seeds].all()


@st.composite
def _held_concepts(draw: st.DrawFn) -> tuple[MentionArrays, RareConcepts, NDArray[np.bool_]]:
    """Who mentions what among seven memories, and which of three words stands where."""
    n, concepts = 7, 5
    held = draw(
        st.lists(st.tuples(st.integers(0, concepts - 1), st.integers(0, n - 1)), max_size=24)
    )
    rows = sorted(held)  # with repetitions: a memory may name a concept several times
    counts = np.bincount([c for c, _ in rows], minlength=concepts)
    nowhere = np.full(len(rows), -1, dtype=np.int32)
    mentions = MentionArrays(
        indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        positions=np.array([p for _, p in rows], dtype=np.int32),
        roles=np.zeros(len(rows), dtype=np.int8),
        starts=nowhere,
        ends=nowhere,
    )
    words = draw(st.lists(st.booleans(), min_size=3 * n, max_size=3 * n))
    return (
        mentions,
        find_rare_concepts(mentions, ["name"] * concepts, n),
        np.array(words).reshape(3, n),
    )


@given(
    _held_concepts(),
    st.lists(st.floats(-0.5, 1.0, allow_subnormal=False), min_size=7, max_size=7),
    st.lists(st.booleans(), min_size=7, max_size=7),
    st.lists(st.integers(-1, 1), min_size=7, max_size=7),
)
def test_the_bridge_does_what_a_loop_does(
    graph: tuple[MentionArrays, RareConcepts, NDArray[np.bool_]],
    scores: list[float],
    visible: list[bool],
    sessions: list[int],
) -> None:
    mentions, rare, standing = graph
    mask, weights = np.array(visible), np.array([3.0, 1.0, 0.5])

    def standing_at(positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        return standing[:, positions]

    codes = np.array(sessions, dtype=np.int32)
    words = QueryWords(weights, standing_at)
    found = bridge(np.arange(7), np.array(scores), rare, mentions, lambda: words, codes, mask)
    rows = mentions.positions, mentions.indptr.tolist()
    holders = [{*rows[0][start:end].tolist()} for start, end in pairwise(rows[1])]
    usable = [(p, s) for p, s in enumerate(scores) if mask[p] and s > 0.0]
    ranked = enumerate(sorted(usable, key=lambda pair: (-pair[1], pair[0]))[:5], 1)
    seeds = [(rank, seed, score) for rank, (seed, score) in ranked if sessions[seed] < 0]
    ways = [
        (seed, concept, target, score * rank**-RANK_DISCOUNT_POWER)
        for rank, seed, score in seeds
        for concept, holding in enumerate(holders)
        for target in (holding - {seed} if seed in holding else ())
        if mask[target] and sessions[target] < 0
    ]

    def held_by(*memories: int) -> float:
        return float(weights @ standing[:, list(memories)].any(axis=1) / weights.sum())

    looked_at = {seed for _, seed, _ in seeds} | {target for _, _, target, _ in ways}
    best_alone = max((held_by(memory) for memory in looked_at), default=0.0)
    expected: dict[int, dict[tuple[int, int], float]] = {}
    for seed, concept, target, push in ways:
        value = BRIDGE_WEIGHT * push * (held_by(seed, target) - best_alone)
        value *= (len(holders[concept]) - 1) ** -DAMPING_POWER
        if value > 1e-9:
            expected.setdefault(target, {})[seed, concept] = value
    assert found.positions.tolist() == sorted(expected)
    for row, target in enumerate(found.positions.tolist()):
        best = max(expected[target].values())
        np.testing.assert_allclose(found.scores[row], best, rtol=1e-12)
        way = int(found.seeds[row]), int(found.concepts[row])
        np.testing.assert_allclose(expected[target][way], best, rtol=1e-12)
        assert found.relation_at(row) == SHARES_CONCEPT


@given(st.lists(st.integers(0, 30), max_size=80), st.integers(2, 25))
def test_a_name_is_rare_where_few_other_memories_hold_it(named: list[int], size: int) -> None:
    """By counting sets: every memory that holds it names it with how many others do."""
    kinds = ["run" if concept % 3 == 0 else "name" for concept in range(31)]
    places = [(concept, i % size) for i, concept in enumerate(sorted(named))]
    counts = np.bincount([c for c, _ in places], minlength=31)
    zeros = np.zeros(len(places), dtype=np.int32)
    mentions = MentionArrays(
        indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        positions=np.array([p for _, p in places], dtype=np.int32),
        roles=zeros.astype(np.int8),
        starts=zeros,
        ends=zeros,
    )
    rare = find_rare_concepts(mentions, kinds, size)
    holders = {concept: {p for c, p in places if c == concept} for concept in range(31)}
    for position in range(size):
        here = slice(int(rare.indptr[position]), int(rare.indptr[position + 1]))
        expected = [
            (concept, len(held) - 1)
            for concept, held in holders.items()
            if concept % 3 and position in held and 1 <= len(held) - 1 <= RARE_OTHERS
        ]
        assert (
            list(zip(rare.concepts[here].tolist(), rare.others[here].tolist(), strict=True))
            == expected
        )
