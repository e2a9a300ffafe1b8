"""Transcripts read piece by piece are those read at once, by a plain twin that holds everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.sources.ingest import ingest_transcripts
from tests.support.transcripts import (
    ClaudeSession,
    call,
    dump,
    kept_rows,
    text,
    thinking,
    write_session,
)

_WORDS = st.text("abc öж語\n<>", min_size=1, max_size=12).filter(str.strip)
_MESSAGES = st.sampled_from(["m1", "m2", "m3"])
_CALLS = st.sampled_from(["c1", "c2", "c3"])
_ACTIONS = st.one_of(
    st.tuples(st.just("user"), _WORDS),
    st.tuples(st.just("text"), _MESSAGES, _WORDS),
    st.tuples(st.just("thinking"), _MESSAGES, _WORDS),
    st.tuples(st.just("call"), _MESSAGES, _CALLS, _WORDS),
    st.tuples(st.just("result"), _CALLS, _WORDS),
    st.tuples(st.just("meta"), _WORDS),
    st.tuples(st.just("boundary"), _WORDS),
    st.tuples(st.just("sidechain"), _WORDS),
)


def act(session: ClaudeSession, action: Sequence[str]) -> None:
    match action:
        case ("user", said):
            session.user(said)
        case ("text", message, said):
            session.assistant(text(said), message=message)
        case ("thinking", message, said):
            session.assistant(thinking(said), message=message)
        case ("call", message, name, said):
            session.assistant(call("Bash", name, command=said), message=message)
        case ("result", name, said):
            session.result(name, said)
        case ("meta", said):
            session.user(said, isMeta=True)
        case ("boundary", said):
            session.boundary(said)
        case _:
            session.user(action[1], isSidechain=True)


def naive_contents(actions: Sequence[Sequence[str]]) -> list[str]:
    """Return the contents of all turns: each action by itself, everything in dictionaries."""
    prompts: list[str] = []
    answers: dict[str, list[str]] = {}
    owners: dict[str, str] = {}
    for action in actions:
        match action:
            case ("user", said):
                prompts.append(f"User: {said.strip()}")
            case ("text", message, said):
                answers.setdefault(message, []).append(said.strip())
            case ("call", message, name, said):
                owners[name] = message
                shown = f"[Bash: {' '.join(said.split())}]"
                answers.setdefault(message, []).append(shown)
            case ("result", name, said):
                if name in owners:
                    answers[owners[name]].append(f"[Bash result: {' '.join(said.split())}]")
            case _:
                pass
    return sorted([*prompts, *("Assistant: " + "\n".join(p) for p in answers.values() if p)])


def unique_calls(actions: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Leave out what no agent writes: a call's id used again, a second result of a call."""
    seen: set[tuple[str, str]] = set()
    kept: list[Sequence[str]] = []
    for action in actions:
        if action[0] in ("call", "result"):
            key = (action[0], action[2] if action[0] == "call" else action[1])
            if key in seen:
                continue
            seen.add(key)
        kept.append(action)
    return kept


def with_calls(actions: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Leave out results before their calls: read again, these find them."""
    called: set[str] = set()
    kept: list[Sequence[str]] = []
    for action in unique_calls(actions):
        if action[0] == "call":
            called.add(action[2])
        if action[0] != "result" or action[1] in called:
            kept.append(action)
    return kept


def contents(turns: Path) -> list[str]:
    return sorted(str(row.fields["content"]) for row in kept_rows(turns))


@settings(max_examples=25)
@given(st.lists(_ACTIONS, max_size=14).map(unique_calls), st.lists(st.floats(0, 1), max_size=4))
def test_any_cuts_of_a_growing_file_give_the_turns_of_the_whole(
    actions: list[Sequence[str]], cuts: list[float]
) -> None:
    session = ClaudeSession()
    for action in actions:
        act(session, action)
    data = dump(session.lines)
    with TemporaryDirectory() as folder:
        root = Path(folder, "p")
        file = write_session(root / "s.jsonl", [])
        turns = Path(folder, "turns.sqlite")
        read = 0
        for size in [*sorted(int(cut * len(data)) for cut in cuts), len(data)]:
            file.write_bytes(data[:size])
            report = ingest_transcripts(root, turns)
            assert report.restarted == 0
            read += report.bytes_read
        assert read == len(data), "every byte is read once"
        assert contents(turns) == naive_contents(actions)
        whole = Path(folder, "whole.sqlite")
        ingest_transcripts(root, whole)
        assert kept_rows(turns) == kept_rows(whole)


@settings(max_examples=15)
@given(st.lists(_ACTIONS, max_size=10).map(with_calls), st.data())
def test_reading_again_after_any_damage_changes_no_turn(
    actions: list[Sequence[str]], draw: Any
) -> None:
    """Truncated, rewritten or moved: ids are those of the lines, whatever the offsets say."""
    session = ClaudeSession()
    for action in actions:
        act(session, action)
    data = dump(session.lines)
    with TemporaryDirectory() as folder:
        root, turns = Path(folder, "p"), Path(folder, "turns.sqlite")
        file = write_session(root / "s.jsonl", session.lines)
        ingest_transcripts(root, turns)
        before = kept_rows(turns)
        for _ in range(2):
            file.write_bytes(data[: draw.draw(st.integers(0, len(data)))])
            ingest_transcripts(root, turns)
            file.write_bytes(data)
            if draw.draw(st.booleans()):
                file = file.rename(root / f"moved-{len(list(root.iterdir()))}.jsonl")
            ingest_transcripts(root, turns)
        assert kept_rows(turns) == before
