"""What is played with Codex, and the turns that come of it."""

from __future__ import annotations

import json
import sys
import threading
import time
from functools import partial
from pathlib import Path

from tests.agents.codex import Codex, words
from tests.agents.model_server import Asked, Call, Reply, Rule, ScriptedServer
from tests.agents.pictures import PNG
from tests.agents.scenario import Scenario, agent, scenario, user

CODEX: list[Scenario] = []
_played = partial(scenario, CODEX, "codex")
_LOOK = (Call("exec_command", {"cmd": "cat notes.md"}),)
_SUMMARY = Reply("SUMMARYWORD the buoy is B12.")
_MCP = """\
[mcp_servers.quay]
command = {python!r}
args = [{script!r}]
default_tools_approval_mode = "approve"
"""


def is_paginated(version: str) -> bool:
    """Say whether a version writes paginated histories."""
    return tuple(map(int, version.split("."))) >= (0, 153)


@_played(
    user("Which buoy is in the harbour?"),
    agent("Let me look."),
    agent("It is B12."),
    user("And who owns it?"),
    agent("Nils Aalto owns it."),
)
def exec_and_resume(codex: Codex, server: ScriptedServer) -> None:
    """A prompt with a tool call, and a resumed session."""
    server.rules = [
        Rule("Which buoy", Reply("Let me look.", _LOOK)),
        Rule("The buoy of the harbour is", Reply("It is B12.")),
        Rule("And who owns it?", Reply("Nils Aalto owns it.")),
    ]
    codex.exec("Which buoy is in the harbour?")
    codex.exec("resume", "--last", "And who owns it?")


@_played(user("What is on this picture?"), agent("A blue square."))
def image(codex: Codex, server: ScriptedServer) -> None:
    """A prompt with a picture."""
    server.rules = [Rule("What is on this picture", Reply("A blue square."))]
    (codex.project / "picture.png").write_bytes(PNG)
    codex.exec("-i", "picture.png", "--", "What is on this picture?")


@_played(user("Log that the tide is high."), agent("I log it."), agent("Logged."))
def mcp(codex: Codex, server: ScriptedServer) -> None:
    """A call of an MCP server's tool."""
    call = Call("log_entry", {"text": "the tide is high"}, "mcp__quay")
    server.rules = [
        Rule("Log that the tide", Reply("I log it.", (call,))),
        Rule("entry logged", Reply("Logged.")),
    ]
    script = str(Path(__file__).with_name("quay_server.py"))
    codex.configure(_MCP.format(python=sys.executable, script=script))
    codex.exec("Log that the tide is high.")


@_played(
    user("First: which buoy?"),
    agent("Let me look."),
    agent("It is B12."),
    user("Second: who owns it?"),
    agent("Nils Aalto owns it."),
    user("Third: what colour is it?"),
    agent("It is green."),
)
def compaction(codex: Codex, server: ScriptedServer) -> None:
    """A context that is compacted in the middle of a turn, and one that is compacted by hand."""
    server.otherwise = _SUMMARY
    server.rules = [
        Rule("First: which", Reply("Let me look.", _LOOK, tokens=250_000)),
        Rule("Second: who", Reply("Nils Aalto owns it.")),
        Rule("Third: what", Reply("It is green.")),
        Rule("SUMMARYWORD", Reply("It is B12.")),
    ]
    codex.exec("First: which buoy?")
    codex.exec("resume", "--last", "Second: who owns it?")
    with codex.app() as app:
        thread = codex.first_session
        app.call("thread/resume", {"threadId": thread})
        app.call("thread/compact/start", {"threadId": thread})
        app.wait_for_end(1)
        app.say(thread, "Third: what colour is it?")


@_played(
    user("Which buoy is in the harbour?"),
    agent("It is B12."),
    user("In the fork: what colour is it?", session=1),
    agent("It is green.", session=1),
    user("Back in the first: who owns it?"),
    agent("Nils Aalto owns it."),
)
def fork(codex: Codex, server: ScriptedServer) -> None:
    """A forked session, whose file repeats or names its parent's lines."""
    server.rules = [
        Rule("Which buoy", Reply("It is B12.")),
        Rule("In the fork", Reply("It is green.")),
        Rule("Back in the first", Reply("Nils Aalto owns it.")),
    ]
    codex.exec("Which buoy is in the harbour?")
    first = codex.first_session
    with codex.app() as app:
        forked = app.call("thread/fork", {"threadId": first})["thread"]["id"]
        app.say(forked, "In the fork: what colour is it?")
    codex.exec("resume", first, "Back in the first: who owns it?")


@_played(
    user("Ask a helper to measure the basin."),
    agent("I start a helper."),
    agent("The helper says 4 m."),
)
def subagent(codex: Codex, server: ScriptedServer) -> None:
    """A subagent, whose report comes back as a message of role user."""

    def wait_for_it(asked: Asked) -> Reply:
        outputs = [i for i in asked.body["input"] if i.get("type") == "function_call_output"]
        helper = json.loads(outputs[-1]["output"])["agent_id"]
        given = {"targets": [helper], "timeout_ms": 20_000}
        return Reply("", (Call("wait_agent", given, "multi_agent_v1"),))

    task = {"message": "SUBTASKWORD Measure the basin.", "agent_type": "explorer"}
    server.rules = [
        Rule(
            "Ask a helper",
            Reply("I start a helper.", (Call("spawn_agent", task, "multi_agent_v1"),)),
        ),
        Rule("SUBTASKWORD", Reply("The basin is 4 m wide.")),
        Rule("agent_id", wait_for_it),
        Rule("4 m wide", Reply("The helper says 4 m.")),
    ]
    codex.exec("Ask a helper to measure the basin.")


