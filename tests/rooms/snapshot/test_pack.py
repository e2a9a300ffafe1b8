"""Columns of a corpus, batch by batch, against a walk over its records."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core import store as layout
from noctuary.core.files import group_arrays, read_array, read_arrays
from noctuary.core.manifest import full_check, read_manifest
from noctuary.core.store import MANIFEST_FILE, StorePaths
from noctuary.core.types import MemoryRecord
from noctuary.embed.lean import LeanEncoder
from noctuary.graph.build import build_sessions
from noctuary.graph.fold import concept_id, fold_name
from noctuary.graph.sessions import MIN_MEMBERS, SessionArrays
from noctuary.graph.tables import Evidence, Merge, Supersession, to_table
from noctuary.graph.walk import FOUND_RELATIONS
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot import pack as memory_columns
from noctuary.snapshot.arrays import ShareArrays
from noctuary.snapshot.checks import judge_candidate
from noctuary.snapshot.pack import (
    PackInputs,
    build_candidate,
    graph_rows,
    pack_shares,
    read_columns,
)
from noctuary.sources.corpus import MEMORIES_FILE, RecordFile, column_batches, column_names
from noctuary.sources.source import Share
from noctuary.text.marks import asking_share
from tests.support.damage import Edit, all_of, array, drop_array, sign, sql
from tests.support.graph_objects import Concept, ConceptEdge, Graph, NameLink, to_graph, to_tables
from tests.support.lean import write_encoder
from tests.support.store import (
    Store,
    gate_context,
    household,
    memory,
    new_store,
    pack_inputs,
    provenance,
    renumber,
    turns,
)

ROOT = Path(__file__).resolve().parents[3]
SOME_US = 1_700_000_000_000_000


@pytest.fixture
def encoder(tmp_path: Path) -> LeanEncoder:
    return write_encoder(tmp_path / "encoders")


def built(root: Path, inputs: PackInputs, encoder: LeanEncoder | None = None) -> Path:
    return build_candidate(StorePaths(root), inputs, provenance(encoder))


def file_bytes(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.name != MANIFEST_FILE}


def test_equal_inputs_give_equal_bytes_and_one_digest(tmp_path: Path, encoder: LeanEncoder) -> None:
    first = built(tmp_path / "a", pack_inputs(household(), encoder), encoder)
    second = built(tmp_path / "b", pack_inputs(household(), encoder), encoder)
    assert file_bytes(first) == file_bytes(second)
    assert set(file_bytes(first)) == {layout.ROWS_FILE, layout.ARRAYS_FILE, layout.VECTORS_FILE}
    arrays = {f"sessions.{name}" for name in SessionArrays._fields}
    assert arrays < set(read_arrays(first / layout.ARRAYS_FILE))
    assert first.name == second.name
    left, right = read_manifest(first), read_manifest(second)
    assert left._replace(built_at="") == right._replace(built_at="")


def test_another_process_with_another_hash_seed_gives_the_same_digest(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from tests.support.lean import write_encoder
from tests.support.store import household, new_store
root = Path(sys.argv[1])
store = new_store(root, encoder=write_encoder(root / "encoders"))
print(store.candidate(household()).name)
"""

    def digest(seed: str) -> str:
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, str(tmp_path / seed)]
        ran = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, check=True)
        return ran.stdout.decode()

    assert digest("1") == digest("2") != ""


def test_building_again_replaces_the_equal_candidate_and_a_killed_build(tmp_path: Path) -> None:
    candidates = StorePaths(tmp_path).candidates
    (candidates / ".building-123").mkdir(parents=True)
    (candidates / ".building-123" / "rows.sqlite").write_bytes(b"half")
    first = built(tmp_path, pack_inputs(household()))
    (first / "stray").write_text("left by somebody")
    assert built(tmp_path, pack_inputs(household())) == first
    assert [p.name for p in candidates.iterdir()] == [first.name]
    manifest = read_manifest(first)
    assert first.name == manifest.digest[:16]
    full_check(first, manifest)
    assert layout.VECTORS_FILE not in manifest.files, "there was no encoder"
    assert not (first / layout.VECTORS_FILE).exists()


def with_tables(inputs: PackInputs, **tables: Any) -> PackInputs:
    return replace(inputs, graph=replace(inputs.graph, **tables))


def nudged(values: Any, at: Any, value: float | None = None) -> Any:
    """Return a copy of an array with one number changed, by as little as possible."""
    copy = values.copy()
    copy[at] = np.nextafter(copy[at], np.float32(9)) if value is None else value
    return copy


