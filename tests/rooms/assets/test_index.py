"""Nights that embed with a provider: its face, what it costs, what recall is told."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.cli.doctor import examine
from noctuary.core.errors import ConfigError, EncoderError
from noctuary.core.files import read_array, write_array
from noctuary.core.manifest import Manifest, read_manifest, read_pointer
from noctuary.core.settings import EncoderSettings, Settings, TierSettings
from noctuary.core.store import StorePaths, path_of
from noctuary.core.types import register_hook
from noctuary.embed.default_model import DEFAULT_MODEL
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.hosted import BudgetError, ProviderDownError, read_description
from noctuary.embed.multilingual import MULTILINGUAL_MODEL
from noctuary.evaluate.note import write_note
from noctuary.recall.inputs import encode_query
from noctuary.recall.profile import RetrievalProfile
from noctuary.usage import statistics
from noctuary.usage.access_log import append_retrievals
from noctuary.usage.reader import UsageReader
from noctuary.work.stage import StageOutput, StageResult
from noctuary_assets import index
from noctuary_assets.evaluate import embed_queries
from noctuary_assets.index import (
    FOLDED,
    MEMORY_VECTORS,
    chosen_backend,
    embed_memories,
    export_query_encoder,
    fold_accesses,
    propose_encoder,
    score_memories,
    scoring_rules,
    sync_vector_tiers,
)
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import VECTORS, Night
from tests.support.fake_server import VARIABLE, FakeServer, serve_voyage, vector_of
from tests.support.store import Store
from tests.support.usage_file import DAY_US, rows
from tests.support.vectors import topical_vectors

ROWS = [
    {"id": 1, "content": "The spare key hangs behind the door."},
    {"id": 2, "content": "The boiler is serviced every spring."},
    {"id": 3, "content": "CANARY-hosted the vault code", "is_sensitive": 1},
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeServer]:
    with serve_voyage(monkeypatch) as server:
        yield server


@pytest.fixture
def night(server: FakeServer, tmp_path: Path) -> Generator[Night]:
    """A night on three rows, one of them sensitive, with the corpus exported."""
    source = tmp_path / "corpus.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    encoder = EncoderSettings("voyage-4", "voyage", server.url, VARIABLE, 256)
    night = Night(StorePaths(tmp_path / "store"), source, Settings(encoder=encoder))
    export_memories(night)
    yield night
    night.close()


def again(night: Night, **changes: Any) -> Night:
    """Return the next night on the same store."""
    encoder = night.settings.encoder._replace(**changes)
    return Night(night.paths, night.source, night.settings._replace(encoder=encoder))


def test_memories_are_embedded_by_the_provider(night: Night, server: FakeServer) -> None:
    said: list[str] = []
    night.say = said.append
    result = embed_memories(night)
    texts = [str(row["content"]) for row in ROWS[:2]]
    rows = np.array([vector_of(text, 256) for text in texts])
    wanted = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(read_array(night.work(VECTORS)), wanted, atol=1e-6)
    assert server.texts == texts
    assert "CANARY" not in server.everything
    assert (result.facts["face"], result.facts["dimension"]) == ("voyage", 256)
    paid = sum(len(text.split()) + 2 for text in texts)
    assert (result.notes["texts_embedded"], result.notes["paid_tokens"]) == (2, paid)
    assert result.notes["paid_usd"] == round(paid * 0.06 / 1e6, 6)
    assert result.notes["estimated_tokens"] >= paid
    (sentence,) = said
    assert sentence.startswith("voyage:voyage-4 is asked for 2 vectors")


def test_the_next_night_pays_for_what_is_new_only(
    night: Night, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed_memories(night)
    with path_of(night.source).open("a") as file:
        file.write(json.dumps({"id": 4, "content": "A new bicycle."}) + "\n")
    later = again(night)
    export_memories(later)
    result = embed_memories(later)
    later.close()
    assert server.texts[2:] == ["A new bicycle."]
    assert (result.notes["texts_embedded"], result.notes["texts_reused"]) == (1, 2)
    # With nothing to embed a night needs neither key nor price nor provider.
    monkeypatch.delenv(VARIABLE)
    last = again(night, budget_usd=0.0)
    assert embed_memories(last).reused
    assert export_query_encoder(last).facts == {"hosted": "voyage:voyage-4"}
    assert len(server.asked) == 2


def test_above_the_budget_nothing_is_asked(night: Night, server: FakeServer) -> None:
    with pytest.raises(BudgetError, match="2 texts"):
        embed_memories(again(night, budget_usd=0.0))
    with pytest.raises(ConfigError, match="usd_per_million_tokens"):
        embed_memories(again(night, model="voyage-99"))
    assert server.asked == []


def test_a_provider_that_is_down_fails_the_night_and_leaves_no_vectors(
    night: Night, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noctuary.work.http.FIRST_WAIT_S", 0.0)
    server.die_after = 0
    with pytest.raises(ProviderDownError, match="HTTP 503"):
        embed_memories(night)
    assert not night.work(VECTORS).exists()
    assert len(server.asked) == 7


@pytest.mark.parametrize(
    ("model", "texts", "said"),
    [
        (
            DEFAULT_MODEL,
            ["我住在龙湖小区。", "Где ключ?", "the key", "2024"],
            "50% of the memories",
        ),
        (DEFAULT_MODEL, ["我住在龙湖小区。", *["the key", "¿dónde está?"] * 3], None),
        (DEFAULT_MODEL, [], None),
        (MULTILINGUAL_MODEL, ["我住在龙湖小区。"], None),
        ("/models/other", ["我住在龙湖小区。"], None),
    ],
)
def test_another_encoder_is_proposed_where_the_scripts_ask_for_one(
    model: str, texts: list[str], said: str | None
) -> None:
    found = propose_encoder(model, texts)
    assert found is None if said is None else str(found).startswith(said)
    assert found is None or f'set encoder.model = "{MULTILINGUAL_MODEL}"' in found


def test_the_night_says_so(tmp_path: Path) -> None:
    source = tmp_path / "memories.jsonl"
    rows = [{"id": n, "content": text} for n, text in enumerate(("我住在龙湖小区。", "the key"))]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    night = Night(StorePaths(tmp_path / "store"), source)
    export_memories(night)
    stage = embed_memories(night)
    (line, _) = write_note([stage])
    assert line.startswith("Warning: memory vectors: 50% of the memories are in scripts that all-")


def test_recall_is_told_whom_to_ask_and_a_moved_gateway_is_noticed(night: Night) -> None:
    first = export_query_encoder(night)
    directory = night.paths.encoders / night.encoder.fingerprint.digest
    assert read_description(directory).url == night.settings.encoder.url
    moved = again(night, url="http://127.0.0.1:9/v1")
    assert moved.encoder.fingerprint == night.encoder.fingerprint
    second = export_query_encoder(moved)
    assert not second.reused
    assert second.digest != first.digest
    assert read_description(directory).url == "http://127.0.0.1:9/v1"
    (directory / "hosted.json").unlink()
    assert not export_query_encoder(moved).reused
    assert read_description(directory).dimension == 256


def test_vectors_of_one_encoder_are_not_mixed_with_another_s(night: Night) -> None:
    embed_memories(night)
    backend = chosen_backend(night)
    assert (backend.tag, backend.batches_per_write) == ("voyage", 1)
    other = again(night, provider="openai", model="text-embedding-3-small")
    with pytest.raises(EncoderError, match=r"made by voyage, .* now has openai"):
        other.encoder.open_backend(backend, ["x"])


def manifest_of(store: Store, night: Night) -> Manifest:
    found = read_manifest(store.snapshot(read_pointer(store.paths).snapshot_id))
    known = night.encoder.fingerprint
    return found._replace(encoder=known.to_json(), encoder_digest=known.digest)


def test_the_evaluation_asks_for_all_queries_at_once_and_recall_finds_them(
    night: Night, server: FakeServer, plain_store: Store
) -> None:
    embed_memories(night)
    export_query_encoder(night)
    manifest = manifest_of(plain_store, night)
    texts = [f"question {number}" for number in range(150)]
    server.asked.clear()
    found = embed_queries(night, manifest, [*texts, texts[0]])
    assert found is not None
    assert found.shape == (151, 256)
    assert len(server.asked) == 2
    assert {asked.body["input_type"] for asked in server.asked} == {"query"}
    wanted = vector_of("question 149", 256, "query")
    np.testing.assert_allclose(found[149], wanted / np.linalg.norm(wanted), atol=1e-6)
    np.testing.assert_array_equal(encode_query(night.paths, manifest, "question 149"), found[149])
    embed_queries(again(night), manifest, texts)
    assert len(server.asked) == 2, "they are remembered"


def test_the_evaluation_of_another_model_s_snapshot_asks_nothing_in_advance(
    night: Night, server: FakeServer, plain_store: Store
) -> None:
    manifest = manifest_of(plain_store, night)
    assert embed_queries(again(night, dimension=512), manifest, ["x"]) is None
    local = again(night, provider="local", model="all-MiniLM-L6-v2", dimension=0)
    assert embed_queries(local, manifest, ["x"]) is None
    assert embed_queries(night, manifest._replace(encoder=None), ["x"]) is None
    assert server.asked == []


@pytest.fixture
def counted_night(tmp_path: Path) -> Night:
    night = Night(StorePaths(tmp_path / "store"), tmp_path / "memories.jsonl")
    hold(night, *range(1, 8))
    return night


def hold(night: Night, *ids: int, sensitive: int | None = None) -> None:
    """Let the source hold these memories, and export it."""
    text = "The key number {} hangs in the hall."
    rows = [{"id": n, "content": text.format(n), "is_sensitive": n == sensitive} for n in ids]
    path_of(night.source).write_text("".join(json.dumps(row) + "\n" for row in rows))
    export_memories(night)


def recalled(counted_night: Night, *ids: str, days_ago: int = 0) -> None:
    path = counted_night.paths.access_log
    assert append_retrievals(path, snapshot_id="s", memory_ids=ids) is None
    if days_ago:
        with closing(sqlite3.connect(path)) as log, log:
            log.execute(
                "UPDATE retrievals SET retrieved_at_us = retrieved_at_us - ? "
                f"WHERE memory_id IN ({','.join('?' * len(ids))})",
                [days_ago * DAY_US, *ids],
            )


def pass_night(counted_night: Night) -> tuple[StageResult, StageResult]:
    return fold_accesses(counted_night), score_memories(counted_night)


def configure(monkeypatch: pytest.MonkeyPatch, **flags: Any) -> None:
    monkeypatch.setattr(index, "store_profile", lambda _: RetrievalProfile(**flags))  # pyright: ignore[reportUnknownLambdaType]


def counted(counted_night: Night, *ids: str) -> list[list[int]]:
    return [array.tolist() for array in UsageReader(counted_night.paths.usage).counts(ids)][:2]


def test_recall_can_read_what_the_night_counted(counted_night: Night) -> None:
    recalled(counted_night, "1", "2", "gone")
    recalled(counted_night, "2", "1")
    recalled(counted_night, "3", days_ago=40)
    before_us = time.time_ns() // 1000
    result = fold_accesses(counted_night)
    assert result.notes == {"rows_folded": 6, "rows_pruned": 0}
    assert counted(counted_night, "1", "2", "3", "gone", "4") == [[2, 2, 0, 0, 0], [1, 1, 1, 0, 0]]
    reader = UsageReader(counted_night.paths.usage)
    assert reader.co_retrieved(["1", "2", "3"]).tolist() == [2, 2, 0]
    assert set(reader.most_used(9)) == {"1", "2"}
    assert (reader.window_days, reader.digest) == (30, result.facts["usage_digest"])
    assert before_us <= reader.as_of_us <= time.time_ns() // 1000
    wanted = {
        "retrievals": 5, "orphaned_retrievals": 1, "fault": None, "recalled_in_window": 2,
        "co_retrieved_pairs": 1, "co_retrieved_pairs_left_out": 0,
    }  # fmt: skip
    assert {name: result.facts[name] for name in wanted} == wanted
    assert fold_accesses(counted_night).notes == {"rows_folded": 0, "rows_pruned": 0}


def test_days_and_last_access_outlive_their_rows_but_not_the_sums(counted_night: Night) -> None:
    recalled(counted_night, "1", days_ago=100)
    assert fold_accesses(counted_night).notes == {"rows_folded": 1, "rows_pruned": 1}
    assert counted(counted_night, "1") == [[0], [1]]
    recalled(counted_night, "1", "2")
    assert fold_accesses(counted_night).notes == {"rows_folded": 2, "rows_pruned": 0}
    assert counted(counted_night, "1", "2") == [[1, 1], [2, 1]]
    counted_night.work(FOLDED).unlink()
    assert fold_accesses(counted_night).notes == {"rows_folded": 2, "rows_pruned": 0}
    assert counted(counted_night, "1", "2") == [[1, 1], [1, 1]]


def test_scores_follow_use_and_an_unchanged_night_writes_none(counted_night: Night) -> None:
    recalled(counted_night, "2")
    _, scores = pass_night(counted_night)
    assert scores.facts == {"memories": 7, "memories_in_use": 1, "not_scanned": 0}
    assert (scores.notes["ltp_updated"], scores.reused, scores.notes["warning"]) == (7, False, None)
    _, scores = pass_night(counted_night)
    assert (scores.notes["ltp_updated"], scores.notes["ltp_skipped_unchanged"]) == (0, 7)
    assert scores.reused
    recalled(counted_night, "2", "3")
    _, scores = pass_night(counted_night)
    assert (scores.notes["ltp_updated"], scores.reused) == (2, False)
    assert scores.notes["pagination_state"]["total"] == 7
    json.dumps(scores.notes)


def test_deleted_and_newly_sensitive_memories_leave_the_file(counted_night: Night) -> None:
    recalled(counted_night, "6", "5", "1")
    pass_night(counted_night)
    hold(counted_night, 1, 2, 3, 4, 6, sensitive=6)
    pass_night(counted_night)
    for table, column in {
        "access": "memory_id",
        "ltp": "memory_id",
        "co_retrieval": "a || b",
    }.items():
        found = rows(counted_night.paths.usage, f"SELECT {column} FROM {table}")
        assert not {m for (m,) in found} & {"5", "6", "15", "16", "56"}, table
    assert rows(counted_night.paths.usage, "SELECT memory_id FROM access") == [("1",)]


def test_the_profile_decides_the_scan(
    counted_night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "BATCH_ROWS", 2)
    configure(monkeypatch, max_scan_depth=5, decay_enabled=True)
    recalled(counted_night, "1", days_ago=20)
    seen: list[dict[str, Any]] = []
    remove = register_hook("post_batch", seen.append)
    _, scores = pass_night(counted_night)
    remove()
    assert [(b["offset"], b["batch_size"]) for b in seen] == [(0, 2), (2, 2), (4, 1)]
    assert scores.facts["not_scanned"] == 2
    assert "2 were not scanned" in scores.notes["warning"]
    columns = "ltp_multiplier, ltp_score, decayed_score"
    found = rows(counted_night.paths.usage, f"SELECT {columns} FROM ltp WHERE ltp_score > 0")
    [(multiplier, score, faded)] = found
    assert (multiplier, score) == pytest.approx((1.208, 0.208), abs=1e-3)
    assert faded == pytest.approx(score * 0.819, rel=1e-2), "exp(-0.01 * 20)"
    configure(monkeypatch)
    pass_night(counted_night)
    [finding] = [f for f in examine(counted_night.paths) if f.name == "usage"]
    assert finding.level == "ok"
    assert scoring_rules(RetrievalProfile()) == (0, 0.0)


def test_a_failing_hook_is_a_note(counted_night: Night) -> None:
    def fail(_: dict[str, Any]) -> None:
        raise RuntimeError("no")

    remove = register_hook("post_batch", fail)
    _, scores = pass_night(counted_night)
    remove()
    assert scores.notes["hook_faults"] == "a post_batch hook raised RuntimeError: no"
    assert scores.facts["memories"] == 7


def test_a_damaged_log_leaves_the_sums_and_counts_nothing_recent(counted_night: Night) -> None:
    recalled(counted_night, "1", "2")
    pass_night(counted_night)
    for beside in counted_night.paths.root.glob("access.sqlite*"):
        beside.unlink()
    counted_night.paths.access_log.write_bytes(b"x" * 5000)
    facts = fold_accesses(counted_night).facts
    assert facts["fault"] is not None
    assert counted(counted_night, "1", "2") == [[0, 0], [1, 1]]


TIER_ROWS, DIM = 130, 32
DIMS = (8, 16)
ENCODER = EncoderFingerprint("m", "0" * 64, DIM, "mean", True, "", "", 64)


class Derived:
    """Counts how often thresholds are derived."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self._derive = index.derive_thresholds
        monkeypatch.setattr(index, "derive_thresholds", self)

    def __call__(self, *given: Any) -> Any:
        self.times += 1
        return self._derive(*given)


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> Derived:
    return Derived(monkeypatch)


