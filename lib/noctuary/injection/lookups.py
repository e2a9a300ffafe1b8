"""Whether a prompt only asks memory, and so says nothing that could be remembered.

What belongs here: the rule. What does not: recording it (`injecting`) and what the night does about
the turn that such a prompt becomes (`recogniser`). Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable

from noctuary.injection.wording import words_of
from noctuary.text.sentences import SENTENCE_END, ends_as_question


def is_lookup(prompt: str, recalled: Iterable[str]) -> bool:
    """Return whether every sentence of a prompt asks, or is made of words that were recalled.

    A question that is kept as a memory ranks above its own answers when it is asked again. One that
    tells something beside what it asks is no lookup; a question that tells something inside ("did
    you know that ...?") counts as one.

    Args:
        prompt: What somebody typed.
        recalled: The texts that memory gave.
    """
    sentences = [s for s in SENTENCE_END.split(prompt) if words_of(s)]
    told = [set(words_of(s)) for s in sentences if not ends_as_question(s)]
    known = {word for text in recalled for word in words_of(text)} if told else set[str]()
    return bool(sentences) and all(words <= known for words in told)
