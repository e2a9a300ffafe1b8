from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from noctuary.text.tokens import stem


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
