"""What is played with OpenCode, Gemini CLI, Qwen Code and pi, and the turns that come of it."""

from __future__ import annotations

import threading
import time
from functools import partial

from tests.agents.model_server import Call, Reply, Rule, ScriptedServer
from tests.agents.others import GeminiCli, OpenCode, Pi, QwenCode
from tests.agents.scenario import Scenario, agent, scenario, user

OTHER_AGENTS: list[Scenario] = []
_played = partial(scenario, OTHER_AGENTS)

_LOOK = {"command": "cat notes.md", "description": "read the notes"}
_SHELL = (Call("run_shell_command", {**_LOOK, "is_background": False}),)
_BASH = (Call("bash", _LOOK),)


def _rules(calls: tuple[Call, ...]) -> list[Rule]:
    return [
        Rule("Which buoy", Reply("Let me look.", calls)),
        Rule("The buoy of the harbour is", Reply("It is B12.")),
        Rule("And who owns it?", Reply("Nils Aalto owns it.")),
        Rule("In the fork", Reply("It is green.")),
    ]


_FIRST = (user("Which buoy is in the harbour?"), agent("Let me look."), agent("It is B12."))
_SECOND = (user("And who owns it?"), agent("Nils Aalto owns it."))


@_played("gemini", *_FIRST, *_SECOND)
def resumed(gemini: GeminiCli, server: ScriptedServer) -> None:
    """A prompt with a tool call, and a resumed session: its file begins all over again."""
    server.rules = _rules(_SHELL)
    gemini.say("Which buoy is in the harbour?")
    gemini.say("-r", "latest", "And who owns it?")


@_played("gemini", user("What stands in @notes.md ?"), agent("It is B12."))
def named_file(gemini: GeminiCli, server: ScriptedServer) -> None:
    """A prompt that names a file: its text is sent along."""
    server.rules = [Rule("What stands", Reply("It is B12."))]
    gemini.say("What stands in @notes.md ?")


@_played(
    "gemini",
    user("Ask a helper to measure the basin."),
    agent("I start a helper."),
    agent("The helper says 4 m."),
    versions=lambda version: version > "0.5",
)
def helped(gemini: GeminiCli, server: ScriptedServer) -> None:
    """A subagent, which has a file of its own."""
    task = {"agent_name": "generalist", "prompt": "SUBTASKWORD Measure the basin."}
    done = Call("complete_task", {"result": {"response": "The basin is 4 m wide."}})
    server.rules = [
        Rule("Ask a helper", Reply("I start a helper.", (Call("invoke_agent", task),))),
        Rule("SUBTASKWORD", Reply("", (done,))),
        Rule("4 m wide", Reply("The helper says 4 m.")),
    ]
    gemini.say("Ask a helper to measure the basin.")


@_played(
    "qwen",
    *_FIRST,
    *_SECOND,
    user("In the fork: what colour is it?", session=1),
    agent("It is green.", session=1),
    versions=lambda version: version > "0.2",
)
def resumed_and_forked(qwen: QwenCode, server: ScriptedServer) -> None:
    """A prompt with a tool call, a resumed session and a forked one, which repeats its lines."""
    server.rules = _rules(_SHELL)
    qwen.say("Which buoy is in the harbour?")
    qwen.say("-c", "And who owns it?")
    fork = ("--resume", qwen.first_session, "--fork-session")
    qwen.say(*fork, "In the fork: what colour is it?")


@_played("qwen", *_FIRST, versions=lambda version: version < "0.2")
def early(qwen: QwenCode, server: ScriptedServer) -> None:
    """A prompt with a tool call, in a version that keeps a chat as one object."""
    server.rules = _rules(_SHELL)
    qwen.say("Which buoy is in the harbour?")


@_played(
    "pi",
    *_FIRST,
    user("Also: it belongs to Nils Aalto."),
    agent("Noted."),
    user("And paint it."),
    agent("Painted."),
    user("After all: and the quay?"),
    agent("The quay too."),
    user("In the fork: what colour is it?", session=1),
    agent("It is green.", session=1),
)
def steered_and_forked(pi: Pi, server: ScriptedServer) -> None:
    """Prompts in mid-turn, a shell command of the user, a compaction and a fork."""
    hold = threading.Event()
    server.rules = [
        Rule("Which buoy", Reply("Let me look.", _BASH)),
        Rule("The buoy of the harbour is", Reply("It is B12.")),
        Rule("Also: it", Reply("Noted.", hold=hold)),
        Rule("And paint", Reply("Painted.")),
        Rule("After all", Reply("The quay too.")),
        Rule("In the fork", Reply("It is green.")),
    ]
    server.otherwise = Reply("SUMMARYWORD it is B12.")
    with pi.talk() as talk:
        talk.send("prompt", message="Which buoy is in the harbour?")
        talk.until("agent_end")
        talk.send("prompt", message="Also: it belongs to Nils Aalto.")
        server.wait_for("Also: it")
        talk.send("follow_up", message="And paint it.")
        time.sleep(0.5)
        hold.set()
        talk.until("agent_end")
        talk.send("bash", command="cat notes.md")
        talk.until("bash")
        talk.send("compact", customInstructions="KEEPWORD keep the colour")
        talk.until("compact")
        talk.send("prompt", message="After all: and the quay?")
        talk.until("agent_end")
        talk.send("clone")
        talk.until("clone")
        talk.send("prompt", message="In the fork: what colour is it?")
        talk.until("agent_end")


