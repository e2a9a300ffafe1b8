"""Which texts hold a secret, and which rows their owner marked as sensitive."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import compress
from pathlib import Path

from noctuary.text.flags import find_mark
from noctuary.text.secret_forms import (
    ALONE_FORMATS,
    JUDGES,
    MIN_SEED_WORDS,
    MIN_TOKEN_CHARS,
    NUMBER_FORMATS,
    TEXT_FORMATS,
    TOKEN_FORMATS,
    WORD_RULES,
    SecretRule,
    find_seed_phrase,
    unwrap,
)
from noctuary.text.tokens import normalize

# The text without disguises of a secret, such as lookalike letters: this copy is scanned too.
# Every pattern repeats bounded classes or one class, so that hostile text takes linear time.

_LOOKALIKES = dict(
    zip(
        "авеѕіјкмнорстухАВЕЅІЈКМНОРСТУХԁԛԝһɡαοενικρτυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
        "abesijkmhopctyxABESIJKMHOPCTYXdqwhgaoevikptuABEZHIKMNOPTYX",
        strict=True,
    )
)
_ALIKE = "".join(_LOOKALIKES)
_TO_LATIN = str.maketrans(_LOOKALIKES)

# Letters, digits and signs of assignments; punctuation of Chinese text is left as it is.
_COMPATIBLE = (
    "\uff03-\uff05\uff0d\uff10-\uff19\uff1d\uff20-\uff3a\uff3f\uff41-\uff5a"
    "\u2070-\u209c\u2460-\u24ea\U0001d400-\U0001d7ff"
)
_INVISIBLE = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff"
_UNUSUAL = f"[{_INVISIBLE}{_COMPATIBLE}{_ALIKE}]"
_ASCII = bytes(range(128))
_DISGUISED = f"[{_INVISIBLE}{_COMPATIBLE}]|[A-Za-z_][{_ALIKE}]|[{_ALIKE}][A-Za-z_]"
_MIXED_WORD = f"(?=[{_ALIKE}]{{0,63}}[A-Za-z])[A-Za-z0-9{_ALIKE}]{{2,64}}"
_ENTITY = r"&(?:#\d{2,5}|#[xX][0-9A-Fa-f]{2,4}|[A-Za-z]{2,8});"
_PERCENT = r"%(?:25){0,4}([2-7][0-9A-Fa-f])"
MIN_SPELLED = 8
_SPELLED = b"\1{%d,}" % MIN_SPELLED


def find_plain(text: str) -> str:
    """Return the text as its reader sees it, the text itself where nothing is disguised."""
    plain = text
    if "&" in plain:
        plain = re.sub(_ENTITY, _decode_entity, plain)
    if "%" in plain and re.search(_PERCENT, plain):
        plain = re.sub(_PERCENT, lambda found: chr(int(found[1], 16)), plain)
    # One class of everything outside ASCII first: it is found many times as fast.
    rest = "" if plain.isascii() else leave_ascii(plain)
    if rest and re.search(_UNUSUAL, rest) and re.search(_DISGUISED, plain):
        plain = re.sub(_MIXED_WORD, lambda found: found[0].translate(_TO_LATIN), normalize(plain))
    return plain


def leave_ascii(text: str) -> str:
    """Return a text without its ASCII characters, empty where the rest is quotes and dashes."""
    raw = text.encode("utf-8", "surrogatepass")
    return raw.translate(None, _ASCII).decode("utf-8", "surrogatepass").strip("’‘“”–—…•")


def close_spelled(words: list[str], lengths: list[int]) -> str:
    """Join eight or more single letters in a row into a word; "" if there are none."""
    # Of eight in a row, every fourth word of the text hits two.
    if b"\1\1" not in bytes(map((1).__eq__, lengths[::4])):
        return ""
    apart = re.finditer(_SPELLED, bytes(map((1).__eq__, lengths)))
    return "\n".join("".join(words[slice(*run.span())]) for run in apart)


def join_broken(text: str, prefixes: tuple[str, ...]) -> list[str]:
    """Return the last word of each line that begins like a token, with the next line's first."""
    # Lines that hold nothing but one word may be further parts: every length is returned.
    joined = list[str]()
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1]):
        last = line.rsplit(None, 1)[-1:]
        word = last[0].lstrip("\"'`(") if last else ""
        if not word or not word.lower().startswith(prefixes):
            continue
        for part in lines[number + 1 : number + 5]:
            words = part.split(None, 1)
            word += words[0] if words else ""
            joined.append(word)
            if len(words) != 1:
                break
    return joined


def _decode_entity(found: re.Match[str]) -> str:
    import html  # loads two thousand names, and most texts have none

    return html.unescape(found[0]).replace("\xa0", " ").replace("\u2010", "-")


# Secrets announced by a word before them (secret_words.txt).

# "to" precedes a value only after these; after those below, nothing is a value.
_CHANGED = r"(?:chang|set|reset|updat)[a-z]{0,3}\s[^.\n]{0,50}\Z"
_NO_VALUE = r"(?<![a-z])(?:without|weak|failed|invalid|wrong|incorrect|bad)(?: an?| any| the)?\s\Z"


