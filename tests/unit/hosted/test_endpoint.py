from __future__ import annotations

import pytest

from noctuary.work.http import Endpoint

KEY = "sk-very-secret-0123"


def test_the_key_is_in_no_repr() -> None:
    endpoint = Endpoint("http://127.0.0.1:1/v1", "m", KEY)
    assert KEY not in f"{endpoint!r} {endpoint}"
    assert endpoint.api_key == KEY


def test_a_key_read_with_its_line_end_is_stripped_and_a_blank_one_is_none() -> None:
    assert Endpoint("http://h/v1", "m", f" {KEY}\n").api_key == KEY
    assert Endpoint("http://h/v1", "m", " \n").api_key is None


@pytest.mark.parametrize("key", [f"{KEY}\nX-Evil: 1", f"{KEY}é", f"{KEY}\x00"])
def test_a_key_that_is_no_header_is_refused_without_being_quoted(key: str) -> None:
    with pytest.raises(ValueError, match="cannot stand in an HTTP header") as caught:
        Endpoint("http://h/v1", "m", key)
    assert KEY not in repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        *("", "h/v1", "file:///etc/passwd", "ftp://h", "http://", "http://h:99999/v1"),
        *("http://h:x/v1", "http://us:pw-secret@h/v1", "http://h/a b", "http://h/ü", "http://h/\n"),
    ],
)
def test_what_is_no_address_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="endpoint's URL") as caught:
        Endpoint(url, "m")
    assert "pw-secret" not in repr(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1/v1", "http://h:1/v1/chat/completions"),
        ("https://h/v1/", "https://h/v1/chat/completions"),
        ("https://h", "https://h/chat/completions"),
        ("https://h/v1?api-version=2", "https://h/v1/chat/completions?api-version=2"),
    ],
)
def test_prompts_go_to_chat_completions_below_the_base(url: str, expected: str) -> None:
    assert Endpoint(url, "m").completions_url() == expected


def test_a_model_needs_a_name_and_an_answer_some_time() -> None:
    with pytest.raises(ValueError, match="name of a model"):
        Endpoint("http://h", " ")
    with pytest.raises(ValueError, match="timeout_s must be above 0, got 0"):
        Endpoint("http://h", "m", timeout_s=0.0)
