"""Which turns count: those that a person says, by the label before the first colon.

What belongs here: names that no person has. What does not: the label itself
(`noctuary.text.speaker`), who asks and who answers (`noctuary.compact.eligibility`). Standard
library only.
"""

from __future__ import annotations

from noctuary.text.speaker import split_speaker

MACHINE_SPEAKERS = frozenset(
    {
        "agent", "ai", "assistant", "bot", "chatbot", "chatgpt", "claude", "codex", "command",
        "copilot", "cursor", "developer", "function", "gemini", "gpt", "hook", "llm", "model",
        "output", "result", "subagent", "summary", "system", "tool", "tool result", "tool use",
    }
)  # fmt: skip
"""Labels of whatever is no person, folded. A person of such a name ("Claude") is not heard: a
proposal that is missing costs less than one that a machine wrote."""


def read_statement(content: str) -> str | None:
    """Return what a person says in a turn, or None where no person is known to say it.

    Every named person counts, so that in a conversation between two people both do. A turn without
    a label does not: it may be an answer.

    Args:
        content: The turn as exported, `Speaker: text`.
    """
    speaker, text = split_speaker(content)
    if speaker is None:
        return None
    # "Assistant (planner)" is an assistant.
    name = speaker.split("(")[0].replace("_", " ").replace("-", " ").strip().casefold()
    return None if name in MACHINE_SPEAKERS else text.strip()