def _one_statement_more(inputs: PackInputs) -> PackInputs:
    first, second = inputs.graph.concepts["concept_id"].to_pylist()[:2]
    edge = ConceptEdge(first, second, "is_a", 0.5, (Evidence(0, 0, 3),), 0, None, 0, None)
    return with_tables(inputs, concept_edges=to_table("concept_edges", [edge]))


def _one_supersession_more(inputs: PackInputs) -> PackInputs:
    found = Supersession(0, 1, 1, "is_now", 2, None, 1, "", Evidence(1, 0, 3), 0, 0)
    return with_tables(inputs, supersessions=to_table("supersessions", [found]))


def _one_merge_more(inputs: PackInputs) -> PackInputs:
    canonical = fold_name(inputs.graph.concepts["canonical_name"].to_pylist()[0])
    merge = Merge("other", canonical, "rule", 1.0, "same in merges.toml")
    return with_tables(inputs, merges=to_table("merges", [merge]))


def _one_link_weighed(inputs: PackInputs) -> PackInputs:
    first, *others = to_graph(inputs.graph).links
    return with_tables(inputs, links=to_table("links", [replace(first, weight=0.123), *others]))


def _one_alias_more(inputs: PackInputs) -> PackInputs:
    graph = to_graph(inputs.graph)
    first, *others = graph.concepts
    named = replace(first, aliases=(*first.aliases, "alias"))
    return replace(inputs, graph=to_tables(replace(graph, concepts=(named, *others))))


def _one_edge_closed(inputs: PackInputs) -> PackInputs:
    ends = nudged(inputs.graph_arrays.valid_to_us, 0, SOME_US)
    return replace(inputs, graph_arrays=inputs.graph_arrays._replace(valid_to_us=ends))


def _one_posting_changed(inputs: PackInputs) -> PackInputs:
    scores = nudged(inputs.postings.scores, 0)
    return replace(inputs, postings=replace(inputs.postings, scores=scores))


CHANGES: dict[str, Callable[[PackInputs], PackInputs]] = {
    "a vector moved": lambda x: replace(x, vectors=nudged(x.vectors, (3, 0))),
    "a posting changed": _one_posting_changed,
    "an edge closed": _one_edge_closed,
    "an alias more": _one_alias_more,
    "a mention dropped": lambda x: with_tables(x, mentions=x.graph.mentions.slice(1)),
    "a statement more": _one_statement_more,
    "a supersession more": _one_supersession_more,
    "a merge more": _one_merge_more,
    "a link dropped": lambda x: with_tables(x, links=x.graph.links.slice(1)),
    "a link weighed": _one_link_weighed,
    "a summary reworded": lambda x: replace(x, summaries=[replace(x.summaries[0], text="other")]),
    "a cluster dropped": lambda x: replace(x, clusters=x.clusters[1:]),
}


@pytest.mark.parametrize("case", CHANGES)
def test_every_artifact_is_in_the_digest(tmp_path: Path, plain: Plain, case: str) -> None:
    assert built(tmp_path, CHANGES[case](plain.inputs), plain.encoder).name != plain.name


OTHER: dict[str, object] = {
    "memory_id": "999",
    "content": "The spare key hangs behind the blue door!",
    "category": "decision",
    "tags": "key",
    "expanded_keywords": "lock",
    "importance": 0.91,
    "created_at_us": SOME_US,
    "updated_at_us": SOME_US,
    "session_id": "s9",
    "wing": "work",
    "room": None,
    "user": "ana",
    "is_turn": True,
    "content_hash": "other",
    "valid_until_us": SOME_US,
}


class Plain(NamedTuple):
    """A household as it is packed, and the name of that candidate."""

    encoder: LeanEncoder
    inputs: PackInputs
    name: str


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    root = tmp_path_factory.mktemp("plain")
    encoder = write_encoder(root / "encoders")
    inputs = pack_inputs(household(), encoder)
    return Plain(encoder, inputs, built(root, inputs, encoder).name)


@pytest.mark.parametrize(
    "name", [name for name in MemoryRecord._fields if name not in ("position", "origin")]
)
def test_every_field_of_a_record_is_in_the_digest(tmp_path: Path, plain: Plain, name: str) -> None:
    first, *others = plain.inputs.records
    changed = first._replace(**{name: OTHER[name]})
    other = replace(plain.inputs, records=[changed, *others])
    assert built(tmp_path, other, plain.encoder).name != plain.name


