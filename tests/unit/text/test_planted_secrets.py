"""Secrets as people write them down are found, ordinary sentences are not, in linear time."""

from __future__ import annotations

import gc
import hashlib
import random
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.text.secret_forms import find_seed_phrase, seed_words
from noctuary.text.secrets import find_secret
from tests.support.planted_secrets import KINDS, fill, planted

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
    texts = [fill(said, random.Random(f"{said}{n}")) for said in SAID_OTHERWISE for n in range(3)]
    missed = [text for text in texts if find_secret(text) is None]
    assert len(missed) <= len(texts) * 0.05, missed


@pytest.mark.parametrize("said", FOUND_SINCE)
def test_what_was_missed_once_is_found(said: str) -> None:
    assert find_secret(fill(said, random.Random(said))) is not None


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_sentences_stay(text: str) -> None:
    assert find_secret(text) is None
    assert find_secret(f"2026-03-01 Mira: {text}\nThat is all.") is None


@given(words=st.lists(st.sampled_from(list(seed_words())), min_size=12, max_size=24, unique=True))
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
    for _ in range(3):
        start = time.process_time()
        find_secret(text)
        best = min(best, time.process_time() - start)
    return best


def _grows_linearly(unit: str) -> bool:
    """Four times the text may cost seven times as much; a quadratic pattern takes sixteen."""
    gc.collect()
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
