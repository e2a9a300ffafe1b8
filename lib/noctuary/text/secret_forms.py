"""Forms of secrets: tokens of services, numbers with a checksum, seed phrases."""

from __future__ import annotations

import binascii
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from itertools import pairwise, takewhile
from math import log2
from pathlib import Path

from noctuary.core.files import sha256
from noctuary.text.tokens import STOP_WORDS

MIN_TOKEN_CHARS = 15  # shortest run of any token's format (a Slack token cut off)


class SecretRule:
    """One record of secret_formats.txt or secret_words.txt; those files document the fields."""

    # No dataclass: its module takes a hook 8 ms.
    def __init__(
        self,
        name: str,
        hints: tuple[str, ...],
        source: str,
        judge: str = "",
        words: tuple[str, ...] = (),
    ) -> None:
        self.name, self.source = name, source
        self.hints = hints  # lower-case literals, one of which a text holds where it matches
        self.judge = judge  # of a match, or of the value behind a word; see JUDGES
        self.words = words  # that a rule of secret_words.txt is tried for

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled for the first text with a hint: most processes scan a few."""
        return re.compile(self.source)

    def is_in(self, text: str) -> bool:
        """Return whether a text holds the format."""
        if not self.judge:
            return self.pattern.search(text) is not None
        judge = JUDGES[self.judge]
        return any(
            judge(found[0], text[max(0, found.start() - 40) : found.start()])
            for found in self.pattern.finditer(text)
        )


def _read_text(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


def _read_records(name: str) -> Iterator[list[str]]:
    # A line that is indented twice belongs to the one before.
    text = _read_text(name).replace("\n    |", "|").replace("\n    ", " ")
    for record in text.split("\n\n"):
        lines = [line.strip() for line in record.splitlines() if not line.startswith("#")]
        if lines:
            yield lines


def _read_formats() -> Iterator[tuple[str, SecretRule]]:
    for head, *lines in _read_records("secret_formats.txt"):
        kind, name, *hints = head.split()
        name, _, judge = name.partition(":")
        source = "|".join(lines)
        if kind == "word":
            kind, source = "token", rf"(?<![A-Za-z0-9_])(?:{source})"
        yield kind, SecretRule(name, tuple(hints), source, judge)


def _read_words() -> Iterator[SecretRule]:
    parts: dict[str, str] = {}
    for head, *lines in _read_records("secret_words.txt"):
        name, *told = head.split()
        starts = lines.pop(0).split(";") if told else []
        parts["STARTS"] = "|".join(starts)
        parts[name.upper()] = source = "".join(_expand(line, parts) for line in lines)
        if told:
            yield SecretRule(name, tuple(starts), source, told[0], tuple(told[1:]))


def _expand(line: str, parts: Mapping[str, str]) -> str:
    if "behind " not in line:
        return re.sub("<([A-Z_]+)>", lambda found: parts[found[1]], line) if "<" in line else line
    behind = re.fullmatch(r"(not )?behind (\S+) ?(\S*): (.*)", line)
    if behind is None:
        return re.sub("<([A-Z_]+)>", lambda found: parts[found[1]], line)
    is_not, name, before, words = behind.groups()
    if is_not:
        return "".join(f"(?<!{before}{word}[ _-]{name})" for word in words.split())
    gaps = ("[ _-]", "", "'s ")
    between = "|".join(f"(?<={before}{word}{gap}{name})" for word in words.split() for gap in gaps)
    return f"{name}(?![a-z])(?:{between})"


_FORMATS = tuple(_read_formats())
TOKEN_FORMATS, ALONE_FORMATS, TEXT_FORMATS, NUMBER_FORMATS = (
    tuple(known for kind, known in _FORMATS if kind == wanted)
    for wanted in ("token", "alone", "text", "number")
)
WORD_RULES = {known.name: known for known in _read_words()}


@cache
def seed_words() -> dict[str, int]:
    """Return the 2,048 English words of BIP-39, which seed phrases of wallets are made of.

    The numbers are their places, from 0. The standard froze the list: the file's SHA-256 begins
    2f5eed53. From the `mnemonic` package 0.21, Copyright (c) 2013-2016 Pavol Rusnak, MIT licence:
    permission is granted to use, copy, modify and distribute it provided that this notice is kept;
    it comes without warranty of any kind.
    """
    return {word: number for number, word in enumerate(_read_text("bip39.txt").split())}


_CARD_WORD = "(?i)diner|card|kart|carte|tarjeta|карт|卡"
_HASH_NAME = r"(?i)(?<![a-z0-9])(?:sha-?[0-9]{1,3}|md5|blake[0-9a-z]{1,3}|xxh[0-9]{1,3})[:=-]$"
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

SEED_SIZES = (12, 15, 18, 21, 24)
MIN_SEED_WORDS = SEED_SIZES[0]
_SEED = b"\1" * MIN_SEED_WORDS
_SEED_RUN = b"\1{%d,}" % MIN_SEED_WORDS
_SEED_NAMED = (
    "seed|recover|mnemonic|passphrase|wallet|ledger|trezor|metamask|bip-?39|secret|backup phrase"
    "|semilla|frase|wiederherstellung|助记词|助記詞|сид|мнемо"
)

# Of ASCII text, the first of each four characters encodes less than 32.
_BASE64 = (
    r"(?<![A-Za-z0-9+/_-])(?:[A-Za-f][A-Za-z0-9+/_-]{3}){4,}[A-Za-z0-9+/_-]{0,3}"
    r"(?![A-Za-z0-9+/_-])={0,2}"
)
_LAYOUT = dict.fromkeys(map(ord, "\t\n\r"))
_MIN_ALONE_BITS = 4.3  # random base64 of 40 characters has 4.75 on average, a path or name 4

_CAMEL_CASE = r"[a-z]*+(?:(?:Of|To|In|By|Is|At|On|Id|Or|As)(?![a-z])|[A-Z]{1,4}+[a-z]{2,}+|\d++)+"
_MIN_DRAWN_BITS = 2.8  # sixteen random hexadecimal digits have 3.3 on average

_MAX_LOWER_PAIRS = 0.4  # of neighbours, both small letters: .17 of random base64, .7 of names


def _has_luhn_digit(number: str) -> bool:
    digits = [int(char) for char in reversed(number) if char.isdigit()]
    doubled = sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return len(set(digits)) > 1 and (sum(digits[::2]) + doubled) % 10 == 0


def judge_card(number: str, before: str) -> bool:
    """Return whether digits are the number of a payment card: Luhn's check, and its groups."""
    # Other registers also use fourteen digits and Luhn's check (French companies): those count
    # only in the groups of a card, or next to a word for one.
    is_told = len(number) > 14 or re.search(_CARD_WORD, before) is not None
    # One hash of 16 hexadecimal digits in some 30,000 has digits only and passes Luhn's check.
    return is_told and _has_luhn_digit(number) and re.search(_HASH_NAME, before) is None