def test_id_kind_and_encoder_are_in_the_digest_and_time_is_not(tmp_path: Path) -> None:
    inputs = pack_inputs(household())
    paths = StorePaths(tmp_path)
    plain = build_candidate(paths, inputs, provenance()).name
    assert build_candidate(paths, inputs, provenance(id_kind="str")).name != plain
    assert build_candidate(paths, inputs, provenance(encoder_digest="ab")).name != plain
    assert build_candidate(paths, inputs, provenance(settings={"x": {"y": 1}})).name == plain


def test_what_is_packed_can_be_read_back(tmp_path: Path, encoder: LeanEncoder) -> None:
    inputs = pack_inputs(household(), encoder)
    directory = built(tmp_path, inputs, encoder)
    stored = rows(directory, "SELECT * FROM memories ORDER BY position")
    record = inputs.records[0]
    assert stored[0] == (
        0, "101", record.content, "fact", "key, wing:home", "", 0.9, record.created_at_us,
        record.updated_at_us, None, "home", "hall", None, 0, record.content_hash, "import", None,
    )  # fmt: skip
    assert [row[1] for row in stored] == [r.memory_id for r in inputs.records]
    spans = rows(directory, "SELECT term, stop - start FROM terms ORDER BY term")
    sizes = np.diff(inputs.postings.starts).tolist()
    assert spans == list(zip(inputs.postings.terms, sizes, strict=True))
    named = "SELECT concept_id FROM concepts JOIN concept_names USING (ordinal) WHERE name = "
    assert rows(directory, f"{named} 'atlas migration'") == [(concept_id("atlas migration"),)]
    sources = "SELECT group_concat(memory_id) FROM summary_sources"
    assert rows(directory, sources) == [("109,110,111,112",)]
    meta: dict[Any, Any] = dict(rows(directory, "SELECT key, value FROM meta"))  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert json.loads(meta["relations"]) == list(FOUND_RELATIONS)
    assert json.loads(meta["facet_wing"]) == ["home", "work"]
    assert np.array_equal(read_array(directory / layout.VECTORS_FILE), inputs.vectors)  # pyright: ignore[reportArgumentType]


def test_facet_codes_point_at_the_sorted_values_and_nothing_is_minus_one(tmp_path: Path) -> None:
    wings = ("work", None, "home", "")
    records = renumber([memory(f"note {n}", wing=wing) for n, wing in enumerate(wings)])
    directory = built(tmp_path, pack_inputs(records))
    assert list(read_columns(records).facets["wing"].values) == ["home", "work"]
    assert read_arrays(directory / layout.ARRAYS_FILE)["facet.wing"].tolist() == [1, -1, 0, -1]


def test_counts_say_what_is_held(tmp_path: Path, encoder: LeanEncoder) -> None:
    inputs = pack_inputs(household(), encoder)
    counts = read_manifest(built(tmp_path, inputs, encoder)).counts
    assert counts == {
        "memories": 14,
        "turns": 6,
        "terms": len(inputs.postings.terms),
        "postings": inputs.postings.positions.size,
        "concepts": inputs.graph.concepts.num_rows,
        "mentions": inputs.graph.mentions.num_rows,
        "concept_edges": inputs.graph.concept_edges.num_rows,
        "edges": inputs.graph.edges.num_rows,
        "supersessions": 0,
        "clusters": 1,
        "summaries": 1,
    }


def test_an_empty_corpus_packs(tmp_path: Path) -> None:
    directory = built(tmp_path, pack_inputs([]))
    manifest = read_manifest(directory)
    full_check(directory, manifest)
    assert set(manifest.counts.values()) == {0}


def test_vectors_and_records_on_disk_pack_the_same(tmp_path: Path, encoder: LeanEncoder) -> None:
    inputs = pack_inputs(household(), encoder)
    assert inputs.vectors is not None
    vectors, records = tmp_path / "memories.npy", tmp_path / MEMORIES_FILE
    np.save(vectors, inputs.vectors)
    (rows,) = column_batches(inputs.records, column_names(MEMORIES_FILE))
    pq.write_table(pa.Table.from_batches([rows]), records, row_group_size=5)  # pyright: ignore[reportUnknownMemberType]
    streamed = replace(inputs, records=RecordFile(records), vectors=None, vectors_file=vectors)
    copied = built(tmp_path / "b", streamed, encoder)
    assert file_bytes(copied) == file_bytes(built(tmp_path / "a", inputs, encoder))
    assert not (copied / layout.VECTORS_FILE).samefile(vectors)


