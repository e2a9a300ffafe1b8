"""conversations.json of ChatGPT and Claude: branches, circles, broken files, turns kept once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from noctuary.core.errors import SourceFormatError
from noctuary.core.settings import Settings
from noctuary.sources import conversations
from noctuary.sources.conversations import find_unread, read_conversations
from noctuary.sources.export import export_corpus
from noctuary.sources.histories import is_transcripts
from noctuary.sources.ingest import ingest_transcripts
from noctuary.sources.open import open_source, read_marker
from noctuary.sources.transcripts import IngestReport
from noctuary.sources.turns import find_roots, open_with_turns
from tests.support.transcripts import JSON_VALUES, kept_contents, kept_rows

T0 = 1_772_352_000.5


def node(
    key: str, parent: str | None, role: str = "", *parts: object, **message: Any
) -> tuple[str, dict[str, Any]]:
    """Return a node of ChatGPT's tree, by its id; without a role the root."""
    said = {
        "id": key,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": T0 + len(key),
        "content": {"content_type": "text", "parts": list(parts)},
        "status": "finished_successfully",
        "metadata": {},
        "recipient": "all",
        **message,
    }
    return key, {"id": key, "message": said if role else None, "parent": parent, "children": []}


def chatgpt(last: str | None, *nodes: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "title": "Parcels",
        "create_time": T0,
        "update_time": T0,
        "mapping": dict(nodes),
        "moderation_results": [],
        "current_node": last,
        "conversation_id": "c-1",
        "id": "c-1",
        **more,
    }


def claude(*messages: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "uuid": "k-1",
        "name": "Parcels",
        "summary": "",
        "created_at": "2026-03-01T08:00:00.000000Z",
        "updated_at": "2026-03-01T08:00:00.000000Z",
        "account": {"uuid": "a-1"},
        "chat_messages": list(messages),
    }


def said(key: str, sender: str, text: str, *blocks: Mapping[str, Any]) -> dict[str, Any]:
    content = blocks or ({"type": "text", "text": text, "citations": []},)
    return {
        "uuid": key,
        "text": text,
        "content": list(content),
        "sender": sender,
        "created_at": "2026-03-01T08:00:00.000000Z",
        "attachments": [],
        "files": [],
    }


CHAT = chatgpt(
    "a2",
    node("root", None),
    node("sys", "root", "system", "You are helpful."),
    node("u1", "sys", "user", "Which carrier delivers on Saturday?"),
    node("a1", "u1", "assistant", "An answer that was regenerated."),
    node("tool", "u1", "tool", "web results"),
    node("code", "tool", "assistant", "search('x')", recipient="browser"),
    node("think", "code", "assistant", content={"content_type": "thoughts", "thoughts": []}),
    node("hide", "think", "user", "x", metadata={"is_visually_hidden_from_conversation": True}),
    node("a2", "hide", "assistant", {"content_type": "image_asset_pointer"}, "Nordpost does."),
)
TALK = claude(
    said("m1", "human", "What is a pallet?"),
    said(
        "m2",
        "assistant",
        "This block is not supported.\nA board.",
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "name": "web_search", "input": {}},
        {"type": "text", "text": "A board for loads."},
    ),
    said("m3", "human", "", {"type": "text", "text": ""}),
)


def ingest(path: Path, tmp_path: Path) -> IngestReport:
    return ingest_transcripts(path, tmp_path / "turns.sqlite")


def contents(tmp_path: Path) -> list[str]:
    return kept_contents(tmp_path / "turns.sqlite")


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def test_the_path_that_was_taken_is_kept_as_turns(tmp_path: Path) -> None:
    path = write(tmp_path / "chats/conversations.json", [CHAT])
    before = path.read_bytes()
    report = ingest(path, tmp_path)
    assert path.read_bytes() == before
    assert contents(tmp_path) == [
        "User: Which carrier delivers on Saturday?",
        "Assistant: Nordpost does.",
    ]
    assert report.skipped == {"meta": 2, "other_type": 3}
    row = kept_rows(tmp_path / "turns.sqlite")[0].fields
    assert (row["session_id"], row["wing"]) == ("c-1", "chatgpt")
    assert str(row["created_at"]).startswith("2026-03-01T08:00:02.5")


def test_claudes_messages_are_kept_as_turns(tmp_path: Path) -> None:
    report = ingest(write(tmp_path / "claude.json", TALK), tmp_path)
    assert contents(tmp_path) == ["User: What is a pallet?", "Assistant: A board for loads."]
    assert report.skipped == {"no_content": 1}
    assert {row.fields["wing"] for row in kept_rows(tmp_path / "turns.sqlite")} == {"claude-ai"}


