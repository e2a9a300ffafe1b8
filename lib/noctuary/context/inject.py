"""`inject`: the answer of a recall as a block for a prompt, on record as injected.

Read side: standard library only, and it raises for nothing that it finds in a result or a
store.
"""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noctuary.context import render
from noctuary.context.render import Line
from noctuary.core.store import StorePaths
from noctuary.core.types import INJECTED_ORIGINS, Origin
from noctuary.sources import injected
from noctuary.sources.injected import (
    InjectedWording,
    append_injection,
    words_of,
)
from noctuary.text.marks import (
    CHARS_PER_TOKEN_DEFAULT,
    SENTENCE_END,
    chars_per_token,
    ends_as_question,
    split_speaker,
    utf16_units,
)

if TYPE_CHECKING:
    from noctuary.recall.result import RecallResult

# Of a block: agents cut a hook's output beyond 8,000 to 10,000. The last memories are left out.
MAX_BLOCK_CHARS = 7_500

_FRAME_UNITS = render.FRAME_CHARS - render.COUNT_CHARS  # without the number of memories

# Shortest wording that is known again by itself, in UTF-8 bytes without spaces: some six words.
# People say shorter things again of their own; a higher bound lets short facts return.
ECHO_BYTES = 32

_DAY_CHARS = len("2026-03-01")
# Who wrote a memory, where that is known and was not its user.
_BY: Mapping[Any, str] = {
    Origin.ASSISTANT: "by an agent", Origin.FILE: "from a file", Origin.TOOL: "by a tool",
}  # fmt: skip


class Injection(NamedTuple):
    """What goes into a prompt."""

    text: str  # the block; "" where nothing was recalled
    memories: int  # how many it holds
    left_out: int  # how many did not fit
    held_back: int = 0  # how many were not trusted (`render.held_back`)
    warning: str | None = None  # why it is not on record; the tag still identifies the block


def inject(
    result: "RecallResult | Mapping[str, Any]",
    *,
    max_chars: int = MAX_BLOCK_CHARS,
    max_tokens: int | None = None,
    on_record: bool = True,
    origins: Collection[str] = INJECTED_ORIGINS,
) -> Injection:
    """Return the block that a hook puts into a prompt, and record hashes of it.

    Only memories that reach the answer's bar are in it (`worth_injecting`), none that is
    `held_back`, and of those that say the same the best (`distinct`).

    Args:
        result: A `RecallResult`, or its `to_json()`.
        max_chars: Longest block, > 0.
        max_tokens: Most tokens of it, as `noctuary.text.marks` estimates them; None for no limit.
        on_record: Write hashes of it to the store's `injected.sqlite`. If off, noctuary cannot
            recognise the text once it has lost its tag.
        origins: Whose memories may be in it (`hook.origins`).
    """
    plain = result if isinstance(result, Mapping) else result.to_json()
    worth = render.worth_injecting(plain)
    trusted = [memory for memory in worth if render.held_back(memory, origins) is None]
    found = distinct(trusted)
    block = make_block(found, max_chars, max_tokens)
    block = block._replace(held_back=len(worth) - len(trusted))
    if not on_record:
        return block
    shown, query = found[: block.memories], str(plain.get("query", ""))
    return block._replace(warning=record_block(plain.get("store"), shown, query))


def make_block(
    memories: Sequence[Mapping[str, Any]],
    max_chars: int = MAX_BLOCK_CHARS,
    max_tokens: int | None = None,
) -> Injection:
    """Return the block of the first memories that fit into both limits; nothing is recorded."""
    rendered: list[str] = []
    chars, units, ratio = render.FRAME_CHARS, _FRAME_UNITS, CHARS_PER_TOKEN_DEFAULT
    for memory in memories:
        line = line_of(memory).rendered()
        chars += len(line) + 1
        units += utf16_units(line) + 1
        ratio = min(ratio, chars_per_token(line))  # one wide line makes the whole block wide
        tokens = math.ceil((units + len(str(len(rendered) + 1))) / ratio)
        if chars > max_chars or (max_tokens is not None and tokens > max_tokens):
            break
        rendered.append(line)
    return Injection(render.frame(rendered), len(rendered), len(memories) - len(rendered))


