from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest

from noctuary.text.marks import content_tags
from noctuary.text.tokens import (
    MAX_TOKEN_CHARS,
    UNSPACED,
    Script,
    document_tokens,
    dominant_script,
    encode_tokens,
    fold,
    normalize,
    regex_class,
    script_of,
    stem,
    tokenize,
)


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


def test_encode_tokens_round_trip() -> None:
    tokens = tokenize("The cats use 使用 src/main.py")
    assert encode_tokens(["cat", "使用"]) == "cat\n使用".encode()
    assert encode_tokens(tokens).decode().split() == tokens
    assert encode_tokens([]) == b""


@pytest.mark.parametrize("tokens", [[""], ["a", ""], ["a\nb"], ["a", "b\n"]])
def test_encode_tokens_refuses_what_it_could_not_give_back(tokens: list[str]) -> None:
    with pytest.raises(ValueError, match="empty token or a line break"):
        encode_tokens(tokens)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("running", "run"),
        ("memories", "memori"),
        ("camaras", "camara"),
        ("книгами", "книг"),
        ("книги", "книг"),
        ("v1beta", "v1beta"),
        ("is", "is"),
        ("שלום", "שלום"),
        ("running" * 10, "running" * 10),
    ],
)
def test_stem_by_script(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_stemming_loads_only_the_algorithm_in_use() -> None:
    code = (
        "import sys\n"
        "from noctuary.text.tokens import tokenize\n"
        "assert not [m for m in sys.modules if 'snowball' in m], 'loaded at import'\n"
        "assert tokenize('running') == ['run']\n"
        "loaded = [m for m in sys.modules if m.endswith('_stemmer')]\n"
        "assert [m.rpartition('.')[2] for m in loaded] == ['english_stemmer'], loaded\n"
        "assert 'numpy' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr


def test_the_package_itself_still_imports_and_agrees() -> None:
    import snowballstemmer

    words = ["generously", "national", "relational", "dying", "книгами", "быстрее"]
    english, russian = snowballstemmer.stemmer("english"), snowballstemmer.stemmer("russian")
    expected = [(english if word.isascii() else russian).stemWord(word) for word in words]
    assert [stem(word) for word in words] == expected


def test_threads_do_not_share_a_word() -> None:
    # Snowball's stemmer objects hold the word as state: without the lock, threads mix their words.
    words = [f"{letter}{other}ationally" for letter in "bcdfg" for other in "aeiou"] * 40
    stem.cache_clear()
    expected = {word: stem(word) for word in words}

    def check(word: str) -> bool:
        return stem.__wrapped__(word) == expected[word]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(check, words))
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize(
    ("word", "folded"),
    [
        ("Hello", "hello"),
        ("Cámara", "camara"),
        ("Ca\u0301mara", "camara"),
        ("Straße", "strasse"),
        ("ŁÓDŹ", "lodz"),
        ("İstanbul", "istanbul"),
        ("Ærø", "aero"),
        ("Ένα", "ενα"),
        ("Ёлка", "елка"),
        ("Йогурт", "йогурт"),
        ("за\u0301мок", "замок"),
        ("שָׁלוֹם", "שלום"),
        ("مُحَمَّد", "محمد"),
        ("ガ", "ガ"),
        ("a" + "\u0301\u0316" * 500_000 + "b", "ab"),
    ],
    ids=lambda text: ascii(text[:9]).replace(" ", "-"),
)
@pytest.mark.timeout(20)  # a megabyte of stacked marks is not quadratic
def test_fold_hides_what_spelling_varies_in(word: str, folded: str) -> None:
    assert fold(normalize(word)) == folded


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("Ｆｕｌｌ", "Full"),
        ("ﬁne", "fine"),
        ("co\u00adop\u200berate", "cooperate"),
        ("\ufeffstart", "start"),
        ("a\u202eb\u202c", "ab"),
        ("\ud800x", "\ud800x"),
        ("ｗｉｄｅ ﬁne e\u0301te\u0301 " * 400, "wide fine été " * 400),
    ],
    ids=lambda text: ascii(text[:9]).replace(" ", "-"),
)
def test_normalize_is_nfkc_without_invisible_characters(text: str, normal: str) -> None:
    assert normalize(text) == normal


@pytest.mark.parametrize(
    ("characters", "script"),
    [
        ("aZéřấ", Script.LATIN),
        ("λ", Script.GREEK),
        ("ёї", Script.CYRILLIC),
        ("ש", Script.HEBREW),
        ("م", Script.ARABIC),
        ("漢𠀋", Script.HAN),
        ("ひー", Script.KANA),
        ("한", Script.HANGUL),
        ("ไ", Script.SOUTHEAST_ASIAN),
        ("ह7。×🎉\x00\ud800", Script.OTHER),
    ],
)
def test_script_of_a_character(characters: str, script: Script) -> None:
    assert {script_of(character) for character in characters} == {script}


@pytest.mark.parametrize(
    ("prefix", "script"),
    [
        ("CJK UNIFIED IDEOGRAPH", Script.HAN),
        ("CYRILLIC SMALL LETTER", Script.CYRILLIC),
        ("HIRAGANA LETTER", Script.KANA),
        ("KATAKANA LETTER", Script.KANA),
        ("HANGUL SYLLABLE", Script.HANGUL),
        ("HEBREW LETTER", Script.HEBREW),
        ("THAI CHARACTER", Script.SOUTHEAST_ASIAN),
        ("LATIN SMALL LETTER", Script.LATIN),
    ],
)
def test_ranges_agree_with_the_names_of_the_basic_plane(prefix: str, script: Script) -> None:
    letters = [
        char
        for char in map(chr, range(0x10000))
        if unicodedata.name(char, "").startswith(prefix) and char.isalpha()
    ]
    assert letters
    assert {script_of(char) for char in letters} == {script}


def test_regex_class_matches_exactly_the_letters_of_its_scripts() -> None:
    pattern = re.compile(f"[{regex_class(UNSPACED)}]")
    for code in range(0x20000 + 10):
        char = chr(code)
        assert bool(pattern.match(char)) is (script_of(char) in UNSPACED)


def test_dominant_script_counts_letters_only() -> None:
    assert dominant_script("我用 Python 写了很多很多代码") is Script.HAN
    assert dominant_script("2024-04-03 !!! 🎉") is Script.OTHER
    assert dominant_script("") is Script.OTHER
    assert dominant_script("ab вг") is Script.LATIN


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        # Content, then keywords, then tags are indexed, and the category is not.
        (
            ("The oven broke", "kitchen,wing:home", "stove repair", "facts"),
            ["oven", "broke", "stove", "repair", "kitchen"],
        ),
        # Fields do not run into each other.
        (("使用", "编程", "光影", ""), ["使用", "光影", "编程"]),
        (("end", "tag", "key", ""), ["end", "key", "tag"]),
        # A memory of stop words is found by its tag alone.
        (("to be or not to be", "hamlet", "", ""), ["hamlet"]),
    ],
)
def test_the_fields_of_a_memory_become_tokens(
    fields: tuple[str, str, str, str], tokens: list[str]
) -> None:
    assert document_tokens(*fields) == tokens


def test_scope_tags_are_not_content() -> None:
    tags = "wing:home, kitchen ,Room:stove,session:s1,user:ann,,colour:red"
    assert content_tags(tags) == ["kitchen", "colour:red"]
