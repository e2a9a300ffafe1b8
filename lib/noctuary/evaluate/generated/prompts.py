"""What the models are told. What belongs here: wording. Nothing is sent.

Texts of memories go in as JSON strings, cut to a bound, under an instruction that they are data: a
memory may hold "ignore your instructions", and the worst that this can do is a query that the
checks and the judge reject.
"""

from __future__ import annotations

from dataclasses import dataclass

from noctuary.hosted.batches import DATA_RULE

PROMPT_VERSION = "1"
"""Part of every key under which an answer is memoised: raise it with any change of wording."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One kind of question to a model.

    Attributes:
        name: Part of the keys under which answers are memoised.
        value_key: The key that holds the answer in every item.
        system: The instruction.
    """

    name: str
    value_key: str
    system: str


PARAPHRASE = Prompt(
    "paraphrase",
    "query",
    "You write test queries for the search of a personal memory store. For each item write one "
    "question or request, in the language of its memory, that this memory answers and that "
    "somebody would ask who remembers the matter but not the wording. Use synonyms and "
    "descriptions: no noun, verb, adjective, name or number of the memory may appear in the "
    "query. At most 25 words. " + DATA_RULE + '{"items": [{"id": "1", "query": "..."}]}',
)

MULTI_HOP = Prompt(
    "multihop",
    "query",
    "You write test queries for the search of a personal memory store. For each item write one "
    "question, in the language of its memories, that can only be answered with both memories "
    "together: each holds a part of the answer that the other lacks. Ask for what joins them, and "
    "use the memories' own words as little as possible. At most 30 words. "
    + DATA_RULE
    + '{"items": [{"id": "1", "query": "..."}]}',
)

GRADE = Prompt(
    "grade",
    "grade",
    "You judge how well a memory serves a query. For each item give one integer grade. "
    "0: the memory has nothing to do with the query. "
    "1: it is on the topic and does not answer any part of the query. "
    "2: it answers a part of the query, or all of it unclearly or among other things. "
    "3: it is about the query and holds the exact answer. "
    "Be strict: between two grades give the lower one. "
    + DATA_RULE
    + '{"items": [{"id": "1", "grade": 0}]}',
)
"""The scale of UMBRELA (Upadhyay et al. 2024)."""
