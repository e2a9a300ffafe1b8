"""Secrets that a check of their own tells: cards, accounts, seed phrases, wrapped keys.

What belongs here: what needs a check beyond a pattern. What does not: patterns alone
(`noctuary.text.token_formats`), values that a word before them tells
(`noctuary.text.named_secrets`).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from itertools import pairwise
from math import log2

from noctuary.text.seed_words import SEED_WORDS

# ISO/IEC 7812: Visa, Mastercard (both ranges), Discover, JCB, UnionPay; Amex, Diners.
_CARD = re.compile(
    # It starts at a digit, which is fast to look for; what stands before is looked at then.
    r"[2-6](?<![\w.,+#/-][2-6])(?:"
    r"(?:(?<=4)\d{3}|(?<=5)[1-5]\d\d|(?<=2)(?:2[2-9]\d|[3-6]\d\d|7[01]\d|720)|(?<=6)(?:011|[25]\d\d|4[4-9]\d)"
    r"|(?<=3)5[2-8]\d)([ -]?)\d{4}\1\d{4}\1\d{4}"
    r"|(?<=3)[47]\d\d([ -]?)\d{6}\2\d{5}|(?<=3)(?:0[0-5]|[68]\d)\d([ -]?)\d{6}\3\d{4}"
    r")(?![\w-]|[.,]\d)",
    re.ASCII,
)
_CARD_WORD = re.compile("diner|card|kart|carte|tarjeta|карт|卡", re.IGNORECASE)
# ISO 13616 registry, release 98: the length, then its countries.
_REGISTRY = """
15:NO 16:BE 18:DK,FI,FO,GL,NL,SD 19:MK,SI 20:AT,BA,EE,KZ,LT,LU,MN,XK 21:CH,HR,LI,LV
22:BG,BH,CR,DE,GB,GE,IE,ME,RS,VA 23:AE,GI,IL,IQ,OM,SO,TL 24:AD,CZ,ES,MD,PK,RO,SA,SE,SK,TN,VG
25:LY,PT,ST 26:IS,TR 27:BI,DJ,FR,GR,IT,MC,MR,SM 28:AL,AZ,BY,CY,DO,GT,HU,LB,NI,PL,SV
29:BR,EG,PS,QA,UA 30:JO,KW,MU 31:MT,SC 32:LC 33:RU
"""
_IBAN_LENGTHS = {
    country: int(length)
    for length, countries in (line.split(":") for line in _REGISTRY.split())
    for country in countries.split(",")
}
_IBAN = re.compile(
    r"[A-Z](?<![A-Za-z0-9][A-Z])[A-Z]\d\d(?:[ -]?[A-Z0-9]){11,29}(?![a-z0-9])", re.ASCII
)

SEED_SIZES = (12, 15, 18, 21, 24)
MIN_SEED_WORDS = SEED_SIZES[0]
_SEED = b"\1" * MIN_SEED_WORDS
_SEED_RUN = re.compile(b"\1{%d,}" % MIN_SEED_WORDS)
_SEED_NAMED = re.compile(
    "seed|recover|mnemonic|passphrase|wallet|ledger|trezor|metamask|bip-?39|secret|backup phrase"
    "|semilla|frase|wiederherstellung|助记词|助記詞|сид|мнемо"
)

# Of ASCII text, the first of each four characters stands for less than 32.
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/_-])(?:[A-Za-f][A-Za-z0-9+/_-]{3}){4,}[A-Za-z0-9+/_-]{0,3}"
    r"(?![A-Za-z0-9+/_-])={0,2}"
)
_LAYOUT = dict.fromkeys(map(ord, "\t\n\r"))
_ALONE_CHARS = 40
_ALONE = re.compile(r"[\"'`(]?([A-Za-z0-9+/]{40})[\"'`),.]?", re.ASCII)
_WIF = re.compile(
    r"(?<![A-Za-z0-9])(?:5[HJK][1-9A-HJ-NP-Za-km-z]{49}|[KL][1-9A-HJ-NP-Za-km-z]{51})(?![A-Za-z0-9])"
)
_MIN_ALONE_BITS = 4.3
"""Random base64 of 40 characters has 4.75 on average, a path or a name of that length 4."""


_MAX_LOWER_PAIRS = 0.4
"""Neighbours that are both small letters, as a share: .17 of random base64, .7 of names."""


def find_card(text: str) -> bool:
    """Tell whether a text holds the number of a payment card: issuer, length, Luhn's check.

    Other registers number with fourteen digits and Luhn's check as well (French companies): those
    are a card's in its groups, or where a word says so.
    """
    return any(
        _has_luhn_digit(found[0])
        and (
            len(found[0]) > 14 or _CARD_WORD.search(text, max(0, found.start() - 40), found.start())
        )
        for found in _CARD.finditer(text)
    )


def _has_luhn_digit(number: str) -> bool:
    digits = [int(char) for char in reversed(number) if char.isdigit()]
    doubled = sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return len(set(digits)) > 1 and (sum(digits[::2]) + doubled) % 10 == 0


def find_iban(text: str) -> bool:
    """Tell whether a text holds an account number: its country's length, ISO 7064 mod 97-10."""
    for found in _IBAN.finditer(text):
        joined = found[0].replace(" ", "").replace("-", "")
        length = _IBAN_LENGTHS.get(joined[:2], 99)
        number = joined[:length]
        if len(number) == length:
            moved = number[4:] + number[:4]
            if int("".join(str(int(char, 36)) for char in moved)) % 97 == 1:
                return True
    return False


