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

import re
from itertools import compress

from mnemon.text.disguises import MIN_SPELLED, close_spelled, find_plain, join_broken
from mnemon.text.named_secrets import find_named, is_password
from mnemon.text.secret_numbers import (
    find_card,
    find_iban,
    find_seed_phrase,
    find_unnamed,
    has_long_number,
    unwrap,
)
from mnemon.text.token_formats import MIN_TOKEN_CHARS, TOKEN_FORMATS, SecretRule, rule

TEXT_FORMATS: tuple[SecretRule, ...] = (
    rule(
        "private_key",
        "key",
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
        "cookie sid= sessionid=",
        r"(?i)(?:cookie[\"']?\s{0,3}[:=]|\s-b|--cookie)[^\n]{0,200}?"
        r"(?:sess|sid|auth|token|jwt|remember)[a-z0-9_.-]{0,30}=(?=[^\s;]{0,30}\d)[^\s;,\"'<>${]{16}"
        r"|(?:phpsessid|jsessionid|sessionid|connect\.sid)=(?=[^\s;]{0,30}\d)[a-z0-9%._-]{16}",
    ),
    rule(
        "social_security_number",
        "ssn security",
        r"(?i)(?:(?<![a-z])ssn|social[ -]security)[^\n\d]{0,24}\d{3}([ -]?)\d\d\1\d{4}(?![\d-])",
    ),
)

# Commands and files that take a password by position: curl, mysql, sshpass, .netrc.
_COMMAND_WORDS = """
curl mysql mysqldump mariadb sshpass login snowsql docker redis mongo mongosh mongodump sqlcmd
sqlplus ldapsearch ldapmodify smbclient
"""
_COMMANDS = frozenset(_COMMAND_WORDS.split())
_COMMAND = re.compile(
    r"\bcurl\b[^\n]{0,80}?[ ](?:-u|--user)[ =][\"']?[^\s:\"']{1,60}:([^\s\"']{6,200})"
    r"|\b(?:mysql|mysqldump|mariadb)\b[^\n]{0,80}?[ ]-p[\"']?([^\s\"']{6,200})"
    r"|\bsshpass[ ]{1,3}-p[ ]{0,3}[\"']?([^\s\"']{6,200})"
    r"|\blogin[ \t]{1,3}[^\s]{1,100}\s{1,3}password[ \t]{1,3}([^\s]{6,200})"
    r"|\b(?:snowsql|docker login|mongo|mongosh|mongodump)\b[^\n]{0,120}?"
    r"[ ](?:-p|--password)[ =]{1,3}[\"']?([^\s\"']{6,200})"
    r"|\bredis-cli\b[^\n]{0,80}?[ ](?:-a|--pass)[ ]{1,3}[\"']?([^\s\"']{6,200})"
    r"|\bsqlcmd\b[^\n]{0,80}?[ ]-P[ ]{0,3}[\"']?([^\s\"']{6,200})"
    r"|\bldap[a-z]{1,10}\b[^\n]{0,120}?[ ]-w[ ]{1,3}[\"']?([^\s\"']{6,200})"
    r"|\bsqlplus[ ]{1,3}[^\s/]{1,60}/([^\s/@]{6,200})@"
    r"|\bsmbclient\b[^\n]{0,80}?[ ](?:-U|--user)[ =]{0,3}[^\s%]{1,60}%([^\s]{6,200})",
    re.IGNORECASE,
)
_LETTERS = re.compile("[a-z]+")
_IS_LONG = (MIN_TOKEN_CHARS - 1).__lt__
_NO_LETTERS = {code: " " for code in range(128) if not chr(code).isalpha()}
# The long word that every row has, twice; a token needs other letters than T and Z.
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T\d:.+Z-]*", re.ASCII)
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


def find_secret(text: str) -> str | None:
    """Return the name of the first credential in a text, or None; never the match.

    The text is looked at as it is and, where anything in it is disguised, as its reader sees it.
    """
    found = _find(text)
    if found is None and (plain := find_plain(text)) != text:
        found = _find(plain)
    return found


def _find(text: str) -> str | None:
    lowered = text.lower()
    words = text.split()
    lengths = list(map(len, words))
    long = [w for w in compress(words, map(_IS_LONG, lengths)) if not TIMESTAMP.fullmatch(w)]
    letters = _letters_of(lowered)
    return (
        _find_format(text, lowered, TEXT_FORMATS)
        or (_find_token(long) if long else None)
        or _find_assignment(text, lowered, letters)
        or _find_number(text, words, long)
        or ("seed_phrase" if find_seed_phrase(letters, words) else None)
        or _find_apart(text, lowered, words, lengths, letters)
    )


def _letters_of(lowered: str) -> list[str]:
    """Return the runs of letters of a lower-case text, for the rules that know words."""
    if lowered.isascii():
        return lowered.translate(_NO_LETTERS).split()
    return _LETTERS.findall(lowered)


def _find_format(text: str, lowered: str, rules: tuple[SecretRule, ...]) -> str | None:
    for known in rules:
        # Plain loops: every text of every night passes here, and `any` takes nearly twice as long.
        for hint in known.hints:
            if hint in lowered:
                if known.pattern.search(text):
                    return known.name
                break
    return None


def _find_token(long: list[str]) -> str | None:
    """Look at the long words alone: no token has a space, and most texts have no long word."""
    joined = "\n".join(long)
    lowered = joined.lower()
    if found := _find_format(joined, lowered, TOKEN_FORMATS) or find_unnamed(long):
        return found
    if not (inner := unwrap(long)):
        return None
    lowered = inner.lower()
    return (
        _find_format(inner, lowered, TEXT_FORMATS)
        or _find_format(inner, lowered, TOKEN_FORMATS)
        or _find_assignment(inner, lowered, _letters_of(lowered))
    )


def _find_assignment(text: str, lowered: str, letters: list[str]) -> str | None:
    if find_named(text, lowered, letters):
        return "assigned_password"
    if _COMMANDS.isdisjoint(letters):
        return None
    said = any(is_password(m[m.lastindex or 0]) for m in _COMMAND.finditer(text))
    return "assigned_password" if said else None


def _find_number(text: str, words: list[str], long: list[str]) -> str | None:
    # In one word, or in groups of which two at least are digits alone.
    if has_long_number("\n".join(long)) or sum(map(str.isdecimal, words)) > 1:
        if find_card(text):
            return "payment_card"
        if find_iban(text):
            return "bank_account"
    return None


def _find_apart(
    text: str, lowered: str, words: list[str], lengths: list[int], letters: list[str]
) -> str | None:
    """Look for a token that is cut by a line break or whose letters stand apart."""
    if not _CUT_WORDS.isdisjoint(letters) or any(start in lowered for start in _CUT_STARTS):
        cut = "\n".join(join_broken(text, _CUT_PREFIXES))
        if found := _find_format(cut, cut.lower(), TOKEN_FORMATS):
            return found
    if lengths.count(1) >= MIN_SPELLED and (closed := close_spelled(words, lengths)):
        lowered = closed.lower()
        return _find_format(closed, lowered, TOKEN_FORMATS) or _find_assignment(
            closed, lowered, _letters_of(lowered)
        )
    return None
