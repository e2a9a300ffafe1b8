"""What a credential looks like: formats with spaces in them, assignments, and looking for all.

What belongs here: patterns over one text. What does not: tokens without a space
(`mnemon.text.token_formats`), what becomes of a row that matches (`mnemon.text.sensitivity`,
`mnemon.corpus.sensitive`).

Rules of our own instead of a package's: measured against three of them on labelled texts, these
find more, flag less and load nothing (docs/decisions/0057-sensitive-rows.md).

Every pattern starts at a literal and repeats a bounded class, or is guarded by a look-behind, so
that ten hostile megabytes take linear time.
"""

from __future__ import annotations

import math
import re
from collections import Counter

from mnemon.text.token_formats import MIN_TOKEN_CHARS, TOKEN_FORMATS, SecretRule, rule

MIN_SECRET_ENTROPY_BITS = 2.5
"""Shannon bits per character that an assigned value needs: eight random characters, one of them
repeated, have 2.75, padded words less. Lower drops more harmless rows, higher misses weak
passwords."""

MIN_SECRET_CHARS = 8
"""Shortest assigned value that is judged: below, versions, ports and counts look like passwords."""

TEXT_FORMATS: tuple[SecretRule, ...] = (
    rule(
        "private_key",
        "-----begin putty-user-key-file age-secret-key-1",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"|PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1[A-Z0-9]{40}",
    ),
    rule(
        "authorization_header",
        "bearer basic",
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
        r"://[^\s/:@'\"<>]{0,100}:(?![$<{%*])[^\s/@'\"<>]{1,200}@[^\s/@]",
    ),
)

_NAMED_SECRETS = (
    r"password|passwd|passphrase|passcode|pwd|secret(?:[ _-]?(?:access[ _-]?)?key)?|token"
    r"|api[ _-]?key|access[ _-]?key|auth[ _-]?key|encryption[ _-]?key|private[ _-]?key|credentials?"
    r"|contraseña|clave|пароль|密码|密碼|口令|mot de passe|passwort|kennwort"
)
_ASSIGNMENT_HINTS = [
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "credential",
    "contraseña",
    "clave",
    "пароль",
    "密码",
    "密碼",
    "口令",
    "kennwort",
]
# "the passphrase of the backup disk is ..."
_WHAT_FOR = r"(?:[ \t](?:of|for|to)[ \t][^\s:=.]{1,20}(?:[ \t][^\s:=.]{1,20}){0,3}?)?"
_ASSIGNMENT = re.compile(
    rf"(?:{_NAMED_SECRETS})(?:_base)?{_WHAT_FOR}"
    r"[\"'`*]{0,3}\s{0,5}(?:[:=：]{1,2}>?|\bis\b|\bes\b|\bist\b|\best\b|是|为|為)\s{0,5}"
    r"[\"'`*]{0,3}([^\s\"'`,;，。；]{8,200})",
    re.IGNORECASE,
)
# Commands and files that take a password by position: curl, mysql, sshpass, .netrc.
_COMMAND_HINTS = ["curl", "mysql", "mariadb", "sshpass", "login"]
_COMMAND = re.compile(
    r"\bcurl\b[^\n]{0,80}?[ ](?:-u|--user)[ =][\"']?[^\s:\"']{1,60}:([^\s\"']{8,200})"
    r"|\b(?:mysql|mysqldump|mariadb)\b[^\n]{0,80}?[ ]-p[\"']?([^\s\"']{8,200})"
    r"|\bsshpass[ ]{1,3}-p[ ]{0,3}[\"']?([^\s\"']{8,200})"
    r"|\blogin[ \t]{1,3}[^\s]{1,100}\s{1,3}password[ \t]{1,3}([^\s]{8,200})",
    re.IGNORECASE,
)
# Not a value but where it comes from: a variable, a template, a path, an address, a call.
_INDIRECT = re.compile(r"[$<{%*~/.\[(]|https?:|os\.|env\b|process\.|[A-Za-z_.]{1,80}\(")
# The long word that every row has, twice; a token needs other letters than T and Z.
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T\d:.+Z-]*", re.ASCII)
_SYMBOLS = frozenset("!@#$%^&*+?")
_CLOSING = ".,:?)]}>"


def find_secret(text: str) -> str | None:
    """Return the name of the first credential format in a text, or None; never the match."""
    lowered = text.lower()
    return (
        _find_format(text, lowered, TEXT_FORMATS)
        or _find_token(text)
        or _find_assignment(text, lowered)
    )


def _find_format(text: str, lowered: str, rules: tuple[SecretRule, ...]) -> str | None:
    for known in rules:
        # Plain loops: every text of every night passes here, and `any` takes nearly twice as long.
        for hint in known.hints:
            if hint in lowered:
                if known.pattern.search(text):
                    return known.name
                break
    return None


def _find_token(text: str) -> str | None:
    """Look at the long words alone: no token has a space, and most texts have no long word."""
    long = (word for word in text.split() if len(word) >= MIN_TOKEN_CHARS)
    words = [word for word in long if not TIMESTAMP.fullmatch(word)]
    if not words:
        return None
    joined = "\n".join(words)
    return _find_format(joined, joined.lower(), TOKEN_FORMATS)


def _find_assignment(text: str, lowered: str) -> str | None:
    for hints, pattern in ((_ASSIGNMENT_HINTS, _ASSIGNMENT), (_COMMAND_HINTS, _COMMAND)):
        for hint in hints:
            if hint in lowered:
                if any(is_secret_value(m[m.lastindex or 0]) for m in pattern.finditer(text)):
                    return "assigned_password"
                break
    return None


def is_secret_value(value: str) -> bool:
    """Tell whether an assigned value looks like a credential: long, mixed and of high entropy."""
    if _INDIRECT.match(value):
        return False
    value = value.rstrip(_CLOSING)
    if len(value) < MIN_SECRET_CHARS or not any(c.isalpha() for c in value):
        return False
    mixed = any(c.isdigit() for c in value) or not _SYMBOLS.isdisjoint(value)
    return mixed and entropy_bits(value) >= MIN_SECRET_ENTROPY_BITS


def entropy_bits(text: str) -> float:
    """Return the Shannon entropy in bits per character of the text's own distribution; 0 if empty.

    Source: Shannon, A Mathematical Theory of Communication (1948), section 6.
    """
    total = len(text)
    return sum(n / total * math.log2(total / n) for n in Counter(text).values())
