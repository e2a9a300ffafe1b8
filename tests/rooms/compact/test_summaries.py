"""Summaries as a task: the same as without it, whatever shard a cluster is in."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.compact import clusters as tables
from noctuary.compact import summaries as cluster_task
from noctuary.compact.clusters import (
    Cluster,
    ClusterText,
    cluster_session,
    cluster_sessions,
    iter_clusters,
    quantiles,
    write_clusters,
)
from noctuary.compact.summaries import (
    SummarizeClusters,
    Summary,
    SummarySettings,
    cluster_rows,
    escalate,
    iter_summaries,
    read_value,
    recipe_digest,
    summarize_batch,
    summary_facts,
    summary_key,
    write_summaries,
    write_value,
)
from noctuary.compact.summarizers import (
    EXTRACTIVE,
    Draft,
    Outcome,
    Refusal,
    Request,
    SentenceSummarizer,
    Summarizer,
)
from noctuary.core.errors import StoreError
from noctuary.core.files import JsonValue, hash_text
from noctuary.work.content import KEY, VALUE
from noctuary.work.shards import RecordBatch
from tests.support.clusters import CONTENTS, Bag, cluster_text
from tests.support.turns import HOUR_US, session_turns, turn


@dataclass
class Scripted(Summarizer):
    """A summarizer that writes what it is told to, by cluster."""

    name = "scripted"
    density = 0.5

    texts: Mapping[str, str | Refusal]
    asked: list[Request] = field(default_factory=list[Request])

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        return {}

    def write(self, request: Request, density: float) -> Draft | Refusal:
        self.asked.append(request)
        written = self.texts[request.cluster_id]
        return Draft(written, 0.5) if isinstance(written, str) else written


FOUR = cluster_text("c", 0, 1, 2, 3)
LONG = "x" * 400


def run(item: ClusterText, encode: Bag | None = None, **options: Any) -> Summary:
    (summary,) = summarize_batch([item], encode or Bag(), **options)
    return summary


def test_an_accepted_summary_names_its_sources_their_time_and_their_owner() -> None:
    encode = Bag()
    summary = run(cluster_text("c", 0, 1, 2, 3, user="ann", wing="home"), encode)
    assert (summary.status, summary.method, summary.reason) == ("accepted", "extractive", "")
    assert summary.text == "Ann: lyon and the flat Bob: lyon flat move"
    assert encode.encoded == [summary.text]
    assert summary.source_ids == ("m0", "m1", "m2", "m3")
    assert summary.source_positions == (0, 1, 2, 3)
    assert (summary.first_us, summary.last_us) == (0, 3)
    assert (summary.user, summary.wing) == ("ann", "home")
    assert summary.summary_tokens < summary.source_tokens
    assert summary.report is not None
    assert summary.report.passed
    assert summary.facts is not None
    assert summary.facts.passed
    assert summary.fallback == ""


def test_a_declined_summary_keeps_its_draft_and_report() -> None:
    summary = run(FOUR, settings=SummarySettings(threshold=0.999))
    assert (summary.status, bool(summary.text)) == ("declined", True)
    assert summary.report is not None
    assert not summary.report.passed
    assert summary.reason == summary.report.reasons[0]


SECRET = "the password:", "hunter2hunter2", "cat cat cat cat", "cat cat cat"


@pytest.mark.parametrize(
    ("item", "settings", "method", "text", "reason"),
    [
        (cluster_text("c", 4), {}, "trivial", CONTENTS[4], "one turn"),
        (cluster_text("c", 4, 5), {"density": 1.0}, "none", "", "not fewer"),
        # Turns that join to a secret.
        (FOUR._replace(contents=SECRET, vectors=np.eye(4, 6, dtype=np.float32)),
         {"density": 0.5, "threshold": -1.0}, "none", "", "reads like"),
    ],
    ids=["trivial", "not-smaller", "secret"],
)  # fmt: skip
def test_what_needs_no_verdict_is_not_encoded_and_no_secret_is_kept(
    item: ClusterText, settings: dict[str, float], method: str, text: str, reason: str
) -> None:
    encode = Bag()
    summary = run(item, encode, settings=SummarySettings(**settings))
    assert summary.status == ("trivial" if text else "declined")
    assert (summary.method, summary.text, summary.report) == (method, text, None)
    assert reason in summary.reason
    assert encode.encoded == []


@pytest.mark.parametrize("writer", [EXTRACTIVE, Scripted({"c": "Ann: cat"})])
def test_a_summary_of_one_verbatim_turn_is_not_embedded_again(writer: Any) -> None:
    encode = Bag()
    summary = run(cluster_text("c", 4, 5), encode, summarizer=writer)
    assert (summary.text, summary.status) == ("Ann: cat", "accepted")
    assert encode.encoded == []


def test_an_abstractive_draft_that_passes_is_taken_with_its_own_confidence() -> None:
    writer = Scripted({"c": "Ann has the flat in Lyon; rent, move."})
    summary = run(FOUR, summarizer=writer)
    assert (summary.status, summary.method) == ("accepted", "scripted")
    assert summary.report is not None
    preserved = (summary.report.align + summary.report.cover) / 2
    assert summary.report.confidence == pytest.approx(0.8 * preserved + 0.2 * 0.5)


@pytest.mark.parametrize(
    ("draft", "fallback"),
    [
        (LONG, "not_smaller"),
        ("cat cat cat", "gate"),
        ("Ann has 7 lyon flat move.", "facts"),
        (Refusal(Outcome.UNUSABLE, "garbage"), "unusable"),
        ("password: hunter2hunter2", "secret"),
    ],
    ids=["not-smaller", "drift", "new-number", "garbage", "secret"],
)
def test_a_draft_that_fails_gives_way_to_the_extractive_one(
    draft: str | Refusal, fallback: str
) -> None:
    summary = run(FOUR, summarizer=Scripted({"c": draft}))
    assert (summary.status, summary.method) == ("accepted", "extractive")
    assert summary.fallback == fallback
    (tried,) = escalate(
        [Request("c", FOUR.contents, FOUR.vectors)], Bag(), summarizer=Scripted({"c": draft})
    )
    assert [verdict.outcome for verdict in tried] == [fallback, None]
    assert (tried[0].text == "") is (fallback in ("unusable", "secret"))


def test_an_encoder_that_loses_a_text_is_refused() -> None:
    with pytest.raises(ValueError, match="0 vectors for 1"):
        summarize_batch([FOUR], lambda texts: np.zeros((0, 6)))


def test_a_recipe_depends_on_encoder_settings_and_summarizer() -> None:
    digests = {
        recipe_digest("e1"),
        recipe_digest("e2"),
        recipe_digest("e1", SummarySettings(threshold=0.7)),
        recipe_digest("e1", SummarySettings(density=0.5)),
        recipe_digest("e1", summarizer=Scripted({})),
    }
    assert len(digests) == 5
    assert recipe_digest("e1") == recipe_digest("e1", SummarySettings())


@pytest.mark.parametrize(("setting", "density"), [(0.0, 0.5), (0.9, 0.9)], ids=["own", "set"])
def test_the_configured_density_is_not_that_of_the_fallback(setting: float, density: float) -> None:
    texts, asked = [f"turn {word}" for word in "abcdefghij"], list[float]()

    class Whole(Scripted):
        def write(self, request: Request, density: float) -> Draft | Refusal:
            asked.append(density)
            return Draft(" ".join(request.texts))

    def encode(texts: list[str]) -> NDArray[np.float64]:
        return np.ones((len(texts), 4))

    request = Request("c", texts, np.eye(10, 4) + 1.0)
    chosen = SummarySettings(density=setting)
    (tried,) = escalate([request], encode, summarizer=Whole({}), settings=chosen)
    assert asked == [density]
    assert (tried[1].method, tried[1].text.count("turn")) == ("extractive", 4)


DIM = 8
SETTINGS = SummarySettings(threshold=0.5)
TURNS = (
    "Ana: the boiler was serviced on 3 May. It needs a new valve before the winter comes.",
    "Bot: noted. The valve costs 80 euros and the plumber can come on 12 June.",
    "Ana: then book the plumber for 12 June. I am at home all day.",
    "Bot: booked. He comes at nine in the morning and stays for two hours.",
    "Ana: and tell Ben that the water is off. He works from home on that day.",
)


def vector_of(text: str) -> NDArray[np.float32]:
    """A unit vector that depends on the text alone, near one direction."""
    seed = int(hash_text(text)[:8], 16)
    raw = np.random.default_rng(seed).standard_normal(DIM) * 0.3 + 1.0
    return (raw / np.linalg.norm(raw)).astype(np.float32)


class Encoder:
    """Stands where an ONNX export is opened: as deterministic, text by text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode_documents(self, texts: list[str]) -> NDArray[np.float32]:
        """Return `vector_of` every text."""
        self.texts += texts
        return np.array([vector_of(text) for text in texts], dtype=np.float32).reshape(-1, DIM)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> Encoder:
    opened = Encoder()

    class _Opening:
        @staticmethod
        def open(directory: Path, threads: int) -> Encoder:
            assert directory == Path("export")
            assert threads == 3
            return opened

    monkeypatch.setattr(cluster_task, "OnnxEncoder", _Opening)
    return opened


