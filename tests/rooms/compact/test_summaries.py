"""Summaries as a task: the same as without it, whatever shard a cluster is in."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
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
    CONTEXT_TOKENS,
    Attempt,
    BatchResult,
    Lookup,
    SessionContext,
    Settled,
    SummarizeClusters,
    Summary,
    SummarySettings,
    cluster_rows,
    escalate,
    from_row,
    iter_summaries,
    read_settled,
    recipe_digest,
    result_key,
    summarize_batch,
    summary_facts,
    write_settled,
    write_tables,
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
    """A summarizer that writes what it is told to, by cluster; it remembers what it was shown."""

    name = "scripted"
    densities = (0.5, 0.25)

    texts: Mapping[str, Sequence[str | Refusal]]
    uses_context: bool = False
    asked: list[Request] = field(default_factory=list[Request])

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        return {}

    def write(self, request: Request, density: float) -> Draft | Refusal:
        self.asked.append(request)
        written = self.texts[request.cluster_id][self.densities.index(density)]
        return Draft(written, 0.5) if isinstance(written, str) else written


FOUR = cluster_text("c", 0, 1, 2, 3)
LONG = "x" * 400


def run(batch: Sequence[ClusterText], encode: Bag | None = None, **options: Any) -> BatchResult:
    return summarize_batch(batch, encode or Bag(), **options)


def one(result: BatchResult) -> Summary:
    (summary,) = result.summaries
    return summary


def known_of(result: BatchResult) -> Lookup:
    """What another night knows of what is worth keeping: it has been on disk."""
    kept = {key: write_settled(settled) for key, settled in result.fresh.items()}

    def known(keys: Sequence[bytes]) -> Mapping[bytes, Settled]:
        return {key: read_settled(kept[key]) for key in keys if key in kept}

    return known


def test_an_accepted_summary_names_its_sources_their_time_and_their_owner() -> None:
    encode = Bag()
    summary = one(run([cluster_text("c", 0, 1, 2, 3, user="ann", wing="home")], encode))
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
    assert (summary.parent_ids, summary.fallback) == ((), "")


def test_a_refused_candidate_is_kept_with_its_report() -> None:
    result = run([FOUR], settings=SummarySettings(threshold=0.999))
    summary = one(result)
    assert (summary.status, bool(summary.text)) == ("declined", True)
    assert summary.report is not None
    assert not summary.report.passed
    assert summary.reason == summary.report.reasons[0]
    (attempt,) = result.attempts
    assert (attempt.outcome, attempt.place, attempt.text) == (Outcome.GATE, 0, summary.text)
    assert (attempt.report, attempt.facts) == (summary.report, summary.facts)


SECRET = "the password:", "hunter2hunter2", "cat cat cat cat", "cat cat cat"


@pytest.mark.parametrize(
    ("item", "settings", "method", "text", "reason", "outcomes"),
    [
        (cluster_text("c", 4), {}, "trivial", CONTENTS[4], "", []),
        (cluster_text("c", 4, 5), {"density": 1.0, "aggressive_density": 1.0}, "none", "",
         "not fewer", [Outcome.NOT_SMALLER] * 2),
        # Turns that join to a secret.
        (FOUR._replace(contents=SECRET, vectors=np.eye(4, 6, dtype=np.float32)),
         {"density": 0.5, "threshold": -1.0}, "none", "", "reads like", [Outcome.SECRET]),
    ],
)  # fmt: skip
def test_what_needs_no_verdict_is_not_encoded_and_no_secret_is_kept(
    item: ClusterText, settings: dict[str, float], method: str, text: str, reason: str,
    outcomes: list[Outcome],
) -> None:  # fmt: skip
    encode = Bag()
    result = run([item], encode, settings=SummarySettings(**settings))
    summary = one(result)
    assert summary.status == ("declined" if reason else "trivial")
    assert (summary.method, summary.text, summary.report) == (method, text, None)
    assert reason in summary.reason
    assert [attempt.outcome for attempt in result.attempts] == outcomes
    assert not any(a.text for a in result.attempts if a.outcome is Outcome.SECRET)
    cuts = ["extractive", "extractive-aggressive"]
    assert [attempt.method for attempt in result.attempts] == cuts[: len(outcomes)]
    assert encode.encoded == []


@pytest.mark.parametrize("writer", [EXTRACTIVE, Scripted({"c": ["Ann: cat"]})])
def test_a_summary_of_one_verbatim_turn_is_not_embedded_again(writer: Any) -> None:
    encode = Bag()
    summary = one(run([cluster_text("c", 4, 5)], encode, summarizer=writer))
    assert (summary.text, summary.status) == ("Ann: cat", "accepted")
    assert encode.encoded == []


def test_an_abstractive_draft_that_passes_is_taken_with_its_own_confidence() -> None:
    writer = Scripted({"c": ["Ann has the flat in Lyon; rent, move."]})
    summary = one(run([FOUR], summarizer=writer))
    assert (summary.status, summary.method) == ("accepted", "scripted")
    assert summary.report is not None
    preserved = (summary.report.align + summary.report.cover) / 2
    assert summary.report.confidence == pytest.approx(0.8 * preserved + 0.2 * 0.5)


@pytest.mark.parametrize(
    ("drafts", "outcomes", "fallback"),
    [
        ([LONG, "Lyon flat move."], [Outcome.NOT_SMALLER], ""),
        ([LONG, LONG], [Outcome.NOT_SMALLER, Outcome.NOT_SMALLER], "not_smaller"),
        (["cat cat cat", "Lyon flat move."], [Outcome.GATE], "gate"),
        (["Ann has 7 lyon flat move.", "Lyon flat."], [Outcome.FACTS], "facts"),
        ([Refusal(Outcome.UNUSABLE, "garbage"), "Lyon."], [Outcome.UNUSABLE], "unusable"),
        (["password: hunter2hunter2", "Lyon."], [Outcome.SECRET], "secret"),
    ],
    ids=["aggressive", "never smaller", "drift", "a new number", "garbage", "a secret"],
)
def test_drafts_that_fail_give_way_step_by_step(
    drafts: list[str | Refusal], outcomes: list[Outcome], fallback: str
) -> None:
    result = run([FOUR], summarizer=Scripted({"c": drafts}))
    summary = one(result)
    assert summary.status == "accepted"
    assert [attempt.outcome for attempt in result.attempts] == outcomes
    assert [attempt.place for attempt in result.attempts] == list(range(len(outcomes)))
    assert summary.fallback == fallback
    assert summary.method == ("extractive" if fallback else "scripted-aggressive")
    assert all(a.text == "" for a in result.attempts if a.outcome is Outcome.SECRET)


def test_known_summaries_are_reused_with_todays_positions() -> None:
    first = run([FOUR], settings=SummarySettings(threshold=0.999))
    moved = FOUR._replace(cluster=replace(FOUR.cluster, member_positions=(3, 4, 5, 6)))
    encode = Bag()
    again = run([moved], encode, known=known_of(first))
    assert encode.encoded == []
    assert again.made == 0
    assert one(again) == replace(one(first), source_positions=(3, 4, 5, 6))
    assert again.attempts == first.attempts


@pytest.mark.parametrize(
    ("outcome", "made"), [(Outcome.UNAVAILABLE, 1), (Outcome.UNUSABLE, 0), (Outcome.NAMED_USER, 0)]
)
def test_only_a_want_of_answer_is_asked_about_again(outcome: Outcome, made: int) -> None:
    silent = Scripted({"c": [Refusal(outcome, "no answer")]})
    first = run([FOUR], summarizer=silent)
    assert one(first).fallback == outcome
    assert one(first).status == "accepted"
    answers = Scripted({"c": ["Lyon flat move."]})
    again = run([FOUR], summarizer=answers, known=known_of(first))
    assert again.made == len(answers.asked) == made
    assert one(again).method == ("scripted" if made else "extractive")


def session(*names: str, **fields: Any) -> list[ClusterText]:
    return [cluster_text(n, 0, 1, 2, 3, ordinal=i, **fields) for i, n in enumerate(names)]


WRITES = {name: ["Lyon flat move."] for name in "abcxy"}


def test_earlier_summaries_of_the_session_are_shown_and_become_parents() -> None:
    writer = Scripted(WRITES, uses_context=True)
    batch = [*session("a", "b", "c"), *session("x", user="bob"), *session("y", wing="work")]
    result = run(batch, summarizer=writer)
    shown = {request.cluster_id: request.context for request in writer.asked}
    text = "Lyon flat move."
    assert shown == {"a": (), "b": (text,), "c": (text, text), "x": (), "y": ()}
    a, b, c, x, y = result.summaries
    assert (a.parent_ids, b.parent_ids) == ((), (a.summary_id,))
    assert c.parent_ids == (a.summary_id, b.summary_id)
    assert x.parent_ids == y.parent_ids == ()
    context = SessionContext()
    cut = [one(run([item], summarizer=writer, context=context)) for item in batch[:3]]
    assert cut == [a, b, c], "a session is carried over from batch to batch"


def test_a_summary_is_made_again_when_what_came_before_it_changed() -> None:
    first = run(session("a", "b"), summarizer=Scripted(WRITES, uses_context=True))
    writer = Scripted(WRITES, uses_context=True)
    assert run(session("a", "b"), summarizer=writer, known=known_of(first)).made == 0
    second = first.keys[1]
    known = known_of(first._replace(fresh={second: first.fresh[second]}))
    changed = Scripted({**WRITES, "a": ["Lyon move."]}, uses_context=True)
    again = run(session("a", "b"), summarizer=changed, known=known)
    assert again.made == 2
    assert again.summaries[1].parent_ids == (again.summaries[0].summary_id,)


def test_a_fallback_is_reused_while_its_summarizer_would_be_shown_the_same() -> None:
    writes = {**WRITES, "b": ["cat cat cat"]}
    first = run(session("a", "b"), summarizer=Scripted(writes, uses_context=True))
    assert first.summaries[1].fallback == "gate"
    assert first.summaries[1].parent_ids == ()
    assert first.attempts[0].parent_ids == (first.summaries[0].summary_id,)
    writer = Scripted(writes, uses_context=True)
    assert run(session("a", "b"), summarizer=writer, known=known_of(first)).made == 0


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


ITEM = cluster_text("c", 0, 1, 2, 3)
SUMMARY = summarize_batch([ITEM], Bag()).summaries[0]


@given(st.lists(st.integers(1, 150), max_size=12))
def test_the_newest_that_fit_are_kept_without_gaps(tokens: list[int]) -> None:
    naive: list[int] = []
    for number in reversed(range(len(tokens))):
        if sum(tokens[i] for i in naive) + tokens[number] > CONTEXT_TOKENS:
            break
        naive.insert(0, number)
    context = SessionContext()
    for number, size in enumerate(tokens):
        context.remember(replace(SUMMARY, summary_id=str(number), summary_tokens=size))
    assert [int(earlier.summary_id) for earlier in context.before(ITEM.cluster)] == naive


def test_only_what_was_accepted_is_shown_and_nothing_across_users_sessions_and_wings() -> None:
    context = SessionContext()
    for status in ("declined", "trivial"):
        context.remember(replace(SUMMARY, status=status))
    assert context.before(ITEM.cluster) == ()
    context.remember(SUMMARY)
    assert len(context.before(ITEM.cluster)) == 1
    for fields in ({"user": "ann"}, {"wing": "work"}, {"session_id": "t"}):
        assert context.before(cluster_text("c", 0, 1, **fields).cluster) == ()


@pytest.mark.parametrize(
    ("settings", "densities"),
    [
        (SummarySettings(), [0.5, 0.25]),  # the summarizer's own
        # A setting is for the configured summarizer and not for what stands in.
        (SummarySettings(density=0.9, aggressive_density=0.1), [0.9, 0.1]),
    ],
)
def test_each_summarizer_cuts_at_its_densities(
    settings: SummarySettings, densities: list[float]
) -> None:
    texts, asked = [f"turn {word}" for word in "abcdefghij"], list[float]()

    class Whole(Scripted):
        def write(self, request: Request, density: float) -> Draft | Refusal:
            asked.append(density)
            return Draft(" ".join(request.texts))

    def encode(texts: list[str]) -> NDArray[np.float64]:
        return np.ones((len(texts), 4))

    request = Request("c", texts, np.eye(10, 4) + 1.0)
    (trial,) = escalate([request], encode, summarizer=Whole({}), settings=settings)
    assert [a.outcome for a in trial.attempts] == [Outcome.NOT_SMALLER] * 2
    assert asked == densities
    assert trial.judged is not None
    assert (trial.judged.method, trial.judged.text.count("turn")) == ("extractive", 4)


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


def unplaced(result: BatchResult) -> list[object]:
    """What the task gives for the same clusters: it does not know where they stand."""
    return [replace(summary, source_positions=()) for summary in result.summaries]


@pytest.mark.parametrize("summarizer", [EXTRACTIVE, SentenceSummarizer()])
@pytest.mark.parametrize("threshold", [0.5, 0.999999])
def test_the_task_gives_what_summarize_batch_gives(
    encoder: Encoder, summarizer: Summarizer, threshold: float
) -> None:
    settings, encode = SummarySettings(threshold=threshold), Encoder().encode_documents
    expected = summarize_batch(BATCH, encode, summarizer=summarizer, settings=settings)
    function = task(summarizer, settings)
    made = function(cluster_rows(BATCH))
    assert made.column(KEY).to_pylist() == [result_key(item.cluster) for item in BATCH]
    values = made.column(VALUE).to_pylist()
    found = [read_settled(value) for value in values]
    assert [one.summary for one in found] == unplaced(expected)
    assert [a for one in found for a in one.attempts] == expected.attempts
    assert {s.status for s in expected.summaries} >= {"trivial"}
    assert bool(expected.attempts) is (threshold > 0.9)
    # Vectors of judged texts come with their cluster.
    held = {text: vector for one in found for text, vector in one.vectors.items()}
    assert set(held) == set(encoder.texts)
    assert held
    for text, vector in held.items():
        np.testing.assert_array_equal(vector, vector_of(text))
    assert all(one.vectors.keys() <= {one.summary.text} for one in found if not one.attempts)
    # Neither batches nor where the members stand change a byte.
    single = [function(cluster_rows([item])).column(VALUE).to_pylist()[0] for item in BATCH]
    assert single == values
    moved = BATCH[4]._replace(cluster=replace(BATCH[4].cluster, member_positions=(7,) * 6))
    assert cluster_rows([moved]).equals(cluster_rows([BATCH[4]]))


def test_a_batch_of_trivial_clusters_opens_no_encoder(encoder: Encoder) -> None:
    trivial = [item for item in BATCH if item.cluster.trivial]
    values = task()(cluster_rows(trivial)).column(VALUE).to_pylist()
    assert [read_settled(value).summary.status for value in values] == ["trivial"] * len(trivial)
    assert trivial
    assert not encoder.texts


def test_what_is_kept_is_read_as_it_was_but_for_where_it_stood(encoder: Encoder) -> None:
    strict = SummarySettings(threshold=0.999999)
    result = summarize_batch(BATCH, encoder.encode_documents, settings=strict)
    assert result.fresh.keys() == set(result.keys)
    assert result.attempts
    vectors = {"a": vector_of("a"), "\ud800": vector_of("b")}
    for settled in result.fresh.values():
        value = write_settled(settled._replace(vectors=vectors))
        again = read_settled(value)
        assert again.summary == replace(settled.summary, source_positions=())
        assert again.attempts == settled.attempts
        assert again.vectors.keys() == vectors.keys()
        np.testing.assert_array_equal(again.vectors["a"], vectors["a"])
        assert write_settled(again) == value


def test_the_task_travels_to_other_processes() -> None:
    one = SummarizeClusters(SentenceSummarizer(), SETTINGS, Path("export"))
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.fixture
def mixed() -> BatchResult:
    made = summarize_batch([cluster_text("a", 4), cluster_text("b", 0, 1, 2, 3)], Bag())
    strict = SummarySettings(threshold=0.999)
    declined = summarize_batch([cluster_text("d", 0, 1, 2, 3, user="u")], Bag(), settings=strict)
    return BatchResult(made.summaries + declined.summaries, made.attempts + declined.attempts, 3)


def write(directory: Path, *batches: BatchResult) -> tuple[Path, Path]:
    places = directory / "summaries.parquet", directory / "attempts.parquet"
    with write_tables(*places) as add:
        for batch in batches:
            add(batch)
    return places


def test_both_tables_survive_a_round_trip(tmp_path: Path, mixed: BatchResult) -> None:
    summaries, attempts = write(tmp_path, mixed)
    assert list(iter_summaries(summaries)) == mixed.summaries
    assert {s.status for s in mixed.summaries} == {"accepted", "declined", "trivial"}
    rows = pq.read_table(attempts).to_pylist()
    assert [from_row(Attempt, row) for row in rows] == mixed.attempts
    assert [a.outcome for a in mixed.attempts] == [Outcome.GATE]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["attempts.parquet", "summaries.parquet"]


def test_equal_rows_give_equal_bytes_however_they_are_cut(
    tmp_path: Path, mixed: BatchResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 2)
    whole = write(tmp_path / "one", mixed)
    singles = [BatchResult([s], [], 1) for s in mixed.summaries]
    cut = write(tmp_path / "two", *singles, BatchResult([], mixed.attempts, 0))
    assert [p.read_bytes() for p in whole] == [p.read_bytes() for p in cut]
    assert list(iter_summaries(cut[0])) == mixed.summaries


def test_after_an_exception_the_old_tables_stay(tmp_path: Path, mixed: BatchResult) -> None:
    places = write(tmp_path, mixed)
    before = [place.read_bytes() for place in places]
    broken = mixed._replace(attempts=[replace(mixed.attempts[0], summary_tokens="many")])
    with pytest.raises(Exception, match="many"), write_tables(*places) as add:
        add(broken)
    assert [place.read_bytes() for place in places] == before
    assert len(list(tmp_path.iterdir())) == 2


def test_a_foreign_or_missing_table_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="rebuild"):
        list(iter_summaries(tmp_path / "none.parquet"))
    write_clusters(tmp_path / "clusters.parquet", [])
    with pytest.raises(StoreError, match="expected"):
        list(iter_summaries(tmp_path / "clusters.parquet"))


def by_name(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def test_empty_tables_have_facts_too(tmp_path: Path) -> None:
    facts = summary_facts(*write(tmp_path))
    assert facts["by_status"] == facts["attempts_by_outcome"] == facts["q_align"] == {}
    assert facts["summarised_turns"] == facts["facts_total"] == 0
    assert facts["tokens_saved_share"] is facts["facts_kept_share"] is None


def test_facts_are_those_of_the_summaries_one_by_one(tmp_path: Path) -> None:
    strict = SummarySettings(threshold=0.999)
    made = [
        summarize_batch([cluster_text("a", 4), cluster_text("b", 0, 1, 2, 3)], Bag()),
        summarize_batch([cluster_text("c", 2, 3, 4), cluster_text("e", 1, 1, 5)], Bag()),
        summarize_batch([cluster_text("d", 0, 1, 2, 3, user="u")], Bag(), settings=strict),
    ]
    odd = [replace(s, fallback="gate") for s in made[0].summaries]
    made.append(BatchResult(odd, [], 2))
    summaries = [s for batch in made for s in batch.summaries]
    attempts = [a for batch in made for a in batch.attempts]
    accepted = [s for s in summaries if s.status == "accepted"]
    assert {s.status for s in summaries} == {"accepted", "declined", "trivial"}
    assert attempts
    before, after = (
        sum(getattr(s, name) for s in accepted) for name in ("source_tokens", "summary_tokens")
    )
    kept, total = (
        sum(getattr(s.facts, name) for s in accepted if s.facts) for name in ("kept", "total")
    )
    reports = [s.report for s in summaries if s.report is not None]
    assert summary_facts(*write(tmp_path, *made)) == {
        "by_status": by_name(s.status for s in summaries),
        "by_method": by_name(s.method for s in accepted),
        "by_fallback": by_name(s.fallback for s in summaries if s.fallback),
        "attempts_by_outcome": by_name(str(a.outcome) for a in attempts),
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
