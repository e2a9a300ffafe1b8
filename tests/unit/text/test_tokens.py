from __future__ import annotations

import pytest

from noctuary.text.tokens import MAX_TOKEN_CHARS, encode_tokens, tokenize


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The cats are running", ["cat", "run"]),
        ("Caroline's dog; it’s hers", ["carolin", "dog"]),
        ("I can't, she won't: don't!", ["i", "can't", "she", "won't", "don't"]),
        ("we won the race", ["won", "race"]),
        ("foo_bar", ["foo", "bar", "foobar"]),
        ("v1.2.3", ["v1", "2", "3", "v1.2.3"]),
        ("INC-4211", ["inc", "4211", "inc4211"]),
        ("getUserName", ["get", "user", "name", "getusernam"]),
        ("HTTPServer", ["http", "server", "httpserver"]),
        ("src/main.py", ["src", "main", "py", "main.py", "src/main.py"]),
        ("ann@ex.org", ["ann", "ex", "org", "ex.org", "ann@ex.org"]),
        ("10:30 on 2024-04-03", ["10", "30", "10:30", "2024", "04", "03", "2024-04-03"]),
        ("$750,000 or 1,2", ["750000", "1", "2"]),
        ("C++ and C#, not C", ["c++", "c#", "c"]),
        ("U.S.A. x-ray", ["usa", "ray", "xray"]),
        ("__init__ ____ -- ...", ["init"]),
        ("я читаю книги", ["чита", "книг"]),
        ("¿Dónde está la cámara?", ["camara"]),
        ("我用Python", ["我用", "python"]),
        ("编程光影", ["编程", "程光", "光影"]),
        ("猫", ["猫"]),
        ("한국어 テスト", ["한국", "국어", "テス", "スト"]),
        ("हिन्दी", ["हिन्दी"]),
        ("m² ｗｉｄｅ", ["m2", "wide"]),
        ("a\x00b\ud800cd", ["a", "b", "cd"][1:]),
        ("🎉👩‍👩‍👧", []),
        ("", []),
        (" \n\t", []),
    ],
)
def test_tokens_of(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("billing-api", "BillingApi"),
        ("billing_api", "billingApi"),
        ("INC-4211", "inc4211"),
        ("e-mail", "email"),
        ("follow-ups", "followup"),
        ("cámara", "CAMARAS"),
        ("src/app/main.py", "main.py"),
        ("O'Brien", "obrien"),
        ("Straße", "strasse"),
    ],
)
def test_spellings_share_a_token(one: str, other: str) -> None:
    assert tokenize(other)[-1] in tokenize(one)


def test_versions_and_dates_do_not_collide() -> None:
    assert not set(tokenize("1.12.3")) & {"1.1.23", "1123"}
    assert "2024-11-1" not in tokenize("2024-1-11")
    assert tokenize("2024-1-11")[-1] != tokenize("2024-11-1")[-1]


def test_a_text_of_stop_words_keeps_them() -> None:
    assert tokenize("Who is he?") == ["who", "is", "he"]
    assert tokenize("что это") == ["что", "это"]


def test_ascii_and_unicode_paths_agree() -> None:
    text = "The billing-api's v1.2.3 in src/app/main.py costs $750,000; can't C++ getUserName"
    assert tokenize(text + " 漢") == [*tokenize(text), "漢"]


def test_a_long_blob_is_one_bounded_token() -> None:
    blob = "QUJD" * 1000
    assert {len(token) for token in tokenize(blob.lower())} == {MAX_TOKEN_CHARS}
    assert tokenize(blob) == tokenize(blob)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("unit", ["aB", "x's ", "1,", "क\u093c\u094d", "使用", "\ud800a"])
def test_a_megabyte_of_anything(unit: str) -> None:
    assert all(tokenize(unit * (1_000_000 // len(unit))))


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_ten_megabytes_of_prose_and_of_one_word() -> None:
    assert len(tokenize("The lazy dog. " * 715_000)) == 2 * 715_000
    assert tokenize("a." * 5_000_000) == ["a" * MAX_TOKEN_CHARS]


def test_encode_tokens_round_trip() -> None:
    tokens = tokenize("The cats use 使用 src/main.py")
    assert encode_tokens(["cat", "使用"]) == "cat\n使用".encode()
    assert encode_tokens(tokens).decode().split() == tokens
    assert encode_tokens([]) == b""


@pytest.mark.parametrize("tokens", [[""], ["a", ""], ["a\nb"], ["a", "b\n"]])
def test_encode_tokens_refuses_what_it_could_not_give_back(tokens: list[str]) -> None:
    with pytest.raises(ValueError, match="empty token or a line break"):
        encode_tokens(tokens)