def _rules(names: str) -> tuple[SecretRule, ...]:
    return tuple(WORD_RULES[name] for name in names.split())


_KEYS = _rules("keys")
# Looked for as parts of words: APP_SECRETKEY, dbpwd. Not "passed", "passes", "passage", "keyboard".
_INSIDE = (
    (
        "pass",
        r"pass(?:[wcop]|[\"']?\s?[:=]|e(?![a-z])| phrase)",
        _rules("password pass stated phrase"),
    ),
    ("pwd", "", _rules("pwd")),
    ("kennwort", "", _rules("kennwort stated")),
    ("key", "key(?![a-z])", _KEYS),
    *((word, "", _KEYS) for word in ("secret", "token", "credential")),
)
# Looked for as whole words of the letters alone, each with the rule to try.
_WHOLE = {word: known for known in WORD_RULES.values() for word in known.words}
# Tried where a text has other than ASCII letters.
_ABROAD = (WORD_RULES["stated"], *(WORD_RULES[n] for n in WORD_RULES if n.startswith("abroad")))
# Each of their words has one of these letters, or is one of those: one search for all is a tenth.
_ABROAD_LETTER = "[ñпöóẩłşكס密パビкт令証禁款]"
_WITH_COMMON_LETTER = ("clé", "tür", "schlüssel", "κωδικός")


def find_named(text: str, lowered: str, said: Iterable[str]) -> bool:
    """Return whether a text gives a password, a PIN, a key or a code after the word for it."""
    rules = list[SecretRule]()
    for part, behind, named in _INSIDE:
        if part in lowered and re.search(behind, lowered):
            rules += named
    rules += [_WHOLE[word] for word in said if word in _WHOLE]
    if not lowered.isascii() and (
        re.search(_ABROAD_LETTER, leave_ascii(lowered))
        or any(word in lowered for word in _WITH_COMMON_LETTER)
    ):
        rules += _ABROAD
    if not rules:
        return False
    # Few letters grow in lower case; if one does, the changed text is judged.
    original = text if len(text) == len(lowered) else lowered
    return any(_follows(rule, original, lowered) for rule in dict.fromkeys(rules))


def _follows(rule: SecretRule, text: str, lowered: str) -> bool:
    for literal in rule.hints:
        start = lowered.find(literal)
        while start >= 0:
            if found := rule.pattern.match(lowered, start):
                groups = found.groupdict()
                value = text[slice(*found.span("value" if groups["value"] else "stated"))]
                says = groups.get("says") or ""
                before = lowered[max(0, start - 60) : start]
                is_said = says.split()[:1] != ["to"] or re.search(_CHANGED, before)
                if is_said and not re.search(_NO_VALUE, before) and JUDGES[rule.judge](value, says):
                    return True
            start = lowered.find(literal, start + 1)
    return False


# Why these are rules of our own and no package's: docs/decisions/0022-secrets.md.

_Hints = tuple[tuple[str, SecretRule], ...]


def _hints_of(rules: Iterable[SecretRule]) -> _Hints:
    return tuple((hint, known) for known in rules for hint in known.hints or ("",))


# Every byte but a small letter is a space.
_NO_LETTERS = bytes(code if "a" <= chr(code) <= "z" else 32 for code in range(256))
# Numbers, with zeros as digits and a space for each separator.
_SHAPE = bytes(
    48 if "0" <= chr(code) <= "9" else 32 if chr(code) in " -" else 120 for code in range(256)
)
# Most are tried where a text assigns something.
_PLAIN_HINTS = _hints_of(
    known for known in TEXT_FORMATS if known.name in {"private_key", "aws_access_key"}
)
_TEXT_HINTS = _hints_of(TEXT_FORMATS)
_NUMBER_HINTS = _hints_of(NUMBER_FORMATS)
_TOKEN_HINTS = _hints_of(TOKEN_FORMATS)
_ALONE_HINTS = _hints_of(ALONE_FORMATS)
_IS_LONG = (MIN_TOKEN_CHARS - 1).__lt__
# The long word that every row has, twice; a token needs other letters than T and Z.
TIMESTAMP = r"(?a)\d{4}-\d\d-\d\d[T\d:.+Z-]*"
# It, and a long English word: no token is made of small letters alone.
_NO_TOKEN = (
    rf"{TIMESTAMP}|[(\"']?[A-Za-z]?[a-z]{{1,40}}(?:-[a-z]{{1,40}}){{0,9}}[.,:;?!)\"']{{0,3}}"
)
_TOKEN_RUN = rf"[!-~]{{{MIN_TOKEN_CHARS},}}"
# Prefixes of tokens that a line break may cut, unless they are English words.
_NO_PREFIX = {"asia", "discord", "abia", "acca", "sntry", "sig=", "v1.0-", "x-amz-signature="}
_CUT_PREFIXES = tuple(
    hint
    for known in TOKEN_FORMATS
    for hint in known.hints
    if (len(hint) > 3 or hint in {"xox", "hf_"}) and hint not in _NO_PREFIX
)
# Necessary parts of a text with such a token: the letters before a sign, as a word of their own,
# or the beginning of longer words.
_CUT_STARTS = ("xox", "akia", "aiza", "eyj", "atatt", "dapi")
_CUT_WORDS = frozenset(re.split("[^a-z]", prefix)[0] for prefix in _CUT_PREFIXES)
_SAID_WORDS = _WHOLE.keys() | _CUT_WORDS


