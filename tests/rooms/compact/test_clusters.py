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
    cut_evenly,
    iter_clusters,
    iter_sessions,
    make_cluster,
    partition_sizes,
    split_session,
    write_clusters,
)
from noctuary.compact.summaries import ClusterSources, iter_cluster_texts
from noctuary.core.errors import StoreError
from noctuary.core.files import write_array
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.sources.corpus import MEMORIES_FILE, TURNS_FILE, read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.source import open_source
from noctuary.text.marks import CLOSING_CHARS, QUESTION_MARKS, ends_as_question
from tests.support.turns import (
    HOUR_US,
    cluster_index,
    cluster_turns,
    session_turns,
    turn,
    word_vectors,
)


@pytest.mark.parametrize(
    ("turns", "target", "sizes"),
    [
        (0, 20, []),
        (1, 20, [1]),
        (7, 20, [7]),
        (20, 20, [20]),
        (21, 20, [11, 10]),
        (45, 20, [15, 15, 15]),
        (5, 2, [2, 2, 1]),
        (3, 1, [1, 1, 1]),
        (41, 0, [14, 14, 13]),
        (41, -7, [14, 14, 13]),
    ],
)
def test_partition_sizes_follow_the_formula(turns: int, target: int, sizes: list[int]) -> None:
    assert partition_sizes(turns, target) == sizes
    run = session_turns([turn(i) for i in range(turns)])
    parts = cut_evenly(run, target)
    assert [len(part) for part in parts] == sizes
    assert [t for part in parts for t in part] == run


def test_a_cluster_s_time_is_that_of_its_dated_members() -> None:
    undated, *dated = session_turns([turn(0, created_at_us=UNDATED_US), turn(1), turn(2)])
    cluster = make_cluster([undated, *dated], "chronological", 0)
    assert (cluster.first_us, cluster.last_us) == (HOUR_US, 2 * HOUR_US)
    only = make_cluster([undated], "chronological", 0)
    assert (only.first_us, only.last_us) == (UNDATED_US, UNDATED_US)
    assert only.trivial
    assert not cluster.trivial


def test_a_cluster_says_whose_it_is_and_who_grouped_it() -> None:
    members = session_turns([turn(i, user="u", wing="w") for i in range(2)])
    cluster = make_cluster(members, "plan", 3)
    assert (cluster.user, cluster.wing, cluster.session_id) == ("u", "w", "s")
    assert (cluster.strategy, cluster.ordinal) == ("plan", 3)
    assert cluster.member_ids == ("m0", "m1")
    assert cluster.member_positions == (0, 1)


def test_an_id_depends_on_strategy_session_members_and_their_texts_alone() -> None:
    records = [turn(i) for i in range(3)]
    before = make_cluster(session_turns(records), "chronological", 0).cluster_id
    moved = session_turns([r._replace(position=r.position + 7) for r in records])
    assert make_cluster(moved, "chronological", 5).cluster_id == before
    assert len(before) == 16
    edited = session_turns([records[0]._replace(content_hash="edited"), *records[1:]])
    renamed = session_turns([r._replace(session_id="t") for r in records])
    others = {
        make_cluster(edited, "chronological", 0).cluster_id,
        make_cluster(renamed, "chronological", 0).cluster_id,
        make_cluster(session_turns(records), "plan", 0).cluster_id,
        make_cluster(session_turns(records[:2]), "chronological", 0).cluster_id,
    }
    assert len(others | {before}) == 5


def test_sessions_keep_their_own_tails() -> None:
    records = [turn(i, "a") for i in range(10)] + [turn(i, "b") for i in range(10, 14)]
    clusters = cluster_turns(records)
    assert [c.session_id for c in clusters] == ["a"]
    assert clusters[0].member_positions == tuple(range(6))


