"""A text without what hides a secret from a reader of its letters: the copy that is scanned too.

What belongs here: invisible characters, full-width and other compatibility forms, letters of
another alphabet within a Latin word, HTML entities, percent escapes, letters set apart by spaces, a
word that a line break cuts. What does not: what a secret looks like (`noctuary.text.secret_rules`).

Every pattern repeats bounded classes or one class, so that hostile text takes linear time.
"""

from __future__ import annotations

import re

from noctuary.text.fold import normalize

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
_UNUSUAL = re.compile(f"[{_INVISIBLE}{_COMPATIBLE}{_ALIKE}]")
_ASCII = bytes(range(128))
_DISGUISED = re.compile(f"[{_INVISIBLE}{_COMPATIBLE}]|[A-Za-z_][{_ALIKE}]|[{_ALIKE}][A-Za-z_]")
_MIXED_WORD = re.compile(f"(?=[{_ALIKE}]{{0,63}}[A-Za-z])[A-Za-z0-9{_ALIKE}]{{2,64}}")
_ENTITY = re.compile(r"&(?:#(\d{2,5})|#[xX]([0-9A-Fa-f]{2,4})|([A-Za-z]{2,8}));")
_ENTITY_NAMES = {
    "amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "equals": "=", "colon": ":",
    "lowbar": "_", "underbar": "_", "hyphen": "-", "dash": "-", "sol": "/", "period": ".",
    "commat": "@", "plus": "+", "num": "#", "dollar": "$", "excl": "!", "ast": "*", "percnt": "%",
    "nbsp": " ", "semi": ";", "quest": "?", "shy": "",
}  # fmt: skip
_PERCENT = re.compile(r"%(?:25){0,4}([2-7][0-9A-Fa-f])")
MIN_SPELLED = 8
_SPELLED = re.compile(b"\1{%d,}" % MIN_SPELLED)


def find_plain(text: str) -> str:
    """Return the text as its reader sees it, the text itself where nothing is disguised."""
    plain = text
    if "&" in plain and _ENTITY.search(plain):
        plain = _ENTITY.sub(_decode_entity, plain)
    if "%" in plain and _PERCENT.search(plain):
        plain = _PERCENT.sub(lambda found: chr(int(found[1], 16)), plain)
    # One class of what is not ASCII first: it is looked for many times as fast.
    if not plain.isascii() and _UNUSUAL.search(leave_ascii(plain)) and _DISGUISED.search(plain):
        plain = _MIXED_WORD.sub(lambda found: found[0].translate(_TO_LATIN), normalize(plain))
    return plain


def leave_ascii(text: str) -> str:
    """Return a text without its ASCII characters, empty where the rest is quotes and dashes."""
    raw = text.encode("utf-8", "surrogatepass")
    return raw.translate(None, _ASCII).decode("utf-8", "surrogatepass").strip("’‘“”–—…•")


def close_spelled(words: list[str], lengths: list[int]) -> str:
    """Return what eight or more letters in a row say that stand apart, an empty text without."""
    # Of eight in a row two are every fourth of the text.
    if b"\1\1" not in bytes(map((1).__eq__, lengths[::4])):
        return ""
    apart = _SPELLED.finditer(bytes(map((1).__eq__, lengths)))
    return "\n".join("".join(words[slice(*run.span())]) for run in apart)


def join_broken(text: str, prefixes: tuple[str, ...]) -> list[str]:
    """Return the last word of each line that begins like a token, with the next line's first.

    Lines that hold nothing but one word may be further parts: every length is returned.
    """
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
    decimal, hexadecimal, name = found.groups()
    if name:
        return _ENTITY_NAMES.get(name, found[0])
    code = int(decimal) if decimal else int(hexadecimal, 16)
    return chr(code) if code >= 0x20 else " "