# A text too long for a memory is scanned in parts: the copies take 48 times its size.
_PART_CHARS = 1 << 20
_SHARED_CHARS = 1 << 16  # of two parts that follow each other: longer than any credential


def find_secret(text: str) -> str | None:
    """Return the name of the first credential in a text, or None; never the match."""
    if len(text) <= _PART_CHARS + _SHARED_CHARS:
        return _find_in_part(text)
    starts = range(0, len(text), _PART_CHARS)
    parts = (text[start : start + _PART_CHARS + _SHARED_CHARS] for start in starts)
    return next(filter(None, map(_find_in_part, parts)), None)


def _find_in_part(text: str) -> str | None:
    # The text is scanned as it is and, if anything in it is disguised, as its reader sees it.
    found = _find(text)
    if found is None and (plain := find_plain(text)) != text:
        found = _find(plain)
    return found


def _find(text: str) -> str | None:
    # Every text of every night passes here: cheap checks rule out most of the expensive ones.
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
        is_none = re.compile(_NO_TOKEN).fullmatch
        long = [w for w in compress(words, map(_IS_LONG, lengths)) if not is_none(w)]
        if long and (found := _find_token(long)):
            return found
    if find_named(text, lowered, said):
        return "assigned_password"
    shape = raw.translate(_SHAPE)
    if (
        b"000" in shape
        and (b"00000000" in shape or b"0000 0000" in shape or b"000 00 0000" in shape)
        and (found := _find_format(text, lowered, _NUMBER_HINTS))
    ):
        return found
    if len(letters) >= MIN_SEED_WORDS and find_seed_phrase(letters, words):
        return "seed_phrase"
    if "\n" in text and (found := _find_cut(text, lowered, said)):
        return found
    return _find_worded(close_spelled(words, lengths)) if lengths.count(1) >= MIN_SPELLED else None


def _find_format(text: str, lowered: str, hints: _Hints) -> str | None:
    for hint, known in hints:
        if hint in lowered and known.is_in(text):
            return known.name
    return None


def _find_token(long: list[str]) -> str | None:
    """Look at the long words alone: no token has a space, and most texts have no long word."""
    joined = "\n".join(long)
    if not joined.isascii():
        # Chinese has no spaces.
        long = re.findall(_TOKEN_RUN, joined)
        if not long:
            return None
        joined = "\n".join(long)
    if found := _find_format(joined, joined.lower(), _TOKEN_HINTS + _ALONE_HINTS):
        return found
    if not (inner := unwrap(joined)):
        return None
    return _find_format(inner, inner.lower(), _TEXT_HINTS) or _find_worded(inner)


def _find_worded(text: str) -> str | None:
    """Search a text that was hidden within another for a token or a value after its word."""
    lowered = text.lower()
    said = _WHOLE.keys() & set(re.findall("[a-z]+", lowered))
    return _find_format(text, lowered, _TOKEN_HINTS) or (
        "assigned_password" if find_named(text, lowered, said) else None
    )


def _find_cut(text: str, lowered: str, said: set[str]) -> str | None:
    if said.isdisjoint(_CUT_WORDS) and not any(start in lowered for start in _CUT_STARTS):
        return None
    cut = "\n".join(join_broken(text, _CUT_PREFIXES))
    return _find_format(cut, cut.lower(), _TOKEN_HINTS)


_PLACEHOLDERS = r"(?i)\[(?:REDACTED|SENSITIVE)"


def find_text_sensitivity(text: str) -> str | None:
    """Return why a text must not be kept (a placeholder, a kind of secret), or None."""
    if re.search(_PLACEHOLDERS, text):
        return "placeholder"
    secret = find_secret(text)
    return None if secret is None else f"secret:{secret}"


def read_rules() -> list[str]:
    """Return the sources of this package: when they change, texts are judged again."""
    here = Path(__file__).parent
    return [
        path.read_text("utf-8") for kind in ("py", "txt") for path in sorted(here.glob(f"*.{kind}"))
    ]


# Is a row sensitive: the marks that its owner or its store set, then every text of it.

_MAX_NESTING = 8


Scan = Callable[[str], str | None]  # `find_text_sensitivity`, or what gives the same


def find_fields_sensitivity(
    fields: Mapping[str, object], scan: Scan = find_text_sensitivity
) -> str | None:
    """Return why a row must not leave its store (a mark, or the contents of a text), or None."""
    # Every text of the row is scanned, also of fields that would not be exported.
    return find_mark(fields) or scan("\n".join(_texts(tuple(fields.values()))))


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif depth < _MAX_NESTING:
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from _texts(key, depth + 1)
                yield from _texts(item, depth + 1)
        elif isinstance(value, list | tuple):
            for item in value:  # a text of its own needs no generator of its own
                yield from (item,) if isinstance(item, str) else _texts(item, depth + 1)
