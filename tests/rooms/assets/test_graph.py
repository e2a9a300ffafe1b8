"""The stage of the graph: what it reads, what it takes over from last night, what it drops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.errors import ConfigError, EncoderError, StoreError
from noctuary.core.files import remove_tree, write_array
from noctuary.core.settings import Settings
from noctuary.core.store import StorePaths
from noctuary.core.types import MemoryRecord
from noctuary.embed.documents import LIBRARY, text_key
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.sentence import SentenceEncoder
from noctuary.graph import build
from noctuary.graph.build import Extractions, choose_names
from noctuary.graph.extract import EXTRACTION_KIND, Extraction, extract, extraction_key
from noctuary.graph.guards import NameStats
from noctuary.graph.llm import TRIPLES_KIND, Extended, extend_extractions, live_triples, llm_inputs
from noctuary.graph.tables import FILES, GraphTables, schema_of
from noctuary.sources.corpus import RecordFile, read_records
from noctuary.work.content import as_rows
from noctuary.work.http import MAX_MEMORY_CHARS
from noctuary.work.stage import StageOutput, StageResult
from noctuary_assets import housekeeping
from noctuary_assets.graph import (
    _faults,  # pyright: ignore[reportPrivateUsage]
    connect_memories,
    load_tables,
    names_kind,
    open_extractions,
    open_extractor,
)
from noctuary_assets.index import MEMORY_VECTORS
from noctuary_assets.ingest import export_memories, read_told
from noctuary_assets.night import CONTENT, GRAPH, GRAPH_STATE, MEMORIES, VECTORS, Night
from tests.support.fake_server import FakeServer, Fault
from tests.support.graph_objects import to_graph
from tests.support.store import memory, renumber

DIM = 16
FINGERPRINT = EncoderFingerprint("m", "0" * 64, DIM, "mean", True, "", "", 64)
TEXTS = (
    "Blue Ridge\nA line of hills.",
    "we saw Blue Ridge in the fog",
    "Dana Whitfield works at Globex.",
    "Dana Whitfield works at Initech.",
    "Kubernetes\nRuns the pods.",
    "K8s: the cluster",
)
NAMED = ("error handling: we retry.", "handling of errors: we log.", "night shift: Dana.")
NAMES = ["error handling", "handling of errors", "night shift"]


class Encoder:
    """Names that speak of handling have one vector."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.seen: list[str] = []
        self._is_broken = is_broken

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield every text as a batch."""
        for place, text in enumerate(texts):
            if self._is_broken:
                raise EncoderError("the model's files are gone")
            self.seen.append(text)
            row = np.zeros((1, DIM), np.float32)
            row[0, 0 if "handling" in text else 1 + len(text) % (DIM - 1)] = 1.0
            yield [place], row


class Nights:
    """A store, its source, and nights on them; the progress keeps what it is told."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.file = root / "memories.jsonl"
        self.paths = StorePaths(root / "store")
        self.told: list[tuple[str, int, int]] = []

    def update(self, task: str, done: int, total: int) -> None:
        self.told.append((task, done, total))

    def export(self, texts: Sequence[str]) -> Night:
        rows = [
            {"id": n, "content": text, "created_at": f"2026-01-{n + 1:02}T00:00:00Z"}
            for n, text in enumerate(texts)
        ]
        self.file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        night = Night(self.paths, self.file, progress=self)
        export_memories(night)
        return night

    def run(
        self, texts: Sequence[str] = TEXTS, encoder: Encoder | None = None
    ) -> tuple[Night, StageResult]:
        """Export, embed so that no memory is near another, and connect."""
        night = self.export(texts)
        night.encoder.sentence = cast(SentenceEncoder, encoder)
        night.encoder.fingerprint = FINGERPRINT

        def body() -> StageOutput:
            write_array(night.work(VECTORS), np.eye(len(texts), DIM, dtype=np.float32))
            return StageOutput(len(texts), {} if encoder is None else {"face": LIBRARY})

        night.run(MEMORY_VECTORS, {"texts": list(texts)}, body)
        return night, connect_memories(night)


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def test_the_second_night_takes_everything_over_also_without_its_state(nights: Nights) -> None:
    _, first = nights.run()
    state = nights.paths.work / GRAPH_STATE
    written = state.stat().st_mtime_ns
    _, second = nights.run()
    assert (first.reused, second.reused) == (False, True)
    assert first.notes["memories_extracted"] == len(TEXTS)
    assert second.notes == {}
    assert state.stat().st_mtime_ns == written
    assert (second.digest, second.facts) == (first.digest, first.facts)
    state.unlink()
    assert nights.run()[1].reused
    _, slower = nights.run((*TEXTS, "one more"))
    assert slower.notes["memories_touched"] == len(TEXTS) + 1
    assert slower.notes["memories_extracted"] == 1
    assert slower.rows == first.rows


