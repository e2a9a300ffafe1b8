"""From the marks of a real palace to the graph of a night, and back when they are taken off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from noctuary.core.files import write_array, write_json
from noctuary.core.store import StorePaths
from noctuary.curate.promotions import SIGNALS_KIND
from noctuary.embed.documents import keyed_memories, put_vectors, text_key, vector_kind
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.evaluate.queries import Questions
from noctuary.graph.extract import EXTRACTION_KIND
from noctuary.graph.extract import iter_keyed as keyed_extractions
from noctuary.graph.llm import TRIPLES_KIND
from noctuary.lexical.build import TOKENS_KIND
from noctuary.sources.evidence import EVIDENCE_FILES
from noctuary.sources.export import clean_kind
from noctuary.work.content import KEY, ContentStore, Keys
from noctuary.work.shards import fragment_path
from noctuary.work.stage import Stage, StageOutput, StageResult
from noctuary_assets import housekeeping
from noctuary_assets import night as context
from noctuary_assets.graph import connect_memories, load_tables, names_kind, open_extractor
from noctuary_assets.index import MEMORY_VECTORS, index_memories
from noctuary_assets.ingest import CORPUS, export_memories, told_inputs
from noctuary_assets.night import (
    ABSTENTION,
    CONTENT,
    EVALUATION_QUERIES,
    GRAPH,
    MEMORIES,
    SHARDS,
    SUMMARIES,
    VECTORS,
    Night,
)
from tests.support.clusters import write_summaries
from tests.support.graph_objects import to_graph
from tests.support.palaces import drawer, make_palace, update_drawers
from tests.support.promotions import DIM, ENCODER, Nights, turn

TOLD_DIM = 8
TOLD_ENCODER = EncoderFingerprint("m", "0" * 64, TOLD_DIM, "mean", True, "", "", 64)
DRAWERS = (
    drawer("a_old", "We deploy with Jenkins."),
    drawer("b_new", "Deployments go through the runners.", filed_at="2026-05-01T00:00:00"),
    drawer("c_part", "Lunch is at noon."),
    drawer("d_sum", "What the week was like."),
)
MARKS = {
    "a_old": {"superseded_by": "b_new"},
    "c_part": {"status": "consolidated", "consolidated_into": "d_sum"},
}


def night(root: Path) -> tuple[Night, StageResult]:
    """Export, embed so that nothing is near anything, and connect."""
    night = Night(StorePaths(root / "store"), root / "palace")
    night.encoder.fingerprint = TOLD_ENCODER
    export_memories(night)

    def body() -> StageOutput:
        write_array(night.work(VECTORS), np.eye(len(DRAWERS), TOLD_DIM, dtype=np.float32))
        return StageOutput(len(DRAWERS), {})

    night.run(MEMORY_VECTORS, {}, body)
    return night, connect_memories(night)


def graph_files(night: Night) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in night.work(GRAPH).iterdir()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_palace(tmp_path / "palace", DRAWERS)
    return tmp_path


def test_a_mark_reaches_the_graph_and_leaves_it_with_the_next_night(root: Path) -> None:
    plain, first = night(root)
    unmarked = graph_files(plain)
    assert told_inputs(plain) == {}
    assert not [name for name in EVIDENCE_FILES if (plain.work("corpus") / name).exists()]
    update_drawers(root / "palace", MARKS)
    told, marked = night(root)
    graph = to_graph(load_tables(told))
    assert [(s.older_position, s.newer_position) for s in graph.supersessions] == [(0, 1)]
    assert [(e.src_position, e.relation, e.dst_position) for e in graph.edges] == [
        (2, "part_of", 3)
    ]
    assert not marked.reused
    assert marked.notes["memories_extracted"] == 0, "no text was read for it"
    assert marked.notes["memories_touched"] == 2
    assert night(root)[1].reused
    none = {name: dict.fromkeys(marks) for name, marks in MARKS.items()}
    update_drawers(root / "palace", none)
    cleared, last = night(root)
    assert graph_files(cleared) == unmarked
    assert (last.digest, last.facts) == (first.digest, first.facts)


def test_nights_with_changing_marks_end_as_a_first_night(root: Path, tmp_path: Path) -> None:
    night(root)
    update_drawers(root / "palace", {**MARKS, "b_new": {"superseded_by": "d_sum"}})
    night(root)
    update_drawers(root / "palace", {"b_new": {"superseded_by": None, "supersedes": "d_sum"}})
    kept, _ = night(root)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "palace").symlink_to(root / "palace")
    assert graph_files(kept) == graph_files(night(fresh)[0])
    assert len(to_graph(load_tables(kept)).supersessions) == 2


def test_after_a_stage_that_worked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nights, done = Nights(tmp_path), list[str]()
    monkeypatch.setattr(context, "give_back", lambda: done.append("given back"))
    night = Night(nights.paths, nights.source)

    def body() -> StageOutput:
        done.append("worked")
        return StageOutput(1, {})

    night.run(Stage("letters", "1"), {"of": 1}, body)
    assert done == ["worked", "given back"]
    assert night.run(Stage("letters", "1"), {"of": 1}, body).reused
    assert done == ["worked", "given back"], "nothing was freed"


CANARY = "zyzzyvacanary"
KEPT = {"content": "Nina keeps bees in Ulm.", "category": "facts"}
LOST = turn(f"Nina: my {CANARY} lives in Ulm.", 1)


UNASKED = {"sealed": None, "said": [], "asked": []}


class Forgetting(Nights):
    """Nights as far as the content store goes; vectors by hand."""

    def __init__(self, root: Path, face: str) -> None:
        super().__init__(root)
        self.face = face

    def prepare(self) -> Night:
        """Export, and compute what the content store keeps."""
        night = Night(self.paths, self.source)
        night.encoder.fingerprint = ENCODER
        export_memories(night)
        rows, facts = night.result_of(CORPUS).rows, {"face": self.face}
        key = {"corpus": night.result_of(CORPUS).digest}
        night.run(MEMORY_VECTORS, key, lambda: StageOutput(rows, facts), places=())
        index_memories(night)
        open_extractor(night).fill(keyed_extractions(night.work(MEMORIES)))
        write_summaries(night.work(SUMMARIES), [])
        for name, told in ((EVALUATION_QUERIES, Questions().to_json()), (ABSTENTION, UNASKED)):
            write_json(night.work(name), told)
        self.embed(night)
        return night

    def embed(self, night: Night) -> None:
        """Keep a vector of every memory."""
        (batch,) = keyed_memories(night.work(MEMORIES))
        keys = batch.column(KEY).to_pylist()
        vectors = {key: np.ones(DIM, np.float32) for key in keys}
        put_vectors(night.content(vector_kind(ENCODER, self.face)), vectors)


def bytes_below(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


@pytest.mark.parametrize("face", ["onnx", "openai", ""])
def test_a_memory_that_is_gone_leaves_no_byte(tmp_path: Path, face: str) -> None:
    nights = Forgetting(tmp_path, face)
    nights.write(KEPT, LOST)
    night = nights.prepare()
    content = night.work(CONTENT)
    lost = text_key(LOST["content"])
    kinds = [TOKENS_KIND, EXTRACTION_KIND, vector_kind(ENCODER, face)]
    assert [night.content(kind).rows for kind in kinds] == [2, 2, 2]
    assert CANARY.encode() in bytes_below(content)
    assert lost in bytes_below(content)

    nights.write(KEPT)
    night = nights.prepare()
    # What a killed task, another kind and an earlier version left.
    night.content("tokens:0").directory.mkdir()
    (night.content("tokens:0").directory / "x.arrow").write_text(CANARY)
    (fragment_path(night.content(TOKENS_KIND).directory, "half")).write_text(CANARY)
    night.work(SHARDS).mkdir(exist_ok=True)
    (night.work(SHARDS) / "x.rows.arrow").write_text(CANARY)
    for name in ("memo.sqlite", "memo.sqlite-wal", "graph_near.json", "graph_names.json"):
        night.work(name).write_text(CANARY)
    old = ("evaluation/generated.json", "stamps/generated_queries.json", "fragments/0/x.arrow")
    for name in old:
        night.work(name).parent.mkdir(parents=True, exist_ok=True)
        night.work(name).write_text(CANARY)
    housekeeping.tidy(night)

    assert CANARY.encode() not in bytes_below(night.paths.work)
    assert lost not in bytes_below(night.paths.work)
    assert lost.hex().encode() not in bytes_below(night.paths.work)
    assert not night.work(SHARDS).exists()
    assert {p.name for p in content.iterdir()} == {
        night.content(kind).directory.name for kind in (*kinds, clean_kind("rows"))
    }
    assert [night.content(kind).rows for kind in kinds] == [1, 1, 1]
    vectors = night.content(kinds[2])
    assert (vectors.find([text_key(KEPT["content"]), lost]) >= 0).tolist() == [True, False]


def test_the_vector_of_a_question_stays_while_it_is_asked(tmp_path: Path) -> None:
    nights = Forgetting(tmp_path, "onnx")
    nights.write(KEPT)
    night = nights.prepare()
    asked, dropped = map(text_key, ("where do the bees live", f"who keeps a {CANARY}"))
    vectors = night.content(vector_kind(ENCODER, "onnx"))
    put_vectors(vectors, dict.fromkeys((asked, dropped), np.ones(DIM, np.float32)))
    write_json(night.work(ABSTENTION), {**UNASKED, "asked": [asked.hex()]})
    housekeeping.tidy(night)
    found = night.content(vectors.kind).find([asked, dropped, text_key(KEPT["content"])])
    assert (found >= 0).tolist() == [True, False, True]


def looked_at(night: Night, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tidy, and return the kinds whose keys were compared."""
    kinds: list[str] = []
    prune = ContentStore.prune

    def count(store: ContentStore, live: Keys) -> int:
        kinds.append(store.kind)
        return prune(store, live)

    with monkeypatch.context() as patch:
        patch.setattr(ContentStore, "prune", count)
        housekeeping.tidy(night)
    return kinds


