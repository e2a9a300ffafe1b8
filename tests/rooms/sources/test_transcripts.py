"""What a line of a Claude Code transcript comes to."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents.mcp_view import ORIGIN, plain
from noctuary.context.render import Line, render_block
from noctuary.sources import transcripts as module
from noctuary.sources.claude_code import read_claude
from noctuary.sources.codex import is_codex, read_codex
from noctuary.sources.injected import TAG
from noctuary.sources.projects import (
    MAX_PROJECT_CHARS,
    choose_wing,
    find_project,
    normalize_remote,
    project_of,
)
from noctuary.sources.transcripts import (
    MAX_SKEW_US,
    FileContext,
    Message,
    Part,
    Reading,
    Skip,
    call_texts,
    parse_moment,
    parse_object,
    place_after,
    read_lines,
    render_tool,
    shorten,
    strip_wrappers,
    vet_part,
)
from tests.support.transcripts import (
    JSON_VALUES,
    ClaudeSession,
    CodexSession,
    call,
    dump,
    text,
    thinking,
    working_session,
    write_megabytes,
)


@pytest.fixture
def session() -> ClaudeSession:
    return ClaudeSession()


def read(line: dict[str, Any], context: FileContext | None = None) -> list[Reading]:
    return read_claude(line, context or FileContext())


def only(line: dict[str, Any], context: FileContext | None = None) -> Message:
    (found,) = read(line, context)
    assert isinstance(found, Message)
    return found


def test_a_prompt_is_a_turn_of_its_user(session: ClaudeSession) -> None:
    line = session.user("Which carrier delivers on Saturday?")
    message, native_id = only(line), line["uuid"]
    assert (message.role, message.native_id, message.at_us) == ("user", native_id, NINE_US)
    assert (message.session, message.project) == (session.session, "shop")
    said = Part(f"{native_id}:0", "text", "", ("Which carrier delivers on Saturday?",))
    assert message.parts == (said,)
    copied = line | {"uuid": "new", "forkedFrom": {"sessionId": "s", "messageUuid": native_id}}
    assert only(copied).native_id == native_id, "a copied line of a fork is what it copies"


def test_lines_of_one_answer_share_an_id_that_is_not_the_lines(session: ClaudeSession) -> None:
    one = only(session.assistant(text("I look."), message="msg_1"))
    two = only(session.assistant(call("Bash", "toolu_1", command="ls"), message="msg_1"))
    assert one.native_id == two.native_id == "msg_1"
    assert two.parts == (Part("call:toolu_1", "call", "Bash", ("ls",)),)
    # Without a message id the request names the answer.
    line = session.assistant(text("I look."), requestId="req_7")
    del line["message"]["id"]
    assert only(line).native_id == "req_7"
    del line["requestId"]
    assert only(line).native_id == line["uuid"]


def test_a_result_belongs_to_its_call_words_beside_it_do_not(session: ClaudeSession) -> None:
    blocks = [text("3 files"), {"type": "image", "source": {}}, text("done")]
    message = only(session.result("toolu_1", blocks, is_error=True))
    failed = Part("result:toolu_1", "result", "", ("3 files", "done"), is_error=True)
    assert (message.native_id, message.parts) == ("", (failed,))
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3 files"}
    found = read(session.user([result, text("and now the tax code")]))
    kinds = [(m.native_id != "", m.parts[0].kind) for m in found if isinstance(m, Message)]
    assert kinds == [(False, "result"), (True, "text")]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"isMeta": True}, Skip.META),
        ({"isVisibleInTranscriptOnly": True}, Skip.META),
        ({"isCompactSummary": True}, Skip.COMPACT_SUMMARY),
        ({"isCompactSummary": True, "isMeta": True}, Skip.COMPACT_SUMMARY),
        ({"isApiErrorMessage": True}, Skip.SYNTHETIC),
        ({"type": "summary"}, Skip.OTHER_TYPE),
        ({"type": "attachment"}, Skip.OTHER_TYPE),
        ({"type": "system", "subtype": "compact_boundary"}, Skip.COMPACT_BOUNDARY),
        ({"type": None}, Skip.UNKNOWN_TYPE),
        ({"message": "words"}, Skip.NO_CONTENT),
        ({"message": {"content": None}}, Skip.NO_CONTENT),
        ({"message": {"content": [3, None, {"type": "new"}]}}, Skip.NO_CONTENT),
    ],
)
def test_unsaid_lines_are_no_turns(
    session: ClaudeSession, fields: dict[str, Any], reason: Skip
) -> None:
    assert read(session.user("words") | fields) == [reason]


def test_errors_reasoning_and_lines_without_an_id(session: ClaudeSession) -> None:
    failed = session.assistant(text("API Error: 529 Overloaded"))
    failed["message"]["model"] = "<synthetic>"
    assert read(failed) == [Skip.SYNTHETIC]
    assert read(session.assistant(thinking("perhaps"))) == [Skip.NO_CONTENT]
    lines = [session.user("one"), session.user("two")]
    for line in lines:
        del line["uuid"]
    first, second, again = only(lines[0]), only(lines[1]), only(dict(lines[0]))
    assert first.native_id == again.native_id != second.native_id
    assert first.parts[0].key != second.parts[0].key
    # The project is the folder that the session began in.
    context = FileContext()
    read(session.other("system"), context)
    assert only(session.user("words") | {"cwd": "/home/me/shop/src"}, context).project == "shop"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"isSidechain": True}, "sidechain"),
        ({"isSidechain": True, "agentId": "a1"}, "a1"),
        ({"agentId": "a1"}, "a1"),
        ({"teamName": "reviewers", "agentName": "tests"}, "sidechain"),
    ],
)
def test_subagents_are_sidechains_with_sessions_of_their_own(
    session: ClaudeSession, fields: dict[str, Any], name: str
) -> None:
    message = only(session.user("look at the tests") | fields)
    assert (message.is_sidechain, message.session) == (True, f"{session.session}/{name}")
    lead = only(session.user("ask the others") | {"teamName": "reviewers"})
    assert (lead.is_sidechain, lead.session) == (False, session.session)


_FIELDS = st.sampled_from(
    ["type", "message", "uuid", "timestamp", "sessionId", "cwd", "isSidechain", "forkedFrom",
     "content", "payload", "agentId"]
)  # fmt: skip


@given(st.sampled_from(["user", "assistant"]), st.dictionaries(_FIELDS, JSON_VALUES), JSON_VALUES)
def test_any_object_is_read_without_an_error(kind: str, line: dict[str, Any], inner: Any) -> None:
    assert read({"message": {"content": [inner, {"type": "text", "text": inner}]}, **line})
    assert read({**line, "type": kind})


def read_all(session: CodexSession, context: FileContext | None = None) -> list[Message]:
    context = context or FileContext()
    found = [r for line in session.lines for r in read_codex(line, context)]
    return [r for r in found if isinstance(r, Message)]


def test_what_is_said_twice_is_one_turn_each_and_so_it_is_in_a_fork() -> None:
    session = CodexSession()
    session.user("Which depot?")
    session.assistant("D17.")
    messages = read_all(session)
    said = [(m.role, m.parts[0].texts) for m in messages]
    assert said == [("user", ("Which depot?",)), ("assistant", ("D17.",))]
    of = ("codex", "01990000-aaaa-7bbb-8ccc-dddddddddddd", "depot")
    assert {(m.agent, m.session, m.project) for m in messages} == {of}
    fork = CodexSession(session="fork", cwd="/home/me/other")
    fork.lines += session.lines
    copied = read_all(fork)
    assert [m.native_id for m in copied] == [m.native_id for m in messages]
    assert {(m.session, m.project) for m in copied} == {("fork", "other")}


def test_calls_belong_to_the_answer_before_them_until_a_result() -> None:
    session = CodexSession()
    session.user("Which depot?")
    session.assistant("I look.")
    session.called("c1", "shell", command=["ls"])
    session.called("c2", "shell", command=["pwd"])
    session.returned("c1", "a")
    session.returned("c2", {"content": "/srv", "success": False})
    session.called("c3", "shell", command=["id"])
    said, answer, one, two, out, failed, three = read_all(session)
    assert answer.native_id == one.native_id == two.native_id
    assert len({said.native_id, answer.native_id, three.native_id}) == 3
    assert out.native_id == failed.native_id == ""
    assert out.parts == (Part("result:c1", "result", "", ("a",)),)
    assert failed.parts == (Part("result:c2", "result", "", ("/srv",), is_error=True),)


@pytest.mark.parametrize(
    ("kind", "item", "part"),
    [
        ("custom_tool_call", {"name": "patch", "input": "*** Begin"},
         Part("call:c", "call", "patch", ("*** Begin",))),
        ("local_shell_call", {"action": {"command": ["ls", "-a"]}},
         Part("call:c", "call", "shell", ('["ls", "-a"]',))),
        ("function_call", {"name": "f", "arguments": '{"a": "x"}'},
         Part("call:c", "call", "f", ("x",))),
        ("custom_tool_call_output", {"output": [{"text": "a"}, 3]},
         Part("result:c", "result", "", ("a",))),
    ],
)  # fmt: skip
def test_every_kind_of_call_is_read(kind: str, item: dict[str, Any], part: Part) -> None:
    session = CodexSession()
    session.add("response_item", {"type": kind, "call_id": "c", **item})
    assert read_all(session)[0].parts == (part,)


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        ("compacted", {"message": "so far"}, Skip.COMPACT_SUMMARY),
        ("event_msg", {"type": "context_compacted"}, Skip.COMPACT_BOUNDARY),
        ("event_msg", {"type": "token_count"}, Skip.OTHER_TYPE),
        ("event_msg", {"type": "agent_message", "message": "again"}, Skip.OTHER_TYPE),
        ("event_msg", {"type": "user_message", "message": " "}, Skip.NO_CONTENT),
        ("turn_context", {"cwd": "/x"}, Skip.OTHER_TYPE),
        ("response_item", {"type": "message", "role": "user", "content": []}, Skip.META),
        ("response_item", {"type": "message", "role": "developer"}, Skip.META),
        ("response_item", {"type": "reasoning", "summary": []}, Skip.OTHER_TYPE),
        ("response_item", {"type": "function_call", "name": "f"}, Skip.NO_CONTENT),
    ],
)
def test_unsaid_lines_of_a_rollout_are_none(
    kind: str, payload: dict[str, Any], reason: Skip
) -> None:
    line = CodexSession().add(kind, payload)
    assert read_codex(line, FileContext()) == [reason]


@pytest.mark.parametrize("source", [{"subagent": {"thread_spawn": {}}}, "subagent"])
def test_a_subagents_rollout_is_a_sidechain_and_told_from_the_other_shape(source: object) -> None:
    session = CodexSession(source=source)
    session.user("look at the tests")
    assert [m.is_sidechain for m in read_all(session)] == [True]
    assert is_codex(session.lines[0])
    assert not is_codex(ClaudeSession().user("words"))
    assert not is_codex({"type": "event_msg", "payload": "words"})


_TYPES = st.sampled_from(["session_meta", "response_item", "event_msg", "compacted"])
_INNER = st.sampled_from(
    ["message", "function_call", "function_call_output", "local_shell_call", "user_message"]
)


_KEYS = st.sampled_from(
    ["id", "call_id", "message", "output", "content", "action", "arguments", "source", "cwd"]
)


@given(_TYPES, _INNER, st.dictionaries(_KEYS, JSON_VALUES))
def test_any_object_of_a_rollout_is_read_without_an_error(
    kind: str, inner: str, payload: dict[str, Any]
) -> None:
    line = {"type": kind, "payload": {**payload, "type": inner, "role": "assistant"}}
    assert read_codex(line, FileContext())


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 200))
def test_lines_between_any_offsets_cover_every_byte_once(data: bytes, one: int, two: int) -> None:
    start, stop = sorted((min(one, len(data)), min(two, len(data))))
    found, part = list(read_lines(io.BytesIO(data), start, stop)), data[start:stop]
    ends = list(accumulate((line.size_bytes for line in found), initial=start))
    assert [line.end for line in found] == ends[1:]
    assert ends[-1] == stop
    lines = part.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    assert [line.data for line in found] == [raw.strip(b" \t\r\n\0") for raw in lines]
    assert all(line.is_ended for line in found[:-1])
    assert not found or found[-1].is_ended == part.endswith(b"\n")


def test_a_line_that_is_too_long_is_passed_over_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_READ_BYTES", 16)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 7)
    data = b"x" * 40 + b"\nshort\n" + b"y" * 40
    found = list(read_lines(io.BytesIO(data), 0, len(data)))
    told = [(x.data, x.size_bytes, x.is_ended) for x in found]
    assert told == [(None, 41, True), (b"short", 6, True), (None, 40, False)]


def test_a_parsed_line_is_bounded_but_for_encoded_images() -> None:
    image = {"type": "image", "source": {"data": "iVBORw0KGgo" * 500_000}}
    spoken = {"type": "text", "text": "what is on this picture?"}
    lines = [json.dumps([spoken, image]).encode(), json.dumps("some words " * 500_000).encode()]
    assert all(len(line) > module.MAX_LINE_BYTES for line in lines)
    data = b"\n".join(lines)
    picture, words = read_lines(io.BytesIO(data), 0, len(data))
    assert picture.data is not None
    assert json.loads(picture.data)[0] == spoken
    assert words.data is None


@pytest.mark.parametrize(
    ("data", "found"),
    [
        *[(data, None) for data in (b"", b"{", b"[1]", b"null", b'{"a": nope}')],
        (b"[" * 100_000, None),
        (b'{"a": ' + b"1" * 5_000 + b"}", None),
        (b'{"a": "x\xffy"}', {"a": "x\ufffdy"}),
    ],
    ids=["empty", "cut", "array", "null", "word", "deep", "huge-number", "no-text"],
)
def test_what_is_no_object_is_none_and_what_is_no_text_replaced(
    data: bytes, found: dict[str, str] | None
) -> None:
    assert parse_object(data) == found


NINE_US = 1_793_610_000_000_000


@pytest.mark.parametrize(
    ("stamp", "at_us"),
    [
        ("2026-11-02T09:00:00Z", NINE_US),
        ("2026-11-02T09:00:00.000Z", NINE_US),
        ("2026-11-02T10:00:00+01:00", NINE_US),
        ("2026-11-02T09:00:00", NINE_US),
        ("1969-12-31T23:00:00Z", None),
        ("1970-01-01T00:30:00+01:00", None),
        ("2300-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59-12:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
        ("", None),
        (1_793_610_000, None),
        (None, None),
    ],
)
def test_stamps_are_read_or_are_none(stamp: object, at_us: int | None) -> None:
    assert parse_moment(stamp) == at_us


@given(st.text(max_size=45))
def test_any_text_is_a_moment_or_none(stamp: str) -> None:
    found = parse_moment(stamp)
    assert found is None or 0 <= found < 7_289_654_400_000_000


moments = st.one_of(st.none(), st.integers(0, 4 * MAX_SKEW_US))


@given(st.lists(moments, max_size=12))
def test_turns_of_one_clock_sort_as_they_lie(stamps: list[int | None]) -> None:
    last: int | None = None
    for stamp in stamps:
        at = place_after(stamp, last)
        if last is not None:
            assert at is not None
            if stamp is None or stamp >= last - MAX_SKEW_US:
                assert at > last
            else:
                assert at == stamp, "a clock that was set back far is believed"
        if stamp is not None and at is not None:
            assert at >= stamp
        last = at


ANSWER = json.dumps(
    plain({**ORIGIN, "memories": [], "relations": [], "totals": {}, "snapshot_id": "s"})
)


def vetted(key: str, kind: Any, name: str, *texts: str) -> str:
    kept = vet_part(Part(key, kind, name, texts), 500)
    assert kept is not None
    return kept.text


def test_an_answer_of_our_own_is_not_kept_other_results_and_what_people_quote_are() -> None:
    for said in (ANSWER, json.dumps([{"type": "text", "text": ANSWER}])):
        assert vetted("result:1", "result", "", said) == ""
    assert vetted("result:1", "result", "", "3 files", ANSWER) == "[tool result: 3 files]"
    assert vetted("t:0", "text", "", ANSWER) == ANSWER
    for label in ("mcp__noctuary__remember", "noctuary_recall", "mcp_noctuary_forget"):
        assert vetted("call:1", "call", label, "spare key") == f"[{label}]"
        assert vetted("result:1", "result", label, "spare key") == ""
    for command in ("noctuary remember 'spare key'", "cd x && .venv/bin/noctuary -v recall key"):
        assert vetted("call:1", "call", "Bash", f"command={command}") == "[Bash]"
    assert "spare key" in vetted("call:1", "call", "Bash", "grep 'spare key' noctuary.toml")


@pytest.mark.parametrize(
    ("folder", "project"),
    [
        ("/home/me/shop", "shop"),
        ("/home/me/shop/", "shop"),
        ("/home/me/./shop/.", "shop"),
        ("/home/me/My Shop v2.1", "My Shop v2.1"),
        ("C:\\Users\\ana\\shop", "shop"),
        ("C:/Users/ana/shop", "shop"),
        ("\\\\server\\share\\shop", "shop"),
        ("/home/me/back\\slash", "back\\slash"),
        ("/home/me/shop/.claude/worktrees/fix-tax", "shop"),
        ("/home/me/.claude", ".claude"),
        ("/home/me/.codex/worktrees/1f2e/shop", "shop"),
        ("-home-me-shop", "home-me-shop"),
        ("/srv/-dash", "-dash"),
        ("/srv/e\u0301tude", "\u00e9tude"),
        ("/srv/a\nb\x00c", "a b c"),
        ("/", ""),
        ("C:\\", ""),
        ("~", ""),
        ("", ""),
    ],
)
def test_the_last_folder_is_the_project(folder: str, project: str) -> None:
    assert project_of(folder) == project


@pytest.mark.parametrize(
    ("folder", "project"),
    [
        ("code/shop", "shop"),
        ("code/shop/src/deep", "shop"),
        ("code/shop-wt/src", "shop"),  # a worktree elsewhere
        ("code/bare-wt", "store"),  # of a bare repository
        ("code/shop/vendor/lib", "lib"),  # a submodule
        ("code/shop/gone/away", "shop"),  # it need not exist
        ("code/broken", "broken"),
        ("code/pipe", "code"),
        ("notes", "notes"),  # home is a repository of settings
        ("", "home"),
    ],
)
def test_a_repository_gives_its_name_to_all_below_and_to_its_worktrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, project: str
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    files = {
        "code/shop-wt/.git": f"gitdir: {home}/code/shop/.git/worktrees/wt\n",
        "code/bare-wt/.git": "gitdir: ../../git/store.git/worktrees/wt\n",
        "code/shop/vendor/lib/.git": "gitdir: ../../.git/modules/lib\n",
        "code/broken/.git": "\udcff" * 9_000,
    }
    for name in (".git", "code/shop/.git", "code/shop/src/deep", "code/shop-wt/src", "code/pipe"):
        (home / name).mkdir(parents=True, exist_ok=True)
    for name, link in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(link.encode("utf-8", "surrogateescape"))
    os.mkfifo(home / "code/pipe/.git")
    (home / "code/.git").mkdir()
    assert project_of(str(home / folder) if folder else str(home)) == project


@pytest.mark.parametrize(
    ("folder", "project"),
    [
        ("/srv/shop", "store"),
        ("/srv/shop/src", "store"),
        ("/srv/shop/web/x", "front"),  # the nearest folder decides
        ("/srv/shopping", "shopping"),
        ("/other", "other"),
    ],
)
def test_a_setting_names_the_wing_of_a_folder(folder: str, project: str) -> None:
    assert (
        project_of(folder, ("/srv/shop=store", "/srv/shop/web/= front", "~nobody/x=y")) == project
    )


SPELLINGS = (
    "git@github.com:Mona/tidemill.git", "https://github.com/mona/tidemill",
    "ssh://git@github.com:22/mona/tidemill.git/", "https://mona:word@GitHub.com/mona/tidemill.git",
    "git://www.github.com/mona/tidemill", "ssh://git@ssh.github.com:443/mona/tidemill.git",
)  # fmt: skip


@pytest.mark.parametrize("url", SPELLINGS)
def test_all_spellings_of_a_remote_are_one(url: str) -> None:
    assert normalize_remote(url) == "github.com/mona/tidemill"


@pytest.mark.parametrize(
    ("url", "identity"),
    [
        ("git@forge.example:Mona/Mill", "forge.example/Mona/Mill"),
        ("https://forge.example:8443/group/sub/mill.git", "forge.example/group/sub/mill"),
        ("git@[::1]:mona/mill.git", "[::1]/mona/mill"),
        ("/srv/git/mill.git", "/srv/git/mill"),
        ("file:///srv/git/mill.git/", "/srv/git/mill"),
        ("../mill.git", "/srv/mill"),
    ],
)
def test_other_remotes_keep_what_tells_them_apart(url: str, identity: str) -> None:
    assert normalize_remote(url, "/srv/clone") == identity


@given(st.text())
def test_any_remote_and_configuration_is_read_without_a_fault(text: str) -> None:
    normalize_remote(text, "/srv")
    assert find_project(text) == find_project(text)


def clone(folder: Path, url: str = "", name: str = "origin") -> str:
    (folder / ".git").mkdir(parents=True)
    remote = (
        f'[core]\n\tbare = false ; no\n[Remote "{name}"]\n\tURL = "{url}" # here\n' if url else ""
    )
    (folder / ".git/config").write_text(remote)
    return str(folder)


def test_a_project_is_its_remote_and_its_wing_stays(tmp_path: Path) -> None:
    known: dict[str, str] = {}

    def wing_of(folder: str) -> str:
        wing, learnt = choose_wing(folder, known)
        known.update(learnt)
        return wing

    mona = clone(tmp_path / "a/mill", SPELLINGS[0])
    ben = clone(tmp_path / "b/mill", "https://github.com/ben/mill", name="upstream")
    assert [wing_of(mona), wing_of(ben), wing_of(mona)] == ["mill", "ben/mill", "mill"]
    assert wing_of(clone(tmp_path / "c/another-name", SPELLINGS[1])) == "mill", "one project"
    worktree = tmp_path / "d/mill-fix"
    worktree.mkdir(parents=True)
    (worktree / ".git").write_text(f"gitdir: {ben}/.git/worktrees/fix\n")
    assert wing_of(f"{worktree}/src") == "ben/mill"
    shutil.rmtree(worktree)
    assert wing_of(f"{worktree}/docs") == "ben/mill"
    module = tmp_path / "a/mill/vendor/lib"
    module.mkdir(parents=True)
    (module / ".git").write_text("gitdir: ../../.git/modules/lib\n")
    (tmp_path / "a/mill/.git/modules/lib").mkdir(parents=True)
    (tmp_path / "a/mill/.git/modules/lib/config").write_text(
        '[remote "origin"]\nurl = git@x.example:l/lib'
    )
    assert wing_of(str(module)) == "lib"
    assert "x.example/l/lib" in known
    # Without a remote it is the path, and a remote that comes later changes nothing.
    plain = clone(tmp_path / "e/mill")
    assert wing_of(plain) == "e/mill"
    shutil.rmtree(plain)
    assert wing_of(clone(Path(plain), "git@github.com:ada/mill.git")) == "e/mill"
    # What is gone keeps its wing; another repository in its place is another project.
    shutil.rmtree(mona)
    assert [wing_of(mona), wing_of(f"{mona}/src/deep")] == ["mill", "mill"]
    assert wing_of(clone(Path(mona), "git@github.com:eve/mill.git")) == "eve/mill"
    assert wing_of("/nowhere/else/mill") == "else/mill"
    assert wing_of("/nowhere/else/mill/") == "else/mill"
    assert wing_of("") == ""


@given(st.text())
def test_any_text_gives_a_short_printable_name(folder: str) -> None:
    name = project_of(folder)
    assert len(name) <= MAX_PROJECT_CHARS
    assert name == name.strip()
    assert not {"\n", "\x00", "/"} & set(name)


@given(st.text(max_size=3_000), st.integers(0, 500))
def test_a_shortened_text_is_one_line_within_its_bound(text: str, chars: int) -> None:
    short = shorten(text, chars)
    assert len(short) <= chars
    assert len(short.splitlines()) <= 1
    whole = " ".join(text.split())
    if len(whole) <= chars and len(text) <= 8 * chars:
        assert short == whole


def test_beginning_and_end_of_a_long_text_are_kept() -> None:
    short = shorten("begin " + "x" * 10_000 + " Error: no such table", 60)
    assert re.fullmatch(r"begin x+ \.\.\. .*o such table", short)
    assert len(short) == 60


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ({"command": "ls -la"}, ("ls -la",)),
        ({"path": "a.py", "limit": 3}, ("path=a.py", "limit=3")),
        ({"todos": [{"id": 1}]}, ('[{"id": 1}]',)),
        ({}, ()),
        (None, ()),
        ('{"command": ["ls", "-la"]}', ('["ls", "-la"]',)),
        ("*** Begin Patch", ("*** Begin Patch",)),
        ("[1, 2]", ("[1, 2]",)),
    ],
)
def test_arguments_are_texts_in_their_order(arguments: object, texts: tuple[str, ...]) -> None:
    assert call_texts(arguments) == texts


def test_calls_and_results_are_named() -> None:
    call, result = Part("call:1", "call", "", ()), Part("result:1", "result", "", ())
    failed = result._replace(is_error=True)
    assert render_tool(call, "Bash", ("ls", "-la"), 20) == "[Bash: ls; -la]"
    assert render_tool(call, "Bash", ("ls -la",), 0) == "[Bash]"
    assert render_tool(call, "", (), 20) == "[tool]"
    assert render_tool(result, "Bash", ("a", "b"), 20) == "[Bash result: a b]"
    assert render_tool(failed, "Bash", ("boom",), 20) == "[Bash failed: boom]"
    assert render_tool(result, "Bash", ("a",), 0) == ""


BLOCK = render_block([Line("17", "2026-03-01", "The spare key hangs in the pantry.")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plain words", "plain words"),
        ("<system-reminder>be brief</system-reminder>", ""),
        ("<system-reminder>be brief</system-reminder>\nfix the tax", "fix the tax"),
        ("fix <system-reminder>a\nb</system-reminder>the tax", "fix the tax"),
        ("<local-command-stdout>3 files</local-command-stdout>", ""),
        ("<local-command-caveat>careful</local-command-caveat>", ""),
        (
            """<command-message>review is running</command-message>