def test_a_newer_value_ends_the_older_one(nights: Nights) -> None:
    """What an edit changes, and that nothing else does: tests/e2e/test_incremental.py."""
    night, result = nights.run()
    graph = to_graph(load_tables(night))
    assert [(s.older_position, s.head_position) for s in graph.supersessions] == [(2, 3)]
    ends = {e.evidence[0].position: e.valid_to_us is None for e in graph.concept_edges}
    assert (ends[2], ends[3]) == (False, True)
    assert result.facts["closed_concept_edges"] == 1
    assert result.facts["supersessions_by_reason"] == {"newer_value": 1}
    assert (1, 0) in {(e.src_position, e.dst_position) for e in graph.edges}
    # A night after an edit reads one memory.
    _, edited = nights.run((*TEXTS[:1], "we saw Kubernetes there", *TEXTS[2:]))
    assert (edited.notes["memories_extracted"], edited.notes["memories_touched"]) == (1, 1)


def test_a_rule_file_makes_one_concept_of_two_until_it_changes(nights: Nights) -> None:
    _, first = nights.run()
    nights.paths.merges.write_text('same = [["K8s", "Kubernetes"]]\n')
    night, second = nights.run()
    assert (second.reused, second.facts["merges_by_reason"]["rule"]) == (False, 1)
    assert second.notes["memories_touched"] == 0
    concepts = to_graph(load_tables(night)).concepts
    assert {"K8s", "Kubernetes"} in [{c.canonical_name, *c.aliases} for c in concepts]
    nights.paths.merges.unlink()
    assert nights.run()[1].digest == first.digest
    nights.paths.merges.write_text("same = 3\n")
    with pytest.raises(ConfigError, match=r"merges\.toml"):
        nights.run()


_ID = st.sampled_from(["a", "b", "c", ""])
_POSITION = st.integers(-1, 3)


def tables_of(**rows: list[dict[str, Any]]) -> GraphTables:
    """Return tables with some columns filled and all others empty."""
    found: dict[str, Any] = {}
    for name in FILES:
        schema = schema_of(name)
        columns = {field.name: [r.get(field.name) for r in rows.get(name, [])] for field in schema}
        found[name] = pa.table(columns, schema=schema)
    return GraphTables(**found)


@given(
    st.sets(st.sampled_from("abc")),
    st.lists(st.tuples(_ID, _POSITION), max_size=6),
    st.lists(st.tuples(_ID, _ID), max_size=6),
    st.lists(st.tuples(_POSITION, _POSITION), max_size=6),
)
def test_faulty_rows_are_those_that_one_row_at_a_time_gives(
    known: set[str],
    edges: list[tuple[str, int]],
    stated: list[tuple[str, str]],
    chains: list[tuple[int, int]],
) -> None:
    tables = tables_of(
        concepts=[{"concept_id": key} for key in sorted(known)],
        edges=[{"concept_id": key, "evidence_position": at} for key, at in edges],
        concept_edges=[{"src_concept": one, "dst_concept": two} for one, two in stated],
        supersessions=[{"older_position": old, "head_position": head} for old, head in chains],
    )
    older = {old for old, _ in chains}
    without = [(key != "" and key not in known) or at < 0 for key, at in edges]
    dangling = [one not in known or two not in known for one, two in stated]
    assert {name: (rows.to_list(), said) for name, (rows, said) in _faults(tables).items()} == {
        "every_edge_names_its_evidence": (without, "without_evidence"),
        "every_statement_joins_two_concepts": (dangling, "dangling"),
        "every_successor_chain_ends": ([head in older for _, head in chains], "without_head"),
    }


