from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from noctuary.graph import walk as walk_module
from noctuary.graph.walk import OPEN_END_US, RELATIONS, GraphArrays, walk

SUBJECT, NEXT = RELATIONS.index("mentions_subject"), RELATIONS.index("next_turn")


def _arrays(n: int, *edges: tuple[int, int, float, int], ends: int = OPEN_END_US) -> GraphArrays:
    """Edges (source, target, weight, relation code), sorted by source; in-degrees by target."""
    sources = np.array([e[0] for e in edges], dtype=np.int64)
    targets = np.array([e[1] for e in edges], dtype=np.int32)
    return GraphArrays(
        indptr=np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=n))]).astype(np.int64),
        targets=targets,
        weights=np.array([e[2] for e in edges], dtype=np.float32),
        relations=np.array([e[3] for e in edges], dtype=np.int8),
        concepts=np.arange(len(edges), dtype=np.int32),
        in_degrees=np.bincount(targets, minlength=n)[targets].astype(np.int32),
        valid_from_us=np.full(len(edges), 100, dtype=np.int64),
        valid_to_us=np.full(len(edges), ends, dtype=np.int64),
        recorded_at_us=np.full(len(edges), 100, dtype=np.int64),
        retracted_at_us=np.full(len(edges), ends, dtype=np.int64),
        evidence_starts=np.full(len(edges), -1, dtype=np.int32),
        evidence_ends=np.full(len(edges), -1, dtype=np.int32),
    )


