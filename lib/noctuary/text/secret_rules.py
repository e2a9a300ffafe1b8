"""What a credential looks like: formats with spaces in them, assignments, and looking for all.

What belongs here: patterns over one text. What does not: tokens without a space
(`noctuary.text.token_formats`), what becomes of a row that matches (`noctuary.text.sensitivity`,
`noctuary.corpus.sensitive`).

Rules of our own instead of a package's: measured against three of them on labelled texts, these
find more, flag less and load nothing (docs/decisions/0057-sensitive-rows.md).

Every pattern starts at a literal and repeats a bounded class, or is guarded by a look-behind, so
that ten hostile megabytes take linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import compress
from string import ascii_lowercase, digits

from noctuary.text.disguises import MIN_SPELLED, close_spelled, find_plain, join_broken
from noctuary.text.named_secrets import NAMING_WORDS, find_named
from noctuary.text.secret_numbers import (
    MIN_SEED_WORDS,
    find_card,
    find_iban,
    find_seed_phrase,
    find_unnamed,
    unwrap,
)
from noctuary.text.token_formats import MIN_TOKEN_CHARS, TOKEN_FORMATS, SecretRule, rule

TEXT_FORMATS: tuple[SecretRule, ...] = (
    rule(
        "private_key",
        "-----begin -key-",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"|PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1[A-Z0-9]{40}",
    ),
    rule(
        "authorization_header",
        "authorization",
        r"(?i:authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?i:bearer|basic)\s{1,3}[A-Za-z0-9._~+/-]{12}",
    ),
    rule(
        "aws_secret_key",
        "secret",
        # An assigned value that may begin with a slash, which other assignments take for a path.
        r"(?i:secret_?access_?key)[\"']{0,3}\s{0,3}[:=]{1,2}\s{0,3}[\"']{0,3}"
        r"[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=])",
    ),
    rule(
        "connection_string",
        "://",
        # user:password@host; the look-ahead leaves out ${VAR}, <password>, {{x}}, %s and ****.
        r"://[^\s/:@'\"<>]{0,100}:(?![$<{*]|%(?![0-9A-F]{2}))[^\s/@'\"<>]{1,200}@[^\s/@]",
    ),
    rule(
        "aws_access_key",
        "akia",
        # With spaces in it; a digit, because "AKIA IS THE PREFIX OF A KEY" is a sentence.
        r"(?<![A-Za-z0-9])AKIA(?=[A-Z\s-]{0,40}\d)(?:[ \t\n-]{0,2}[A-Z0-9]){16}(?![A-Za-z0-9])",
    ),
    rule("totp_secret", "otpauth://", r"(?i)otpauth://[th]otp/[^\s]{0,200}[?&]secret=[a-z2-7]{16}"),
    rule(
        "api_key_file",
        'kaggle "username',
        r"\"username\"\s{0,3}:\s{0,3}\"[^\"\n]{1,80}\"\s{0,3},\s{0,3}\"key\"\s{0,3}:\s{0,3}\"[0-9a-f]{32}\""
        r"|(?i:kaggle_?key)[\"']?\s{0,3}[:=]\s{0,3}[\"']?[0-9a-f]{32}",
    ),
    rule(
        "session_cookie",
        "cookie id=",
        r"(?i)(?:cookie[\"']?\s{0,3}[:=]|\s-b|--cookie)[^\n]{0,200}?"
        r"(?:sess|sid|auth|token|jwt|remember)[a-z0-9_.-]{0,30}=(?=[^\s;]{0,30}\d)[^\s;,\"'<>${]{16}"
        r"|(?:phpsessid|jsessionid|sessionid|connect\.sid)=(?=[^\s;]{0,30}\d)[a-z0-9%._-]{16}",
    ),
    rule(
        "social_security_number",
        "ssn social",
        r"(?i)(?:(?<![a-z])ssn|social(?:[ -]security|:))[^\n\d]{0,24}"
        r"\d{3}([ -]?)\d\d\1\d{4}(?![\d-])",
    ),
)

_Hints = tuple[tuple[str, SecretRule], ...]


def _hints_of(rules: Iterable[SecretRule]) -> _Hints:
    return tuple((hint, known) for known in rules for hint in known.hints)


# Every byte but a small letter is a space.
_NO_LETTERS = bytes(code if chr(code) in ascii_lowercase else 32 for code in range(256))
# A number has zeros for its digits and a space for what stands between them.
_SHAPE = bytes(
    48 if chr(code) in digits else 32 if chr(code) in " -" else 120 for code in range(256)
)
# Those of digits are tried where a text has a number, most others where it assigns something.
_NUMBER_HINTS = _hints_of(known for known in TEXT_FORMATS if known.name == "social_security_number")
_PLAIN_HINTS = _hints_of(
    known for known in TEXT_FORMATS if known.name in {"private_key", "aws_access_key"}
)
_TEXT_HINTS = _hints_of(known for known in TEXT_FORMATS if known.name != "social_security_number")
_TOKEN_HINTS = _hints_of(TOKEN_FORMATS)
_IS_LONG = (MIN_TOKEN_CHARS - 1).__lt__
# The long word that every row has, twice; a token needs other letters than T and Z.
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T\d:.+Z-]*", re.ASCII)
# It, and a long English word: no token is made of small letters alone.
_NO_TOKEN = re.compile(
    rf"{TIMESTAMP.pattern}|[(\"']?[A-Za-z]?[a-z]{{1,40}}(?:-[a-z]{{1,40}}){{0,9}}[.,:;?!)\"']{{0,3}}",
    re.ASCII,
)
_TOKEN_RUN = re.compile(rf"[!-~]{{{MIN_TOKEN_CHARS},}}")
# Where a token may be cut by a line break: what it begins with, as far as it is no English word.
_NO_PREFIX = {"asia", "discord", "abia", "acca", "sntry", "sig=", "v1.0-", "x-amz-signature="}
_CUT_PREFIXES = tuple(
    hint
    for known in TOKEN_FORMATS
    for hint in known.hints
    if (len(hint) > 3 or hint in {"xox", "hf_"}) and hint not in _NO_PREFIX
)
# What a text with such a token has for certain: the letters before a sign, as a word of their own,
# or the beginning of those that go on with letters.
_CUT_STARTS = ("xox", "akia", "aiza", "eyj", "atatt", "dapi")
_CUT_WORDS = frozenset(re.split("[^a-z]", prefix)[0] for prefix in _CUT_PREFIXES)
_SAID_WORDS = NAMING_WORDS | _CUT_WORDS


def find_secret(text: str) -> str | None:
    """Return the name of the first credential in a text, or None; never the match.

    The text is looked at as it is and, where anything in it is disguised, as its reader sees it.
    """
    found = _find(text)
    if found is None and (plain := find_plain(text)) != text:
        found = _find(plain)
    return found


def _find(text: str) -> str | None:
    # Every text of every night passes here: what is cheap to tell keeps the rest from being tried.
    lowered = text.lower()
    raw = lowered.encode("utf-8", "surrogatepass")
    letters = raw.translate(_NO_LETTERS).decode("ascii").split()
    said = _SAID_WORDS.intersection(letters)
    words = text.split()
    lengths = list(map(len, words))
    hints = _TEXT_HINTS if ":" in text or "=" in text else _PLAIN_HINTS
    if found := _find_format(text, lowered, hints):
        return found
    if max(lengths, default=0) >= MIN_TOKEN_CHARS:
        long = [w for w in compress(words, map(_IS_LONG, lengths)) if not _NO_TOKEN.fullmatch(w)]
        if long and (found := _find_token(long)):
            return found
    if find_named(text, lowered, said):
        return "assigned_password"
    shape = raw.translate(_SHAPE)
    if (
        b"000" in shape
        and (b"00000000" in shape or b"0000 0000" in shape or b"000 00 0000" in shape)
        and (found := _find_number(text, lowered))
    ):
        return found
    if len(letters) >= MIN_SEED_WORDS and find_seed_phrase(letters, words):
        return "seed_phrase"
    if "\n" in text and (found := _find_cut(text, lowered, said)):
        return found
    return _find_spelled(words, lengths) if lengths.count(1) >= MIN_SPELLED else None


def _find_format(text: str, lowered: str, hints: _Hints) -> str | None:
    for hint, known in hints:
        if hint in lowered and known.pattern.search(text):
            return known.name
    return None


def _find_token(long: list[str]) -> str | None:
    """Look at the long words alone: no token has a space, and most texts have no long word."""
    joined = "\n".join(long)
    if not joined.isascii():
        # Chinese has no spaces.
        long = _TOKEN_RUN.findall(joined)
        if not long:
            return None
        joined = "\n".join(long)
    if found := _find_format(joined, joined.lower(), _TOKEN_HINTS) or find_unnamed(long):
        return found
    if not (inner := unwrap(joined)):
        return None
    return _find_format(inner, inner.lower(), _TEXT_HINTS) or _find_worded(inner)


def _find_worded(text: str) -> str | None:
    """Look for a token or for what a word names in a text that was hidden within another."""
    lowered = text.lower()
    said = NAMING_WORDS.intersection(re.findall("[a-z]+", lowered))
    return _find_format(text, lowered, _TOKEN_HINTS) or (
        "assigned_password" if find_named(text, lowered, said) else None
    )


def _find_number(text: str, lowered: str) -> str | None:
    if find_card(text):
        return "payment_card"
    if find_iban(text):
        return "bank_account"
    return _find_format(text, lowered, _NUMBER_HINTS)


def _find_cut(text: str, lowered: str, said: frozenset[str]) -> str | None:
    """Look for a token that a line break cuts."""
    if said.isdisjoint(_CUT_WORDS):
        for start in _CUT_STARTS:
            if start in lowered:
                break
        else:
            return None
    cut = "\n".join(join_broken(text, _CUT_PREFIXES))
    return _find_format(cut, cut.lower(), _TOKEN_HINTS)


def _find_spelled(words: list[str], lengths: list[int]) -> str | None:
    """Look for a secret whose letters stand apart."""
    closed = close_spelled(words, lengths)
    return _find_worded(closed) if closed else None