def test_turns_are_ordered_by_time_then_position_and_input_order_does_not_matter() -> None:
    same = [turn(i, created_at_us=HOUR_US) for i in (3, 1, 2)]
    early = turn(9, created_at_us=0)
    clusters = cluster_turns([*same, early], protected_tail=0)
    assert clusters[0].member_positions == (9, 1, 2, 3)
    assert clusters == cluster_turns([early, *reversed(same)], protected_tail=0)


def test_a_session_without_times_is_clustered_in_source_order() -> None:
    records = [turn(i, created_at_us=UNDATED_US) for i in (2, 0, 1, 3)]
    clusters = cluster_turns(records, target=2, protected_tail=0)
    assert [c.member_positions for c in clusters] == [(0, 1), (2, 3)]
    assert {c.last_us for c in clusters} == {UNDATED_US}


def test_ordinals_count_through_the_wings_of_a_session() -> None:
    clusters = cluster_turns([turn(i) for i in range(5)], target=2, protected_tail=0)
    assert [c.trivial for c in clusters] == [False, False, True]
    assert [c.ordinal for c in clusters] == [0, 1, 2]


def test_memories_and_turns_without_a_session_stay_raw() -> None:
    records = [turn(0, is_turn=False), turn(1, session=None), turn(2)]
    clusters = cluster_turns(records, protected_tail=0)
    assert [c.member_ids for c in clusters] == [("m2",)]


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
    edited = [records[0]._replace(content_hash="edited"), *records[1:]]
    after = cluster_turns(edited)
    assert after[0].cluster_id != before[0].cluster_id
    assert after[1].cluster_id == before[1].cluster_id
    assert len({c.cluster_id for c in before}) == len(before)


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


def test_the_newest_turns_stay_raw() -> None:
    assert PROTECTED_TAIL_TURNS == 4
    found = split(chat(*(f"line {i}" for i in range(10))))
    assert places(found.eligible) == list(range(6))
    assert found.protected == 4


@pytest.mark.parametrize("turns", [0, 1, 3, 4])
def test_a_session_inside_its_tail_stays_raw_as_a_whole(turns: int) -> None:
    found = split(chat(*(f"line {i}" for i in range(turns))))
    assert found == Eligibility(eligible=[], protected=turns, bundled=0, ahead=0, giant=0)


@pytest.mark.parametrize("tail", [0, -3])
def test_without_a_tail_all_turns_are_eligible(tail: int) -> None:
    found = split(alternating(6), tail)
    assert len(found.eligible) == 6
    assert found.protected == 0


def test_an_answer_at_the_head_of_the_tail_takes_its_request_along() -> None:
    found = split(alternating(10), tail=3)
    # Turn 7 answers turn 6; turn 5 answers turn 4 and is not coupled to turn 6.
    assert places(found.eligible) == list(range(6))
    assert (found.protected, found.bundled) == (4, 1)


def test_a_tail_that_begins_with_a_request_stays_as_it_is() -> None:
    found = split(alternating(10), tail=4)
    assert (len(found.eligible), found.protected, found.bundled) == (6, 4, 0)


def test_an_alternating_chat_is_not_swallowed_by_its_tail() -> None:
    """The reference's coupling in both directions left nothing to compact (peers.md 1.4)."""
    for tail in range(1, 8):
        found = split(alternating(40), tail)
        assert found.protected <= tail + 1
        questions = split(alternating(40, request="Bo: Is it done?"), tail)
        assert questions.protected <= tail + 1


def test_consecutive_turns_of_a_speaker_are_one_utterance() -> None:
    turns = chat("Ann: hi", "Bo: Look.", "Bo: Is it red?", "Ann: Yes.", "Ann: Very.", "Bo: Good.")
    # The tail begins in the middle of Ann's answer: answer and question come along whole.
    assert bundle_start(turns, 4) == 1
    assert bundle_start(turns, 3) == 1