@pytest.mark.parametrize(
    ("nodes", "last", "expected"),
    [
        ([node("a", "b", "user", "one"), node("b", "a", "user", "two")], "a", ["two", "one"]),
        ([node("a", "a", "user", "one")], "a", ["one"]),
        ([node("a", "gone", "user", "one")], "a", ["one"]),
        ([node("a", None, "user", "one"), node("bb", "a", "user", "two")], "no", ["one", "two"]),
        ([node("a", None, "user", "one"), node("bb", "a", "user", "two")], None, ["one", "two"]),
        ([node("a", None, "user", "one", 7, None, {"text": "said"})], "a", ["one\nsaid"]),
        ([("a", {"message": {"author": "x"}}), ("b", None), ("c", "x")], "a", []),
        ([node("a", None, "user", "x", create_time=float("nan"))], "a", ["x"]),
        ([node("a", None, "user", "x", create_time=10**400)], "a", ["x"]),
    ],
    ids=range(9),
)
def test_a_tree_may_be_anything(
    tmp_path: Path, nodes: Sequence[tuple[str, Any]], last: str | None, expected: list[str]
) -> None:
    ingest(write(tmp_path / "conversations.json", [chatgpt(last, *nodes)]), tmp_path)
    found = [text.removeprefix("User: ") for text in contents(tmp_path)]
    assert sorted(found) == sorted(expected)


@pytest.mark.timeout(30)
def test_a_long_chain_is_followed_without_recursion(tmp_path: Path) -> None:
    chain = [node(f"n{i}", f"n{i - 1}", "user", f"said {i}") for i in range(20_000)]
    ingest(write(tmp_path / "conversations.json", [chatgpt("n19999", *chain)]), tmp_path)
    assert len(kept_rows(tmp_path / "turns.sqlite")) == 20_000


def test_a_later_export_adds_what_is_new(tmp_path: Path) -> None:
    path = write(tmp_path / "conversations.json", [CHAT])
    assert ingest(path, tmp_path).turns == 2
    assert ingest(path, tmp_path).unchanged == 1
    longer = {**CHAT["mapping"], **dict([node("u3", "a2", "user", "Thanks.")])}
    write(path, [TALK, {**CHAT, "mapping": longer, "current_node": "u3"}])
    report = ingest(path, tmp_path)
    assert (report.restarted, report.turns) == (1, 3)
    copy = write(tmp_path / "again/conversations-001.json", [CHAT])
    assert ingest(copy.parent, tmp_path).turns == 0
    assert len(contents(tmp_path)) == 5


ROOT = "00000000-0000-4000-8000-000000000000"


def after(key: str, before: object, text: str, minute: int = 0, **more: Any) -> dict[str, Any]:
    """Return one of Claude's messages that names the one before it."""
    at = f"2026-03-01T08:{minute:02}:00Z" if minute else f"2026-03-01T08:{int(key[1:]):02}:00Z"
    made = said(key, "human", text)
    return {**made, "created_at": at, "parent_message_uuid": before, **more}