def numbered_cluster(number: int, turns: int) -> ClusterText:
    texts = [f"{TURNS[i % len(TURNS)]} ({number}-{i})" for i in range(turns)]
    cluster = Cluster(
        cluster_id=hash_text(str(number))[:16],
        session_id=f"s{number}",
        user="ana" if number % 2 else None,
        wing=None if number % 3 else "home",
        strategy="chronological",
        ordinal=number,
        member_positions=tuple(range(100 * number, 100 * number + turns)),
        member_ids=tuple(f"{number}-{i}" for i in range(turns)),
        first_us=number,
        last_us=number + turns,
        trivial=turns == 1,
    )
    return ClusterText(cluster, texts, np.array([vector_of(text) for text in texts]))


BATCH = [numbered_cluster(number, 1 + number % 6) for number in range(1, 14)]


def task(summarizer: Summarizer = EXTRACTIVE, settings: SummarySettings = SETTINGS) -> RecordBatch:
    return SummarizeClusters(summarizer, settings, Path("export")).open(3)


@pytest.mark.parametrize("summarizer", [EXTRACTIVE, SentenceSummarizer()])
@pytest.mark.parametrize("threshold", [0.5, 0.999999])
def test_the_task_gives_what_summarize_batch_gives(
    encoder: Encoder, summarizer: Summarizer, threshold: float
) -> None:
    settings, encode = SummarySettings(threshold=threshold), Encoder().encode_documents
    expected = summarize_batch(BATCH, encode, summarizer=summarizer, settings=settings)
    function = task(summarizer, settings)
    made = function(cluster_rows(BATCH))
    assert made.column(KEY).to_pylist() == [summary_key(item.cluster) for item in BATCH]
    values = made.column(VALUE).to_pylist()
    found = [read_value(value) for value in values]
    # The task does not know where they are in the store.
    assert [s for s, _ in found] == [replace(summary, source_positions=()) for summary in expected]
    assert [write_value(summary, vector) for summary, vector in found] == values
    for summary, vector in found:  # a text that is no turn of its own was encoded, once
        was_encoded = summary.status != "trivial" and summary.text in encoder.texts
        assert (vector is not None) == was_encoded
        if vector is not None:
            assert np.array_equal(vector, Encoder().encode_documents([summary.text])[0])
    assert {s.status for s in expected} == {
        "trivial",
        "declined" if threshold > 0.9 else "accepted",
    }
    assert encoder.texts
    # Neither batches nor where the members stand change a byte.
    single = [function(cluster_rows([item])).column(VALUE).to_pylist()[0] for item in BATCH]
    assert single == values
    moved = BATCH[4]._replace(cluster=replace(BATCH[4].cluster, member_positions=(7,) * 6))
    assert cluster_rows([moved]).equals(cluster_rows([BATCH[4]]))


