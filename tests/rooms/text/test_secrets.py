"""What the secret rules find of published formats, what they leave alone, and the fast path."""

from __future__ import annotations

import gc
import hashlib
import math
import random
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.text.secret_forms import (
    MIN_TOKEN_CHARS,
    NUMBER_FORMATS,
    TEXT_FORMATS,
    TOKEN_FORMATS,
    entropy_bits,
    find_seed_phrase,
    is_secret_value,
    seed_words,
)
from noctuary.text.secrets import TIMESTAMP, find_secret
from noctuary_pipelines import sample
from tests.support.credential_shapes import HARMLESS, TOKENS, WORDED, credentials, fill
from tests.support.planted_secrets import KINDS, planted
from tests.support.planted_secrets import fill as plant

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

PLAIN = [
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


@pytest.mark.parametrize("place", [0, 1_048_540, 1_048_576, 1_114_090, 1_114_200, 2_200_000])
def test_a_secret_in_a_long_text_is_found_wherever_its_parts_end(place: int) -> None:
    words = "A plain word or two. " * 110_000
    text = f"{words[:place]} {fill('ghp_{A:36}', place)} {words[place:]}"
    assert find_secret(text) == "github_token"
    assert find_secret(words) is None


@pytest.mark.parametrize("text", PLAIN)
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
        ("Uint8Array", False),  # the type of a key
        ("Option<&str>", False),
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


_CREDENTIALS = list(credentials(6))
_FRAGMENTS = [
    *(fill(shape, 1) for shape in (*TOKENS.values(), *WORDED.values(), *HARMLESS)),
    *(text[: len(text) * 2 // 3] for _, text in credentials(1)),
]


def _find_format_naively(text: str) -> bool:
    """Try every pattern on the whole text."""
    return any(rule.is_in(text) for rule in (*TEXT_FORMATS, *TOKEN_FORMATS, *NUMBER_FORMATS))


def test_every_published_format_is_found() -> None:
    missed = {issuer for issuer, text in _CREDENTIALS if find_secret(text) is None}
    assert len(_CREDENTIALS) > 700
    assert not missed


def test_harmless_texts_are_left_alone() -> None:
    texts = [fill(shape, seed) for shape in HARMLESS for seed in range(20)]
    assert {text: found for text in texts if (found := find_secret(text))} == {}


def test_of_the_sample_only_what_was_planted_is_found() -> None:
    rows = [row for row in sample.load_rows() if not row.is_sensitive]
    assert {row.id for row in rows if find_secret(row.content)} == {181, 212}


@given(
    parts=st.lists(st.sampled_from(_FRAGMENTS) | st.text(max_size=8), max_size=6),
    space=st.sampled_from([" ", "\n", "\t", "\u00a0", "\u2028", "\x1f", "", ","]),
)
def test_looking_at_long_words_alone_finds_the_same(parts: list[str], space: str) -> None:
    text = space.join(parts)
    naive = _find_format_naively(text)
    found = find_secret(text)
    # Alone it finds passwords by the words around them, and tokens that a line break cuts.
    if naive or found is None:
        assert naive == (found is not None)
    else:
        assert found == "assigned_password" or "\n" in text


@given(text=st.text(st.sampled_from("ABKIab0123.-_:/=~ \n")), shape=st.sampled_from([*TOKENS]))
def test_no_token_format_matches_less_than_a_long_word(text: str, shape: str) -> None:
    """Cut from either end, a token stops matching before it is shorter than a long word."""
    whole = text + fill(TOKENS[shape], 3)
    for rule in TOKEN_FORMATS:
        match = rule.pattern.search(whole)
        assert match is None or not any(c.isspace() for c in match[0])
        assert match is None or len(match[0]) >= MIN_TOKEN_CHARS


def test_a_memory_is_scanned_in_microseconds() -> None:
    text = (
        "We moved the stand-up to 9:30 because Ana drops the children off; see docs/rota.md. " * 3
    )
    start = time.process_time()
    for _ in range(5_000):
        find_secret(text)
    # 0.1 s on a quiet machine.
    assert time.process_time() - start < 1


# Written after the rules and looked at once before they were changed for them: 372 of 424 found.
SAID_OTHERWISE = (
    "Reminder: Gmail password is {pw}", "PASSWORD FOR THE NAS IS {pw}", "Password - {pw}",
    "the root password of the old laptop is still {pw}", "password → {pw}", "le mdp est {pw}",
    "Passwort fürs Gästenetz: {pw}", "Unser WLAN-Passwort ist {pw}", "tu clave nueva: {pw}",
    "пароль от почты {pw}", "мой пароль - {pw}", "пароль на роутере {pw}", "新密码为{pw}",
    "登录密码 {pw}", "minha senha do banco é {pw}", "la mia password è {pw}", "PIN is {pin}",
    "PIN of the blue card: {pin}", "Der PIN-Code lautet {pin}", "The door code changed to {pin}",
    "entry code is {pin}, then press #", "код от домофона {pin}", "手机解锁密码：{digits:6}",
    "locker combination {digits:2}-{digits:2}-{digits:2}", "backup codes: {digits:8} {digits:8}",
    "one of my recovery codes is {rec}", "MFA secret key {b32:32}", "debit card no {mc4}",
    "card: {visa4}, 12/27, cvc {digits:3}", "transfer the deposit to {iban} by Friday",
    "1) wallet words {seed12} 2) keep offline", "AWS_SECRET={b64:40}", "Maps API key: {alnum:39}",
    "the webhook secret is {hex:32}", "jenkins token {hex:34}", "redis-cli -a {pw}",
    "Cookie: JSESSIONID={HEX:32}; lang=en", "DSN: {enc:redis://:{pw}@cache:6379/0}",
    "admin:$apr1${alnum:8}${bcrypt:22}", "metamask private key is {hex:64}", "btc key {wif}",
    "The backup passphrase is {words}",
)  # fmt: skip

# What a rule missed, or would miss if it were narrowed further.
FOUND_SINCE = (
    "Haustürcode: {pin}", "Der Türcode ist {pin}",
    "the wifi password ({pw})", "it used to be {pw}: no, the password used to be {pw}",
    "recovery code {rec} still works", "client secret {alnum:8}~{alnum:31}",
    "Diners card 36157472436142", "pay with 3615 747243 6142", "the safe's combination is {pin}",
    "pass: Xk9/mQ2v!{digits:2}", "Mein Passwort lautet: aquarium5!", "social: {ssn}",
    "recovery phrase: apple banana bread butter cheese chicken coconut coffee cream cherry egg can",
    "I changed the password to {pw} yesterday", "openaiApiKey = '{alnum:32}'", "MYAPIKEY={hex:32}",
    "the password is 2024-sunflower", "password: Secret.2024!",
    "pass: Zx9.kk!2", "pass: test4711!",
    "the smart code for the door is {pin}",
)  # fmt: skip

ORDINARY = (
    "my password manager is Bitwarden", "the PIN of the talk", "he forgot his password yesterday",
    "I keep my passwords in 1Password.", "the password is required", "The password is \"wrong\".",
    "the password is stored in the safe in the cellar", "Das Passwort lautet anders als gedacht.",
    "She added the password to 1Password and to the vault2 entry.", "the password is SHA256 hashed",
    "Das Passwort ist abgelaufen.", "He olvidado la contraseña otra vez.", "пароль надо сменить",
    "la clave del éxito es la constancia", "我忘记了密码", "密码至少8位", "パスワードを忘れました",
    "the passphrase is stored in the safe in the cellar", "passphrase protected ssh key files",
    "The passphrase must have six words or more.", "pin the version to 2024 and go on",
    "GPIO pin 17 is pulled up", "pin the tweet from 2019", "PIN entry failed 3 times",
    "the code review of 2024 is done", "error code 4011 means no card", "area code 01632 960155",
    "the door is 2010 mm high", "zip code: 90210", "Postleitzahl 10115",
    "el código postal es 28013",
    "recovery code path is untested since 2023-04-05", "backup keys rotated 2024-05-01",
    "our backup code lives in repo tools2", "the TOTP secret is shown once, then never again",
    "he paid by card, ending in 4242", "order 4111 1111 1111 1112 is late", "4,111,111,111,111,111",
    "sha1:4519961983914549", "md5=4828081414129173",
    "invoice 2026-0000-1234-5678", "DE is the country code of Germany", "IBAN has 22 characters",
    "ticket AB12 3456 7890 1234 5678", "Her social security claim was filed in 2019.",
    "call 555-12-3456 now", "SSN format is AAA-GG-SSSS", "cookie: chocolate chip",
    "Cookie: theme=dark; lang=en", "The session cookie expires after 30 days.",
    "token budget: 4096 tokens", "the vercel token expired", "docker login -u ana",
    "snowsql -a xy12345 -u ana", "100% of 25%ers agree", "AT&amp;T raised prices by 5&percnt;",
    "I A M S O B O R E D today", "A B C D E F G H I J K L", "ASIA PACIFIC REGION REVENUE 2024",
    "commit 9f8e7d6c5b4a392817069f8e7d6c5b4a39281706", "Привет, it's Ана's birthday",
    "α-helix and β-sheet, 5µm", "ﬁrst ﬂight of the ﬂeet", "ｆｕｌｌ ｗｉｄｔｈ ｔｅｘｔ",
    "aGVsbG8gd29ybGQsIHRoaXMgaXMgbm90aGluZw==", "V1PodFailurePolicyOnExitCodesRequirement",
    "tx 0x" + "4d9ed1c64cba275cd8bff4cb1b00b31049af82b8320aeb012e1c243dd21b9b55",
    "image size height width image size height width image size height width image size",
    "please buy apple bread cheese butter milk egg orange onion potato rice and tea",
    # What "to" and "on" say is where, not what.
    "We gave the API key to staging-2 and went home.", "the password on server2 was rotated",
    "we reset the password on db-primary-01 in March", "the secret to happiness4all is a podcast",
    "password on host-17 expires in 30 days", "access token to v2-endpoint4 migration",
    "--- PASS: TestLogin2 (0.00s)", "--- PASS: TestParse_Utf8/case_17 (0.12s)",
    "PASS: gcc.dg/tree-ssa/pr12345.c scan-tree-dump", "PASS: tests/run-2.sh", "pass: 1734, fail: 2",
    "PASS: gdb.base/break1.exp: run to main", "pass=2041 fail=3",
    "the building code 2018 applies", "block code 2048", "the warehouse code is 4411",
    "unsafe code 2019 edition", "zip code of the house is 90210", "zipcode of the house: 90210",
    "the error code of the alarm is 4011", "exit code of the lock is 1370",
    "paint code of the front door is 4821", "colour code for the door: 7016",
    "area code of the phone is 0211", "status code of the gate: 4040",
    "barcode of the card: 40123455",
    "the bowling pin 2023 championship", "model code for the phone 55123",
    "apple banana bread butter cheese chicken coconut coffee cream cherry garlic lemon",
    "buy apple banana bread chicken coconut coffee cream cherry corn fish garlic honey lemon",
    "cat dog fish horse rabbit spider turtle snake sheep monkey lion tiger",
    "recovery code path2 fails again today", "recovery code a1b2c works again today",
    "the token is billing-service-2024", "the token billing-service-2024-prod expired",
    "api key staging-cluster-2-eu-west-1 was deleted", "password: 16-characters",
    "password is 128k-tokens long", "password: 99.5%", "token = 4096tokens",
    "la clave 3.5 del mapa",
    "la clave: 2030", "La parola 2023", "parola: 4500", "we log in without password hunter22",
    "a weak password 123456 is still common", "failed password: hunter22x",
    "invalid password abc1234",
    "api_key: op://Private/OpenAI2/credential", "password: vault/data/app2#password",
    "secret: arn:aws:secretsmanager:eu-central-1:123456789012:secret:prod/db",
    "password=${VAULT_DB_PASSWORD2}", "token: secretsmanager:prod/db2", "password: !vault prod/db2",
    "api key is keychain:noctuary2/api", "DB_PASSWORD=ssm:/prod/db2", "secret: ref+vault://kv/db2",
    "the passphrase is printed under each router", "Die Passphrase ist leider nicht mehr bekannt",
    "Die Passphrase ist unter dem Teppich versteckt", "Passphrase: See Page Four Below",
    "mongosh --host db; mkdir -p hunter22", "mongod --quiet && cp -p notes2.txt",
    "docker run -p hunter22", "our SIRET is 36252187900034", "SIRET: 36252187900034 RCS Paris",
)  # fmt: skip


def test_five_hundred_planted_secrets() -> None:
    asked, found = Counter[str](), Counter[str]()
    for kind, text in planted(504):
        asked[kind] += 1
        found[kind] += find_secret(text) is not None
    shares = {kind: found[kind] / count for kind, count in asked.items()}
    assert len(shares) == len(KINDS) > 25
    assert min(shares.values()) >= 0.9, shares
    assert found.total() / asked.total() >= 0.98


def test_the_same_secrets_said_otherwise() -> None:
    texts = [plant(said, random.Random(f"{said}{n}")) for said in SAID_OTHERWISE for n in range(3)]
    missed = [text for text in texts if find_secret(text) is None]
    assert len(missed) <= len(texts) * 0.05, missed


@pytest.mark.parametrize("said", FOUND_SINCE)
def test_what_was_missed_once_is_found(said: str) -> None:
    assert find_secret(plant(said, random.Random(said))) is not None


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_sentences_stay(text: str) -> None:
    assert find_secret(text) is None
    assert find_secret(f"2026-03-01 Mira: {text}\nThat is all.") is None


_UNNAMED = sorted(set(seed_words()) - {"seed", "secret"})  # which would name themselves


@given(words=st.lists(st.sampled_from(_UNNAMED), min_size=12, max_size=24, unique=True))
def test_a_seed_phrase_is_found_where_it_is_named_or_its_checksum_confirms_it(
    words: list[str],
) -> None:
    named = ["seed:", *words]
    assert find_seed_phrase(named, named)
    # Not named, a shopping list in sixteen is one.
    commas = [f"{word}," for word in words]
    assert find_seed_phrase(words, words) == find_seed_phrase(words, commas)
    if find_seed_phrase(words, commas):
        assert find_secret(" ".join(commas)) == find_secret(" ".join(words)) == "seed_phrase"


def test_the_words_are_those_of_the_standard() -> None:
    lines = "".join(f"{word}\n" for word in seed_words())
    assert hashlib.sha256(lines.encode()).hexdigest().startswith("2f5eed53")


HOSTILE = (
    "login ", "curl -u a:", "docker login -p ", "token for a ", "key of a b ", "password of a ",
    "passphrase ab ", "passphrase is abcd-", "pin (", "code for a a a ", "recovery code abcd ",
    "totp seed abcd ", "\"auth\": ", "cookie: a=", "cookie: sid=", "ssn ", "4111 ", "4111-",
    "DE44 5001 ", "AKIA A", "A K ", "a ", "abandon ", "abandon,", "ghp_a\n", "ghp_a\n\n", "&#65;",
    "&amp;", "%25", "%41", "ｐ", "а", "pа", "\u200b", "密码", "пароль ", "парольпароль", "eyJ",
    "Zm9v", "Zm9vYmFyYmF6cXV4", "$2b$12$a", "$6$a$", "://a:", "secret - ", "password changed to ",
    "password: ", "sk-", "-----BEGIN ", "authorization: ", "1:AA", "mysql -p", "secret_key of ",
    "MN.", "pa-A1", "4b1d", "dp.pt.", "EAA", "re_1", "a.atlasv1.", "&sig=", "eyJaaaaaaaa.",
    "discord.com/", "5J1", "K1z", "pin", "lautet ", "password lautet ",
)  # fmt: skip


def _cost(text: str) -> float:
    best = 9e9
    gc.disable()  # whatever else this process holds is not what is measured
    for _ in range(3):
        start = time.process_time()
        find_secret(text)
        best = min(best, time.process_time() - start)
    gc.enable()
    return best


def _grows_linearly(unit: str) -> bool:
    """Four times the text may cost seven times as much; a quadratic pattern takes sixteen."""
    short, long = (unit * (size // len(unit)) for size in (5_000, 20_000))
    # What the rules cost at all hides nothing: a millisecond of noise is allowed.
    return _cost(long) <= 7 * _cost(short) + 0.001 or _cost(long) <= 7 * _cost(short) + 0.001


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_hostile_text_costs_in_proportion_to_its_length(unit: str) -> None:
    assert _grows_linearly(unit)


@pytest.mark.parametrize(
    "unit", ["а", "ааааa ", "a1-", "Zm9v", "pass ", "apple ", "4111-", "\u200b"]
)
def test_a_megabyte_takes_seconds(unit: str) -> None:
    """Two seconds or so each on a quiet machine; hours where one pattern is quadratic."""
    start = time.process_time()
    # A sign that nobody sees: it is looked through as its reader sees it as well.
    find_secret("\u200b" + unit * (1_000_000 // len(unit)))
    assert time.process_time() - start < 20


@settings(max_examples=15, deadline=None)
@given(parts=st.lists(st.sampled_from(HOSTILE), min_size=2, max_size=4))
def test_mixed_hostile_texts_do_as_well(parts: list[str]) -> None:
    assert _grows_linearly("".join(parts))
