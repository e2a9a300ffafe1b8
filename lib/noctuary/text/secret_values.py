"""Which values are secrets, once a word before them says what they are.

What belongs here: how a password, a key, a code or a passphrase looks, and what is only said about
one. What does not: the words (`noctuary.text.named_secrets`).

A judge gets the value as it was written and what says that it follows ("" for a space alone).
"""

from __future__ import annotations

import re
from itertools import takewhile

from noctuary.text.secret_numbers import entropy_bits
from noctuary.text.stopwords import STOP_WORDS

MIN_SECRET_ENTROPY_BITS = 2.5
"""Shannon bits per character that an assigned value needs: eight random characters, one of them
repeated, have 2.75, padded words less. Lower drops more harmless rows, higher misses weak
passwords."""

MIN_SECRET_CHARS = 8
"""Shortest assigned value that is judged: below, versions, ports and counts look like passwords."""

MIN_PASSWORD_CHARS = 6
"""The same where the word before says password and nothing else."""

MIN_RANDOM_CHARS = 16
"""Shortest value that counts after "token" or "key" with nothing but a space between."""

# Not a value but where it comes from: a variable, a template, a path, an address, a call, a vault.
_INDIRECT = re.compile(
    r"[$<{%*~/.\[(]|[a-z][a-z\d+.-]{1,20}://|os\.|env\b|process\.|[a-z_.]{1,80}[\[(]|arn:aws|!vault"
    r"|@microsoft\.|(?:vault|kv|secrets?|ssm|secretsmanager|key(?:vault|ring|chain)|projects)[/:]"
    r"|secrets\.[a-z_]",
    re.IGNORECASE,
)
# What is said about passwords and has a digit.
_TECHNICAL = re.compile(
    r"(?:sha|md|base|utf|aes|rsa|bcrypt|argon|pbkdf|oauth|ntlm|scrypt|http|tls|ssl|ipv|web|v|wpa|saml"
    r"|blake|ed|x|pkcs|rfc|iso|python|windows|office|microsoft|gen|version|phase|step|level|day)"
    r"[-_ ]?\d{1,6}(?:-[a-z]{2,12})?\Z|\d{1,2}(?:fa|password|x|th|st|nd|rd)\Z"
    # Counts, rates and sizes: 128k-token, 99.5%, 17/20, 30-day, 12+characters-long.
    r"|\d[\d.,/]{0,9}\+?(?:%|[-_]?(?:k|m|ms|min|[kmg]b|tokens?|chars?|characters?|digits?|letters?"
    r"|words?|bits?|bytes?|seconds?|minutes?|hours?|days?|weeks?|months?|years?|times?|attempts?"
    r"|tries|users?|tests?|pass(?:ed)?|fail(?:ed)?)(?:[-/][a-z]{2,12}){0,2})?\Z",
    re.IGNORECASE,
)
_SYMBOLS = frozenset("!@#$%^&*+?")
_CLOSING = ".,:?)]}>"


def is_secret_value(value: str, least: int = MIN_SECRET_CHARS) -> bool:
    """Tell whether an assigned value looks like a credential: long, mixed and of high entropy."""
    if _INDIRECT.match(value):
        return False
    value = value.rstrip(_CLOSING)
    if len(value) < least or not any(c.isalpha() for c in value):
        return False
    # Below eight characters a symbol alone may be punctuation.
    mixed = any(c.isdigit() for c in value) or (
        len(value) >= MIN_SECRET_CHARS and not _SYMBOLS.isdisjoint(value)
    )
    return mixed and entropy_bits(value) >= MIN_SECRET_ENTROPY_BITS


def is_password(value: str) -> bool:
    """Tell whether what follows the word "password" looks like one."""
    if _is_chain_of_words(value):
        return True
    return is_secret_value(value, MIN_PASSWORD_CHARS) and not _TECHNICAL.match(
        value.rstrip(_CLOSING)
    )


def _is_random(value: str) -> bool:
    value = value.rstrip(_CLOSING).removeprefix("0x")
    return (
        len(value) >= MIN_RANDOM_CHARS
        and is_secret_value(value)
        and any(c.isdigit() for c in value)
        and _KEY_CHARS.fullmatch(value) is not None
        and entropy_bits(value) >= 3
        and not re.match(r"\d{4}-\d\d", value)
    )


