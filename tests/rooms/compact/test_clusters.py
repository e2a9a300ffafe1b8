"""What is read from the files of a corpus is what the reference makes of the records in memory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact import clusters as cluster_table
from noctuary.compact import clusters as streaming
from noctuary.compact.clusters import (
    GIANT_TURN_CHARS,
    MAX_BUNDLE_TURNS,
    PROTECTED_TAIL_TURNS,
    Cluster,
    Eligibility,
    SessionTurn,
    VectorRows,
    bundle_start,
    cluster_session,
    count_later,
    iter_clusters,
    iter_sessions,
    make_cluster,
    split_session,
    write_clusters,
)
from noctuary.compact.summaries import ClusterSources, iter_cluster_texts
from noctuary.core.errors import StoreError
from noctuary.core.files import write_array
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.sources.corpus import MEMORIES_FILE, TURNS_FILE, read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.open import open_source
from noctuary.text.marks import CLOSING_CHARS, QUESTION_MARKS, ends_as_question
from tests.support.turns import (
    HOUR_US,
    cluster_index,
    cluster_turns,
    session_turns,
    turn,
    word_vectors,
)


def test_a_cluster_says_whose_it_is_who_grouped_it_and_when_it_was() -> None:
    turns = [turn(0, created_at_us=UNDATED_US), turn(1), turn(2)]
    members = session_turns([t._replace(user="u", wing="w") for t in turns])
    cluster, only = make_cluster(members, "plan", 3), make_cluster(members[:1], "plan", 0)
    assert (cluster.user, cluster.wing, cluster.session_id) == ("u", "w", "s")
    assert (cluster.strategy, cluster.ordinal, cluster.trivial) == ("plan", 3, False)
    assert (cluster.member_ids, cluster.member_positions) == (("m0", "m1", "m2"), (0, 1, 2))
    assert (cluster.first_us, cluster.last_us) == (HOUR_US, 2 * HOUR_US), "of its dated members"
    assert (only.first_us, only.last_us, only.trivial) == (UNDATED_US, UNDATED_US, True)


def test_turns_are_ordered_by_time_then_position_and_input_order_does_not_matter() -> None:
    same = [turn(i, created_at_us=HOUR_US) for i in (3, 1, 2)]
    early = turn(9, created_at_us=0)
    raw = [turn(20, is_turn=False), turn(21, session=None)]
    clusters = cluster_turns([*same, early, *raw], protected_tail=0)
    assert [c.member_positions for c in clusters] == [(9, 1, 2, 3)]
    assert clusters == cluster_turns([early, *reversed(same)], protected_tail=0)
    undated = [turn(i, created_at_us=UNDATED_US) for i in (4, 0, 1, 3, 2)]
    clusters = cluster_turns(undated, target=2, protected_tail=0)
    assert [c.member_positions for c in clusters] == [(0, 1), (2, 3), (4,)]
    assert [(c.ordinal, c.trivial) for c in clusters] == [(0, False), (1, False), (2, True)]


def test_a_cluster_never_mixes_users_or_wings() -> None:
    records = [turn(i, user="u" if i % 2 else "v", wing=f"w{i // 4}") for i in range(8)]
    clusters = cluster_turns(records, protected_tail=0)
    for cluster in clusters:
        members = {(records[i].user, records[i].wing) for i in cluster.member_positions}
        assert members == {(cluster.user, cluster.wing)}
    assert sorted(i for c in clusters for i in c.member_positions) == list(range(8))
    assert len(clusters) == 4


def test_two_users_with_one_session_id_each_keep_their_own_tail() -> None:
    records = [turn(i, user="u" if i < 5 else "v") for i in range(10)]
    assert [c.member_positions for c in cluster_turns(records)] == [(0,), (5,)]
    nobody = [turn(i, user=None if i < 5 else "v") for i in range(10)]
    assert [c.user for c in cluster_turns(nobody)] == [None, "v"]


def test_an_id_is_stable_over_nights_and_changes_with_an_edit() -> None:
    records = [turn(i) for i in range(30)]
    before = cluster_turns(records)
    moved = [r._replace(position=r.position + 7) for r in records]
    assert [c.cluster_id for c in cluster_turns(moved)] == [c.cluster_id for c in before]
    after = cluster_turns([records[0]._replace(content_hash="edited"), *records[1:]])
    assert after[0].cluster_id != before[0].cluster_id
    assert after[1].cluster_id == before[1].cluster_id
    members = session_turns(records[:3])
    renamed = session_turns([r._replace(session_id="t") for r in records[:3]])
    ids = [
        make_cluster(turns, strategy, ordinal).cluster_id
        for turns, strategy, ordinal in (
            (members, "plan", 0), (members, "plan", 5), (members, "chronological", 0),
            (renamed, "plan", 0), (members[:2], "plan", 0),
        )
    ]  # fmt: skip
    assert ids[0] == ids[1]
    assert len({c.cluster_id for c in before} | set(ids)) == len(before) + 4
    assert {len(cluster_id) for cluster_id in ids} == {16}


def test_chronological_groups_are_the_formula_turn_by_turn() -> None:
    turns = session_turns([turn(i) for i in range(47)])
    found = cluster_session(turns, 10, protected_tail=0)[0]
    placed = {i: c.ordinal for c in found for i in c.member_positions}
    assert placed == {i: cluster_index(i, 47, 5) for i in range(47)}
    assert {c.strategy for c in found} == {"chronological"}


NOW_US = 10_000 * HOUR_US


def chat(*contents: str) -> list[SessionTurn]:
    return session_turns([turn(i, content=content) for i, content in enumerate(contents)])


def split(turns: Sequence[SessionTurn], tail: int = PROTECTED_TAIL_TURNS) -> Eligibility:
    return split_session(turns, protected_tail=tail, now_us=NOW_US)


def places(turns: Sequence[SessionTurn]) -> list[int]:
    return [t.position for t in turns]


def alternating(turns: int, request: str = "User: do it.") -> list[SessionTurn]:
    return chat(*(request if i % 2 == 0 else "Assistant: Done." for i in range(turns)))


@pytest.mark.parametrize(
    ("turns", "tail", "eligible", "protected", "bundled"),
    [
        (10, 4, 6, 4, 0),  # a tail that begins with a request stays as it is
        # Turn 7 answers turn 6; turn 5 answers turn 4 and is not coupled to turn 6.
        (10, 3, 6, 4, 1),
        (6, 0, 6, 0, 0),
        (6, -3, 6, 0, 0),
        (4, PROTECTED_TAIL_TURNS, 0, 4, 0),
        (3, 4, 0, 3, 0),
        (0, 4, 0, 0, 0),
    ],
)
def test_the_newest_turns_stay_raw(
    turns: int, tail: int, eligible: int, protected: int, bundled: int
) -> None:
    found = split(alternating(turns), tail)
    assert places(found.eligible) == list(range(eligible))
    assert found[1:] == (protected, bundled, 0, 0)


def test_an_alternating_chat_is_not_swallowed_by_its_tail() -> None:
    """The reference's coupling in both directions left nothing to compact (peers.md 1.4)."""
    for tail in range(1, 8):
        for request in ("User: do it.", "Bo: Is it done?"):
            assert split(alternating(40, request), tail).protected <= tail + 1


