"""What is handled and what is declined, script by script: one table that all rules are read from.

Belongs here: ranges of scripts and what the extractor does with them. Does not belong here: folding
(`fold`), finding names (`names`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Boundaries = Literal["spaces", "none"]


class Script(NamedTuple):
    """What the extractor does with text in one script.

    In every script: author fields, titles, headings, labels, `key: value`, speakers, quoted strings
    and identifiers are found. Statements are read in English only.

    Attributes:
        name: In lower case, as in counts of declined runs.
        ranges: First and last code point of each block, both inclusive.
        boundaries: "spaces": its words stand between spaces, and dictionary names are matched word
            by word. "none": a run of it is a phrase; it is matched against the dictionary as a
            whole only, and each run that matches nothing is counted as declined.
        has_case: Capitalised runs are names. Without case they are declined.
        has_runs: Stop-word-free runs are taken. Without a list of stop words they are declined.
        declined: What is not done, in words.
    """

    name: str
    ranges: tuple[tuple[int, int], ...]
    boundaries: Boundaries
    has_case: bool
    has_runs: bool
    declined: str


SCRIPTS: tuple[Script, ...] = (
    Script(
        "latin", ((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x1E00, 0x1EFF)),
        "spaces", True, True, "stop words and statements of languages other than English",
    ),
    Script(
        "greek", ((0x370, 0x3FF), (0x1F00, 0x1FFF)),
        "spaces", True, False, "stop-word-free runs; inflected forms of a name",
    ),
    Script(
        "cyrillic", ((0x400, 0x52F),),
        "spaces", True, False, "stop-word-free runs; inflected forms of a name",
    ),
    Script(
        "hebrew", ((0x590, 0x5FF),),
        "spaces", False, False, "names by case; names behind a prefixed particle",
    ),
    Script(
        "arabic", ((0x600, 0x6FF), (0x750, 0x77F)),
        "spaces", False, False, "names by case; names behind a prefixed particle",
    ),
    Script(
        "indic", ((0x900, 0xDFF),),
        "spaces", False, False, "names by case; inflected forms of a name",
    ),
    Script(
        "hangul", ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7AF)),
        "spaces", False, False, "names by case; names before a suffixed particle",
    ),
    Script("thai", ((0xE00, 0xE7F),), "none", False, False, "words inside a run"),
    Script("lao", ((0xE80, 0xEFF),), "none", False, False, "words inside a run"),
    Script("tibetan", ((0xF00, 0xFFF),), "none", False, False, "words inside a run"),
    Script("myanmar", ((0x1000, 0x109F),), "none", False, False, "words inside a run"),
    Script("khmer", ((0x1780, 0x17FF),), "none", False, False, "words inside a run"),
    Script(
        "kana", ((0x3041, 0x30FF), (0xFF66, 0xFF9F)), "none", False, False, "words inside a run"
    ),
    Script(
        "han", ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FFFF)),
        "none", False, False, "words inside a run",
    ),
)  # fmt: skip
"""Every script that is treated in its own way. Letters of scripts that are not listed are words
between spaces, capitalised where their script has case, without stop-word-free runs."""


def script_of(character: str) -> Script | None:
    """Return the script of a character, None where the table does not list it."""
    code = ord(character)
    for script in SCRIPTS:
        if any(low <= code <= high for low, high in script.ranges):
            return script
    return None