def test_near_names_are_one_concept_and_a_later_night_embeds_only_new_ones(nights: Nights) -> None:
    _, result = nights.run(NAMED, Encoder())
    assert result.facts["merges_by_reason"] == {"embedding": 1}
    assert ("concept_vectors", 3, 3) in nights.told
    encoder = Encoder()
    night, result = nights.run((*NAMED, "day shift: Kim."), encoder)
    assert (encoder.seen, result.notes["names_embedded"]) == (["day shift"], 1)
    held = sorted(map(bytes, night.content(names_kind(night)).keys()))
    assert held == sorted(map(text_key, [*NAMES, "day shift"]))


def test_without_the_encoder_there_is_a_graph_and_another_night_tries(nights: Nights) -> None:
    _, without = nights.run(NAMED, Encoder(is_broken=True))
    assert without.facts["merges_by_reason"] == {}
    assert "files are gone" in without.facts["names_not_embedded"]
    _, later = nights.run(NAMED, Encoder())
    assert later.facts["merges_by_reason"] == {"embedding": 1}
    assert "names_not_embedded" not in later.facts
    assert nights.run(NAMED, Encoder())[1].reused


def test_names_of_many_memories_or_authors_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"rare": ("name", 1), "shared": ("name", 2), "tagged": ("tag", 1), "s1": ("session", 9),
             "common": ("run", 5)}  # fmt: skip
    names = [NameStats(name, kind, (name,), df) for name, (kind, df) in kinds.items()]
    assert choose_names(names) == ["common", "shared", "tagged"]
    monkeypatch.setattr(build, "NAMES_MAX", 2)
    assert choose_names(names) == ["common", "shared"]


@pytest.fixture
def night(nights: Nights) -> Night:
    """A night on four memories, of which the first and the third are alike."""
    return nights.export((TEXTS[0], TEXTS[2], TEXTS[0], TEXTS[5]))


def _records(night: Night) -> list[MemoryRecord]:
    return read_records(night.work(MEMORIES))


def _plain(night: Night) -> list[Extraction]:
    return [
        extract(r.content, r.tags, r.expanded_keywords, is_turn=r.is_turn) for r in _records(night)
    ]


def _hex_keys(night: Night) -> list[str]:
    return [
        extraction_key(r.content, r.tags, r.expanded_keywords, r.is_turn).hex()
        for r in _records(night)
    ]


def test_each_text_is_extracted_once_when_asked_for(night: Night) -> None:
    assert not read_told(night)
    first = open_extractions(night, RecordFile(night.work(MEMORIES)))
    wanted = _hex_keys(night)
    assert list(first.keys) == wanted
    assert (len(first.keys), first.keys[-1], list(first.keys[1:3])) == (4, wanted[3], wanted[1:3])
    assert list(first.load([])) == []
    assert (first.extracted, night.content(EXTRACTION_KIND).rows) == (0, 0)
    assert list(first.load([0, 1, 2, 3])) == _plain(night)
    assert first.extracted == 3, "two texts are alike"
    again = open_extractions(night, _records(night))
    assert list(again.load([1, 3])) == [_plain(night)[1], _plain(night)[3]]
    assert again.extracted == 0
    assert open_extractor(night).read(_records(night)[1:]) == _plain(night)[1:]


def test_lost_and_damaged_fragments_are_made_again(night: Night) -> None:
    assert open_extractor(night).read(_records(night)) == _plain(night)
    (fragment,) = night.content(EXTRACTION_KIND).fragments
    fragment.path.write_bytes(fragment.path.read_bytes()[:-40])
    damaged = open_extractions(night, _records(night))
    assert list(damaged.load([0, 1, 2, 3])) == _plain(night)
    assert damaged.extracted == 3
    remove_tree(night.work(CONTENT))
    assert open_extractor(night).read(_records(night)) == _plain(night)


def test_findings_that_are_not_there_stop_the_night_by_name(night: Night) -> None:
    keys = as_rows(bytes.fromhex(key) for key in _hex_keys(night))
    with pytest.raises(StoreError, match="found no findings of 4 memories"):
        list(open_extractor(night).read_kept(keys))
    open_extractor(night).read(_records(night)[:1])
    with pytest.raises(StoreError, match="found no findings of 2 memories"):
        list(open_extractor(night).read_kept(keys))
    assert list(open_extractor(night).read_kept(keys[[0, 2]])) == [_plain(night)[0]] * 2