@_played(
    user("Plan the repair of the basin."),
    user("the light one of Oulu", is_part=True),
    agent("Then the light blue."),
)
def question(codex: Codex, server: ScriptedServer) -> None:
    """A question of the agent, answered with a choice and a remark."""
    choices = [{"label": "Blue", "description": "sea"}, {"label": "Green", "description": "park"}]
    asked = {"id": "colour", "header": "Colour", "question": "Which colour?", "options": choices}
    server.rules = [
        Rule("Plan the repair", Reply("", (Call("request_user_input", {"questions": [asked]}),))),
        Rule("Oulu", Reply("Then the light blue.")),
    ]
    with codex.app() as app:
        said = ["Blue", "user_note: the light one of Oulu"]
        app.on_request = lambda method, given: {"answers": {"colour": {"answers": said}}}
        settings = {"model": "gpt-5", "reasoning_effort": None, "developer_instructions": None}
        plan = {"mode": "plan", "settings": settings}
        app.say(app.begin(), "Plan the repair of the basin.", collaborationMode=plan)


@_played(
    user("Which buoy is in the harbour?"),
    agent("Let me look."),
    user("Also: the buoy belongs to Nils Aalto."),
    agent("Noted: Nils Aalto."),
    user("Long question: tell me everything."),
    user("After the interrupt: go on."),
    agent("Fine."),
)
def steered_and_interrupted(codex: Codex, server: ScriptedServer) -> None:
    """A prompt in the middle of a turn, and a turn that is interrupted."""
    hold = threading.Event()
    slow = (Call("exec_command", {"cmd": "sleep 2; cat notes.md"}),)
    server.rules = [
        Rule("Which buoy", Reply("Let me look.", slow)),
        Rule("Also: the buoy", Reply("Noted: Nils Aalto.")),
        Rule("Long question", Reply("Half an answer", hold=hold)),
        Rule("After the interrupt", Reply("Fine.")),
    ]
    with codex.app() as app:
        thread = app.begin()
        turn = app.say(thread, "Which buoy is in the harbour?", waits=False)
        app.wait_for_item("commandExecution")
        said = words("Also: the buoy belongs to Nils Aalto.")
        app.call("turn/steer", {"threadId": thread, "expectedTurnId": turn, "input": said})
        app.wait_for_end(1)
        turn = app.say(thread, "Long question: tell me everything.", waits=False)
        time.sleep(1.5)
        app.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        app.wait_for_end(2)
        hold.set()
        app.say(thread, "After the interrupt: go on.")


@_played(
    user("Which buoy is in the harbour?"),
    agent("It is B12."),
    user("Wrong way: paint it red.", is_optional=True),
    agent("I go the wrong way.", is_optional=True),
    user("Right way: paint it green."),
    agent("I go the right way."),
)
def rolled_back(codex: Codex, server: ScriptedServer) -> None:
    """A turn that its user takes back: in the same file once, in a second one since 0.153."""
    server.rules = [
        Rule("Which buoy", Reply("It is B12.")),
        Rule("Wrong way", Reply("I go the wrong way.")),
        Rule("Right way", Reply("I go the right way.")),
    ]
    with codex.app() as app:
        thread = app.begin()
        app.say(thread, "Which buoy is in the harbour?")
        turn = app.say(thread, "Wrong way: paint it red.")
        if is_paginated(codex.version):
            app.call("thread/revert", {"threadId": thread, "beforeTurnId": turn})
        else:
            app.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        app.say(thread, "Right way: paint it green.")


@_played(
    user("Which buoy is in the harbour?"),
    agent("It is B12."),
    user("Queued: and who owns it?"),
    agent("Nils Aalto owns it."),
    versions=is_paginated,
)
def queued(codex: Codex, server: ScriptedServer) -> None:
    """A prompt that is put into a thread's queue."""
    server.rules = [
        Rule("Which buoy", Reply("It is B12.")),
        Rule("Queued: and", Reply("Nils Aalto owns it.")),
    ]
    with codex.app() as app:
        thread = app.begin()
        app.say(thread, "Which buoy is in the harbour?")
        said = {"threadId": thread, "input": words("Queued: and who owns it?")}
        app.call("thread/queue/add", {**said, "clientUserMessageId": "1", "turnStartParams": said})
        app.wait_for_end(2)


@_played(
    user("Which buoy is in the harbour?"),
    agent("It is B12."),
    user("And who owns it?", session=1),
    agent("Nils Aalto owns it.", session=1),
)
def archived(codex: Codex, server: ScriptedServer) -> None:
    """Two sessions, the first of which is moved into the archive."""
    server.rules = [
        Rule("Which buoy", Reply("It is B12.")),
        Rule("And who owns it?", Reply("Nils Aalto owns it.")),
    ]
    codex.exec("Which buoy is in the harbour?")
    first = codex.first_session
    codex.exec("And who owns it?")
    with codex.app() as app:
        app.call("thread/archive", {"threadId": first})