@_played("opencode", *_FIRST, *_SECOND)
def spoken(opencode: OpenCode, server: ScriptedServer) -> None:
    """A prompt with a tool call, and one more."""
    server.rules = _rules(_BASH)
    with opencode.serve() as serving:
        serving.say("Which buoy is in the harbour?")
        serving.say("And who owns it?")


@_played(
    "opencode",
    user("Ask a helper to measure the basin."),
    agent("I start a helper."),
    agent("The helper says 4 m."),
    user("Slowly: tell me everything."),
    agent("I go slowly."),
    user("Also: the buoy belongs to Nils Aalto."),
    agent("Noted."),
    user("This instead."),
    agent("So be it."),
    user("Ask me something."),
    agent("I ask."),
    user("Blue, like the sea of Nils", is_part=True),
    agent("Blue it is."),
    user("Delete the notes."),
    agent("I delete them."),
    user("Keep them, Nils needs them."),
    agent("They stay."),
    user("After all: and the quay?"),
    agent("The quay too."),
    user("In the fork: what colour is it?", session=1),
    agent("It is green.", session=1),
    versions=lambda version: version > "1.18",
)
def served(opencode: OpenCode, server: ScriptedServer) -> None:
    """A subagent, a queued prompt, an undone one, a question, a rejection, a compaction, a fork."""
    hold = threading.Event()
    task = {"description": "basin", "prompt": "SUBTASKWORD Measure.", "subagent_type": "general"}
    options = [{"label": "Blue", "description": "sea"}, {"label": "Red", "description": "fire"}]
    question = {"question": "Which colour?", "header": "Colour", "options": options}
    remove = {"command": "rm notes.md", "description": "delete"}
    server.rules = [
        Rule("Ask a helper", Reply("I start a helper.", (Call("task", task),))),
        Rule("SUBTASKWORD", Reply("The basin is 4 m wide.")),
        Rule("4 m wide", Reply("The helper says 4 m.")),
        Rule("Slowly", Reply("I go slowly.", _BASH, hold=hold)),
        Rule("Also: the buoy", Reply("Noted.")),
        Rule("Something wrong", Reply("Wrong.")),
        Rule("This instead", Reply("So be it.")),
        Rule("Ask me something", Reply("I ask.", (Call("question", {"questions": [question]}),))),
        Rule("like the sea", Reply("Blue it is.")),
        Rule("Delete the notes", Reply("I delete them.", (Call("bash", remove),))),
        Rule("Keep them", Reply("They stay.")),
        Rule("After all", Reply("The quay too.")),
        Rule("In the fork", Reply("It is green.")),
    ]
    server.otherwise = Reply("SUMMARYWORD it is B12.")
    with opencode.serve() as serving:
        serving.say("Ask a helper to measure the basin.")
        serving.say("Slowly: tell me everything.", is_waiting=False)
        server.wait_for("Slowly")
        serving.say("Also: the buoy belongs to Nils Aalto.", is_waiting=False)
        time.sleep(1)
        hold.set()
        server.wait_for("Also: the buoy")
        time.sleep(2)
        serving.say("Something wrong.")
        where = f"/session/{serving.session}"
        messages = serving.ask("GET", f"{where}/message")
        wrong = next(m for m in messages if "Something wrong" in str(m["parts"]))
        serving.ask("POST", f"{where}/revert", {"messageID": wrong["info"]["id"]})
        serving.say("This instead.")
        serving.say("Ask me something.", is_waiting=False)
        asked = serving.wait_for("/question")
        answers = {"answers": [["Blue", "like the sea of Nils"]]}
        serving.ask("POST", f"/question/{asked['id']}/reply", answers)
        server.wait_for("like the sea")
        time.sleep(2)
        serving.say("Delete the notes.", is_waiting=False)
        asked = serving.wait_for("/permission")
        reply = {"reply": "reject", "message": "Keep them, Nils needs them."}
        serving.ask("POST", f"/permission/{asked['id']}/reply", reply)
        server.wait_for("Keep them")
        time.sleep(2)
        serving.ask("POST", f"{where}/summarize", {"providerID": "scripted", "modelID": "m1"})
        serving.say("After all: and the quay?")
        fork = serving.ask("POST", f"{where}/fork", {})["id"]
        serving.say("In the fork: what colour is it?", session=fork)