# What a model adds; its answers, faults and batches are in tests/rooms/graph/test_llm.py.

CANARY = "canary-7731"
PASSWORD = "Xk9$mQ2v!pL7"
SHARED_TEXT = "Dia works at Initech"
RECORDS = renumber(
    [
        memory("Ann works at Acme", tags="ops"),
        memory(f"Bea works at Globex {CANARY}", user="bea"),
        memory(f"Cem works at Acme, password: {PASSWORD} {CANARY}"),
        memory(SHARED_TEXT),
        memory(SHARED_TEXT, user="dia"),
    ]
)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def night_of(tmp_path: Path, **graph: str) -> Night:
    environ = {f"NOCTUARY_GRAPH_{name}".upper(): value for name, value in graph.items()}
    return Night(StorePaths(tmp_path), tmp_path, Settings.load(environ=environ))


def llm_night(tmp_path: Path, server: FakeServer, **graph: str) -> Night:
    return night_of(tmp_path, extractor="llm", llm_url=server.url, llm_model="m", **graph)


def extend(night: Night, records: list[MemoryRecord], extractions: list[Extraction]) -> Extended:
    store = night.content(TRIPLES_KIND)
    return extend_extractions(night.settings.graph, store, records, extractions)


def rules(records: list[MemoryRecord]) -> list[Extraction]:
    return [extract(r.content, r.tags, r.expanded_keywords) for r in records]


def test_without_a_model_nothing_is_asked_and_nothing_written(tmp_path: Path) -> None:
    night = night_of(tmp_path)
    assert type(open_extractions(night, [])) is Extractions
    assert llm_inputs(night.settings.graph) == {}
    assert live_triples(night.settings.graph, RECORDS) == []
    assert list(tmp_path.iterdir()) == []


def test_statements_are_added_and_named_users_and_secrets_never_leave_the_machine(
    tmp_path: Path, server: FakeServer
) -> None:
    night, base = llm_night(tmp_path, server), [Extraction(e.found) for e in rules(RECORDS)]
    found = extend(night, RECORDS, base)
    assert [[s[:3] for s in e.stated] for e in found.extractions] == [
        *[[("ann", "works_at", "acme")], [], [], [("dia", "works_at", "initech")], []]
    ]
    assert set(base[0].found) <= set(found.extractions[0].found)
    assert found.facts["added"]["stated"] == 2
    assert (found.facts["left_out_named_users"], found.facts["left_out_secret"]) == (2, 1)
    assert "warnings" not in found.facts
    assert found.notes["requests"] == 1
    assert CANARY not in server.everything
    assert PASSWORD not in server.everything
    assert "ops" not in server.asked[0].body["messages"][1]["content"], "contents only, no tags"
    # The content store holds what is live and no more.
    live, store = live_triples(night.settings.graph, RECORDS), night.content(TRIPLES_KIND)
    assert set(store.get(live)) == {live[0], live[2]}
    assert store.prune(live) == 0
    assert store.prune(live_triples(night_of(tmp_path).settings.graph, RECORDS)) == 2


def test_named_users_may_be_shown_secrets_never(tmp_path: Path, server: FakeServer) -> None:
    night = llm_night(tmp_path, server, include_named_users="true")
    found = extend(night, RECORDS, [Extraction(())] * 5)
    assert [len(e.stated) for e in found.extractions] == [1, 1, 0, 1, 1]
    assert PASSWORD not in server.everything
    plain = llm_night(tmp_path, server)
    assert llm_inputs(night.settings.graph) != llm_inputs(plain.settings.graph)


def test_the_stage_depends_on_the_model_alone(tmp_path: Path, server: FakeServer) -> None:
    inputs = llm_inputs(llm_night(tmp_path, server).settings.graph)
    moved = {"extractor": "llm", "llm_url": "http://elsewhere/v1"}
    assert llm_inputs(night_of(tmp_path, **moved, llm_model="m").settings.graph) == inputs
    assert llm_inputs(night_of(tmp_path, **moved, llm_model="other").settings.graph) != inputs