def test_people_are_coupled_by_a_question_mark_only() -> None:
    assert bundle_start(chat("Ann: I was in Rome.", "Bo: So was I."), 1) == 1
    assert bundle_start(chat("Ann: Were you in Rome?", "Bo: Yes."), 1) == 0
    assert bundle_start(chat("were you in Rome?", "yes"), 1) == 0


def test_between_roles_a_response_that_asks_back_is_no_request() -> None:
    turns = chat("User: Book it.", "Assistant: Which day?", "User: Friday.", "Assistant: Booked.")
    assert bundle_start(turns, 2) == 2
    assert bundle_start(turns, 1) == 0


@pytest.mark.parametrize("repeats", [MAX_BUNDLE_TURNS, 3 * MAX_BUNDLE_TURNS])
def test_a_question_too_far_back_is_not_reached_for(repeats: int) -> None:
    turns = chat("Ann: Why?", *["Bo: Because."] * repeats, "Bo: That is all.")
    assert bundle_start(turns, len(turns) - 1) == len(turns) - 1


def test_a_turn_from_the_future_stays_raw_and_displaces_no_other() -> None:
    records = [turn(i, content=f"line {i}") for i in range(10)]
    ahead = [turn(i, created_at_us=NOW_US + i) for i in (20, 21, 22)]
    plain = split(session_turns(records))
    found = split(session_turns([*records, *ahead]))
    assert found.ahead == 3
    assert found.eligible == plain.eligible
    assert found.protected == plain.protected
    later = split_session(
        session_turns([*records, *ahead]), protected_tail=4, now_us=NOW_US + HOUR_US
    )
    assert later.ahead == 0
    assert len(later.eligible) == 9


def test_undated_turns_count_as_the_oldest_in_source_order() -> None:
    records = [turn(i, created_at_us=UNDATED_US, content=f"line {i}") for i in range(6)]
    found = split(session_turns(records), tail=2)
    assert places(found.eligible) == [0, 1, 2, 3]
    assert found.ahead == 0


def test_a_giant_turn_stays_raw_and_its_neighbours_do_not() -> None:
    records = [turn(i, content=f"line {i}") for i in range(10)]
    records[3] = turn(3, content="x" * 2**20)
    records[4] = turn(4, content="x" * GIANT_TURN_CHARS)
    found = split(session_turns(records))
    assert places(found.eligible) == [0, 1, 2, 4, 5]
    assert found.giant == 1


@pytest.mark.parametrize(
    ("content", "asks"),
    [
        ("Why?", True),
        ('"Why?" ', True),
        ("Warum？", True),
        ("لماذا؟", True),
        ("Why? Because.", False),
        ("", False),
        (' ")', False),
    ],
)
def test_a_question_ends_in_a_question_mark(content: str, asks: bool) -> None:
    assert ends_as_question(content) is asks


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


def test_clusters_come_back_as_they_were(path: Path, clusters: list[Cluster]) -> None:
    assert write_clusters(path, clusters) == len(clusters)
    assert list(iter_clusters(path)) == clusters
    assert write_clusters(path, []) == 0
    assert list(iter_clusters(path)) == []