def judge_iban(text: str, before: str) -> bool:
    """Return whether an account number begins here: its country's length, ISO 7064 mod 97-10."""
    joined = text.replace(" ", "").replace("-", "")
    length = _IBAN_LENGTHS.get(joined[:2], 99)
    number = joined[4:length] + joined[:4]
    return len(joined) >= length and int("".join(str(int(c, 36)) for c in number)) % 97 == 1


def find_seed_phrase(letters: list[str], words: list[str]) -> bool:
    """Return whether twelve or more words of a wallet's list follow each other."""
    # With spaces between and a word for it nearby, the checksum is ignored: other wallets use the
    # same list with another checksum, and a mistyped phrase is as sensitive as a correct one.
    # Otherwise, as in a shopping list or in program text, the checksum of BIP-39 must hold.
    known = seed_words()
    # Of twelve in a row, every third word of the text hits four.
    if b"\1\1\1\1" not in bytes(map(known.__contains__, letters[::3])):
        return False
    marks = bytes(map(known.__contains__, letters))
    if _SEED not in marks:
        return False
    apart = [word.lower() for word in words]
    for run in re.finditer(_SEED_RUN, bytes(map(known.__contains__, apart))):
        start, end = run.span()
        beside = " ".join(apart[max(0, start - 8) : start + 3] + apart[end : end + 6])
        if re.search(_SEED_NAMED, beside) and any(
            _is_varied(apart[at : at + MIN_SEED_WORDS])
            for at in range(start, end - MIN_SEED_WORDS + 1)
        ):
            return True
    return any(
        _is_varied(letters[at : at + size])
        and _is_checked([known[w] for w in letters[at : at + size]])
        for run in re.finditer(_SEED_RUN, marks)
        for size in SEED_SIZES
        # A word of the list may come before or after it. One of sixteen shopping lists passes by
        # chance, so no more places than these are tried.
        if size <= run.end() - run.start() <= size + 1
        for at in {run.start(), run.end() - size}
    )


