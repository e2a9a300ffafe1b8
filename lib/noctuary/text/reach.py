"""Whether a memory holds for its person in every project or belongs to its own, and why.

Words decide, in six languages, so a new wording stays in its project: showing less elsewhere is the
safer fault. The owner's tag wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from noctuary.core.types import MemoryRecord, Origin

# A snapshot has one of these numbers per memory; those above 0 reach every project.
BOUND, KEPT, PROJECT, TAGGED, KIND, WORDING, REPEATED, NO_WING = range(-2, 6)
REASONS = {
    BOUND: "it names its project",
    KEPT: "its tag is reach:project",
    PROJECT: "it says nothing that holds elsewhere",
    TAGGED: "its tag is reach:everywhere",
    KIND: "it is kept as a preference, a rule or a fact about its person",
    WORDING: "it says what its person is, prefers, always or never does",
    REPEATED: "several projects have the same text",
    NO_WING: "it belongs to no project",
}
TAGS = {"reach:project": KEPT, "reach:everywhere": TAGGED}
# Categories, folded; as tags only those that no project is about.
_PREFERENCES = frozenset({"preference", "preferences", "user_preference", "user_preferences"})
_KINDS = _PREFERENCES | {
    "about_me", "feedback", "identity", "personal", "personal_details", "personal_information",
    "profile", "rule", "rules", "user", "user_profile",
}  # fmt: skip
_SENTENCE_END = re.compile(r"(?<=[.!?…;])\s+|(?<=[。！？；])|\n+")
_LEAD = re.compile(r"\A[\s*•#>\"'-]*(?:【[^】]*】\s*|\[[^\]]*\]\s*)?")  # a list's mark, a label
MAX_CHARS = 400  # a longer text is about more than its person's ways


def reach_of(memory: MemoryRecord) -> int:
    """Return one of the numbers above, but REPEATED: for that, all memories have to be known."""
    tags = [tag.strip().casefold() for tag in memory.tags.split(",")]
    for tag in tags:
        if tag in TAGS:
            return TAGS[tag]
    if memory.wing is None and not memory.is_turn:
        return NO_WING
    # A conversation is about its project; of what its user typed, only what is to last is not.
    if memory.origin == Origin.TOOL or (memory.is_turn and memory.origin != Origin.USER):
        return PROJECT
    category = re.sub(r"[\s-]", "_", memory.category.strip().casefold())
    is_kind = category in _KINDS or not _PREFERENCES.isdisjoint(tags)
    if is_kind and not memory.is_turn:
        found = KIND
    elif len(memory.content) <= MAX_CHARS and _tells(memory):
        found = WORDING
    else:
        return PROJECT
    text, name = memory.content.casefold(), re.escape((memory.wing or "this project").casefold())
    is_bound = _rules()["project"].search(text) or re.search(rf"(?<!\w){name}(?!\w)", text)
    return BOUND if is_bound else found


def _tells(memory: MemoryRecord) -> bool:
    """Say whether a sentence tells of the person; in a turn, one that is to last."""
    rules, name = _rules(), (memory.user or "user").casefold()
    text = memory.content.casefold().replace("’", "'")
    for sentence in _SENTENCE_END.split(text):
        said = _LEAD.sub("", sentence)
        if said.startswith(name) and said[len(name) :][:1] in (" ", "'", ":"):
            said = f"user{said[len(name) :]}"
        said = said.removeprefix("user:").lstrip()
        # An agent's "I" is the agent.
        is_told = rules["of user"].match(said) or (
            memory.origin != Origin.ASSISTANT and rules["of me"].match(said)
        )
        is_lasting = not memory.is_turn or rules["lasting"].search(said)
        if is_told and is_lasting and not said.endswith(("?", "？")):
            return True
    return False


@cache
def _rules() -> Mapping[str, re.Pattern[str]]:
    text = Path(__file__).with_name("reach.txt").read_text("utf-8")
    blocks = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip().split("\n\n")
    found = {name: "|".join(lines) for name, *lines in (b.split("\n") for b in blocks)}
    parts = {name: f"(?:{found.pop(name)})" for name in ("often", "thing", "habit", "own")}
    for name, part in parts.items():
        found = {rule: said.replace(f"{{{name}}}", part) for rule, said in found.items()}
    return {name: re.compile(said) for name, said in found.items()}
