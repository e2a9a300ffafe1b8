"""What the secret rules find of published formats, what they leave alone, and the fast path."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from noctuary.text.secret_forms import (
    MIN_TOKEN_CHARS,
    NUMBER_FORMATS,
    TEXT_FORMATS,
    TOKEN_FORMATS,
)
from noctuary.text.secrets import find_secret
from noctuary_pipelines import sample
from tests.support.credential_shapes import HARMLESS, TOKENS, WORDED, credentials, fill

_CREDENTIALS = list(credentials(6))
_FRAGMENTS = [
    *(fill(shape, 1) for shape in (*TOKENS.values(), *WORDED.values(), *HARMLESS)),
    *(text[: len(text) * 2 // 3] for _, text in credentials(1)),
]


def _find_format_naively(text: str) -> bool:
    """Try every pattern on the whole text."""
    return any(rule.is_in(text) for rule in (*TEXT_FORMATS, *TOKEN_FORMATS, *NUMBER_FORMATS))


def test_every_published_format_is_found() -> None:
    missed = {issuer for issuer, text in _CREDENTIALS if find_secret(text) is None}
    assert len(_CREDENTIALS) > 700
    assert not missed


def test_harmless_texts_are_left_alone() -> None:
    texts = [fill(shape, seed) for shape in HARMLESS for seed in range(20)]
    assert {text: found for text in texts if (found := find_secret(text))} == {}


def test_of_the_sample_only_what_was_planted_is_found() -> None:
    rows = [row for row in sample.load_rows() if not row.is_sensitive]
    assert {row.id for row in rows if find_secret(row.content)} == {181, 212}


@given(
    parts=st.lists(st.sampled_from(_FRAGMENTS) | st.text(max_size=8), max_size=6),
    space=st.sampled_from([" ", "\n", "\t", "\u00a0", "\u2028", "\x1f", "", ","]),
)
def test_looking_at_long_words_alone_finds_the_same(parts: list[str], space: str) -> None:
    text = space.join(parts)
    naive = _find_format_naively(text)
    found = find_secret(text)
    assert naive == (found is not None and found != "assigned_password") or (
        naive is False and found == "assigned_password"
    )


@given(text=st.text(st.sampled_from("ABKIab0123.-_:/=~ \n")), shape=st.sampled_from([*TOKENS]))
def test_no_token_format_matches_less_than_a_long_word(text: str, shape: str) -> None:
    """Cut from either end, a token stops matching before it is shorter than a long word."""
    whole = text + fill(TOKENS[shape], 3)
    for rule in TOKEN_FORMATS:
        match = rule.pattern.search(whole)
        assert match is None or not any(c.isspace() for c in match[0])
        assert match is None or len(match[0]) >= MIN_TOKEN_CHARS


def test_a_memory_is_scanned_in_microseconds() -> None:
    text = (
        "We moved the stand-up to 9:30 because Ana drops the children off; see docs/rota.md. " * 3
    )
    start = time.process_time()
    for _ in range(5_000):
        find_secret(text)
    # 0.1 s on a quiet machine.
    assert time.process_time() - start < 1