def test_a_batch_of_trivial_clusters_opens_no_encoder(encoder: Encoder) -> None:
    trivial = [item for item in BATCH if item.cluster.trivial]
    values = task()(cluster_rows(trivial)).column(VALUE).to_pylist()
    assert [read_value(value)[0].status for value in values] == ["trivial"] * len(trivial)
    assert trivial
    assert not encoder.texts


def test_the_task_travels_to_other_processes() -> None:
    one = SummarizeClusters(SentenceSummarizer(), SETTINGS, Path("export"))
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.fixture
def mixed() -> list[Summary]:
    made = summarize_batch([cluster_text("a", 4), cluster_text("b", 0, 1, 2, 3)], Bag())
    strict = SummarySettings(threshold=0.999)
    return [*made, run(cluster_text("d", 0, 1, 2, 3, user="u"), settings=strict)]


def write(directory: Path, summaries: Iterable[Summary]) -> Path:
    path = directory / "summaries.parquet"
    with write_summaries(path) as add:
        for summary in summaries:
            add(summary)
    return path


def test_the_table_survives_a_round_trip(
    tmp_path: Path, mixed: list[Summary], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 2)
    assert list(iter_summaries(write(tmp_path, mixed))) == mixed
    assert {s.status for s in mixed} == {"accepted", "declined", "trivial"}
    assert [p.name for p in tmp_path.iterdir()] == ["summaries.parquet"]


