"""What the tables say as a whole, against counting by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.compact.clusters import cluster_session, cluster_sessions, iter_clusters, quantiles
from noctuary.compact.summaries import (
    BatchResult,
    SummarySettings,
    summarize_batch,
    summary_facts,
    write_tables,
)
from tests.support.clusters import Bag, cluster_text
from tests.support.turns import HOUR_US, session_turns, turn


def by_name(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def write(directory: Path, *batches: BatchResult) -> tuple[Path, Path]:
    places = directory / "summaries.parquet", directory / "attempts.parquet"
    with write_tables(*places) as add:
        for batch in batches:
            add(batch)
    return places


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


def test_empty_tables_have_facts_too(tmp_path: Path) -> None:
    facts = summary_facts(*write(tmp_path))
    assert facts["by_status"] == facts["attempts_by_outcome"] == facts["q_align"] == {}
    assert facts["summarised_turns"] == facts["facts_total"] == 0
    assert facts["tokens_saved_share"] is facts["facts_kept_share"] is None


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