def _seeds(*pairs: tuple[int, float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([p for p, _ in pairs], dtype=np.int64), np.array([s for _, s in pairs])


def test_an_arrival_has_the_closed_form() -> None:
    arrays = _arrays(4, (0, 2, 1.0, SUBJECT), (1, 2, 0.5, SUBJECT), (1, 3, 0.5, NEXT))
    found = walk(*_seeds((1, 0.8), (0, 0.9)), arrays, {"mentions_subject": 1.0, "next_turn": 0.1})
    assert found.positions.tolist() == [2, 3]
    # Target 2 takes the better of 0.9 (rank 1, weight 1) and 0.8 / sqrt 2 * 0.5; in-degree 2.
    assert found.scores[0] == pytest.approx(0.9 / 3**0.25)
    assert found.scores[1] == pytest.approx(0.8 / 2**0.5 * 0.1 * 0.5 / 2**0.25)
    assert found.seeds.tolist() == [0, 1]
    assert found.relations.tolist() == [SUBJECT, NEXT]
    assert found.concepts.tolist() == [0, 2]


@pytest.mark.parametrize("row", [[0, 2**40, 2**40], [0, -5, 1], [-1, 1, 1], [0, 1, 2**62]])
def test_damaged_rows_are_refused_before_they_ask_for_memory(row: list[int]) -> None:
    arrays = _arrays(2, (0, 1, 1.0, SUBJECT))._replace(indptr=np.array(row, dtype=np.int64))
    with pytest.raises(ValueError, match="damaged"):
        walk(*_seeds((0, 1.0), (1, 0.5)), arrays)


def test_eta_scales_every_arrival() -> None:
    arrays = _arrays(2, (0, 1, 1.0, SUBJECT))
    full, half = (walk(*_seeds((0, 1.0)), arrays, eta=eta).scores[0] for eta in (1.0, 0.5))
    assert half == full / 2


def test_only_the_best_seeds_are_walked_from() -> None:
    arrays = _arrays(4, (0, 2, 1.0, SUBJECT), (1, 3, 1.0, SUBJECT))
    found = walk(*_seeds((1, 0.5), (0, 0.9)), arrays, seed_count=1)
    assert found.positions.tolist() == [2]


def test_masked_seeds_give_their_places_to_the_next() -> None:
    arrays = _arrays(4, (0, 2, 1.0, SUBJECT), (1, 3, 1.0, SUBJECT))
    mask = np.array([False, True, True, True])
    found = walk(*_seeds((0, 0.9), (1, 0.5)), arrays, mask=mask, seed_count=1)
    assert (found.positions.tolist(), found.seeds.tolist()) == ([3], [1])
    assert found.scores[0] == pytest.approx(0.5 / 2**0.25)


def test_masked_targets_are_not_reached() -> None:
    arrays = _arrays(3, (0, 1, 1.0, SUBJECT), (0, 2, 1.0, SUBJECT))
    found = walk(*_seeds((0, 0.9)), arrays, mask=np.array([True, False, True]))
    assert found.positions.tolist() == [2]


def test_relations_left_out_or_at_zero_are_not_walked() -> None:
    arrays = _arrays(3, (0, 1, 1.0, SUBJECT), (0, 2, 1.0, NEXT))
    assert walk(*_seeds((0, 1.0)), arrays, {"next_turn": 1.0}).positions.tolist() == [2]
    assert walk(*_seeds((0, 1.0)), arrays, {"next_turn": 0.0}).is_empty


def test_by_default_turns_are_not_walked() -> None:
    previous = RELATIONS.index("previous_turn")
    tag = RELATIONS.index("mentions_tag")
    arrays = _arrays(
        5, (0, 1, 1.0, SUBJECT), (0, 2, 1.0, NEXT), (0, 3, 1.0, previous), (0, 4, 1.0, tag)
    )
    found = walk(*_seeds((0, 1.0)), arrays)
    assert found.positions.tolist() == [1, 4]
    assert found.scores.tolist() == pytest.approx([1 / 2**0.25, 0.5 / 2**0.25])


def test_a_closed_edge_gives_way_to_the_open_one_and_back() -> None:
    # Both lead to 2; the better one ended at 200, and only before that does it carry the arrival.
    arrays = _arrays(3, (0, 2, 1.0, SUBJECT), (1, 2, 0.5, SUBJECT))
    arrays = arrays._replace(valid_to_us=np.array([200, OPEN_END_US], dtype=np.int64))
    seeds = _seeds((0, 1.0), (1, 1.0))
    assert walk(*seeds, arrays, as_of_us=199).seeds.tolist() == [0]
    assert walk(*seeds, arrays, as_of_us=200).seeds.tolist() == [1]
    assert walk(*seeds, arrays).seeds.tolist() == [1]


def test_equal_arrivals_take_the_better_ranked_seed() -> None:
    arrays = _arrays(3, (0, 2, 1.0, SUBJECT), (1, 2, 1.0, SUBJECT))
    found = walk(*_seeds((0, 1.0), (1, 1.0)), arrays)
    assert (found.positions.tolist(), found.seeds.tolist()) == ([2], [0])


@pytest.mark.parametrize("score", [0.0, -1.0, float("nan"), float("inf")])
def test_the_walk_abstains_without_a_usable_seed(score: float) -> None:
    arrays = _arrays(2, (0, 1, 1.0, SUBJECT))
    assert walk(*_seeds((0, score)), arrays).is_empty


def test_the_walk_abstains_without_seeds_or_edges() -> None:
    none = (np.array([], dtype=np.int64), np.array([]))
    assert walk(*none, _arrays(2, (0, 1, 1.0, SUBJECT))).is_empty
    assert walk(*_seeds((0, 1.0)), _arrays(2)).is_empty


@pytest.mark.parametrize(("as_of_us", "reached"), [(99, []), (100, [1]), (199, [1]), (200, [])])
def test_as_of_walks_the_edges_of_that_moment(as_of_us: int, reached: list[int]) -> None:
    arrays = _arrays(2, (0, 1, 1.0, SUBJECT), ends=200)
    assert walk(*_seeds((0, 1.0)), arrays, as_of_us=as_of_us).positions.tolist() == reached


def test_without_a_moment_closed_edges_are_not_walked() -> None:
    assert walk(*_seeds((0, 1.0)), _arrays(2, (0, 1, 1.0, SUBJECT), ends=200)).is_empty


@pytest.mark.parametrize(
    ("weights", "eta"),
    [({"hearsay": 1.0}, 1.0), ({"next_turn": -0.1}, 1.0), ({"next_turn": 1.0}, float("nan"))],
)
def test_unknown_relations_and_bad_weights_are_refused(
    weights: dict[str, float], eta: float
) -> None:
    with pytest.raises(ValueError, match="expected"):
        walk(*_seeds((0, 1.0)), _arrays(2, (0, 1, 1.0, SUBJECT)), weights, eta=eta)


def test_the_read_side_loads_neither_builders_nor_extractors() -> None:
    lib = Path(walk_module.__file__).parents[2]
    code = (
        "import sys, noctuary.graph.walk; print(sorted(m for m in sys.modules if 'noctuary' in m))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(lib)}, capture_output=True, check=True
    )
    assert shown.stdout.decode().strip() == str(
        [
            "noctuary",
            "noctuary.core",
            "noctuary.core.files",
            "noctuary.graph",
            "noctuary.graph.fold",
            "noctuary.graph.walk",
        ]
    )
