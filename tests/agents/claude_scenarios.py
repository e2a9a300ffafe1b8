"""What is played with Claude Code, and the turns that come of it."""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from functools import partial
from pathlib import Path

from tests.agents.claude import ClaudeCode
from tests.agents.model_server import Asked, Call, Reply, Rule, ScriptedServer
from tests.agents.pictures import PNG
from tests.agents.scenario import Scenario, agent, scenario, user

CLAUDE: list[Scenario] = []
_played = partial(scenario, CLAUDE, "claude")
_LOOK = (Call("Bash", {"command": "cat notes.md", "description": "read the notes"}),)
# What asks for a summary offers tools as well.
_SUMMARY = Rule("summary of", Reply("<summary>SUMMARYWORD it is B12.</summary>"), times=9)


def _tool(asked: Asked, *names: str) -> str:
    """Return the first of names that the agent offers: they change with versions."""
    offered = {tool.get("name") for tool in asked.body.get("tools", [])}
    return next(name for name in names if name in offered)


def _helper(is_background: bool) -> Rule:
    def start(asked: Asked) -> Reply:
        task = {
            "description": "measure the basin", "prompt": "SUBTASKWORD Measure the basin.",
            "subagent_type": "general-purpose", "run_in_background": is_background,
        }  # fmt: skip
        return Reply("I start a helper.", (Call(_tool(asked, "Agent", "Task"), task),))

    return Rule("Ask a helper", start)


@_played(
    user("Which buoy is in the harbour?"),
    agent("Let me look."),
    agent("It is B12."),
    user("And who owns it?"),
    agent("Nils Aalto owns it."),
    user("In the fork: what colour is it?", session=1),
    agent("It is green.", session=1),
    user("And once more: what size is it?", session=1),
    agent("It is small.", session=1),
)
def print_resume_and_fork(claude: ClaudeCode, server: ScriptedServer) -> None:
    """A prompt with a tool call, a resumed session, a forked one, and the fork continued."""
    server.rules = [
        Rule("Which buoy", Reply("Let me look.", _LOOK)),
        Rule("The buoy of the harbour is", Reply("It is B12.")),
        Rule("And who owns it?", Reply("Nils Aalto owns it.")),
        Rule("In the fork", Reply("It is green.")),
        Rule("And once more", Reply("It is small.")),
    ]
    claude.say("Which buoy is in the harbour?")
    first = claude.first_session
    claude.say("--resume", first, "And who owns it?")
    claude.say("--resume", first, "--fork-session", "In the fork: what colour is it?")
    claude.say("--continue", "And once more: what size is it?")


@_played(
    user("Ask a helper to measure the basin."),
    agent("I start a helper."),
    agent("The helper says 4 m."),
)
def subagent(claude: ClaudeCode, server: ScriptedServer) -> None:
    """A subagent, whose report comes back with words of the tool around it."""
    server.rules = [
        _helper(is_background=False),
        Rule("SUBTASKWORD", Reply("I read.", _LOOK)),
        Rule("The buoy of the harbour is", Reply("The basin is 4 m wide.")),
        Rule("4 m wide", Reply("The helper says 4 m.")),
    ]
    claude.say("Ask a helper to measure the basin.")


@_played(
    user("Ask a helper to measure the basin."),
    agent("I start a helper."),
    agent("It is on its way."),
    agent("The helper says 4 m."),
    user("Run something slow."),
    agent("I run it."),
    agent("It runs."),
    agent("It is done."),
)
def in_the_background(claude: ClaudeCode, server: ScriptedServer) -> None:
    """A subagent and a command in the background: their ends are told as if a user said them."""
    slow = {"command": "sleep 2", "description": "wait", "run_in_background": True}
    hold = threading.Event()
    server.rules = [
        _helper(is_background=True),
        Rule("SUBTASKWORD", Reply("The basin is 4 m wide.", hold=hold)),
        Rule("Async agent launched", Reply("It is on its way.")),
        Rule("4 m wide", Reply("The helper says 4 m.")),
        Rule("Run something slow", Reply("I run it.", (Call("Bash", slow),))),
        Rule("running in background", Reply("It runs.")),
        Rule("<task-notification>", Reply("It is done.")),
    ]
    threading.Timer(3, hold.set).start()
    claude.say("Ask a helper to measure the basin.")
    claude.say("--continue", "Run something slow.")