IDS = ("a" * 16, "b" * 16)


def rows(directory: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(directory / layout.ROWS_FILE)) as db:
        return db.execute(sql).fetchall()


@pytest.mark.parametrize(
    ("names", "starts"),
    [
        (
            "blue ridge, boot, boot hill, boot hill railway, boot zone, railway boot, zoë",
            [("blue", 2), ("boot", 3), ("railway", 2), ("zoë", 1)],
        ),
        ("", []),
    ],
)
def test_a_link_has_its_concepts_ordinal_and_a_first_word_its_longest_name(
    names: str, starts: list[tuple[str, int]]
) -> None:
    concepts = tuple(Concept(concept, f"C {concept}", "title", (), 1) for concept in IDS)
    links = [
        NameLink(name, IDS[n % 2], n / 10, cased=n == 1)
        for n, name in enumerate(filter(None, names.split(", ")))
    ]
    graph = to_tables(Graph(concepts, (), (), links=tuple(links)))
    packed = {table: list(batch) for table, batch in graph_rows(graph)}
    assert packed["links"] == [(x.name, n % 2, n / 10, n == 1) for n, x in enumerate(links)]
    assert packed["link_starts"] == starts


def test_a_snapshot_holds_the_links_of_its_graph(empty_store: Store) -> None:
    records = renumber([*household(), memory("Atlas\nA plan."), memory("we like Atlas")])
    graph = to_graph(pack_inputs(records).graph)
    ids = [concept.concept_id for concept in graph.concepts]
    directory = empty_store.candidate(records)
    stored = rows(directory, "SELECT * FROM links ORDER BY name")
    assert stored == [(x.name, ids.index(x.concept_id), x.weight, x.cased) for x in graph.links]
    assert {row[0] for row in stored} >= {"ana", "atlas", "atlas migration"}
    assert ("atlas", 2) in rows(directory, "SELECT word, words FROM link_starts")


def two_conversations() -> list[MemoryRecord]:
    first = turns("s1", "Ana: hi.", "Bo: hello, Ana.", "Ana: where is it?")
    second = turns("s1", "Cy: yes.", "Cy: no.", wing="work")
    return renumber([*second, memory("Ana\nA sailor.", session_id="s1"), *reversed(first)])


@pytest.mark.parametrize("records", [household(), two_conversations(), []])
def test_a_snapshot_holds_the_sessions_of_its_memories(
    empty_store: Store, records: list[MemoryRecord]
) -> None:
    graph = to_graph(pack_inputs(records).graph)
    ordinals = {concept.concept_id: i for i, concept in enumerate(graph.concepts)}
    speakers = {m.position: ordinals[m.concept_id] for m in graph.mentions if m.role == "speaker"}
    assert len(speakers) == sum(record.is_turn for record in records)
    expected = build_sessions(records, speakers)
    directory = empty_store.candidate(records)
    for name, wanted in expected._asdict().items():
        stored = read_arrays(directory / layout.ARRAYS_FILE)[f"sessions.{name}"]
        assert stored.dtype == wanted.dtype
        assert np.array_equal(stored, wanted)


names = st.sampled_from([None, "", " ", "b", "a", "Ä", "日本"])
stored = st.builds(
    partial(memory, "x"),
    wing=names,
    room=names,
    user=names,
    session_id=names,
    category=st.sampled_from(["", "note", "decision"]),
    importance=st.floats(0, 1),
    created_at_us=st.integers(-(2**63), 2**62) | st.integers(0, 3),
    is_turn=st.booleans(),
)
corpora = st.lists(stored, max_size=24).map(renumber)


@given(corpora, st.integers(1, 5))
def test_columns_are_those_of_the_records(records: list[MemoryRecord], rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_columns, "column_batches", partial(column_batches, rows=rows))
        columns = read_columns(records)
    assert columns.created_at_us.dtype == np.int64
    assert columns.created_at_us.tolist() == [r.created_at_us for r in records]
    expected = np.array([r.importance for r in records], dtype=np.float32)
    assert columns.importance.dtype == np.float32
    assert np.array_equal(columns.importance, expected)
    assert columns.turns == sum(r.is_turn for r in records)
    assert tuple(columns.facets) == tuple(layout.FACETS)
    for name, facet in columns.facets.items():
        said = [getattr(r, name) or "" for r in records]
        assert list(facet.values) == sorted(set(said) - {""})
        assert facet.codes.dtype == np.int32
        assert [facet.values[code] if code >= 0 else "" for code in facet.codes] == said