def test_redactions_stay_and_long_texts_are_counted(tmp_path: Path, server: FakeServer) -> None:
    long = "Ann works at Acme0. " + "x" * MAX_MEMORY_CHARS
    records = renumber([memory("Bea [REDACTED] canary-8842"), memory(long)])
    found = extend(llm_night(tmp_path, server), records, rules(records))
    assert "canary-8842" not in server.everything
    assert (found.facts["left_out_secret"], found.facts["clipped"]) == (1, 1)
    assert (found.facts["answered"], found.facts["unanswered"]) == (1, 0)


def test_a_dead_endpoint_leaves_rules_and_a_warning(tmp_path: Path, server: FakeServer) -> None:
    server.faults = [Fault(401)] * 9
    base = rules(RECORDS)
    found = extend(llm_night(tmp_path, server), RECORDS, base)
    assert found.extractions == base
    (warning,) = found.facts["warnings"]
    assert warning["code"] == "graph_endpoint_down"
    assert "HTTP 401; check the API key" in warning["message"]


def test_an_endpoint_that_is_set_up_wrongly_says_what_to_do(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    wrong = [
        (llm_night(tmp_path, server, api_key_variable="NO_SUCH_KEY"), "NO_SUCH_KEY, which is not"),
        (night_of(tmp_path, extractor="llm", llm_url="ftp://h", llm_model="m"), "starts with http"),
    ]
    for night, sentence in wrong:
        with pytest.raises(ConfigError, match=sentence):
            extend(night, RECORDS, rules(RECORDS))


TOLD = [f"Ann{number} works at Acme{number}" for number in range(12)]
BATCH = 2
ANSWERED_BATCHES = 4

SCRIPT = """
import json, sys
from pathlib import Path
from noctuary.core.settings import Settings
from noctuary.graph.extract import Extraction
from noctuary.graph.llm import TRIPLES_KIND, extend_extractions
from noctuary.work.content import ContentStore
from tests.support.store import memory, renumber

graph = {"EXTRACTOR": "llm", "LLM_URL": sys.argv[2], "LLM_MODEL": "m", "LLM_BATCH_MEMORIES": "2"}
settings = Settings.load(environ={f"NOCTUARY_GRAPH_{name}": v for name, v in graph.items()})
store = ContentStore(Path(sys.argv[1]), TRIPLES_KIND)
records = renumber([memory(text) for text in json.loads(sys.argv[3])])
found = extend_extractions(settings.graph, store, records, [Extraction(())] * len(records))
print(json.dumps([found.facts["answered"], sum(len(e.stated) for e in found.extractions)]))
"""


def start(root: Path, server: FakeServer) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(root), server.url, json.dumps(TOLD)]
    cwd = Path(__file__).parents[3]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd)


def test_a_killed_night_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with FakeServer(hang_after=ANSWERED_BATCHES) as server:
        process = start(tmp_path, server)
        # A fifth request is only sent after the fourth answer has been kept.
        give_up = time.monotonic() + 60
        while len(server.asked) < ANSWERED_BATCHES + 2 and time.monotonic() < give_up:
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        asked_before = [text for batch in server.memories for text in batch]
    with FakeServer() as server:
        out, _ = start(tmp_path, server).communicate(timeout=60)
        asked_after = [text for batch in server.memories for text in batch]
    assert json.loads(out) == [len(TOLD), len(TOLD)]
    again = set(asked_before) & set(asked_after)
    assert len(again) == 2 * BATCH, "only what hung is asked again"
    assert set(asked_before) | set(asked_after) == set(TOLD)
    assert len(asked_after) == len(TOLD) - ANSWERED_BATCHES * BATCH


@pytest.mark.parametrize(
    ("folder", "kept", "old"),
    [
        ("", ["replays.sqlite"], ["replays.jsonl", "replays.jsonl.1"]),
        (f"work/{GRAPH}", [*FILES.values()], ["mentions.parquet", "concept_vectors.parquet"]),
    ],
)
def test_files_of_an_earlier_version_go_and_those_of_this_one_stay(
    tmp_path: Path, folder: str, kept: list[str], old: list[str]
) -> None:
    directory = tmp_path / folder
    directory.mkdir(parents=True, exist_ok=True)
    for name in (*kept, *old):
        (directory / name).write_bytes(b"PAR1")
    housekeeping._drop_old_files(Night(StorePaths(tmp_path), tmp_path))  # pyright: ignore[reportPrivateUsage]
    assert sorted(path.name for path in directory.iterdir()) == sorted(kept)