@pytest.fixture
def tier_night(tmp_path: Path) -> Night:
    source = tmp_path / "memories.jsonl"
    lines = (json.dumps({"id": n, "content": f"note {n}"}) + "\n" for n in range(TIER_ROWS))
    source.write_text("".join(lines))
    night = a_night(tmp_path)
    export_memories(night)
    embed(night)
    return night


def a_night(tmp_path: Path, dims: tuple[int, int] = DIMS) -> Night:
    settings = Settings(tiers=TierSettings(*dims))
    night = Night(StorePaths(tmp_path / "store"), tmp_path / "memories.jsonl", settings)
    night.encoder.fingerprint = ENCODER
    return night


def embed(tier_night: Night, seed: int = 0) -> StageResult:
    def body() -> StageOutput:
        write_array(tier_night.work(VECTORS), topical_vectors(TIER_ROWS, DIM, seed))
        return StageOutput(TIER_ROWS, {})

    return tier_night.run(MEMORY_VECTORS, {"seed": seed}, body)


def test_the_next_night_compares_and_derives_nothing(tier_night: Night, derived: Derived) -> None:
    first = sync_vector_tiers(tier_night)
    assert set(first.facts["exits"]) == {"8", "16"}
    assert {found["queries"] for found in first.facts["exits"].values()} == {TIER_ROWS}
    assert derived.times == 1
    (tier_night.paths.lance / "memory_vectors_8.lance").rename(tier_night.paths.root / "lost")
    second = sync_vector_tiers(tier_night)
    assert derived.times == 1
    assert second.notes["rows_written"] == TIER_ROWS, "what was lost is written all the same"
    assert (second.facts, second.reused) == (first.facts, True)


def test_other_vectors_dimensions_or_rules_derive_again(
    tier_night: Night, derived: Derived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sync_vector_tiers(tier_night).facts["exits"]
    embed(tier_night, seed=1)
    second = sync_vector_tiers(tier_night).facts["exits"]
    assert (derived.times, first != second) == (2, True)
    third = sync_vector_tiers(a_night(tmp_path, (8, 24))).facts["exits"]
    assert (derived.times, set(third)) == (3, {"8", "24"})
    monkeypatch.setattr(index, "RULES", {**index.RULES, "target_recall": 0.8})
    sync_vector_tiers(a_night(tmp_path, (8, 24)))
    assert derived.times == 4
