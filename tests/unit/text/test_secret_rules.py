from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.text.secret_forms import TOKEN_FORMATS, entropy_bits, is_secret_value
from noctuary.text.secrets import TIMESTAMP, find_secret

A36 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

# Joined at run time, so that no scanner takes this file for a leak.
SECRETS = [
    ("private_key", "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIE"),
    ("private_key", "-----BEGIN " + "PRIVATE KEY-----"),
    ("private_key", "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----"),
    ("aws_access_key", "key is AK" + "IAIOSFODNN7EXAMPLE."),
    ("github_token", "gh" + "p_" + A36),
    ("github_token", "github" + "_pat_" + A36),
    ("gitlab_token", "gl" + "pat-" + A36[:20]),
    ("slack_token", "xo" + "xb-123456789012-abcdef"),
    ("slack_token", "https://hooks.slack" + ".com/services/T00000000/B00000000/XXXXXXXX"),
    ("stripe_key", "sk" + "_live_" + A36[:24]),
    ("anthropic_key", "sk-" + "ant-api03-" + A36),
    ("openai_key", "sk-" + A36),
    ("openai_key", "sk-" + "proj-" + A36),
    ("google_key", "AI" + "za" + A36[:35]),
    ("service_token", "np" + "m_" + A36),
    ("model_key", "h" + "f_" + A36),
    ("jwt", "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVP"),
    ("authorization_header", "curl -H 'Author" + "ization: Bearer abcdef0123456789'"),
    ("connection_string", "postgres" + "://app:hunter2@db.internal:5432/prod"),
    ("connection_string", "redis" + "://:pw@cache"),
    ("assigned_password", "pass" + "word = 'tr0ub4dor&3xyz'"),
    ("assigned_password", "DB_PASS" + 'WORD="Zx9!kk2Lmq"'),
    ("assigned_password", "AWS_SECRET_ACCESS" + "_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEX"),
    ("aws_secret_key", "AWS_SECRET_ACCESS" + "_KEY=/JalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("assigned_password", '{"api' + '_key": "9f8e7d6c5b4a39281706"}'),
    ("assigned_password", "the wifi pass" + "word is K3ller-Kanne!7"),
    ("assigned_password", "пар" + "оль: Zx9kk2Lmq81"),
    ("assigned_password", "密" + "码：Zx9kk2Lmq81"),
    ("assigned_password", "contra" + "seña: Zx9kk2Lmq81"),
]

HARMLESS = [
    "",
    "The password policy requires 12 characters and a digit.",
    "password: changeme",
    "password = os.environ['DB_PASSWORD_2']",
    "password: ${DB_PASSWORD_1}",
    "password = <your-password-1>",
    "token=****************",
    "api_key = get_secret('prod/db/2')",
    "password: aaaaaaaaaaa1",
    "secret: well-prepared",
    "private key: /home/me/.ssh/id_ed25519",
    "Her secret is that she practised every single day.",
    "token budget: 4096 tokens",
    "clave: la perseverancia",
    "sk-learn-pipelines-are-a-fine-abstraction",
    "a task-12345678901234567890 in the queue",
    "postgres://localhost:5432/prod",
    "postgres://user:${PGPASSWORD}@db/prod",
    "https://example.org/a:b@c",
    "AKIA is the prefix of an access key id",
    "-----BEGIN CERTIFICATE-----",
    "commit 9f8e7d6c5b4a392817069f8e7d6c5b4a39281706",
    "eyJust a word. eyJanother one.",
]


@pytest.mark.parametrize(("name", "text"), SECRETS)
def test_a_secret_is_found_anywhere_in_a_text(name: str, text: str) -> None:
    assert find_secret(text) == name
    assert find_secret(f"Note to self,\n{text}\nend") == name


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_left_alone(text: str) -> None:
    assert find_secret(text) is None


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ("Zx9kk2Lm", True),
        ("Zx9kk2L", False),  # seven characters
        ("12345678901", False),  # no letter
        ("abcdefghijk", False),  # neither digit nor symbol
        ("aaaabbb1", False),  # 1.4 bits
        ("$VARIABLE12", False),
        ("abcdefg1.", True),  # judged without the full stop
    ],
)
def test_what_counts_as_a_secret_value(value: str, secret: bool) -> None:
    assert is_secret_value(value) is secret


def test_entropy_in_closed_form() -> None:
    assert entropy_bits("") == 0
    assert entropy_bits("aaaa") == 0
    assert entropy_bits("abcd") == 2
    assert entropy_bits("aab") == pytest.approx(math.log2(3) - 2 / 3)


@given(word=st.from_regex(TIMESTAMP, fullmatch=True))
def test_no_token_looks_like_a_timestamp(word: str) -> None:
    """They are not looked at: every row has two."""
    assert [known.name for known in TOKEN_FORMATS if known.pattern.search(word)] == []


@pytest.mark.parametrize("beside", ["2026-01-31T08:15:30+00:00", "2026-01-31T08:15:30.123456Z"])
def test_a_token_beside_or_behind_a_timestamp_is_found(beside: str) -> None:
    token = "gh" + "p_" + A36
    assert find_secret(f"{beside} {token}") == "github_token"
    assert find_secret(f"{beside}/{token}") == "github_token"
    assert find_secret(f"{beside}:{token}") == "github_token"