def record_block(store: Any, memories: Sequence[Mapping[str, Any]], query: str) -> str | None:
    """Record hashes of a block's memories and question; return the fault, or None."""
    wordings = wordings_of(memories, query)
    if not wordings:
        return None
    if not isinstance(store, str):
        return "this injection was not logged: no store"
    path = StorePaths(Path(store)).injections
    return append_injection(path, wordings, now_us=time.time_ns() // 1000)


# Of memories that say the same only the best is worth a place: agents write the same observation up
# to forty times.

# Share of the words of two texts from which on they say the same, where nothing that is named
# differs. Lower takes "the key hangs in the pantry" and "... in the shed" for one.
_SAME_SHARE = 0.85
_SAME_SENTENCE = 0.5  # least share of a sentence that both texts hold, of each text's words
_SENTENCE_WORDS = 4  # of such a sentence: fewer are a greeting or a heading
_SENTENCE = re.compile(r"[.:;!?\n。：；！？|]+\s*|\s[-–—]\s")
_NAME = r"[^\W\d_][\w'’-]*"
# How notes say that somebody asked, as tokens: cutting the words up takes a hook 4 ms. They are
# compared apart: who asks the same in other words asks the same, but a question is not its answer.
ASKING = frozenset(
    {
        "ask", "want", "know", "wonder", "question", "inquiri", "enquiri", "inquir", "queri",
        "request", "frage", "anfrag", "fragt", "gefragt", "pregunta", "pregunto", "demand",
        "demanda", "вопрос", "спрос", "спрашива",
    }
)  # fmt: skip


def distinct(
    memories: Sequence[Mapping[str, Any]],
    at_most: int | None = None,
    is_known: Callable[[Mapping[str, Any]], bool] = lambda _: False,
) -> list[Mapping[str, Any]]:
    """Return the first memories that say different things, in their order.

    Of several that say the same a known one stays, which is before the model already, else the
    first.
    """
    known = [_said(memory) for memory in memories if is_known(memory)]
    seen: list[_Said] = []
    kept: list[Mapping[str, Any]] = []
    for memory in memories:
        if at_most is not None and len(kept) >= at_most:
            break
        said = _said(memory)
        others = seen if is_known(memory) else [*seen, *known]
        if not any(_say_the_same(said, other) for other in others):
            seen.append(said)
            kept.append(memory)
    return kept


class _Said(NamedTuple):
    """A memory as the block shows it, to be compared."""

    text: str
    words: frozenset[str]
    asks: bool
    sentences: frozenset[tuple[str, ...]]


def _said(memory: Mapping[str, Any]) -> _Said:
    from noctuary.text.tokens import tokenize

    text = str(memory.get("content", ""))
    shown = render.one_line(text)
    words = frozenset(tokenize(shown))
    parts = (tuple(tokenize(part)) for part in _SENTENCE.split(text[: render.MAX_MEMORY_CHARS]))
    return _Said(shown, words - ASKING or words, bool(words & ASKING), frozenset(parts))


def _say_the_same(one: _Said, other: _Said) -> bool:
    """Return whether two texts state the same, judged by their words."""
    if one.text == other.text or words_of(one.text) == words_of(other.text) != []:
        return True
    shared, most = len(one.words & other.words), max(len(one.words), len(other.words))
    sentence = max((len(set(part)) for part in one.sentences & other.sentences), default=0)
    is_repeated = sentence >= max(_SENTENCE_WORDS, _SAME_SENTENCE * most)
    if one.asks != other.asks or not (
        is_repeated or shared >= _SAME_SHARE * len(one.words | other.words)
    ):
        return False
    return not _name_others(one, other)


def _name_others(one: _Said, other: _Said) -> bool:
    """Return whether one text names a number, a date, a name or a kind that the other does not."""
    from noctuary.graph.word_lists import GENERIC_KEYS
    from noctuary.text.kinds import are_apart
    from noctuary.text.tokens import STOP_WORDS, tokenize

    (marks, things), (other_marks, other_things) = _named_in(one.text), _named_in(other.text)
    named = marks ^ other_marks
    for said, rest in ((one, other), (other, one)):
        # Before a colon a capital says nothing to `marks_of`: "Otter: ..." is a name all the same.
        capital = (word for word in re.findall(_NAME, said.text) if word[0].isupper())
        named |= {word.casefold() for word in capital if not rest.words.issuperset(tokenize(word))}
    known = one.words & other.words
    wordings = (set(tokenize(mark)) - ASKING for mark in named - GENERIC_KEYS - STOP_WORDS)
    if not all(known.issuperset(words) for words in wordings):
        return True
    return are_apart(things, other_things)


@lru_cache(maxsize=256)
def _named_in(text: str) -> tuple[frozenset[str], str]:
    from noctuary.graph.successors import marks_of
    from noctuary.text.kinds import things_of

    return marks_of(text), things_of(text)


def wordings_of(memories: Sequence[Mapping[str, Any]], query: str) -> list[InjectedWording]:
    """Return the rows recorded for the memories and the question of one block.

    Of a turn also what follows its speaker's name: who quotes it leaves the name out. The question
    where a turn was found, which may be the same question asked before, and as a `LOOKUP` where it
    says nothing of its own. Wordings of less than
    `ECHO_BYTES` are `SHORT`; with the id and the day that they have in the block they are a `LINE`.
    """
    found: list[InjectedWording] = []
    together: list[str] = []
    owners = {m.get("user") for m in memories} - {None}
    for memory in memories:
        line = line_of(memory)
        shown, words = line.text, words_of(line.text)
        together += words
        texts = [shown]
        if memory.get("session_id") is not None:
            speaker, said = split_speaker(shown)
            texts += [said] if speaker is not None else []
        origin, user = injected.hash_exact(str(memory.get("id"))), _user_hash(memory.get("user"))
        found += [
            w for text in texts for w in _wording(injected.LINE, words_of(text), origin, user)
        ]
        if words and injected.size_bytes(words) < ECHO_BYTES:
            found.append(_row(injected.SHORT, words, origin, user))
            found.append(_row(injected.LINE, words_of(line.rendered()), origin, user))
    if len(memories) > 1:
        user = _user_hash(next(iter(owners))) if len(owners) == 1 else injected.NOBODY
        found += _wording(injected.BLOCK, together, injected.NOBODY, user)
    asked: list[InjectedWording] = []
    if any(m.get("session_id") is not None for m in memories):
        asked += _wording(injected.ASKED, words_of(query), injected.NOBODY, injected.NOBODY)
    # A request that was made before is made again, which is news of its own.
    stored = [m for m in memories if m.get("session_id") is None]
    if is_lookup(query, (str(m.get("content", "")) for m in stored)):
        asked.append(_row(injected.LOOKUP, words_of(query), injected.NOBODY, injected.NOBODY))
    if asked and not _is_secret(query):
        found += asked
    return list(dict.fromkeys(found))


def is_lookup(prompt: str, recalled: Iterable[str]) -> bool:
    """Return whether every sentence of a prompt asks, or is made of words that were recalled."""
    sentences = [s for s in re.split(SENTENCE_END, prompt) if words_of(s)]
    told = [set(words_of(s)) for s in sentences if not ends_as_question(s)]
    known = {word for text in recalled for word in words_of(text)} if told else set[str]()
    return bool(sentences) and all(words <= known for words in told)


def _is_secret(query: str) -> bool:
    """Return whether a question reads like a secret: not even its hash is kept then."""
    # Compiling its rules takes a hook 25 ms of CPU: a hook gets here after it has printed.
    from noctuary.text.secrets import find_text_sensitivity

    return find_text_sensitivity(query) is not None


def _wording(kind: str, words: list[str], origin: bytes, user: bytes) -> list[InjectedWording]:
    return [_row(kind, words, origin, user)] if injected.size_bytes(words) >= ECHO_BYTES else []


def _row(kind: str, words: list[str], origin: bytes, user: bytes) -> InjectedWording:
    return InjectedWording(
        kind, injected.hash_words(words), origin, user, injected.hash_anchor(words), len(words)
    )


def line_of(memory: Mapping[str, Any]) -> Line:
    """Return a memory, as `RecalledMemory.to_json` gives it, as a line of the block."""
    made = memory.get("created_at")
    day = made[:_DAY_CHARS] if isinstance(made, str) and made else "undated"
    place = render.place_of(_name(memory.get("wing")), _name(memory.get("room")))
    place = "; ".join(filter(None, (place, _BY.get(memory.get("origin")))))
    return Line(str(memory.get("id")), day, render.one_line(str(memory.get("content", ""))), place)


def _name(value: Any) -> str | None:
    return None if value is None else str(value)


def _user_hash(user: Any) -> bytes:
    return injected.NOBODY if user is None else injected.hash_exact(str(user))