def _is_varied(words: list[str]) -> bool:
    """Return whether hardly a word repeats: two pairs occur in one of 2,000 phrases."""
    return len(set(words)) >= len(words) - len(words) // MIN_SEED_WORDS


def _is_checked(numbers: list[int]) -> bool:
    """Return whether the last bits are the first ones of the others' SHA-256 (BIP-39)."""
    joined = 0
    for number in numbers:
        joined = joined << 11 | number
    bits = len(numbers) // 3
    entropy = (joined >> bits).to_bytes(len(numbers) * 4 // 3, "big")
    return sha256(entropy).digest()[0] >> (8 - bits) == joined & ((1 << bits) - 1)


def judge_random(word: str, before: str) -> bool:
    """Return whether a word is an AWS secret key by itself: random base64."""
    key = word.strip("\"'`(),.")
    return _is_mixed(key) and entropy_bits(key) >= _MIN_ALONE_BITS


def judge_drawn(word: str, before: str) -> bool:
    """Return whether a memory service's key follows its prefix, and not the words of a name."""
    run = max(re.findall("[A-Za-z0-9]+", word), key=len)
    groups = len(re.findall(r"\d+", run))  # of digits: a name has one, at its end
    if word.startswith(("sm_", "z_")):  # sm_90, sm_total_count, z_index
        return _mixes_cases(run) or (len(run) >= 32 and groups > 3)
    return entropy_bits(run) >= _MIN_DRAWN_BITS and (groups > 1 or _mixes_cases(run))


def _mixes_cases(text: str) -> bool:
    """Return whether small and capital letters alternate at random."""
    changes = sum(a.islower() != b.islower() for a, b in pairwise(text))
    pairs = sum(a.islower() and b.islower() for a, b in pairwise(text))
    is_mixed = any(c.isupper() for c in text) and any(c.islower() for c in text)
    is_name = re.fullmatch(_CAMEL_CASE, text) is not None
    is_scattered = pairs < len(text) / 2 or len(re.findall(r"\d+", text)) > 2
    return is_mixed and not is_name and changes >= len(text) / 5 and is_scattered


def unwrap(text: str) -> str:
    """Return the decoded base64 in a text, if it decodes to text; else an empty text."""
    return "\n".join(filter(None, map(decode_text, re.findall(_BASE64, text))))


def decode_text(encoded: str) -> str:
    """Decode base64 (either alphabet, padded or not) to ASCII; an empty text if it is none."""
    plain = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    plain = plain[: len(plain) - (len(plain) % 4 == 1)]
    try:
        raw = binascii.a2b_base64(plain + "=" * (-len(plain) % 4))
        # PowerShell encodes UTF-16.
        text = raw.replace(b"\0", b"").decode("ascii")
    except ValueError:
        return ""
    return text if text.translate(_LAYOUT).isprintable() else ""


def _is_mixed(text: str) -> bool:
    """Return whether letters and digits alternate at random, not as in CamelCaseNames."""
    pairs = sum(a.islower() and b.islower() for a, b in pairwise(text))
    return (
        any(c.isupper() for c in text)
        and any(c.isdigit() for c in text)
        and 0 < pairs < len(text) * _MAX_LOWER_PAIRS
    )


def entropy_bits(text: str) -> float:
    """Return the Shannon entropy (1948) in bits per character of a text's own distribution."""
    total = len(text)
    return sum(n / total * log2(total / n) for n in Counter(text).values())


# Which values are secrets, after a word that announces one. A judge gets the value as written and
# the words that connect it ("" for a space alone).

# Shannon bits per character that an assigned value needs: eight random characters, one of them
# repeated, have 2.75, padded words less.
MIN_SECRET_ENTROPY_BITS = 2.5
MIN_SECRET_CHARS = 8  # shorter versions, ports and counts look like passwords
MIN_PASSWORD_CHARS = 6  # the same after the word "password" alone
MIN_RANDOM_CHARS = 16  # after "token" or "key" with nothing but a space between

# Not a value but where it comes from: a variable, a template, a path, an address, a call, a vault;
# or its type, in code.
_INDIRECT = (
    r"(?i)[$<{%*~/.\[(]|[a-z][a-z\d+.-]{1,20}://|os\.|env\b|process\.|[a-z_.]{1,80}[\[(]|arn:aws|!vault"
    r"|@microsoft\.|(?:vault|kv|secrets?|ssm|secretsmanager|key(?:vault|ring|chain)|projects)[/:]"
    r"|secrets\.[a-z_]|(?:big)?u?int\d{1,2}(?:clamped)?array\b|float\d\darray\b"
    r"|(?:option|vec|box|arc|promise|array|list|map)<"
)
# Technical terms near passwords that have a digit.
_TECHNICAL = (
    r"(?i)(?:sha|md|base|utf|aes|rsa|bcrypt|argon|pbkdf|oauth|ntlm|scrypt|http|tls|ssl|ipv|web|v|wpa|saml"
    r"|blake|ed|x|pkcs|rfc|iso|python|windows|office|microsoft|gen|version|phase|step|level|day)"
    r"[-_ ]?\d{1,6}(?:-[a-z]{2,12})?\Z|\d{1,2}(?:fa|password|x|th|st|nd|rd)\Z"
    # Counts, rates and sizes: 128k-token, 99.5%, 17/20, 30-day, 12+characters-long.
    r"|\d[\d.,/]{0,9}\+?(?:%|[-_]?(?:k|m|ms|min|[kmg]b|tokens?|chars?|characters?|digits?|letters?"
    r"|words?|bits?|bytes?|seconds?|minutes?|hours?|days?|weeks?|months?|years?|times?|attempts?"
    r"|tries|users?|tests?|pass(?:ed)?|fail(?:ed)?)(?:[-/][a-z]{2,12}){0,2})?\Z"
)
_SYMBOLS = frozenset("!@#$%^&*+?")
_CLOSING = ".,:?)]}>"


def is_secret_value(value: str, least: int = MIN_SECRET_CHARS) -> bool:
    """Return whether an assigned value looks like a credential: long, mixed, of high entropy."""
    if re.match(_INDIRECT, value):
        return False
    value = value.rstrip(_CLOSING)
    if len(value) < least or not any(c.isalpha() for c in value):
        return False
    # Below eight characters a symbol alone may be punctuation.
    mixed = any(c.isdigit() for c in value) or (
        len(value) >= MIN_SECRET_CHARS and not _SYMBOLS.isdisjoint(value)
    )
    return mixed and entropy_bits(value) >= MIN_SECRET_ENTROPY_BITS


def is_password(value: str, says: str = "") -> bool:
    """Return whether the value after the word "password" looks like one."""
    return _is_chain_of_words(value) or (
        is_secret_value(value, MIN_PASSWORD_CHARS)
        and not re.match(_TECHNICAL, value.rstrip(_CLOSING))
    )


def _is_random(value: str) -> bool:
    value = value.rstrip(_CLOSING).removeprefix("0x")
    return (
        len(value) >= MIN_RANDOM_CHARS
        and is_secret_value(value)
        and any(c.isdigit() for c in value)
        and re.fullmatch(_KEY_CHARS, value) is not None
        and entropy_bits(value) >= 3
        and not re.match(r"\d{4}-\d\d", value)
    )


# The characters of keys; and names made of words and numbers, billing-service-2024.
_KEY_CHARS = r"[A-Za-z0-9_~.+/=-]*"
_NAME = r"(?a)(?:[a-z]+|[A-Z][a-z]+|\d+)(?:[-_./:](?:[a-z]+|[A-Z][a-z]+|\d+))+"


def _is_chain_of_words(value: str) -> bool:
    """Return whether four words or more are joined: correct-horse-battery-staple."""
    parts = value.rstrip(_CLOSING).split("-")
    return (
        len(parts) >= 4
        and all(3 <= len(part) <= 10 and part.isalpha() for part in parts)
        and STOP_WORDS.isdisjoint(parts)
    )


def is_base32(value: str, says: str) -> bool:
    """Return whether a value is the secret of a second factor."""
    joined = value.replace(" ", "").replace("-", "")
    return len(joined) >= MIN_RANDOM_CHARS and (
        joined.isupper() or not set("234567").isdisjoint(joined)
    )


def is_code(value: str, says: str) -> bool:
    """Return whether groups of letters and digits are a recovery code."""
    # Groups up to the first word of the rest of the sentence.
    groups = takewhile(lambda group: any(c.isdigit() for c in group), value.split())
    return len("".join(groups).replace("-", "")) >= MIN_SECRET_CHARS and not re.match(
        r"(?:19|20)\d\d-\d\d", value
    )


_TALK = STOP_WORDS | frozenset(_read_text("talk_words.txt").split())  # talk about passwords


def _is_phrase(words: str) -> bool:
    """Return whether words are a passphrase: consistent capitals, no words of talk about them."""
    parts = words.lower().replace("-", " ").split()
    alike = words.islower() or words.istitle() or words.isupper()
    # The best known one has a word of the talk in it.
    return alike and _TALK.isdisjoint(parts[parts[:2] == ["correct", "horse"] :])


def judge_password(value: str, says: str) -> bool:
    """Return whether the value after a word for a password is one."""
    if not says:
        return is_password(value) and any(c.isdigit() for c in value)
    return is_password(value) or (value.rstrip(_CLOSING).isdecimal() and len(value) <= 12)


def judge_key(value: str, says: str) -> bool:
    """Return whether the value after a word for a key or token is one, and not its name."""
    if re.fullmatch(_NAME, bare := value.rstrip(_CLOSING)) or re.match(_TECHNICAL, bare):
        return False
    return is_secret_value(value) if says else _is_random(value)


# Output of test runners after PASS: a function, a path, a script.
_TEST_RUN = (
    r"[Tt]est[A-Z_/.-]|(?:[\w.+-]{1,80}/){1,9}[\w.+-]{0,80}:?\Z"
    r"|[\w+-]{1,80}\.(?:sh|py|c|cc|cpp|h|t|js|ts|rs|go|rb|exp|pl|java)\b"
)

# Takes a value and the words that connect it ("" for a space); or a match and the text before it.
Judge = Callable[[str, str], bool]
JUDGES: dict[str, Judge] = {
    "any": lambda value, says: True,
    "base32": is_base32,
    "card": judge_card,
    "code": is_code,
    "drawn": judge_drawn,
    "iban": judge_iban,
    "key": judge_key,
    "login": lambda value, says: ":" in decode_text(value)[1:],
    "mixed": lambda value, says: _is_mixed(value),
    "pass": lambda value, says: is_password(value) and not re.match(_TEST_RUN, value),
    "password": judge_password,
    "phrase": lambda value, says: _is_phrase(value) and (bool(says) or value.islower()),
    # A year needs a verb before it.
    "pin": lambda value, says: bool(says) or not re.fullmatch(r"(?:19|20)\d\d", value),
    "random": judge_random,
    # A word between quotes, unless it is a word of talk about passwords.
    "stated": lambda value, says: value.isalpha() and value.lower() not in _TALK,
    "word": is_password,
}