def naive_sessions(records: list[MemoryRecord], speakers: dict[int, int]) -> SessionArrays:
    """Sessions as lists of records."""
    members: dict[tuple[str, str, str], list[MemoryRecord]] = {}
    for record in records:
        if record.session_id and record.session_id.strip():
            key = (record.user or "", record.wing or "", record.session_id)
            members.setdefault(key, []).append(record)
    kept = [members[key] for key in sorted(members) if len(members[key]) >= MIN_MEMBERS]
    codes = np.full(len(records), -1, dtype=np.int32)
    places, spoken = codes.copy(), codes.copy()
    order: list[int] = []
    for code, session in enumerate(kept):
        for record in sorted(session, key=lambda r: (r.created_at_us, r.position)):
            codes[record.position], places[record.position] = code, len(order)
            order.append(record.position)
    for position, ordinal in speakers.items():
        spoken[position] = ordinal
    return SessionArrays(
        codes=codes,
        places=places,
        order=np.array(order, dtype=np.int32),
        indptr=np.cumsum([0, *map(len, kept)], dtype=np.int64),
        turns=np.array(
            [1 + round(100 * asking_share(r.content)) if r.is_turn else 0 for r in records],
            dtype=np.int8,
        ),
        speakers=spoken,
    )


@given(corpora, st.dictionaries(st.integers(0, 23), st.integers(0, 9)))
def test_sessions_are_those_of_lists(records: list[MemoryRecord], speakers: dict[int, int]) -> None:
    heard = {position: o for position, o in speakers.items() if position < len(records)}
    found, expected = build_sessions(records, heard), naive_sessions(records, heard)
    for name in SessionArrays._fields:
        left, right = getattr(found, name), getattr(expected, name)
        assert left.dtype == right.dtype, name
        assert left.tolist() == right.tolist(), name


CHECK = "every_share_is_of_an_owned_memory"
OWNERS = (None, "ana", "ben", "ana", "", "ben")
SHARES = (Share("104", "ben"), Share("102", "eva"), Share("102", "ben"), Share("106", "ana"))


def records() -> list[MemoryRecord]:
    return renumber([memory(f"Note {n} of {user}.", user=user) for n, user in enumerate(OWNERS)])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "store")


def by_reader(shares: list[Share]) -> dict[str, list[int]]:
    packed = pack_shares(records(), shares)
    if packed is None:
        return {}
    return {name: found.tolist() for name, found in packed.by_reader(len(OWNERS)).items()}


def test_shares_are_kept_by_reader_in_order() -> None:
    assert by_reader(list(SHARES)) == {"ana": [5], "ben": [1, 3], "eva": [1]}


@pytest.mark.parametrize(
    "share",
    [
        Share("101", "ana"),  # nobody's: all see it
        Share("105", "ana"),  # likewise
        Share("102", "ana"),  # with themself
        Share("999", "ana"),  # not in the snapshot
        Share("102", ""),  # with nobody
    ],
)
def test_what_opens_nothing_is_no_share(share: Share) -> None:
    assert pack_shares(records(), [share]) is None


ids = st.sampled_from([*(str(101 + n) for n in range(len(OWNERS))), "999"])
shares = st.lists(st.builds(Share, ids, st.sampled_from(["", "ana", "ben", "eva", "Äña"])))


@given(shares)
def test_packing_equals_a_loop_over_all_pairs(found: list[Share]) -> None:
    expected: dict[str, list[int]] = {}
    for reader in sorted({s.shared_with for s in found} - {""}):
        shared = [
            n
            for n, owner in enumerate(OWNERS)
            if owner and owner != reader and Share(str(101 + n), reader) in found
        ]
        if shared:
            expected[reader] = shared
    assert by_reader(found) == expected
    assert by_reader(found[::-1]) == expected


def test_a_store_without_shares_has_no_trace(candidates: tuple[Path, Path], store: Store) -> None:
    plain = candidates[1]
    again = store.candidate(records(), shares=[Share("101", "ana")])
    assert again.name == plain.name, "nobody's: all see it"
    assert group_arrays(read_arrays(plain / layout.ARRAYS_FILE), "shares") == {}
    assert (layout.SHARED_WITH,) not in rows(plain, "SELECT key FROM meta")
    assert "shares" not in read_manifest(plain).counts


