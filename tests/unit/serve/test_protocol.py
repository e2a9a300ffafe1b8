from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents.client import Refusal, decode, encode, peer_uid, read_line, settings_in_force

# Surrogates alone have a test of their own; a pair of them is one character to JSON.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(ANY_TEXT.filter(lambda name: name != "noctuary"), JSON_VALUES, max_size=5))
def test_any_message_is_one_line_and_comes_back(message: dict[str, Any]) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == {"noctuary": 1, **message}


def test_lone_surrogates_survive() -> None:
    assert decode(encode({"query": "key \udcff\ud800"})) == {
        "noctuary": 1,
        "query": "key \udcff\ud800",
    }


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_refusal(line: bytes) -> None:
    assert isinstance(decode(line), dict | Refusal)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[1]", "malformed"),
        (b"[" * 100_000, "malformed"),
        (b'{"noctuary":' + b"9" * 5000 + b"}", "malformed"),
        (b"{}", "protocol"),
        (b'{"noctuary": 2}', "protocol"),
        (b'{"noctuary": true}', "protocol"),
        (b'{"noctuary": 1.0}', "protocol"),
        (b'{"noctuary": "a secret"}', "protocol"),
    ],
)
def test_what_is_no_message_is_refused_without_repeating_it(line: bytes, code: str) -> None:
    refusal = decode(line)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code
    assert "secret" not in refusal.message


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"abc\nrest", b"abc"),
        (b"\n", b""),
        (b"x" * 10 + b"\n", b"x" * 10),
        (b"x" * 11 + b"\n", "too_large"),
        (b"half", "half"),
        (b"", "half"),
    ],
)
def test_a_line_is_read_within_its_bounds(sent: bytes, expected: bytes | str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        found = read_line(ours, 10, time.monotonic() + 5)
    assert (found.code if isinstance(found, Refusal) else found) == expected


def test_a_trickle_does_not_extend_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    done = threading.Event()

    def trickle() -> None:
        while not done.wait(0.01):
            theirs.send(b"x")

    thread = threading.Thread(target=trickle)
    with ours, theirs:
        thread.start()
        begin = time.monotonic()
        found = read_line(ours, 1000, begin + 0.2)
        done.set()
        thread.join()
    assert isinstance(found, Refusal)
    assert found.code == "timeout"
    assert time.monotonic() - begin < 5


def test_the_other_end_of_a_pair_is_ours() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_uid(ours) in (None, os.geteuid())


def test_settings_are_the_variables_that_change_a_result() -> None:
    environ = {
        "NOCTUARY_HOME": "/h", "NOCTUARY_STORE": "s", "NOCTUARY_SHARED": "x", "PATH": "p",
        "NOCTUARY_RECALL_FUSION": "rrf", "HOME": "/me",
    }  # fmt: skip
    assert settings_in_force(environ) == {"NOCTUARY_HOME": "/h", "NOCTUARY_RECALL_FUSION": "rrf"}
    assert settings_in_force({"HOME": "/me"}) == {"HOME": "/me", "XDG_DATA_HOME": ""}
