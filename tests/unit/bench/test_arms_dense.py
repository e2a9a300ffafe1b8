from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.arms import SetContext
from bench.arms.corpus_views import CorpusViews
from bench.arms.exact_cosine import CosineRetriever, best_positions
from bench.arms.tiers import (
    CascadeRetriever,
    RescoredCascadeRetriever,
    TierRetriever,
    TierViews,
)
from noctuary.embed import rotation
from tests.support.arms import ask, build_context, ids, records

DIM = 8
TEXT = "the feline has a payment"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> SetContext:
    made = build_context(tmp_path_factory.mktemp("dense"), records())
    reader, paths = made.recaller.reader, made.recaller.paths
    digest = reader.manifest.encoder_digest
    assert reader.vectors is not None
    assert digest is not None
    fitted = rotation.fit(np.array(reader.vectors), digest)
    rotation.save(paths.rotations / digest, fitted)
    return made


@given(
    st.lists(st.integers(-3, 3), max_size=40),
    st.integers(-1, 45),
    st.integers(0, 2**40 - 1),
)
def test_the_best_positions_are_those_of_a_full_sort(values: list[int], k: int, bits: int) -> None:
    scores = np.array(values, dtype=np.float32)
    mask = np.array([bool(bits >> i & 1) for i in range(len(values))], dtype=bool)
    everything = sorted(range(len(values)), key=lambda p: (-values[p], p))
    assert best_positions(scores, k).tolist() == everything[: max(k, 0)]
    allowed = [p for p in everything if mask[p]]
    assert best_positions(scores, k, mask).tolist() == allowed[: max(k, 0)]


def test_the_dense_baseline_is_the_exact_cosine_of_every_memory(context: SetContext) -> None:
    views = CorpusViews(context)
    query = ask(TEXT)
    vectors, asked = views.vectors.astype(np.float64), views.encode(query).astype(np.float64)
    cosines = vectors @ asked / np.linalg.norm(vectors, axis=1) / np.linalg.norm(asked)
    hits = CosineRetriever("dense", views).retrieve_hits(query, 60)
    assert len(hits) == 60
    by_id = dict(zip(views.snapshot_ids, cosines.tolist(), strict=True))
    assert dict(hits) == pytest.approx(by_id, abs=1e-5)
    recalled = ids(CosineRetriever("dense", views), query, 1)[0]
    assert by_id[recalled] == pytest.approx(max(cosines))


def test_within_a_wing_the_dense_baseline_keeps_its_order(context: SetContext) -> None:
    whole = ids(CosineRetriever("dense", CorpusViews(context)), ask(TEXT), 60)
    wing_of = {str(row["id"]): row["wing"] for row in context.rows}
    within = CorpusViews(replace(context, scope="wing"))
    found = ids(CosineRetriever("dense", within), ask(TEXT, "work"), 60)
    assert found == [i for i in whole if wing_of[i] == "work"]


def test_a_tier_scores_by_the_normalised_prefix_of_the_rotated_vectors(context: SetContext) -> None:
    views = CorpusViews(context)
    query = ask(TEXT)
    for rotated in (True, False):
        turn = views.rotation.matrix if rotated else np.eye(DIM)
        heads = (views.vectors @ turn)[:, :2]
        head = (views.encode(query) @ turn)[:2]
        expected = heads @ head / np.linalg.norm(heads, axis=1) / np.linalg.norm(head)
        tier = TierRetriever("tier", TierViews(views), 2, rotated=rotated)
        assert tier.index_size_bytes == 60 * 2 * 4
        by_id = dict(zip(views.snapshot_ids, expected.tolist(), strict=True))
        assert dict(tier.retrieve_hits(query, 60)) == pytest.approx(by_id, abs=1e-4)


def test_the_store_has_a_rotation_and_it_changes_short_tiers_only(context: SetContext) -> None:
    views = CorpusViews(context)
    tiers, query = TierViews(views), ask(TEXT)
    assert not views.rotation.is_identity
    full = TierRetriever("full", tiers, None).retrieve_hits(query, 60)
    exact = CosineRetriever("dense", views).retrieve_hits(query, 60)
    assert dict(full) == pytest.approx(dict(exact), abs=1e-5)
    short = TierRetriever("short", tiers, 3).retrieve_hits(query, 10)
    assert short != TierRetriever("short", tiers, 3, rotated=False).retrieve_hits(query, 10)
    # A tier beyond the model's own dimensions is the full one.
    assert TierRetriever("tier_64", tiers, 64).retrieve_hits(query, 60) == full


@pytest.mark.parametrize(("exits", "answers"), [
    (((2, -1.0), (4, -1.0)), 2),
    (((2, 1.1), (4, -1.0)), 4),
    (((2, 1.1), (4, 1.1)), DIM),
])  # fmt: skip
def test_a_cascade_answers_with_the_first_tier_that_is_sure_enough(
    context: SetContext, exits: tuple[tuple[int, float], ...], answers: int
) -> None:
    tiers, query = TierViews(CorpusViews(context)), ask(TEXT)
    cascade = CascadeRetriever("cascade", tiers, exits)
    alone = TierRetriever("tier", tiers, answers)
    assert cascade.retrieve_hits(query, 10) == alone.retrieve_hits(query, 10)
    assert dict(cascade.exits) == {answers: 1}


def test_a_cascade_within_an_empty_wing_falls_through_to_the_end(context: SetContext) -> None:
    tiers = TierViews(CorpusViews(replace(context, scope="wing")))
    cascade = CascadeRetriever("cascade", tiers, ((2, 0.65), (4, 0.75)))
    assert cascade.retrieve_hits(ask(TEXT, "attic"), 10) == []
    assert dict(cascade.exits) == {DIM: 1}


def test_a_rescored_cascade_orders_the_short_tiers_list_by_full_cosines(
    context: SetContext,
) -> None:
    tiers, query = TierViews(CorpusViews(context)), ask(TEXT)
    rescored = RescoredCascadeRetriever("rescored", tiers, 2, 12)
    shortlist = ids(TierRetriever("tier", tiers, 2), query, 12)
    full = TierRetriever("full", tiers, None).retrieve_hits(query, 60)
    hits = rescored.retrieve_hits(query, 12)
    assert [i for i, _ in hits] == [i for i, _ in full if i in shortlist]
    assert dict(hits) == pytest.approx({i: s for i, s in full if i in shortlist})
    assert hits[:3] == rescored.retrieve_hits(query, 3)
    # A shortlist of everything is the full tier.
    everything = RescoredCascadeRetriever("rescored", tiers, 2, 60)
    assert ids(everything, query, 60) == [i for i, _ in full]