EDITED = (
    after("m1", ROOT, "one"), after("m2", "m1", "two"), after("m3", ROOT, "ONE"),
    after("m4", "m3", "TWO"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("messages", "leaf", "expected", "broken"),
    [
        (EDITED, None, "ONE TWO", 0),
        (EDITED[::-1], None, "ONE TWO", 0),
        (EDITED, "m2", "one two", 0),
        (EDITED, "gone", "ONE TWO", 0),
        ([{**m, "parent_message_uuid": None} for m in EDITED], None, "one two ONE TWO", 0),
        ([*EDITED, after("m5", "m4", "a"), after("m6", "m4", "b")], None, "ONE TWO b", 0),
        # What comes before is missing: two that follow the same one are still two branches.
        ([{**m, "parent_message_uuid": m["parent_message_uuid"].replace(ROOT, "gone")}
          for m in EDITED], None, "ONE TWO", 0),
        ([after("m1", ROOT, "a"), after("m2", "m1", "b"), after("m4", "gone", "d")], None,
         "a b d", 1),
        ([after("m1", ROOT, "a"), after("m3", "m4", "c"), after("m4", "m3", "d")], None,
         "a c d", 1),
        ([after("m1", "m1", "a"), after("m2", "m2", "b")], None, "a b", 1),
        ([said("m0", "human", "a"), after("m1", "m0", "b")], None, "a b", 0),
        ([after("m1", ROOT, "a"), after("m1", ROOT, "twice"), after("m2", "m1", "b")], None,
         "a b", 0),
        # The clock of an answer went wrong.
        ([after("m1", ROOT, "a", 30), after("m2", "m1", "b", 10)], None, "a b", 0),
    ],
    ids=range(13),
)  # fmt: skip
def test_of_claudes_branches_the_one_that_was_shown_is_kept(
    tmp_path: Path, messages: Sequence[dict[str, Any]], leaf: str | None, expected: str, broken: int
) -> None:
    value = {**claude(*messages), "current_leaf_message_uuid": leaf}
    report = ingest(write(tmp_path / "conversations.json", [value]), tmp_path)
    found = [text.removeprefix("User: ") for text in contents(tmp_path)]
    assert sorted(found) == sorted(expected.split())
    assert report.skipped.get("broken_chain", 0) == broken


def listing(made: tuple[str, dict[str, Any]], *children: str) -> tuple[str, dict[str, Any]]:
    return made[0], {**made[1], "children": list(children)}


FIRST = node("a", None, "user", "one")


@pytest.mark.parametrize(
    ("nodes", "last", "expected", "broken"),
    [
        # The answer between is missing: the question before it lists it, or was said before.
        ([listing(FIRST, "gone"), node("ccc", "gone", "user", "two")], "ccc", "one two", 1),
        ([FIRST, node("ccc", "gone", "user", "two")], "ccc", "one two", 1),
        ([listing(FIRST, "ccc"), node("ccc", None, "user", "two")], "ccc", "one two", 0),
        ([listing(FIRST, "ccc"), node("ccc", "gone", "user", "two")], "ccc", "one two", 1),
        ([FIRST, listing(node("bb", "a", "user", "two"), "gone")], "gone", "one two", 0),
        ([FIRST, node("bb", "a", "user", "left"), listing(FIRST, "gone"),
          node("ddd", "gone", "user", "two")], "ddd", "one two", 1),
        ([node("bb", "gone", "user", "left"), node("ddd", "gone", "user", "one")], "ddd", "one", 0),
    ],
    ids=range(7),
)  # fmt: skip
def test_a_chain_with_a_missing_node_is_walked_on_and_counted(
    tmp_path: Path,
    nodes: Sequence[tuple[str, dict[str, Any]]],
    last: str,
    expected: str,
    broken: int,
) -> None:
    report = ingest(write(tmp_path / "conversations.json", [chatgpt(last, *nodes)]), tmp_path)
    found = [text.removeprefix("User: ") for text in contents(tmp_path)]
    assert sorted(found) == sorted(expected.split())
    assert report.skipped.get("broken_chain", 0) == broken


@pytest.mark.timeout(30)
def test_a_chain_of_nothing_but_gaps_takes_no_more_than_its_length(tmp_path: Path) -> None:
    gaps = [node(f"n{i}", f"gone{i}", "user", f"said {i}") for i in range(20_000)]
    report = ingest(write(tmp_path / "conversations.json", [chatgpt("n19999", *gaps)]), tmp_path)
    assert len(kept_rows(tmp_path / "turns.sqlite")) > 1
    assert report.skipped["broken_chain"] == len(kept_rows(tmp_path / "turns.sqlite")) - 1


def test_a_turn_of_a_branch_that_was_left_since_stays(tmp_path: Path) -> None:
    path = write(tmp_path / "conversations.json", [claude(*EDITED[:2])])
    ingest(path, tmp_path)
    write(path, [claude(*EDITED)])
    ingest(path, tmp_path)
    assert len(contents(tmp_path)) == 4


@pytest.mark.parametrize("shape", ["one", "list", "wrapped"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_an_export_of_one_conversation_is_read(tmp_path: Path, shape: str, mark: str) -> None:
    value = claude(*EDITED)
    shapes: dict[str, object] = {
        "one": value,
        "list": [value],
        "wrapped": {"conversations": [value, {"uuid": "x"}]},
    }
    path = tmp_path / "lamp.json"
    path.write_text(mark + json.dumps(shapes[shape]), encoding="utf-8")
    assert is_transcripts(path)
    report = ingest(path, tmp_path)
    assert (report.turns, report.skipped.get("other_type", 0)) == (2, shape == "wrapped")


def test_a_folder_with_a_file_for_each_conversation_is_read(tmp_path: Path) -> None:
    write(tmp_path / "export/conversations/k-1.json", claude(*EDITED))
    write(tmp_path / "export/other/k-2.json", claude(*EDITED))
    assert is_transcripts(tmp_path / "export")
    report = ingest(tmp_path / "export", tmp_path)
    assert (report.files, report.turns) == (1, 2)


def test_files_beside_the_conversations_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "conversations.json", [claude(*EDITED)])
    assert find_unread(tmp_path) == []
    write(tmp_path / "memories.json", [{"conversations_memory": "x", "account_uuid": "a"}])
    write(tmp_path / "projects" / "p.json", {"uuid": "p", "docs": []})
    assert find_unread(tmp_path) == find_unread(path) == ["memories.json", "projects"]


def test_secrets_and_what_an_agent_put_in_stay_out(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    nodes = [
        node("a", None, "user", f"my token is {secret}"),
        node("b", "a", "assistant", "<system-reminder>x</system-reminder>Kept."),
    ]
    ingest(write(tmp_path / "conversations.json", [chatgpt("b", *nodes)]), tmp_path)
    assert sorted(contents(tmp_path)) == ["", "Assistant: Kept."]
    assert secret.encode() not in (tmp_path / "turns.sqlite").read_bytes()


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.99])
def test_a_file_that_is_cut_off_gives_what_is_whole_and_says_so(tmp_path: Path, cut: float) -> None:
    path = write(tmp_path / "conversations.json", [TALK, CHAT])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut)])
    report = ingest(path, tmp_path)
    assert not report.is_complete
    assert "ends inside a conversation" in report.faults[0]
    path.write_bytes(whole)
    assert ingest(path, tmp_path).is_complete
    assert len(contents(tmp_path)) == 4