_SEED_NUMBERS = {word: number for number, word in enumerate(SEED_WORDS)}


def find_seed_phrase(letters: list[str], words: list[str]) -> bool:
    """Tell whether twelve or more words of a wallet's list follow each other.

    With spaces between and a word for it beside them, whatever their checksum: other wallets draw
    from the same list with another one, and a phrase that somebody mistyped is as good as whole.
    Otherwise, as in a shopping list or in program text, only where the checksum of BIP-39 holds.

    Args:
        letters: The runs of letters of a text, in lower case.
        words: The same text's words, with what is written beside them.
    """
    known = _SEED_NUMBERS
    # Of twelve in a row four are every third of the text.
    if b"\1\1\1\1" not in bytes(map(known.__contains__, letters[::3])):
        return False
    marks = bytes(map(known.__contains__, letters))
    if _SEED not in marks:
        return False
    apart = [word.lower() for word in words]
    for run in _SEED_RUN.finditer(bytes(map(known.__contains__, apart))):
        start, end = run.span()
        beside = " ".join(apart[max(0, start - 8) : start + 3] + apart[end : end + 6])
        if _SEED_NAMED.search(beside) and any(
            _is_varied(apart[at : at + MIN_SEED_WORDS])
            for at in range(start, end - MIN_SEED_WORDS + 1)
        ):
            return True
    return any(
        _is_varied(letters[at : at + size])
        and _is_checked([known[w] for w in letters[at : at + size]])
        for run in _SEED_RUN.finditer(marks)
        for size in SEED_SIZES
        # A word of the list may stand beside it. One of sixteen shopping lists passes by chance, so
        # that no more places than these are tried.
        if size <= run.end() - run.start() <= size + 1
        for at in {run.start(), run.end() - size}
    )


def _is_varied(words: list[str]) -> bool:
    """Tell whether hardly a word comes twice: of 2,048, two pairs are met once in 2,000 phrases."""
    return len(set(words)) >= len(words) - len(words) // MIN_SEED_WORDS


def _is_checked(numbers: list[int]) -> bool:
    """Tell whether the last bits are the first ones of the others' SHA-256 (BIP-39)."""
    joined = 0
    for number in numbers:
        joined = joined << 11 | number
    bits = len(numbers) // 3
    entropy = (joined >> bits).to_bytes(len(numbers) * 4 // 3, "big")
    return hashlib.sha256(entropy).digest()[0] >> (8 - bits) == joined & ((1 << bits) - 1)


def find_unnamed(words: list[str]) -> str | None:
    """Return what a long word is by itself: an AWS secret key, a wallet's key; None otherwise."""
    for word in words:
        if len(word) < _ALONE_CHARS:
            continue
        found = _ALONE.fullmatch(word)
        if found and _is_mixed(found[1]) and entropy_bits(found[1]) >= _MIN_ALONE_BITS:
            return "aws_secret_key"
        if (wif := _WIF.search(word)) and _is_mixed(wif[0]):
            return "wallet_key"
    return None


def unwrap(text: str) -> str:
    """Return what the base64 in a text says, where it is text; an empty text otherwise."""
    return "\n".join(filter(None, map(decode_text, _BASE64.findall(text))))


def decode_text(encoded: str) -> str:
    """Return the ASCII text that base64 says (either alphabet, padded or not), or an empty one."""
    plain = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    plain = plain[: len(plain) - (len(plain) % 4 == 1)]
    try:
        raw = base64.b64decode(plain + "=" * (-len(plain) % 4))
        # What PowerShell encodes is UTF-16.
        text = raw.replace(b"\0", b"").decode("ascii")
    except ValueError:
        return ""
    return text if text.translate(_LAYOUT).isprintable() else ""


def _is_mixed(text: str) -> bool:
    """Tell whether letters and digits alternate as chance has it, not as in CamelCaseNames."""
    pairs = sum(a.islower() and b.islower() for a, b in pairwise(text))
    return (
        any(c.isupper() for c in text)
        and any(c.isdigit() for c in text)
        and 0 < pairs < len(text) * _MAX_LOWER_PAIRS
    )


def entropy_bits(text: str) -> float:
    """Return the Shannon entropy in bits per character of the text's own distribution; 0 if empty.

    Source: Shannon, A Mathematical Theory of Communication (1948), section 6.
    """
    total = len(text)
    return sum(n / total * log2(total / n) for n in Counter(text).values())