def test_after_an_exception_the_old_table_stays(tmp_path: Path, mixed: list[Summary]) -> None:
    path = write(tmp_path, mixed)
    before = path.read_bytes()
    with pytest.raises(Exception, match="many"), write_summaries(path) as add:
        add(replace(mixed[0], summary_tokens="many"))  # pyright: ignore[reportArgumentType]
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_foreign_or_missing_table_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="rebuild"):
        list(iter_summaries(tmp_path / "none.parquet"))
    write_clusters(tmp_path / "clusters.parquet", [])
    with pytest.raises(StoreError, match="expected"):
        list(iter_summaries(tmp_path / "clusters.parquet"))


def by_name(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def test_empty_tables_have_facts_too(tmp_path: Path) -> None:
    facts = summary_facts(write(tmp_path, []))
    assert facts["by_status"] == facts["by_fallback"] == facts["q_align"] == {}
    assert facts["summarised_turns"] == facts["facts_total"] == 0
    assert facts["tokens_saved_share"] is facts["facts_kept_share"] is None


def test_facts_are_those_of_the_summaries_one_by_one(tmp_path: Path) -> None:
    strict = SummarySettings(threshold=0.999)
    batch = [cluster_text("a", 4), cluster_text("b", 0, 1, 2, 3), cluster_text("c", 2, 3, 4)]
    made = summarize_batch([*batch, cluster_text("e", 1, 1, 5)], Bag())
    summaries = [
        *made,
        run(cluster_text("d", 0, 1, 2, 3, user="u"), settings=strict),
        *(replace(s, fallback="gate") for s in made[:2]),
    ]
    accepted = [s for s in summaries if s.status == "accepted"]
    assert {s.status for s in summaries} == {"accepted", "declined", "trivial"}
    before, after = (
        sum(getattr(s, name) for s in accepted) for name in ("source_tokens", "summary_tokens")
    )
    kept, total = (
        sum(getattr(s.facts, name) for s in accepted if s.facts) for name in ("kept", "total")
    )
    reports = [s.report for s in summaries if s.report is not None]
    assert summary_facts(write(tmp_path, summaries)) == {
        "by_status": by_name(s.status for s in summaries),
        "by_method": by_name(s.method for s in accepted),
        "by_fallback": by_name(s.fallback for s in summaries if s.fallback),
        "summarised_turns": sum(len(s.source_ids) for s in accepted),
        "source_tokens": before,
        "summary_tokens": after,
        "tokens_saved_share": round(1 - after / before, 4),
        "q_align": quantiles([report.align for report in reports]),
        "q_cover": quantiles([report.cover for report in reports]),
        "facts_kept": kept,
        "facts_total": total,
        "facts_kept_share": round(kept / total, 4) if total else None,
    }


SIZES = st.lists(st.integers(1, 40), max_size=6)


@given(sizes=SIZES, tail=st.integers(0, 9), target=st.integers(1, 9), hours=st.integers(-1, 40))
@settings(max_examples=30)
def test_every_turn_is_in_one_of_the_counts(
    sizes: list[int], tail: int, target: int, hours: int
) -> None:
    chats = [[turn(n, f"s{k}") for n in range(size)] for k, size in enumerate(sizes)]
    sessions, now_us = list(map(session_turns, chats)), hours * HOUR_US
    limits = {"protected_tail": tail, "now_us": now_us}
    found = [cluster_session(turns, target, **limits) for turns in sessions]
    with TemporaryDirectory() as place:
        path = Path(place) / "clusters.parquet"
        rows, facts = cluster_sessions(path, sessions, target, **limits)
        clusters = list(iter_clusters(path))
    assert clusters == [cluster for one, _ in found for cluster in one]
    members = [len(cluster.member_ids) for cluster in clusters]
    assert (rows, facts["sessions"]) == (len(clusters), len(sizes))
    assert facts["turns"] == sum(map(len, sessions))
    raw = facts["protected_turns"] + facts["future_turns"] + facts["giant_turns"]
    assert facts["turns"] == facts["clustered_turns"] + raw
    assert facts["clustered_turns"] == sum(members)
    assert facts["bundled_turns"] <= facts["protected_turns"]
    assert facts["future_turns"] == sum(max(size - hours - 1, 0) for size in sizes)
    assert facts["trivial_clusters"] == members.count(1)
    assert facts["cluster_turns"] == quantiles(members)


@given(st.lists(st.floats(-9, 9), min_size=1))
def test_quantiles_are_values_in_order(values: list[float]) -> None:
    found = list(quantiles(values).values())
    assert found == sorted(found)
    assert {found[0], found[-1]} == {round(min(values), 4), round(max(values), 4)}
    assert set(found) <= {round(value, 4) for value in values}
