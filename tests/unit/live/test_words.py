from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.lexical.build import build_postings, build_postings_beside
from noctuary.recall.live import document_frequencies, held_words, mean_length, score_rows
from noctuary.recall.reader import SnapshotReader
from noctuary.sources.live import LiveRow, LiveState, read_state, record_state
from noctuary.text.tokens import encode_tokens
from tests.support.store import Store, household, memory, renumber

WORDS = st.sampled_from(["key", "door", "atlas", "cat", "train", "snow", "night"])
TEXTS = st.lists(st.lists(WORDS, max_size=12), min_size=1, max_size=12)


def state_of(documents: Sequence[Sequence[str]]) -> LiveState:
    return LiveState(
        tuple(
            LiveRow(memory(" ".join(tokens), memory_id=str(place)), Counter(tokens))
            for place, tokens in enumerate(documents)
        )
    )


@settings(max_examples=60)
@given(corpus=TEXTS, rows=TEXTS, query=st.lists(WORDS, min_size=1, max_size=4))
def test_a_row_scores_what_its_twin_in_the_snapshot_scores(
    corpus: list[list[str]], rows: list[list[str]], query: list[str]
) -> None:
    """A live row that equals a memory of the snapshot has that memory's score to the last digit."""
    postings = build_postings(map(encode_tokens, [*corpus, ["never"]]))
    mean = float(np.mean([len(document) for document in [*corpus, ["never"]]]))
    frequencies = {
        t: stop - start for t, (start, stop) in zip(query, postings.ranges(query), strict=True)
    }
    found = score_rows(state_of([*corpus, *rows]), query, frequencies, postings.n_memories, mean)
    for position in range(len(corpus)):
        expected = np.float32(0)
        for start, stop in postings.ranges(sorted(set(query))):
            held = postings.positions[start:stop] == position
            expected += postings.scores[start:stop][held].sum(dtype=np.float32)
        assert found[position] == expected
    assert (found >= 0).all()
    assert ((found > 0) == [bool(set(d) & set(query)) for d in [*corpus, *rows]]).all()


def test_a_word_that_the_snapshot_lacks_is_the_rarest() -> None:
    """As in postings that are built beside those of a corpus."""
    corpus = build_postings([b"key\ndoor", b"key\ncat"])
    beside = build_postings_beside([b"owl\nowl"], corpus)
    found = score_rows(state_of([["owl", "owl"]]), ["owl"], {"owl": 0}, 2, 2.0)
    assert found.tolist() == [beside.scores[0]]
    assert found[0] > score_rows(state_of([["key", "key"]]), ["key"], {"key": 2}, 2, 2.0)[0]


def test_the_mean_length_is_read_off_the_postings(empty_store: Store) -> None:
    records = household()
    snapshot = SnapshotReader.open(empty_store.snapshot(empty_store.publish(records)))
    from noctuary.text.tokens import document_tokens

    lengths = [
        len(document_tokens(r.content, r.tags, r.expanded_keywords, r.category)) for r in records
    ]
    assert mean_length(snapshot) == pytest.approx(np.mean(lengths), rel=1e-4)
    snapshot.close()


def test_the_mean_length_of_a_snapshot_without_words_has_no_effect(empty_store: Store) -> None:
    records = renumber([memory("!!!"), memory("???")])
    snapshot = SnapshotReader.open(empty_store.snapshot(empty_store.publish(records)))
    assert mean_length(snapshot) == 1.0
    assert document_frequencies(snapshot, ["key"]) == {"key": 0}
    snapshot.close()


def test_a_recorded_state_ranks_as_before_and_holds_no_text() -> None:
    state = LiveState(state_of([["key", "door", "key"], ["cat"]]).rows, ("3",), (("a", "b"),))
    kept = record_state(state)
    again = read_state(kept)
    assert "key" not in str(kept)
    assert again.hidden == ("3",)
    assert again.faults == (("a", "b"),)
    assert [row.memory.content for row in again.rows] == ["", ""]
    query = ["door", "key"]
    before, after = (score_rows(s, query, {"key": 1, "door": 0}, 5, 2.0) for s in (state, again))
    assert before.tolist() == after.tolist()
    assert (held_words(again, query) == held_words(state, query)).all()
    assert record_state(again) == kept, "recording a replay changes nothing"
