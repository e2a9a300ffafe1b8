from __future__ import annotations

import math

import pytest

from noctuary.graph.canonical import c_values, keep_runs

LOG2_3 = math.log2(3)

# Worked by hand. Hosts of "cell carcinoma": "basal cell carcinoma" 5, "adenoid cystic basal cell
# carcinoma" 2, "cystic basal cell carcinoma" 2 -> mean 3; of "basal cell": the same three.
_GOLDEN = [
    ("adenoid cystic basal cell carcinoma", 2, math.log2(5) * 2),
    ("cystic basal cell carcinoma", 2, 2.0 * (2 - 2)),
    ("basal cell carcinoma", 5, LOG2_3 * (5 - (2 + 2) / 2)),
    ("cell carcinoma", 6, 1.0 * (6 - (5 + 2 + 2) / 3)),
    ("basal cell", 5, 1.0 * (5 - 3)),
    ("carcinoma", 9, 0.0),
    ("retina", 1, 0.0),
    ("contact lens", 4, 1.0 * 4),
]


def test_golden_table() -> None:
    counts = {run: count for run, count, _ in _GOLDEN}
    found = c_values(counts, counts)
    assert list(found) == [run for run, _, _ in _GOLDEN]
    for run, _, expected in _GOLDEN:
        assert found[run] == pytest.approx(expected), run


def test_a_run_counts_once_in_a_host_that_repeats_it() -> None:
    counts = {"side by side by": 2, "side by road": 5, "side by": 9}
    found = c_values(counts, counts)
    assert found["side by"] == 9 - (2 + 5) / 2


def test_words_inside_words_are_no_hosts() -> None:
    counts = {"art form": 2, "smart former": 2}
    assert c_values(counts, counts)["art form"] == 2


def test_kept_runs_stand_in_enough_and_not_too_many_memories() -> None:
    counts = {
        "contact lens": 4,
        "rare disease": 1,
        "young patient": 21,
        "limit case": 20,
        "carcinoma": 9,
        "cystic cell carcinoma": 3,
        "cystic cell": 3,
    }
    assert keep_runs(counts, 1000) == ("contact lens", "cystic cell carcinoma", "limit case")


def test_a_run_of_one_memory_is_a_host_all_the_same() -> None:
    hosted = {"contact lens": 2, "hard contact lens": 1, "soft contact lens fluid": 3}
    assert keep_runs(hosted, 1000) == ("soft contact lens fluid",)
    assert keep_runs({"contact lens": 2, "hard contact lens": 1}, 1000) == ("contact lens",)


def test_a_small_corpus_keeps_runs_of_two_memories() -> None:
    assert keep_runs({"contact lens": 2, "eye test": 3}, 35) == ("contact lens",)
