from __future__ import annotations

import math
import unicodedata

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from noctuary.lexical import search
from noctuary.lexical.build import (
    NEAR_DEVIATIONS,
    NEAR_MOST,
    NEAR_WEIGHT,
    build_postings,
    find_near,
)
from noctuary.lexical.search import add_scores, best_positions, top_positions
from noctuary.text.marks import PLAIN_SIGNS
from noctuary.text.tokens import MAX_TOKEN_CHARS, encode_tokens, is_plain, normalize, tokenize

words = st.sampled_from(["a", "b", "c", "d", "е", "使用", "v1.2", "zz"])
documents = st.lists(st.lists(words, max_size=12), max_size=15)
anything = st.text(st.characters(exclude_categories=()), max_size=80)
ODD = "aB1_é\u0301\u0316\u093cHи\u0306使用 -./'’,:@#+&\x00\ud800\u200d🎉ｆﬁשמ٣"
marked = st.text(st.sampled_from(ODD), max_size=60)


def naive_bm25(query: list[str], corpus: list[list[str]], k1: float, b: float) -> list[float]:
    mean = sum(map(len, corpus)) / len(corpus) if corpus else 0.0
    totals: list[float] = []
    for document in corpus:
        total = 0.0
        for token in set(query) & set(document):
            df = sum(token in other for other in corpus)
            tf = document.count(token)
            idf = math.log(1 + (len(corpus) - df + 0.5) / (df + 0.5))
            total += idf * tf / (tf + k1 * (1 - b + b * len(document) / mean))
        totals.append(total)
    return totals


@given(documents, st.lists(words, max_size=8), st.floats(0, 3), st.floats(0, 1))
def test_scores_equal_a_loop_over_documents(
    corpus: list[list[str]], query: list[str], k1: float, b: float
) -> None:
    postings = build_postings(map(encode_tokens, corpus), k1, b)
    found = np.zeros(len(corpus), dtype=np.float32)
    ranges = postings.ranges(sorted(set(query)))
    add_scores(found, ranges, postings.positions, postings.scores)
    assert found.tolist() == pytest.approx(naive_bm25(query, corpus, k1, b), rel=1e-5)
    assert (found >= 0).all()


@given(documents)
def test_postings_are_sorted_positive_and_below_the_idf(corpus: list[list[str]]) -> None:
    postings = build_postings(map(encode_tokens, corpus))
    assert postings.terms == sorted({token for document in corpus for token in document})
    assert postings.starts[-1] == len(postings.positions) == sum(len(set(d)) for d in corpus)
    for start, stop in postings.ranges(postings.terms):
        assert (np.diff(postings.positions[start:stop]) > 0).all()
        idf = math.log(1 + (len(corpus) - (stop - start) + 0.5) / (stop - start + 0.5))
        assert (postings.scores[start:stop] > 0).all()
        assert (postings.scores[start:stop] <= np.float32(idf) * (1 + 1e-6)).all()


@given(st.integers(2, 60), st.integers(0, 12), st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_near_words_are_those_of_all_pairs(count: int, alike: int, seed: int, at_once: int) -> None:
    random = np.random.default_rng(seed)
    terms = [f"w{number:02}" for number in range(count)]
    # The first ones share a direction, so that a few pairs stand out.
    vectors = random.normal(size=(count, 64))
    vectors[:alike] = vectors[0] + 0.05 * random.normal(size=vectors[:alike].shape)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    postings = build_postings(
        encode_tokens([term for term in terms if random.random() < 0.3] or terms) for _ in range(9)
    )
    held = {t: stop - start for t, (start, stop) in zip(terms, postings.ranges(terms), strict=True)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("noctuary.lexical.build._COMPARED_AT_ONCE", at_once)
        found = find_near(terms, vectors, postings)

    cosine = {
        (a, b): float(vectors[i].astype(np.float64) @ vectors[j].astype(np.float64))
        for i, a in enumerate(terms)
        for j, b in enumerate(terms)
        if i != j
    }
    assert found or alike < 2 or count < 40 or alike > 6
    values = list(cosine.values())
    least = float(np.mean(values)) + NEAR_DEVIATIONS * float(np.std(values))
    for term in terms:
        near = dict(found.get(term, []))
        expected = [b for a, b in cosine if a == term and cosine[term, b] >= least]
        assume(all(abs(cosine[term, b] - least) > 1e-5 for b in terms if b != term))
        assert set(near) <= set(expected)
        assert len(near) == min(len(expected), NEAR_MOST)
        left_out = max((cosine[term, b] for b in expected if b not in near), default=-1.0)
        assert all(cosine[term, b] >= left_out - 1e-5 for b in near)
        for other, share in near.items():
            asked, answered = (
                math.log(1 + (9 - held[t] + 0.5) / (held[t] + 0.5)) for t in (term, other)
            )
            assert share == pytest.approx(NEAR_WEIGHT * min(1.0, asked / answered))


@given(
    st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 1.5, math.nan]), st.booleans())),
    st.integers(-1, 12),
)
def test_top_positions_equal_a_full_sort(rows: list[tuple[float, bool]], depth: int) -> None:
    values = np.array([value for value, _ in rows], dtype=np.float32)
    mask = np.array([allowed for _, allowed in rows], dtype=np.bool_)
    eligible = [i for i, (value, allowed) in enumerate(rows) if value > 0 and allowed]
    expected = sorted(eligible, key=lambda i: (-rows[i][0], i))[: max(depth, 0)]
    assert top_positions(values, depth, mask).tolist() == expected