<command-name>/review</command-name>
<command-args>only the tax code</command-args>""",
            "only the tax code",
        ),
        ("<command-name>/clear</command-name><command-args></command-args>", ""),
        ("<bash-input>ls</bash-input><bash-stdout>a</bash-stdout>", ""),
        ("<ide_opened_file>x.py</ide_opened_file> what is this?", "what is this?"),
        ("<task-notification>done</task-notification>", ""),
        ("[Request interrupted by user for tool use]", ""),
        ("[Request interrupted by user]stop", "stop"),
        ("<system-reminder>torn off", ""),
        ("What does <system-reminder> mean?", "What does <system-reminder> mean?"),
        ("if a<b and c>d: use <b>bold</b>", "if a<b and c>d: use <b>bold</b>"),
        (BLOCK, ""),
        (f"{BLOCK}\nWhere is the key?", "Where is the key?"),
        (f"<system-reminder>{BLOCK}</system-reminder>Where?", "Where?"),
    ],
)
def test_only_what_was_said_stays(text: str, said: str) -> None:
    assert strip_wrappers(text) == said


_PIECES = st.sampled_from(
    ["<system-reminder>", "</system-reminder>", "<command-args>", "</command-args>", "word ",
     "<tick>", "</tick>", "\n", f"<{TAG}", BLOCK]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_any_nesting_ends_and_adds_nothing(text: str) -> None:
    said = strip_wrappers(text)
    assert len(said) <= len(text)
    assert said == said.strip()
    rest = iter(text)
    assert all(c in rest for c in said), "what stays is in its order"


@pytest.mark.parametrize(
    "piece", ["<system-reminder>", "<tick><goal>", "</goal>", "<command-args>"]
)
def test_a_hostile_megabyte_takes_linear_time(piece: str) -> None:
    text = "a" + piece * (10**6 // len(piece))
    started = time.process_time()
    strip_wrappers(text)
    assert time.process_time() - started < 2


SIZE_BYTES = 200 * 2**20
GROWTH_MIB = 40
"""What the ingest may add to an interpreter that has imported it: a batch, its messages, SQLite's
cache. Measured: 7 MiB."""

_CHILD = """
import json, resource, sys
from pathlib import Path
from noctuary.sources.ingest import ingest_transcripts