def test_a_candidate_says_who_may_read_what(candidates: tuple[Path, Path]) -> None:
    directory = candidates[0]
    arrays = read_arrays(directory / layout.ARRAYS_FILE)
    assert arrays["shares.indptr"].tolist() == [0, 1, 3, 4]
    assert arrays["shares.positions"].tolist() == [5, 1, 3, 1]
    assert read_manifest(directory).counts["shares"] == len(SHARES)
    reader = SnapshotReader.open(directory)
    shared = reader.facets["user"].shared
    assert shared is not None
    assert {name: p.tolist() for name, p in shared.items()} == by_reader(list(SHARES))
    assert reader.facets["wing"].shared is None
    reader.close()


def test_shares_in_any_order_give_equal_bytes(candidates: tuple[Path, Path], store: Store) -> None:
    again = store.candidate(records(), shares=[*SHARES[::-1], SHARES[0]])
    assert again.name == candidates[0].name
    assert store.candidate(records(), shares=SHARES[1:]).name != again.name


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A candidate with shares and one without."""
    store = new_store(tmp_path_factory.mktemp("shares") / "store")
    return store.candidate(records(), shares=SHARES), store.candidate(records())


def verdict(directory: Path) -> tuple[bool, dict[str, object]]:
    checks = judge_candidate(directory, gate_context(directory))
    (found,) = [check for check in checks if check.name == CHECK]
    return found.passed, dict(found.found)


def _positions(*values: int) -> Edit:
    return array("shares.positions", lambda was: np.array(values, was.dtype))


def _starts(*values: int) -> Edit:
    return array("shares.indptr", lambda was: np.array(values, was.dtype))


def _readers(*names: str) -> Edit:
    return sql(f"UPDATE meta SET value = '{json.dumps(names)}' WHERE key = '{layout.SHARED_WITH}'")


def _without(name: str) -> Edit:
    def edit(directory: Path) -> None:
        drop_array(directory, name)
        sign(directory)

    return edit


BAD: dict[str, tuple[Edit, str]] = {
    "of nobody": (_positions(5, 1, 3, 0), "of_nobody"),
    "of an empty owner": (_positions(5, 1, 4, 1), "of_nobody"),
    "with the owner": (_positions(1, 1, 3, 1), "with_the_owner"),
    "twice": (_positions(5, 1, 1, 1), "twice"),
    "unsorted readers": (_readers("ana", "eva", "ben"), "unsorted_readers"),
    "a reader twice": (_readers("ana", "ben", "ben"), "fault"),
    "too few readers": (_readers("ana", "ben"), "fault"),
    "no readers": (sql(f"DELETE FROM meta WHERE key = '{layout.SHARED_WITH}'"), "fault"),
    "no starts": (_without("shares.indptr"), "fault"),
    "no positions": (_without("shares.positions"), "fault"),
    "beyond the memories": (_positions(5, 1, 6, 1), "fault"),
    "before the memories": (_positions(5, 1, -1, 1), "fault"),
    "a reader of nothing": (_starts(0, 1, 1, 4), "fault"),
    "starts too late": (_starts(1, 2, 3, 4), "fault"),
    "ends too early": (_starts(0, 1, 2, 3), "fault"),
    "uncounted": (all_of(_starts(0, 1, 2, 3), _positions(5, 1, 1)), "uncounted"),
}


@pytest.mark.parametrize("case", BAD)
def test_the_gate_refuses_shares_that_do_not_hold(
    candidates: tuple[Path, Path], tmp_path: Path, case: str
) -> None:
    edit, expected = BAD[case]
    directory = shutil.copytree(candidates[0], tmp_path / "bad")
    edit(directory)
    passed, found = verdict(directory)
    assert not passed
    assert found[expected]


def test_the_gate_passes_shares_and_a_store_without(candidates: tuple[Path, Path]) -> None:
    found = [verdict(directory) for directory in candidates]
    assert [(passed, told["shares"]) for passed, told in found] == [(True, len(SHARES)), (True, 0)]


@pytest.mark.parametrize("starts", [[0, 1, 3], [0, 1, 3, 5], [1, 2, 3, 4], [0, 3, 1, 4]])
def test_shares_that_are_shifted_open_nothing(starts: list[int]) -> None:
    positions = np.array([5, 1, 3, 1], dtype=np.int32)
    shifted = ShareArrays(("ana", "ben", "eva"), np.array(starts, dtype=np.int64), positions)
    with pytest.raises(ValueError, match="shares"):
        shifted.by_reader(len(OWNERS))