@given(
    st.lists(st.lists(words, max_size=6), min_size=1, max_size=60),
    st.lists(words, max_size=8),
    st.integers(-1, 12),
    st.integers(0, 2**60 - 1),
    st.integers(1, 40),
)
def test_the_bounded_ranking_is_the_exhaustive_one_to_the_last_bit(
    corpus: list[list[str]], query: list[str], depth: int, mask_bits: int, sampled: int
) -> None:
    postings = build_postings(map(encode_tokens, corpus))
    mask = np.array([bool(mask_bits >> i & 1) for i in range(len(corpus))])
    slices, scores = postings.ranges(sorted(set(query))), np.zeros(len(corpus), dtype=np.float32)
    add_scores(scores, slices, postings.positions, postings.scores)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "FLOOR_FROM", 1)
        patch.setattr(search, "SAMPLED_POSTINGS", sampled)
        for allowed in (None, mask):
            ranking = best_positions(scores, slices, postings.positions, depth, allowed)
            assert np.array_equal(ranking, top_positions(scores, depth, allowed))


def test_the_ranking_of_a_large_store_is_the_exhaustive_one() -> None:
    rng = np.random.default_rng(5)
    count = search.FLOOR_FROM + 1
    sizes = {"rare": 30, "some": 900, "often": 9_000, "most": 40_000}
    chosen = {t: np.sort(rng.choice(count, n, replace=False)) for t, n in sizes.items()}
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
    positions = np.concatenate(list(chosen.values())).astype(np.int32)
    weights = [rng.integers(1, 9, n) / (8 * np.log(n)) for n in sizes.values()]
    scores = np.concatenate(weights).astype(np.float32)

    mask = rng.random(count) < 0.3
    for terms in (["rare"], ["most"], ["some", "often"], list(sizes)):
        slices = [(starts[t], starts[t] + sizes[t]) for t in terms]
        totals = np.zeros(count, dtype=np.float32)
        add_scores(totals, slices, positions, scores)
        for depth, allowed in ((10, None), (50, mask), (2_000, None), (count, mask)):
            ranking = best_positions(totals, slices, positions, depth, allowed)
            assert np.array_equal(ranking, top_positions(totals, depth, allowed))


@given(st.one_of(anything, marked))
def test_tokens_are_storable_for_any_text(text: str) -> None:
    tokens = tokenize(text)
    assert encode_tokens(tokens).decode().split() == tokens
    for token in tokens:
        assert 0 < len(token) <= MAX_TOKEN_CHARS
        assert token == unicodedata.normalize("NFC", token)
        # "Cn" may appear: a letter in a known range that is younger than this Python.
        categories = {unicodedata.category(char) for char in token}
        assert not categories & {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}


@given(st.one_of(anything, marked))
def test_tokenizing_does_not_see_the_unicode_form(text: str) -> None:
    assert tokenize(text) == tokenize(normalize(text))


@given(st.text(st.characters(max_codepoint=127), max_size=80))
def test_ascii_text_has_the_tokens_that_the_unicode_path_gives(text: str) -> None:
    alone, beside = tokenize(text), tokenize(text + " 漢")
    if beside != ["漢"]:
        assert beside == [*alone, "漢"]


@given(text=st.text(st.sampled_from("ab9Z_ .,'-/@:\n+#" + PLAIN_SIGNS), max_size=40))
def test_a_text_of_plain_signs_is_cut_as_by_the_patterns_for_every_script(text: str) -> None:
    assert is_plain(text)
    assert unicodedata.normalize("NFKC", text) == normalize(text) == text
    # One letter beyond ASCII, as a word of its own.
    assert tokenize(f"{text}\nzq\n\u00fc") == [*tokenize(f"{text}\nzq"), "u"]