def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = peak_kib()
report = ingest_transcripts(Path(sys.argv[1]), Path(sys.argv[2])).to_json()
print(json.dumps({**report, "growth_mib": (peak_kib() - before) / 1024}))
"""


def ingest(root: Path, turns: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", _CHILD, str(root), str(turns)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("file_bytes", [8 * 2**20, SIZE_BYTES], ids=["25-files", "one-file"])
def test_200_mb_are_read_once_in_bounded_memory(tmp_path: Path, file_bytes: int) -> None:
    root, turns = tmp_path / "projects", tmp_path / "turns.sqlite"
    files = list(write_megabytes(root, SIZE_BYTES, file_bytes))
    size = sum(f.stat().st_size for f in files)
    assert size >= SIZE_BYTES
    first = ingest(root, turns)
    assert (first["bytes_read"], first["faults"]) == (size, [])
    assert first["turns"] > 90_000
    assert first["growth_mib"] < GROWTH_MIB
    assert ingest(root, turns)["bytes_read"] == 0
    more = dump(working_session(10**6, 3).lines)
    with files[0].open("ab") as handle:
        handle.write(more)
    grown = ingest(root, turns)
    assert (grown["bytes_read"], grown["turns"]) == (len(more), 9)
    assert grown["unchanged"] == len(files) - 1
