"""Answers of an evaluation that was stopped: asked again by nobody, and the same run in the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noctuary.core.types import SILENT
from noctuary.evaluate.decide import KEPT_PER_WRITE, KeptAnswers, ProfileRetriever
from noctuary.evaluate.labels import Query
from noctuary.evaluate.run import RunPlan, run_retriever
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.work.content import ContentStore
from noctuary_assets.night import CONTENT
from tests.support.archive_file import write_archive
from tests.support.store import Store, household

PLAN = RunPlan(k=3, depth=5, timed=False)
STOPPED_AT = KEPT_PER_WRITE
WORDS = ("key", "feline", "Atlas", "Nina", "boiler", "door code", "Lisbon flight", "nothing known")
QUERIES = [
    Query(
        query_id=f"q{i}",
        text=f"{WORDS[i % len(WORDS)]} {i}",
        stratum="x",
        relevant_ids=("101",),
        extras={"user": ("ana", "ben", None)[i % 3]},
    )
    for i in range(STOPPED_AT + 20)
]


def kept_in(store: Store, kind: str = "x:1") -> KeptAnswers:
    return KeptAnswers(ContentStore(store.paths.work / CONTENT, kind))


class _StopsAt:
    """Ctrl-C once so many answers are written down."""

    def __init__(self, count: int) -> None:
        self._count = count

    def update(self, task: str, done: int, total: int) -> None:
        if done == self._count:
            raise KeyboardInterrupt


def test_what_a_stopped_evaluation_was_answered_is_not_asked_again(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    served = ProfileRetriever("served", recaller, RetrievalProfile())
    with pytest.raises(KeyboardInterrupt):
        kept_in(dense_store).ask(served, QUERIES, PLAN, _StopsAt(STOPPED_AT))
    again = kept_in(dense_store)
    run = again.ask(served, QUERIES, PLAN, SILENT)
    assert again.reused == STOPPED_AT
    assert run == run_retriever(served, QUERIES, PLAN)
    whole = kept_in(dense_store)
    assert whole.ask(served, QUERIES, PLAN, SILENT) == run
    assert whole.reused == len(QUERIES)
    for other, kind, plan in (
        (served.profile.replaced(lexical_weight=0.1), "x:1", PLAN),
        (served.profile, "x:2", PLAN),
        (served.profile, "x:1", replace(PLAN, depth=4)),
    ):
        foreign = kept_in(dense_store, kind)
        foreign.ask(ProfileRetriever("other", recaller, other), QUERIES[:9], plan, SILENT)
        assert foreign.reused == 0


def test_another_snapshot_user_or_archive_is_asked_anew(dense_store: Store) -> None:
    def reused(queries: list[Query]) -> int:
        retriever = ProfileRetriever("served", Recaller.open(dense_store.root), RetrievalProfile())
        kept = kept_in(dense_store)
        kept.ask(retriever, queries, PLAN, SILENT)
        return kept.reused

    reused(QUERIES[:9])
    assert reused(QUERIES[:9]) == 9
    assert reused([replace(query, extras={"user": "zoe"}) for query in QUERIES[:9]]) == 0
    dense_store.publish(household()[:-1])
    assert reused(QUERIES[:9]) == 0
    assert reused(QUERIES[:9]) == 9
    reader = Recaller.open(dense_store.root).reader
    write_archive(dense_store.paths.archive, reader, {"p": {"101": "108"}}, {"p": [(1, None)]})
    assert reused(QUERIES[:9]) == 0


def test_no_file_holds_a_question(dense_store: Store) -> None:
    retriever = ProfileRetriever("served", Recaller.open(dense_store.root), RetrievalProfile())
    secret = replace(QUERIES[0], text="xylophone-4711 key")
    kept_in(dense_store).ask(retriever, [secret], PLAN, SILENT)
    files = list((dense_store.paths.work / CONTENT).rglob("*.arrow"))
    assert files
    assert not [path for path in files if b"xylophone" in path.read_bytes()]
