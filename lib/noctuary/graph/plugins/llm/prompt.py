"""What the model is told, and what an answer is kept under. Nothing is sent from here."""

from __future__ import annotations

from noctuary.graph.plugins.llm.relations import RELATION_NAMES
from noctuary.hashing import hash_text
from noctuary.hosted.batches import DATA_RULE, MAX_MEMORY_CHARS

PROMPT_VERSION = "1"
"""Part of every key under which an answer is kept: raise it with any change of wording."""

SYSTEM = (
    "You index a personal memory store. For each item list what its memory names (people, "
    "organisations, places, projects, products, files, events) under names, and what it states "
    "between two of them under triples, each a list of subject, relation and object. Copy names "
    "letter by letter as they stand in that memory; never translate, expand or complete them, "
    "and never name what does not stand there. Resolve pronouns to the name they stand for; "
    f"leave the triple out if you cannot. Use one of these relations: {', '.join(RELATION_NAMES)}; "
    "where none fits, use a verb of your own. Answer with empty lists where there is nothing. "
    + DATA_RULE
    + '{"items": [{"id": "...", "names": ["..."], "triples": [["...", "...", "..."]]}]}'
)

TAG_HEX = 8
"""Letters of an item's id. Longer ones cost tokens and are copied wrong more often."""


def answer_key(content: str, model: str) -> str:
    """Return what a memory's answer is kept under: its text, the model and the prompt."""
    return hash_text("triples", PROMPT_VERSION, str(MAX_MEMORY_CHARS), model, content)


def item_ids(keys: list[str]) -> tuple[str, ...]:
    """Return the ids of a batch, made from its keys.

    They cannot be known to whoever wrote one of the memories, so that its text cannot answer for
    another by number, and a model that skips an item and counts on answers for nobody.
    """
    for length in (TAG_HEX, len(keys[0])):
        tags = tuple(f"m{key[:length]}" for key in keys)
        if len(set(tags)) == len(keys):
            return tags
    raise ValueError("two items of a batch have the same key, expected distinct texts")