def test_one_that_is_too_long_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MAX_CONVERSATION_BYTES", 2_000)
    path = write(tmp_path / "conversations.json", [CHAT, TALK])
    assert ingest(path, tmp_path).skipped["too_long"] == 1
    assert len(contents(tmp_path)) == 2


@given(
    st.lists(st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=4), max_size=5),
    st.sampled_from([None, 1]),
    st.integers(1, 9),
)
@hypothesis_settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_objects_of_an_array_are_found_in_pieces_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[Any], indent: int, size: int
) -> None:
    """The twin: the standard library's reading of the whole."""
    path = tmp_path / "any.json"
    path.write_text(json.dumps(values, indent=indent))
    monkeypatch.setattr(conversations, "_CHUNK_BYTES", size)
    with path.open("rb") as handle:
        found = list(read_conversations(handle, 0, path.stat().st_size))
    assert [json.dumps(json.loads(line.data or b"")) for line in found] == [
        json.dumps(value) for value in values
    ]
    assert all(line.is_ended for line in found)


@given(st.binary(max_size=60) | st.text('[]{}"\\a', max_size=60).map(str.encode))
@hypothesis_settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_without_an_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "conversations.json"
    path.write_bytes(data)
    assert ingest(path, tmp_path).files == 1


@pytest.mark.timeout(20)
@pytest.mark.parametrize("data", [b"[" * 3_000_000, b'["' + b"\\" * 3_000_000, b"[{" * 10**6])
def test_hostile_bytes_take_no_more_than_their_length(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "conversations.json"
    path.write_bytes(data)
    assert ingest(path, tmp_path).turns == 0


@pytest.mark.parametrize("name", ["conversations.json", "conversations-000.json", "claude.json"])
def test_an_export_is_a_source_as_a_file_or_in_its_folder(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "export" / name, [CHAT])
    write(path.with_name("user.json"), {"id": "u"})
    settings = Settings()
    places = [path] if name == "claude.json" else [path, path.parent]
    for source in places:
        assert is_transcripts(source)
        (root,) = find_roots(source, settings.transcripts)
        ingest(root, tmp_path)
        assert read_marker(source, settings)
        turns = tmp_path / "turns.sqlite"
        with open_with_turns(source, turns, settings, tmp_path) as opened:
            report = export_corpus(opened, tmp_path / "out")
        assert (report.exported, report.turns) == (2, 2)
    assert not is_transcripts(path.with_name("user.json"))


def test_other_json_is_no_export(tmp_path: Path) -> None:
    path = write(tmp_path / "conversations.json", [{"id": 1, "content": "a"}])
    assert not is_transcripts(path)
    with pytest.raises(SourceFormatError):
        open_source(path)