@_played(
    user("First: which buoy?"),
    agent("Let me look."),
    agent("It is B12."),
    user("Second: who owns it?"),
    agent("Nils Aalto owns it."),
    user("Third: what colour is it?"),
    agent("It is green."),
)
def compaction(claude: ClaudeCode, server: ScriptedServer) -> None:
    """A context that is compacted by itself where the version does so, and one by hand."""
    server.rules = [
        _SUMMARY,
        Rule("First: which", Reply("Let me look.", _LOOK, tokens=990_000)),
        Rule("Second: who", Reply("Nils Aalto owns it.")),
        Rule("Third: what", Reply("It is green.")),
        Rule("The buoy of the harbour is", Reply("It is B12.")),
    ]
    server.otherwise = Reply("It is B12.")
    claude.say("First: which buoy?")
    claude.say("--continue", "Second: who owns it?")
    claude.say("--continue", "/compact KEEPWORD keep the colour")
    claude.say("--continue", "Third: what colour is it?")


@_played(
    user("Which buoy is in the harbour?"),
    agent("Let me look."),
    user("Also: the buoy belongs to Nils Aalto."),
    agent("Noted: Nils Aalto."),
    user("What is on this picture?"),
    agent("A blue square."),
)
def streamed(claude: ClaudeCode, server: ScriptedServer) -> None:
    """Messages of a program: one in the middle of a turn, one with a picture."""
    slow = (Call("Bash", {"command": "sleep 3; cat notes.md", "description": "read"}),)
    server.rules = [
        Rule("Which buoy", Reply("Let me look.", slow)),
        Rule("Also: the buoy", Reply("Noted: Nils Aalto.")),
        Rule("What is on this picture", Reply("A blue square.")),
    ]
    picture = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    with claude.stream() as stream:
        stream.say("Which buoy is in the harbour?")
        server.wait_for("Which buoy")
        time.sleep(1)
        stream.say("Also: the buoy belongs to Nils Aalto.")
        server.wait_for("Also: the buoy")
        time.sleep(1)
        stream.say({"type": "image", "source": picture}, "What is on this picture?")


@_played(user("Log that the tide is high."), agent("I log it."), agent("Logged."))
def mcp(claude: ClaudeCode, server: ScriptedServer) -> None:
    """A call of an MCP server's tool."""
    call = Call("mcp__quay__log_entry", {"text": "the tide is high"})
    server.rules = [
        Rule("Log that the tide", Reply("I log it.", (call,))),
        Rule("entry logged", Reply("Logged.")),
    ]
    script = str(Path(__file__).with_name("quay_server.py"))
    servers = {"mcpServers": {"quay": {"command": sys.executable, "args": [script]}}}
    claude.allow("mcp__quay")
    claude.say("--mcp-config", json.dumps(servers), "--", "Log that the tide is high.")


@_played(
    user("Which buoy is in the harbour?"),
    agent("Let me look."),
    user("Also: the buoy belongs to Nils Aalto."),
    agent("Noted: Nils Aalto."),
    user("Long question: tell me everything."),
    user("Later: and the quay?"),
    agent("The quay too."),
)
def queued(claude: ClaudeCode, server: ScriptedServer) -> None:
    """A prompt that is typed while a tool runs, and one that is queued and then sent by Escape."""
    slow = (Call("Bash", {"command": "sleep 4; cat notes.md", "description": "read"}),)
    hold = threading.Event()
    server.rules = [
        Rule("Which buoy", Reply("Let me look.", slow)),
        Rule("Also: the buoy", Reply("Noted: Nils Aalto.")),
        Rule("Later: and", Reply("The quay too.")),
        Rule("Long question", Reply("Half an answer", hold=hold)),
    ]
    with claude.screen() as screen:
        screen.type("Which buoy is in the harbour?")
        screen.wait("Let me look")
        screen.type("Also: the buoy belongs to Nils Aalto.")
        screen.wait("Noted: Nils")
        screen.type("Long question: tell me everything.")
        server.wait_for("Long question")
        screen.type("Later: and the quay?")
        screen.press("Escape")
        screen.wait("The quay too")