def test_row_groups_are_read_one_by_one(
    path: Path, clusters: list[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_table, "ROW_GROUP_ROWS", 3)
    write_clusters(path, iter(clusters))
    assert pq.read_metadata(path).num_row_groups == -(-len(clusters) // 3)
    assert list(iter_clusters(path)) == clusters


def test_equal_clusters_give_equal_bytes(path: Path, clusters: list[Cluster]) -> None:
    write_clusters(path, clusters)
    before = path.read_bytes()
    write_clusters(path, iter(clusters))
    assert path.read_bytes() == before


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
    assert [t.asks for t in session] == [naive_asks(r.content) for r in records]
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
    lines = [
        line(0, created_at=f"{DAY}T12:00:00Z"),
        line(1, created_at=None),
        line(2, created_at=f"{DAY}T09:00:00Z"),
        line(3, created_at=f"{DAY}T09:00:00Z"),
        line(4, created_at=None),
    ]
    export(tmp_path, lines)
    (session,) = iter_sessions(tmp_path / TURNS_FILE, tmp_path / MEMORIES_FILE)
    assert [t.memory_id for t in session] == ["1", "4", "2", "3", "0"]


def test_equal_turns_of_one_session_are_each_a_member(tmp_path: Path) -> None:
    """A turn that was stored twice under two ids: both are sources, neither is dropped."""
    export(tmp_path, [line(i, content="Ana: the same", created_at=None) for i in range(6)])
    (cluster,) = from_files(tmp_path, 0, 0)
    assert cluster.member_ids == ("0", "1", "2", "3", "4", "5")


def test_turns_dated_after_a_moment_are_counted(tmp_path: Path) -> None:
    export(tmp_path, [line(0), line(1, created_at="2190-01-01"), line(2, created_at=None)])
    assert count_later(tmp_path / TURNS_FILE, READ_US) == 1
    assert count_later(tmp_path / TURNS_FILE, 2 * READ_US) == 1
    assert count_later(tmp_path / TURNS_FILE, 10 * READ_US) == 0


def test_a_store_without_turns_has_no_sessions(tmp_path: Path) -> None:
    export(tmp_path, [line(0, category="fact")])
    assert list(iter_sessions(tmp_path / TURNS_FILE, tmp_path / MEMORIES_FILE)) == []
    sources = store_clusters(tmp_path, [])
    assert list(iter_cluster_texts(sources)) == []


def store_clusters(folder: Path, clusters: Sequence[Cluster]) -> ClusterSources:
    records = read_records(folder / MEMORIES_FILE)
    write_clusters(folder / "clusters.parquet", clusters)
    write_array(folder / "memories.npy", word_vectors([r.content for r in records]))
    return ClusterSources(
        folder / "clusters.parquet", folder / MEMORIES_FILE, folder / "memories.npy"
    )


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


@given(positions=st.lists(st.integers(0, 9), max_size=15))
def test_rows_are_those_of_the_mapped_array(vectors_file: Path, positions: list[int]) -> None:
    with VectorRows(vectors_file) as rows:
        taken = rows.take(positions)
    assert taken.dtype == np.float32
    assert taken.shape == (len(positions), 4)
    assert np.array_equal(taken, MATRIX[positions])


@pytest.mark.parametrize("position", [-1, 10])
def test_a_row_that_is_not_there_is_an_error(vectors_file: Path, position: int) -> None:
    with (
        VectorRows(vectors_file) as rows,
        pytest.raises(IndexError, match="of a matrix of 10 rows"),
    ):
        rows.take([position])


def test_what_is_no_matrix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a readable array"):
        VectorRows(tmp_path / "none.npy")
    write_array(tmp_path / "flat.npy", np.arange(4.0))
    with pytest.raises(StoreError, match="expected rows of vectors"):
        VectorRows(tmp_path / "flat.npy")
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(StoreError, match="run the night again"):
        VectorRows(tmp_path / "torn.npy")


def test_a_file_that_is_cut_after_it_was_opened_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "memories.npy"
    write_array(path, MATRIX)
    with VectorRows(path) as rows:
        with path.open("r+b") as handle:
            handle.truncate(path.stat().st_size - 8)
        with pytest.raises(StoreError, match="cut short"):
            rows.take([9])


def test_a_slice_is_that_of_the_matrix(tmp_path: Path) -> None:
    matrix = np.arange(60, dtype=np.float32).reshape(20, 3)
    np.save(tmp_path / "m.npy", matrix)
    with VectorRows(tmp_path / "m.npy") as rows:
        assert len(rows) == 20
        for part in (slice(0, 7), slice(18, 40), slice(9, 9), slice(12, 3), slice(1, 20, 4)):
            found = rows[part]
            assert found.dtype == matrix.dtype
            assert np.array_equal(found, matrix[part])
