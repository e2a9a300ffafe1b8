"""What the reading measurements are made of: questions, memory figures, agreement of engines."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from bench.scale.asked import RUN_WORDS, cut_question, make_questions
from bench.scale.reading import drop_pages
from bench.scale.reading_engines import compare
from bench.scale.reading_warm import measure_memory, measure_warm, read_kb
from noctuary.recall.engine import Recaller
from tests.support.store import memory, new_store, renumber

TEXTS = [
    f"note {i} about harbour {i % 7} and the crane that lifted crate {i * 3}" for i in range(40)
]


def test_a_question_is_a_part_of_its_memory_in_order() -> None:
    words = [f"w{i}" for i in range(40)]
    for seed in range(30):
        asked = cut_question(" ".join(words), random.Random(seed)).split()
        places = [words.index(word) for word in asked]
        assert places == sorted(places)
        assert places[-1] - places[0] < RUN_WORDS
        assert asked
    assert cut_question("alone", random.Random(0)) == "alone"


def test_equal_seeds_ask_equal_questions_and_recall_answers_them(tmp_path: Path) -> None:
    store = new_store(tmp_path / "house")
    store.publish(renumber([memory(text) for text in TEXTS]))
    reader = Recaller.open(store.root).reader
    asked = make_questions(reader, 20)
    assert asked == make_questions(reader, 20)
    assert asked != make_questions(reader, 20, seed=1)
    assert len(make_questions(reader, 1_000)) == len(TEXTS)
    found = measure_warm(store.root, 8)
    assert found["memories"] == len(TEXTS)
    assert found["recall"]["n"] == 8
    assert found["recall"]["p95_ms"] >= found["recall"]["p50_ms"] > 0
    assert found["steps"]["lexical"]["p50_ms"] > 0
    drop_pages(reader.directory)


def test_memory_is_read_in_megabytes() -> None:
    assert read_kb("Rss:      2000 kB\nPss: 1500 kB\n", ["Rss", "Pss"]) == {"Rss": 2.0, "Pss": 1.5}
    found = measure_memory()
    assert found["Rss"] >= found["Pss"] > 10.0


def test_agreement_is_the_share_of_the_true_ten() -> None:
    truth, half = list(range(50)), [*range(5), *range(100, 145)]

    def find_true(_: object) -> list[int]:
        return truth

    def find_half(_: object) -> list[int]:
        return half

    engines = {"exact": find_true, "half": find_half}
    found = compare(engines, [np.zeros(2, dtype=np.float32)] * 6)
    assert found["exact"]["recall_at_10"] == 1.0
    assert found["half"]["recall_at_10"] == 0.5
    assert found["half"]["n"] == 6
