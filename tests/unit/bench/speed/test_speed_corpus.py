from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bench.speed.corpus import WORDS_MAX, WORDS_MIN, make_corpus, make_questions, make_records
from bench.speed.pack import build_store, make_graph, noisy_copies
from noctuary.core.errors import StoreError
from noctuary.core.types import content_hash
from noctuary.embed.lean import LeanEncoder
from noctuary.recall.engine import Recaller
from noctuary.text.tokens import document_tokens
from tests.support.lean import write_encoder


def test_a_corpus_depends_on_nothing_but_size_and_seed() -> None:
    one, again, other = make_corpus(50, 1), make_corpus(50, 1), make_corpus(50, 2)
    assert make_records(one) == make_records(again)
    assert make_questions(one, 5)[0] == make_questions(again, 5)[0]
    assert one.text(0) != other.text(0)


def test_a_recall_finds_the_texts_as_they_were_published() -> None:
    """A text whose hash is of another row is left out of every answer as damaged."""
    assert all(r.content_hash == content_hash(r) for r in make_records(make_corpus(50)))


def test_tokens_are_those_that_the_library_indexes() -> None:
    corpus = make_corpus(60)
    records = make_records(corpus)
    expected = [
        document_tokens(r.content, r.tags, r.expanded_keywords, r.category) for r in records
    ]
    assert list(corpus.tokens()) == expected


def test_texts_wings_and_dates_look_like_a_store() -> None:
    records = make_records(make_corpus(2_000))
    assert {len(r.content.split()) for r in records} <= set(range(WORDS_MIN, WORDS_MAX + 1))
    sizes = Counter(r.wing for r in records).most_common()
    assert sizes[0][1] > 20 * sizes[-1][1]
    assert all(a.created_at_us < b.created_at_us for a, b in itertools.pairwise(records))
    words = Counter(word for r in records for word in r.content.split())
    assert words["the"] > 20 * words.most_common(200)[-1][1]
    assert sum(r.is_turn for r in records) == 1_000


def test_no_memory_holds_every_word_of_most_questions() -> None:
    corpus = make_corpus(300)
    texts, about = make_questions(corpus, 40)
    held = [set(corpus.text(i).split()) for i in range(corpus.count)]
    asked = [set(text.rstrip("?").split()) for text in texts]
    assert sum(any(words <= memory for memory in held) for words in asked) < 10
    assert all(len(words & held[i]) >= 3 for words, i in zip(asked, about, strict=True))


def test_the_graph_has_named_memories_and_turns_that_follow_each_other() -> None:
    graph = make_graph(200)
    assert int(graph.indptr[-1]) == len(graph.targets) == len(graph.in_degrees)
    sources = np.repeat(np.arange(200), np.diff(graph.indptr))
    assert (sources != graph.targets).all()
    following = graph.relations == 2
    assert (graph.targets[following] - sources[following] == 1).all()
    assert (sources[following] // 20 == graph.targets[following] // 20).all()
    for place in range(0, len(sources), 37):
        same = (graph.targets == graph.targets[place]) & (graph.relations == graph.relations[place])
        assert graph.in_degrees[place] == same.sum()


def test_question_vectors_are_near_their_memories() -> None:
    rows = np.eye(8, 384, dtype=np.float32)
    near = noisy_copies(rows)
    np.testing.assert_allclose(np.linalg.norm(near, axis=1), 1.0, rtol=1e-5)
    assert ((near * rows).sum(axis=1) > 0.85).all()


def test_a_synthetic_store_is_published_and_answers(tmp_path: Path) -> None:
    donor = tmp_path / "donor"
    encoder: LeanEncoder = write_encoder(donor / "encoders")
    with pytest.raises(StoreError, match="no query encoder"):
        build_store(tmp_path / "other", 30, tmp_path / "empty")
    build_store(tmp_path / "synthetic", 30, donor)
    recaller = Recaller.open(tmp_path / "synthetic")
    assert recaller.reader.count == 30
    assert recaller.reader.manifest.encoder_digest == encoder.fingerprint.digest
    content = make_corpus(30).text(7)
    found = recaller.recall(content, 3)
    assert found.memories[0].content == content