def test_keys_are_compared_only_where_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [TOKENS_KIND, EXTRACTION_KIND, vector_kind(ENCODER, "onnx")]
    kinds = sorted([*own, SIGNALS_KIND, TRIPLES_KIND])
    nights = Forgetting(tmp_path, "onnx")
    nights.write(KEPT, LOST)
    night = nights.prepare()
    assert sorted(looked_at(night, monkeypatch)) == kinds
    half = fragment_path(night.content(TOKENS_KIND).directory, "half")
    half.write_text(CANARY)
    assert looked_at(night, monkeypatch) == []
    assert not half.exists(), "what a killed night left goes all the same"
    nights.write(KEPT)
    night = nights.prepare()
    assert sorted(looked_at(night, monkeypatch)) == kinds
    assert looked_at(night, monkeypatch) == []


def test_what_a_refused_night_brought_back_is_forgotten_again(tmp_path: Path) -> None:
    """Its results are those of before; no tidying saw it."""
    nights = Forgetting(tmp_path, "onnx")
    for tidied in (True, False):
        nights.write(KEPT, LOST)
        nights.prepare()  # refused: published nothing, tidied nothing
        nights.write(KEPT)
        night = nights.prepare()
        assert CANARY.encode() in bytes_below(night.work(CONTENT)), tidied
        housekeeping.tidy(night)
        assert CANARY.encode() not in bytes_below(night.work(CONTENT))


def test_vectors_of_summaries_and_names_stay_while_these_are_there(tmp_path: Path) -> None:
    nights = Forgetting(tmp_path, "onnx")
    nights.write(KEPT)
    night = nights.prepare()
    vectors = night.content(vector_kind(ENCODER, "onnx"))
    put_vectors(vectors, {text_key(t): np.ones(DIM, np.float32) for t in ("a summary", "a name")})
    night.content(names_kind(night)).put([text_key("a name")], [b""])
    housekeeping.tidy(night)
    found = night.content(vectors.kind).find([text_key("a summary"), text_key("a name")])
    assert (found >= 0).tolist() == [False, True]
    assert night.content(names_kind(night)).rows == 1
    night.content(names_kind(night)).replace([], [])
    housekeeping.tidy(night)
    assert night.content(vectors.kind).find([text_key("a name")]).tolist() == [-1]


def test_a_night_begins_without_rows_of_a_killed_task(tmp_path: Path) -> None:
    nights = Forgetting(tmp_path, "onnx")
    left = nights.paths.work / SHARDS / "tokens" / "x.rows.arrow"
    left.parent.mkdir(parents=True)
    left.write_text(CANARY)
    housekeeping.sweep(nights.paths)
    assert not left.parent.parent.exists()
