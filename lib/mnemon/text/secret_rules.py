"""What a credential looks like: a table of public token formats and one rule for assignments.

What belongs here: patterns over one text. What becomes of a row that matches is decided in
`mnemon.text.sensitivity` and `mnemon.corpus.sensitive`.

The prefixes and lengths are those that the issuers document (AWS unique identifiers, GitHub,
GitLab, Slack, Stripe, npm and PyPI token formats, RFC 7468 for PEM, RFC 7519 for JWT). Lengths are
lower bounds: a token that grows stays a match. A table of our own instead of detect-secrets
(Apache-2.0): that one is made for files in a repository and brings requests and PyYAML with it.

Every pattern starts at a literal and repeats a bounded class, or is guarded by a look-behind, so
that ten hostile megabytes take linear time.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

MIN_SECRET_ENTROPY_BITS = 2.5
"""Shannon bits per character that an assigned value needs: eight random characters, one of them
repeated, have 2.75, padded words less. Lower drops more harmless rows, higher misses weak
passwords."""

MIN_SECRET_CHARS = 8
"""Shortest assigned value that is judged: below, versions, ports and counts look like passwords."""


@dataclass(frozen=True, slots=True)
class SecretRule:
    """One credential format.

    Attributes:
        name: What is counted in the report.
        hints: Lower-case literals, one of which every match holds; the cheap test before the
            pattern.
        pattern: The format.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _rule(name: str, hints: str, pattern: str) -> SecretRule:
    return SecretRule(name, tuple(hints.split()), re.compile(pattern))


_START = r"(?<![A-Za-z0-9_])"

SECRET_RULES: tuple[SecretRule, ...] = (
    _rule(
        "private_key",
        "-----begin putty-user-key-file age-secret-key-1",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"|PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1[A-Z0-9]{40}",
    ),
    _rule(
        "aws_access_key",
        "akia asia abia acca",
        _START + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    ),
    _rule(
        "github_token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        _START + r"(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22})",
    ),
    _rule(
        "gitlab_token",
        "glpat- gloas- gldt- glrt- glptt- glft- glimt- glsoat- glcbt- glagent-",
        _START + r"gl(?:pat|oas|dt|rt|ptt|ft|imt|soat|cbt|agent)-[A-Za-z0-9_-]{20}",
    ),
    _rule(
        "slack_token",
        "xox xapp- hooks.slack.com",
        _START + r"(?:xox[a-z]-[A-Za-z0-9-]{10}|xapp-\d-[A-Za-z0-9-]{10})"
        r"|hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/]{20}",
    ),
    _rule(
        "stripe_key",
        "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
        _START + r"(?:(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10}|whsec_[A-Za-z0-9+/]{24})",
    ),
    _rule("anthropic_key", "sk-ant-", r"(?<![A-Za-z0-9])sk-ant-[A-Za-z0-9_-]{20}"),
    _rule(
        "openai_key",
        "sk-",
        # A digit must follow within the key, which hyphenated English never has.
        r"(?<![A-Za-z0-9_-])sk-(?=[A-Za-z_-]{0,60}\d)[A-Za-z0-9_-]{20}",
    ),
    _rule(
        "google_key",
        "aiza ya29. gocspx-",
        _START + r"(?:AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20}|GOCSPX-[A-Za-z0-9_-]{20})",
    ),
    _rule(
        "service_token",
        "npm_ pypi- hf_ sg. dop_v1_ :aa",
        _START + r"(?:npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50}|hf_[A-Za-z0-9]{30}"
        r"|SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16}|dop_v1_[a-f0-9]{64}"
        r"|\d{8,10}:AA[A-Za-z0-9_-]{33})",
    ),
    _rule(
        "jwt",
        "eyj",
        r"(?<![A-Za-z0-9_.-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.",
    ),
    _rule(
        "authorization_header",
        "bearer basic",
        r"(?i:authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?i:bearer|basic)\s{1,3}[A-Za-z0-9._~+/-]{12}",
    ),
    _rule(
        "connection_string",
        "://",
        # user:password@host; the look-ahead leaves out ${VAR}, <password>, {{x}}, %s and ****.
        r"://[^\s/:@'\"<>]{0,100}:(?![$<{%*])[^\s/@'\"<>]{1,200}@[^\s/@]",
    ),
    _rule("connection_string", "accountkey=", r"(?i:accountkey)=[A-Za-z0-9+/=]{40}"),
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
_ASSIGNMENT = re.compile(
    rf"(?:{_NAMED_SECRETS})[\"'`*]{{0,3}}\s{{0,5}}(?:[:=：]{{1,2}}>?|\bis\b|\bes\b|是|为|為)\s{{0,5}}"
    r"[\"'`*]{0,3}([^\s\"'`,;，。；]{8,200})",
    re.IGNORECASE,
)
# Not a value but where it comes from: a variable, a template, a path, an address, a call.
_INDIRECT = re.compile(r"[$<{%*~/.\[(]|https?:|os\.|env\b|process\.|[A-Za-z_.]{1,80}\(")
_SYMBOLS = frozenset("!@#$%^&*+?")
_CLOSING = ".,:?)]}>"


def find_secret(text: str) -> str | None:
    """Return the name of the first credential format in a text, or None; never the match."""
    lowered = text.lower()
    for rule in SECRET_RULES:
        if any(hint in lowered for hint in rule.hints) and rule.pattern.search(text):
            return rule.name
    if any(hint in lowered for hint in _ASSIGNMENT_HINTS):
        for match in _ASSIGNMENT.finditer(text):
            if is_secret_value(match.group(1)):
                return "assigned_password"
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