# What keys are made of, and what names are: words and numbers, billing-service-2024.
_KEY_CHARS = re.compile(r"[A-Za-z0-9_~.+/=-]*")
_NAME = re.compile(r"(?:[a-z]+|[A-Z][a-z]+|\d+)(?:[-_./:](?:[a-z]+|[A-Z][a-z]+|\d+))+", re.ASCII)


def _is_chain_of_words(value: str) -> bool:
    """Tell whether four words or more hang together: correct-horse-battery-staple."""
    parts = value.rstrip(_CLOSING).split("-")
    return (
        len(parts) >= 4
        and all(3 <= len(part) <= 10 and part.isalpha() for part in parts)
        and STOP_WORDS.isdisjoint(parts)
    )


def is_base32(value: str) -> bool:
    """Tell whether a value is the secret of a second factor."""
    joined = value.replace(" ", "").replace("-", "")
    return len(joined) >= MIN_RANDOM_CHARS and (
        joined.isupper() or not set("234567").isdisjoint(joined)
    )


def is_code(value: str) -> bool:
    """Tell whether groups of letters and digits are a recovery code."""
    # Groups up to the first word of the sentence that goes on.
    groups = takewhile(lambda group: any(c.isdigit() for c in group), value.split())
    return len("".join(groups).replace("-", "")) >= MIN_SECRET_CHARS and not re.match(
        r"(?:19|20)\d\d-\d\d", value
    )


_TALK_WORDS = """
ask backup bad broken case changed changes changing characters correct dialog different empty
encrypted entropy entry expired expires file files first forgotten generator good gpg hash invalid
kept key keys known last length less long longer lost manager minimum missing needed never new none
null old one optional page passphrase passphrases password passwords policy prompt prompted prompts
protected protection recommended required reset rotated safe same saved second see set short shared
ssh still stored string strong text twice two unknown unset used using valid value weak word words
written wrong asked case chosen correctly entered generated handed hidden memorable
optional possible printed private public random recorded secret secure sensitive separately shown
somewhere stays supposed typed under usually
aber auf auch bekannt das dem den der die ein eine geheim im ist kein keine lang leider mehr mit
muss nicht noch nur oder sehr sicher soll und unter vergessen wird wurde zu
avec dans est mais pas plus sont sous tres trop
"""
_TALK = STOP_WORDS | frozenset(_TALK_WORDS.split())


def _is_phrase(words: str) -> bool:
    """Tell whether words are a passphrase: all small or all capitals, none said about them."""
    parts = words.lower().replace("-", " ").split()
    alike = words.islower() or words.istitle() or words.isupper()
    # The best known one has a word of the talk in it.
    return alike and _TALK.isdisjoint(parts[parts[:2] == ["correct", "horse"] :])


def judge_password(value: str, says: str) -> bool:
    """Tell whether what follows a word for a password is one."""
    if not says:
        return is_password(value) and any(c.isdigit() for c in value)
    return is_password(value) or (value.rstrip(_CLOSING).isdecimal() and len(value) <= 12)


def judge_pass(value: str, says: str) -> bool:
    """The same of "pass", behind which test runners write what passed."""
    return is_password(value) and not _TEST_RUN.match(value)


def judge_stated(value: str, says: str) -> bool:
    """Tell whether a word between quotes is a password, not what is said about one."""
    return value.isalpha() and value.lower() not in _TALK


def judge_key(value: str, says: str) -> bool:
    """Tell whether what follows a word for a key or a token is one, not the name of one."""
    if _NAME.fullmatch(bare := value.rstrip(_CLOSING)) or _TECHNICAL.match(bare):
        return False
    return is_secret_value(value) if says else _is_random(value)


def judge_phrase(value: str, says: str) -> bool:
    """Tell whether words that follow "passphrase" are one."""
    return _is_phrase(value) and (bool(says) or value.islower())


def judge_pin(value: str, says: str) -> bool:
    """Tell whether digits are a PIN or a code: a year needs a verb before it."""
    return bool(says) or not _YEAR.fullmatch(value)


# What test runners write behind PASS: a function, a path, a script.
_TEST_RUN = re.compile(
    r"[Tt]est[A-Z_/.-]|(?:[\w.+-]{1,80}/){1,9}[\w.+-]{0,80}:?\Z"
    r"|[\w+-]{1,80}\.(?:sh|py|c|cc|cpp|h|t|js|ts|rs|go|rb|exp|pl|java)\b"
)
_YEAR = re.compile(r"(?:19|20)\d\d")
