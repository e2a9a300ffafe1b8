"""What a memory is about, and who says it, read from how its text begins.

Belongs here: title lines, headings, `key: value` starts, bracketed labels, the leading proper-noun
run, speaker prefixes. Does not belong here: things that are only named (`names`), author fields.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from noctuary.graph.fold import Word, fold_name, unsegmented_script, words
from noctuary.graph.lexicon import CLAUSE_WORDS, FUNCTION_WORDS, GENERIC_KEYS, SPEAKER_KEYS
from noctuary.graph.names import capitalised_runs

TITLE_MAX_CHARS = 120
"""Longest first line read as a title; longer lines are mostly prose."""

KEY_MAX_CHARS = 48
"""Longest key of a `key: value` start; longer ones are mostly clauses."""

KEY_MAX_WORDS = 4
"""As above, in words."""

UNSEGMENTED_KEY_MAX_CHARS = 10
"""As above, for a run of a script without spaces, where words cannot be counted."""

LABEL_MAX_CHARS = 80
"""Longest bracketed label."""

HEADINGS_MAX = 16
"""Headings read per memory; bounds the subjects of a pasted document."""

_HEADING = re.compile(r"^#{1,6}[ \t]+(\S[^\n]*)$", re.MULTILINE)
_LABEL = re.compile(r"\s*(?:【([^】\n]+)】|\[([^\]\n]+)\])(?![(\[])")
_KEY = re.compile(r"\s*(?:[-*•]\s+)?([^\s:：.!?;,\n#\[【`][^:：.!?;\n。！？，]*?)\s*(?::(?=\s)|：)")
_PARENTHESIS = re.compile(r"\s*[(（][^()（）]*[)）]\s*$")
_CONTINUES = (",", ";", ":", "-", "—")
_NOT_TITLE = re.compile(r"\s*(?:```|[-*•>|]\s|\d+[.)]\s)")
_CHECKBOX = frozenset({"x", "todo", "wip", "done", "tbd"})


class Subject(NamedTuple):
    """A subject and the span it rests on (offsets into the content)."""

    kind: str
    start: int
    end: int


def speaker_prefix(content: str, *, is_turn: bool) -> tuple[int, int] | None:
    """Return the span of the name before the first colon, where it names who speaks.

    In a turn of a conversation that is any short key; elsewhere only a role (`User:`) or a letter.
    """
    match = _key_match(content)
    if match is None:
        return None
    key = fold_name(match.group(1))
    if is_turn or key in SPEAKER_KEYS or len(key) == 1:
        return match.span(1)
    return None


def find_subjects(content: str, tokens: list[Word], *, is_turn: bool) -> list[Subject]:
    """Return the subjects of a memory; the first construction that applies to its start decides.

    Headings and a label count wherever they apply; title, key and leading run exclude one another.
    A turn has no title, key or leading run: its first words address or greet somebody.
    """
    speaker = speaker_prefix(content, is_turn=is_turn)
    body_start = speaker[1] + 1 if speaker else 0
    found = _headings(content)
    label = _label(content, body_start)
    if label is not None:
        found.append(label)
    if is_turn or speaker or found:
        return found
    for finder in (_title, _key):
        start = finder(content)
        if start:
            return start
    return _leading_run(content, tokens)


def _title(content: str) -> list[Subject]:
    line_end = content.find("\n")
    if line_end < 0 or not content[line_end:].strip() or _NOT_TITLE.match(content):
        return []
    line = content[:line_end]
    start = len(line) - len(line.lstrip())
    end = len(line.rstrip())
    if end <= start or end - start > TITLE_MAX_CHARS:
        return []
    if line[:end].endswith(_CONTINUES):
        return []
    return _with_and_without_parenthesis("title", content, start, end)


def _headings(content: str) -> list[Subject]:
    if "#" not in content:
        return []
    found: list[Subject] = []
    for match in _HEADING.finditer(content):
        heading = match.group(1).rstrip(" \t\r").rstrip("#").rstrip(" \t")
        if heading and len(heading) <= TITLE_MAX_CHARS and len(found) < HEADINGS_MAX:
            start = match.start(1)
            found += _with_and_without_parenthesis("heading", content, start, start + len(heading))
    return found


def _with_and_without_parenthesis(kind: str, content: str, start: int, end: int) -> list[Subject]:
    bare = _PARENTHESIS.sub("", content[start:end])
    found = [Subject(kind, start, end)]
    if bare and start + len(bare) < end:
        found.append(Subject(kind, start, start + len(bare)))
    return found


def _label(content: str, start: int) -> Subject | None:
    match = _LABEL.match(content, start)
    if match is None:
        return None
    group = 1 if match.group(1) is not None else 2
    text = match.group(group).strip()
    if len(text) > LABEL_MAX_CHARS or text.lower() in _CHECKBOX or not fold_name(text):
        return None
    return Subject("label", *match.span(group))


def _key(content: str) -> list[Subject]:
    match = _key_match(content)
    if match is None or fold_name(match.group(1)) in GENERIC_KEYS:
        return []
    return _with_and_without_parenthesis("key", content, *match.span(1))


def _key_match(content: str) -> re.Match[str] | None:
    match = _KEY.match(content, 0, KEY_MAX_CHARS + 8)
    if match is None or len(match.group(1)) > KEY_MAX_CHARS:
        return None
    key = words(match.group(1))
    if len(key) > KEY_MAX_WORDS or any(_makes_clause(word) for word in key):
        return None
    return match


def _makes_clause(word: Word) -> bool:
    if len(word.folded) > UNSEGMENTED_KEY_MAX_CHARS:
        return unsegmented_script(word.folded) is not None
    return word.folded in CLAUSE_WORDS


def _leading_run(content: str, tokens: list[Word]) -> list[Subject]:
    for run in capitalised_runs(content, tokens):
        lead = fold_name(content[: run.start])
        if (not lead or lead in FUNCTION_WORDS) and not _is_common(
            content[run.start : run.end], tokens, content
        ):
            return [Subject("leading", run.start, run.end)]
        break
    return []


def _is_common(surface: str, tokens: list[Word], content: str) -> bool:
    """Say whether a single word is also used in lower case in this memory, or says its sort."""
    name = fold_name(surface)
    if name in GENERIC_KEYS:
        return True
    return any(word.folded == name and content[word.start].islower() for word in tokens)