@_played(
    user("Which buoy is in the harbour?"),
    agent("It is B12."),
    user("Signe Lund of the north quay", is_part=True),
    agent("Greeting made."),
    agent("I see a file."),
    user("Did you see the file?"),
    agent("I saw it."),
    user("#Always say buoy, never float."),
    agent("Buoy it is."),
)
def commands(claude: ClaudeCode, server: ScriptedServer) -> None:
    """A command of the user's own with words, a shell command, built-in commands with words."""
    server.rules = [
        _SUMMARY,
        Rule("CUSTOMBODY", Reply("Greeting made.")),
        Rule("Did you see", Reply("I saw it.")),
        Rule("#Always say", Reply("Buoy it is.")),
        Rule("<bash-input>", Reply("I see a file.")),
        Rule("Which buoy", Reply("It is B12.")),
    ]
    greet = claude.project / ".claude" / "commands" / "greet.md"
    greet.parent.mkdir(parents=True)
    greet.write_text("---\ndescription: greet\n---\nCUSTOMBODY Greet $ARGUMENTS\n", "utf-8")
    with claude.screen() as screen:
        for typed, shown in (
            ("Which buoy is in the harbour?", "It is B12"),
            ("/greet Signe Lund of the north quay", "Greeting made"),
            ("!ls notes.md", "I see a file"),
            ("Did you see the file?", "I saw it"),
            ("#Always say buoy, never float.", "Buoy it is"),
            ("/compact KEEPWORD keep the colour", "Compacted"),
            ("/rename KEEPWORD", "renamed"),
        ):
            screen.type(typed)
            screen.wait(shown)


@_played(
    user("Delete the notes."),
    agent("I delete them."),
    user("No, Nils Aalto still needs them."),
    agent("Then I keep them."),
    user("Delete them again."),
    agent("I delete them again."),
    user("Go on with something else."),
    agent("Went on."),
    user("Make a file."),
    agent("I make it."),
    user("And mention the quay master."),
    agent("Mentioned."),
)
def rejected(claude: ClaudeCode, server: ScriptedServer) -> None:
    """A tool call that is rejected with a reason and without, and one allowed with a remark."""
    delete = (Call("Bash", {"command": "rm notes.md", "description": "delete"}),)
    make = (Call("Bash", {"command": "touch new.md", "description": "make"}),)
    server.rules = [
        Rule("Delete the notes", Reply("I delete them.", delete)),
        Rule("Nils Aalto still", Reply("Then I keep them.")),
        Rule("Delete them again", Reply("I delete them again.", delete)),
        Rule("Go on with", Reply("Went on.")),
        Rule("Make a file", Reply("I make it.", make)),
        Rule("the quay master", Reply("Mentioned.")),
    ]
    claude.allow("Read")
    with claude.screen() as screen:
        for typed, choice, said, shown in (
            ("Delete the notes.", "No", "No, Nils Aalto still needs them.", "Then I keep"),
            ("Delete them again.", "", "Go on with something else.", "Went on"),
            ("Make a file.", "Yes", "And mention the quay master.", "Mentioned"),
        ):
            screen.type(typed)
            screen.wait("Do you want")
            if choice:
                screen.choose(choice)
            screen.press("Tab" if choice else "Escape")
            time.sleep(1)
            screen.type(said)
            screen.wait(shown)


@_played(
    user("Plan the repair of the basin."),
    user("turquoise as in Oulu", is_part=True),
    agent("Then that one."),
    user("Ask two things."),
    user("Large", is_part=True),
    agent("Large then."),
    user("Ask again."),
    user("Go on with something else."),
    agent("Went on."),
)
def questions(claude: ClaudeCode, server: ScriptedServer) -> None:
    """Questions of the agent: answered in own words, by choices, and not at all."""

    def ask(question: str, *labels: str) -> dict[str, object]:
        choices = [{"label": label, "description": f"the {label} one"} for label in labels]
        head = {"question": question, "header": question.split()[1], "multiSelect": False}
        return {**head, "options": choices}

    colour = ask("Which colour?", "Blue", "Green")
    size, owner = ask("Which size?", "Small", "Large"), ask("Which owner?", "City", "Club")
    server.rules = [
        Rule("Plan the repair", Reply("", (Call("AskUserQuestion", {"questions": [colour]}),))),
        Rule("Oulu", Reply("Then that one.")),
        Rule("Ask two", Reply("", (Call("AskUserQuestion", {"questions": [size, owner]}),))),
        Rule('="Large"', Reply("Large then.")),
        Rule("Ask again", Reply("", (Call("AskUserQuestion", {"questions": [colour]}),))),
        Rule("Go on with", Reply("Went on.")),
    ]
    with claude.screen() as screen:
        screen.type("Plan the repair of the basin.")
        screen.wait("Which colour?")
        screen.press("Down", "Down")
        screen.type("turquoise as in Oulu")
        screen.wait("Then that one")
        screen.type("Ask two things.")
        screen.wait("Which size?")
        screen.press("Down", "Enter")
        screen.wait("Which owner?")
        screen.press("Enter")
        time.sleep(1)
        screen.press("Enter")
        screen.wait("Large then")
        screen.type("Ask again.")
        screen.wait("Which colour?")
        screen.press("Escape")
        time.sleep(1)
        screen.type("Go on with something else.")
        screen.wait("Went on")
