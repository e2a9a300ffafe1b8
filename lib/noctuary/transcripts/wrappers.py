"""What of a text its speaker said: without what the agent and noctuary put around it.

What belongs here: the agent's tags and our own blocks. What does not: lines that are wholly the
agent's (`claude`, `codex`). Linear in the length of the text. Standard library only.
"""

from __future__ import annotations

import re

from noctuary.injection.block import cut_blocks

_NAMES = (
    r"system-reminder|local-command-[a-z-]{1,40}|command-(?:name|message|contents)"
    r"|bash-(?:input|stdout|stderr)|ide_[a-z_]{1,40}|task-notification|user-prompt-submit-hook"
    r"|session-start-hook|environment_context|user_instructions|turn_aborted|tick|goal"
)
_OPENING = re.compile(rf"<({_NAMES})>")
# The words after a slash command are its user's; the tags around them are not.
_ARGUMENTS = re.compile(r"</?command-args>")
_INTERRUPTED = re.compile(r"\[Request interrupted by user[^\]\n]{0,40}\]")


def strip_wrappers(text: str) -> str:
    """Return a text without the agent's tagged insertions and without injected memories.

    A tag that is never closed stays, with what follows it, unless it begins the text: somebody
    writes about it. The rest is stripped of white space around it; "" if nothing is left.
    """
    if "<" in text:
        text = _without_tagged(cut_blocks(text).text)
        text = _ARGUMENTS.sub("", text)
    if "[Request" in text:
        text = _INTERRUPTED.sub("", text)
    return text.strip()


def _without_tagged(text: str) -> str:
    kept: list[str] = []
    place = searched = 0
    unclosed: set[str] = set()
    begin = len(text) - len(text.lstrip())
    while (found := _OPENING.search(text, searched)) is not None:
        name = found[1]
        end = -1 if name in unclosed else text.find(f"</{name}>", found.end())
        if end < 0:
            unclosed.add(name)
            if found.start() == begin:
                return ""
            searched = found.end()
            continue
        kept.append(text[place : found.start()])
        place = searched = end + len(name) + len("</>")
    return "".join([*kept, text[place:]])