UTTERANCES = ("Ann: hi", "Bo: Look.", "Bo: Is it red?", "Ann: Yes.", "Ann: Very.", "Bo: Good.")
BOOKING = ("User: Book it.", "Assistant: Which day?", "User: Friday.", "Assistant: Booked.")
FAR = ("Ann: Why?", *["Bo: Because."] * MAX_BUNDLE_TURNS, "Bo: That is all.")


@pytest.mark.parametrize(
    ("contents", "tail", "start"),
    [
        # The tail begins in the middle of Ann's answer: answer and question come along whole.
        (UTTERANCES, 4, 1),
        (UTTERANCES, 3, 1),
        # People are coupled by a question mark only.
        (("Ann: I was in Rome.", "Bo: So was I."), 1, 1),
        (("Ann: Were you in Rome?", "Bo: Yes."), 1, 0),
        (("were you in Rome?", "yes"), 1, 0),
        # Between roles a response that asks back is no request.
        (BOOKING, 2, 2),
        (BOOKING, 1, 0),
        (FAR, len(FAR) - 1, len(FAR) - 1),
    ],
)
def test_a_bundle_begins_with_its_request(contents: tuple[str, ...], tail: int, start: int) -> None:
    assert bundle_start(chat(*contents), tail) == start


def test_a_turn_from_the_future_stays_raw_and_displaces_no_other() -> None:
    records = [turn(i, content=f"line {i}") for i in range(10)]
    ahead = [turn(i, created_at_us=NOW_US + i) for i in (20, 21, 22)]
    plain = split(session_turns(records))
    found = split(session_turns([*records, *ahead]))
    assert found.ahead == 3
    assert found.eligible == plain.eligible
    assert found.protected == plain.protected
    turns = session_turns([*records, *ahead])
    later = split_session(turns, protected_tail=4, now_us=NOW_US + HOUR_US)
    assert (later.ahead, len(later.eligible)) == (0, 9)


def test_a_giant_turn_stays_raw_and_its_neighbours_do_not() -> None:
    records = [turn(i, content=f"line {i}") for i in range(10)]
    records[3] = turn(3, content="x" * 2**20)
    records[4] = turn(4, content="x" * GIANT_TURN_CHARS)
    found = split(session_turns(records))
    assert places(found.eligible) == [0, 1, 2, 4, 5]
    assert found.giant == 1


_TURN = st.sampled_from(
    ["User: a", "User: a?", "Assistant: b", "Assistant: b?", "Ann: c?", "Bo: d", "e", "f?"]
)


@given(st.lists(_TURN, max_size=40), st.integers(-2, 12), st.integers(0, 50))
def test_every_turn_is_in_one_place_and_the_tail_in_bounds(
    contents: list[str], tail: int, now: int
) -> None:
    turns = chat(*contents)
    found = split_session(turns, protected_tail=tail, now_us=now * HOUR_US)
    counted = len(found.eligible) + found.protected + found.ahead + found.giant
    assert counted == len(turns)
    present = len(turns) - found.ahead
    asked_for = min(max(tail, 0), present)
    assert found.protected == asked_for + found.bundled
    assert 0 <= found.bundled <= MAX_BUNDLE_TURNS
    assert places(found.eligible) == list(range(len(found.eligible)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clusters.parquet"


@pytest.fixture(scope="module")
def clusters() -> list[Cluster]:
    records = [turn(i, f"s{i % 7}", user="u" if i % 2 else None, wing="w") for i in range(40)]
    records.append(turn(99, "undated", created_at_us=UNDATED_US))
    return cluster_turns(records, target=2, protected_tail=0)


def test_clusters_come_back_as_they_were(
    path: Path, clusters: list[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert write_clusters(path, clusters) == len(clusters)
    before = path.read_bytes()
    assert list(iter_clusters(path)) == clusters
    write_clusters(path, iter(clusters))
    assert path.read_bytes() == before
    monkeypatch.setattr(cluster_table, "ROW_GROUP_ROWS", 3)
    write_clusters(path, iter(clusters))
    assert pq.read_metadata(path).num_row_groups == -(-len(clusters) // 3)
    assert list(iter_clusters(path)) == clusters
    assert write_clusters(path, []) == 0
    assert list(iter_clusters(path)) == []


def test_the_old_table_stays_where_clustering_fails(path: Path, clusters: list[Cluster]) -> None:
    def failing() -> Iterator[Cluster]:
        yield clusters[0]
        raise RuntimeError("the power went out")

    write_clusters(path, clusters)
    with pytest.raises(RuntimeError):
        write_clusters(path, failing())
    assert list(iter_clusters(path)) == clusters
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_what_is_no_cluster_table_is_refused(path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        list(iter_clusters(path))
    path.write_bytes(b"no table")
    with pytest.raises(StoreError, match="run the night again"):
        list(iter_clusters(path))
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(StoreError, match=r"has columns \['x'\], expected \['cluster_id'"):
        list(iter_clusters(path))


DAY = "2026-03-01"
READ_US = 1_800_000_000_000_000


def export(folder: Path, lines: Sequence[dict[str, Any]]) -> list[MemoryRecord]:
    source = folder / "memories.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with closing(open_source(source)) as opened:
        export_corpus(opened, folder, now_us=READ_US)
    return read_records(folder / MEMORIES_FILE)


def line(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": number,
        "content": f"Ana: turn number {number}.",
        "category": "turn",
        "session_id": "s",
        "created_at": f"{DAY}T10:{number:02d}:00Z",
        **fields,
    }


def mixed_lines(count: int, seed: int) -> list[dict[str, Any]]:
    """Sessions, users, wings, speakers, dates and question marks by chance; some lines no turns."""
    drawn = random.Random(seed)
    contents = ("Ana: Why?", 'Bo: "Really?" ', "User: Do it.", "Assistant: Done.", "ja？", "x )\n")
    lines = [
        line(
            number,
            content=f"{drawn.choice(contents)}{' ' * drawn.randint(0, 3)}",
            session_id=drawn.choice(["s", "t", "ü", "S", "a longer name"]),
            user=drawn.choice([None, "ann", "Bo"]),
            wing=drawn.choice([None, "w", "v"]),
            category=drawn.choice(["turn", "turn", "turn", "fact"]),
            created_at=drawn.choice(
                [None, f"{DAY}T{drawn.randint(0, 23):02d}:00:00Z", "2199-01-01"]
            ),
        )
        for number in range(count)
    ]
    drawn.shuffle(lines)
    return lines


def from_files(folder: Path, target: int, tail: int) -> list[Cluster]:
    return [
        cluster
        for turns in iter_sessions(folder / TURNS_FILE, folder / MEMORIES_FILE)
        for cluster in cluster_session(turns, target, protected_tail=tail, now_us=READ_US)[0]
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tail", [0, 4])
def test_files_give_the_clusters_that_records_give(tmp_path: Path, seed: int, tail: int) -> None:
    records = export(tmp_path, mixed_lines(250, seed))
    expected = cluster_turns(records, target=6, protected_tail=tail, now_us=READ_US)
    assert from_files(tmp_path, 6, tail) == expected
    assert expected


def test_the_two_ways_of_finding_a_question_agree(tmp_path: Path) -> None:
    ends = ["", "?", "?!", *CLOSING_CHARS, *QUESTION_MARKS]
    contents = [f"Ana: so{a}{b}" for a in ends for b in ends] + ["?", '")?', "…"]
    records = export(
        tmp_path, [line(i, content=c, created_at=None) for i, c in enumerate(contents)]
    )
    (session,) = iter_sessions(tmp_path / TURNS_FILE, tmp_path / MEMORIES_FILE)
    asks = [naive_asks(r.content) for r in records]
    assert [t.asks for t in session] == [ends_as_question(r.content) for r in records] == asks
    assert [t.chars for t in session] == [len(r.content) for r in records]


def naive_asks(content: str) -> bool:
    for place in range(len(content) - 1, -1, -1):
        if content[place] not in CLOSING_CHARS:
            return content[place] in QUESTION_MARKS
    return False


def test_what_is_empty_blank_or_deleted_never_becomes_a_turn(tmp_path: Path) -> None:
    lines = [line(i) for i in range(5)]
    lines += [line(5, content=""), line(6, content=" \n\t"), line(7, deleted_at=f"{DAY}T00:00:00Z")]
    export(tmp_path, lines)
    (session,) = iter_sessions(tmp_path / TURNS_FILE, tmp_path / MEMORIES_FILE)
    assert [t.memory_id for t in session] == ["0", "1", "2", "3", "4"]


def test_turns_out_of_order_come_in_order_and_undated_ones_first(tmp_path: Path) -> None:
    dates = f"{DAY}T12:00:00Z", None, f"{DAY}T09:00:00Z", f"{DAY}T09:00:00Z", None, "2190-01-01"
    # A turn that was stored twice under two ids: both are sources, neither is dropped.
    lines = [line(i, created_at=at, content="Ana: the same") for i, at in enumerate(dates)]
    export(tmp_path, lines)
    (session,) = iter_sessions(tmp_path / TURNS_FILE, tmp_path / MEMORIES_FILE)
    assert [t.memory_id for t in session] == ["1", "4", "2", "3", "0", "5"]
    later = [count_later(tmp_path / TURNS_FILE, at * READ_US) for at in (1, 2, 10)]
    assert later == [1, 1, 0]


def test_a_store_without_turns_has_no_sessions(tmp_path: Path) -> None:
    export(tmp_path, [line(0, category="fact")])
    assert list(iter_sessions(tmp_path / TURNS_FILE, tmp_path / MEMORIES_FILE)) == []
    sources = store_clusters(tmp_path, [])
    assert list(iter_cluster_texts(sources)) == []


def store_clusters(folder: Path, clusters: Sequence[Cluster]) -> ClusterSources:
    records = read_records(folder / MEMORIES_FILE)
    paths = folder / "clusters.parquet", folder / MEMORIES_FILE, folder / "memories.npy"
    write_clusters(paths[0], clusters)
    write_array(paths[2], word_vectors([r.content for r in records]))
    return ClusterSources(*paths)


@pytest.mark.parametrize("bounds", [(256, 4_000_000), (3, 4_000_000), (256, 60)])
def test_texts_and_vectors_are_those_of_the_members(
    tmp_path: Path, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = export(tmp_path, mixed_lines(120, seed=5))
    vectors = word_vectors([r.content for r in records])
    # Clusters need not be runs of neighbours: those of compaction plans are not.
    runs = cluster_turns(records, target=5, protected_tail=0)
    clusters = [replace(c, member_positions=c.member_positions[::-1]) for c in runs]
    sources = store_clusters(tmp_path, clusters)
    monkeypatch.setattr(streaming, "BATCH_CLUSTERS", bounds[0])
    monkeypatch.setattr(streaming, "BATCH_CHARS", bounds[1])
    batches = list(iter_cluster_texts(sources))
    assert len(batches) > 1 or bounds == (256, 4_000_000)
    texts = [text for batch in batches for text in batch]
    assert [text.cluster for text in texts] == clusters
    for cluster, contents, rows in texts:
        assert list(contents) == [records[p].content for p in cluster.member_positions]
        assert np.array_equal(rows, vectors[list(cluster.member_positions)])


def test_skipped_clusters_come_without_texts_and_shift_no_other(tmp_path: Path) -> None:
    records = export(tmp_path, mixed_lines(120, seed=6))
    clusters = cluster_turns(records, target=4, protected_tail=0)
    sources = store_clusters(tmp_path, clusters)
    skipped = {c.cluster_id for c in clusters[::3]}
    (batch,) = iter_cluster_texts(sources, skip=skipped)
    assert [text.cluster for text in batch] == clusters
    for cluster, contents, rows in batch:
        wanted = () if cluster.cluster_id in skipped else cluster.member_positions
        assert list(contents) == [records[p].content for p in wanted]
        assert len(rows) == len(wanted)
    (nothing,) = iter_cluster_texts(sources, skip={c.cluster_id for c in clusters})
    assert not any(text.contents for text in nothing)


MATRIX = np.arange(40, dtype=np.float32).reshape(10, 4)


@pytest.fixture(scope="module")
def vectors_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vectors_file = tmp_path_factory.mktemp("vectors") / "memories.npy"
    write_array(vectors_file, MATRIX)
    return vectors_file


@given(
    positions=st.lists(st.integers(0, 9), max_size=15),
    part=st.builds(slice, st.integers(0, 12), st.integers(0, 40), st.integers(1, 4)),
)
def test_rows_are_those_of_the_mapped_array(
    vectors_file: Path, positions: list[int], part: slice
) -> None:
    rows = VectorRows(vectors_file)
    taken, sliced = rows.take(positions), rows[part]
    assert len(rows) == 10
    assert (taken.dtype, taken.shape) == (np.float32, (len(positions), 4))
    assert np.array_equal(taken, MATRIX[positions])
    assert sliced.dtype == np.float32
    assert np.array_equal(sliced, MATRIX[part])


def test_a_row_that_is_not_there_is_an_error(tmp_path: Path, vectors_file: Path) -> None:
    for position in (-1, 10):
        with pytest.raises(IndexError, match="of a matrix of 10 rows"):
            VectorRows(vectors_file).take([position])
    path = tmp_path / "memories.npy"
    write_array(path, MATRIX)
    rows = VectorRows(path)
    with path.open("r+b") as handle:
        handle.truncate(path.stat().st_size - 8)
    with pytest.raises(StoreError, match="cut short"):
        rows.take([9])


def test_what_is_no_matrix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a readable array"):
        VectorRows(tmp_path / "none.npy")
    write_array(tmp_path / "flat.npy", np.arange(4.0))
    with pytest.raises(StoreError, match="expected rows of vectors"):
        VectorRows(tmp_path / "flat.npy")
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(StoreError, match="run the night again"):
        VectorRows(tmp_path / "torn.npy")
