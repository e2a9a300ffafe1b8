"""Words of a text and of a name: canonical folding, script by script, and closed word lists."""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from typing import NamedTuple

from noctuary.text.marks import ROLES

# What is handled and what is declined, script by script: one table that all rules are read from.


class Script(NamedTuple):
    """What the extractor does with text in one script; statements are read in English only."""

    name: str
    # whether its words stand between spaces, and dictionary names are matched word by word; else a
    # run is a phrase, and is matched as a whole only
    spaced: bool
    has_runs: bool  # whether stop-word-free runs are found
    ranges: tuple[tuple[int, int], ...]


SCRIPTS: tuple[Script, ...] = (
    Script("latin", True, True, ((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x1E00, 0x1EFF))),
    Script("greek", True, False, ((0x370, 0x3FF), (0x1F00, 0x1FFF))),
    Script("cyrillic", True, False, ((0x400, 0x52F),)),
    Script("hebrew", True, False, ((0x590, 0x5FF),)),
    Script("arabic", True, False, ((0x600, 0x6FF), (0x750, 0x77F))),
    Script("indic", True, False, ((0x900, 0xDFF),)),
    Script("hangul", True, False, ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7AF))),
    Script("thai", False, False, ((0xE00, 0xE7F),)),
    Script("lao", False, False, ((0xE80, 0xEFF),)),
    Script("tibetan", False, False, ((0xF00, 0xFFF),)),
    Script("myanmar", False, False, ((0x1000, 0x109F),)),
    Script("khmer", False, False, ((0x1780, 0x17FF),)),
    Script("kana", False, False, ((0x3041, 0x30FF), (0xFF66, 0xFF9F))),
    Script(
        "han", False, False,
        ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FFFF)),
    ),
)  # fmt: skip
"""Every script that is treated in its own way. Letters of others are words between spaces, without
stop-word-free runs."""


def script_of(character: str) -> Script | None:
    """Return the script of a character, None where the table does not list it."""
    code = ord(character)
    for script in SCRIPTS:
        if any(low <= code <= high for low, high in script.ranges):
            return script
    return None


# Canonical folding of names, and the words of a text with their places.

CONCEPT_ID_HEX = 16
"""Length of a concept id: 64 bits, a collision among 1,000,000 names has odds of about 3e-8."""

_TOKEN_CACHE_SIZE = 1 << 16
"""Folded words remembered; trades a few MB for not folding frequent words again."""

# Scripts whose letters stand in runs of their own: the unsegmented ones, where a run is a phrase
# and not a word, and the Indic ones, where vowel signs would otherwise look like boundaries.
_SCRIPT_RANGES = tuple(
    (script.name, low, high)
    for script in SCRIPTS
    if not script.spaced or script.name == "indic"
    for low, high in script.ranges
)
_SPACED = frozenset({"indic"})
_RUN_CLASS = "".join(f"{chr(low)}-{chr(high)}" for _, low, high in _SCRIPT_RANGES)
_APOSTROPHES = "'\u2019"
# Hebrew points and Arabic vowel signs: they belong to their word and most writers leave them out.
_POINTS = "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670"
_MARKS = f"\u0300-\u036f{_POINTS}"
_POINT = f"[{_POINTS}\u0640]"  # and the Arabic letter that only stretches a word
_FIRST_RUN = min(chr(low) for _, low, _ in _SCRIPT_RANGES)
# A word: letters and digits, combining marks, apostrophes between letters. Underscores separate.
_PLAIN_WORD = re.compile(rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*|[{_APOSTROPHES}][^\W_]+)*")
_LETTER = rf"[^\W_{_RUN_CLASS}]"
_POSSESSIVE = re.compile(rf"[{_APOSTROPHES}]s$", re.IGNORECASE)


class Word(NamedTuple):
    """A word of a text."""

    start: int  # offset of its first character
    end: int
    # its canonical form, never empty; may hold spaces where a character expands to them
    folded: str


def words(text: str) -> list[Word]:
    """Return the words of a text in order, with offsets into it."""
    return [
        Word(match.start(), match.end(), folded)
        for match in word_pattern(text).finditer(text)
        if (folded := fold_word(match.group()))
    ]


def fold_name(name: str) -> str:
    """Return the canonical form of a name: words folded and joined by one space; may be empty.

    Compatibility forms, case, punctuation, spacing and possessives make no difference. Folding a
    slice of a text that begins and ends at its words gives their folded forms joined.
    """
    return " ".join(word.folded for word in words(name))


@functools.lru_cache(maxsize=_TOKEN_CACHE_SIZE)
def concept_id(folded_name: str) -> str:
    """Return the id of a folded name: 16 hex digits of its SHA-256, free of any numbering."""
    digest = hashlib.sha256(folded_name.encode("utf-8", "surrogatepass")).hexdigest()
    return digest[:CONCEPT_ID_HEX]


def unsegmented_script(folded_word: str) -> str | None:
    """Name the script of a run that has no spaces between its words, or None for other words."""
    code = ord(folded_word[0])
    for script, low, high in _SCRIPT_RANGES:
        if low <= code <= high:
            return None if script in _SPACED else script
    return None


def word_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern that finds the words of a text."""
    # Most texts hold no such run; the plain pattern is about twice as fast.
    if text.isascii() or max(text) < _FIRST_RUN:
        return _PLAIN_WORD
    run, mixed_word = _run_patterns()
    return mixed_word if run.search(text) else _PLAIN_WORD


@functools.cache
def _run_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what finds a run, and the words of a text that has some.

    Compiled for the first text that needs them: classes as large take as long as a fifth of
    `import numpy`, and a hook would pay it for every prompt.
    """
    words = rf"[{_RUN_CLASS}]+|{_LETTER}+(?:[{_MARKS}]+{_LETTER}*|[{_APOSTROPHES}]{_LETTER}+)*"
    return re.compile(f"[{_RUN_CLASS}]"), re.compile(words)


@functools.lru_cache(maxsize=_TOKEN_CACHE_SIZE)
def fold_word(word: str) -> str:
    """Return the canonical form of one word that `word_pattern` found; may be empty."""
    bare = _POSSESSIVE.sub("", word)
    if bare.isalnum() and bare.isascii():
        return bare.lower()
    return _fold_unicode(bare)


def _fold_unicode(word: str) -> str:
    folded = unicodedata.normalize("NFKC", word).casefold()
    folded = re.sub(_POINT, "", unicodedata.normalize("NFKC", folded))
    for apostrophe in _APOSTROPHES:
        folded = folded.replace(apostrophe, "")
    # A compatibility form may expand to several words (one half -> 1 2), which must fold alike.
    return " ".join(word_pattern(folded).findall(folded))


# Closed word lists, all folded; every look-up is one hash.

_FUNCTION_WORDS_TEXT = """
    a about above after again against all also although always am among an and another any
    anyone anything are as at away back be because been before being below besides between both
    but by can cannot cant could couldnt currently day did didnt do does doesnt doing done dont
    down during each either else even ever every everyone everything few finally first for from
    further get give go good got great had hadnt has hasnt have havent having he hed hell hello
    hence her here heres hers herself hes hey hi him himself his how however i id if ill im in
    indeed instead into is isnt it its itself ive just keep last later let lets like look many
    may maybe me meanwhile might mine more moreover most much must my myself need neither never
    nevertheless new next no nobody none nor not note nothing now of off oh ok okay old on once
    one only onto or other others otherwise our ours ourselves out over own part per perhaps
    please rather really same see she shed shes should shouldnt since so some someone something
    sometimes soon still such sure take than thank thanks that thats the their theirs them
    themselves then there therefore theres these they theyd theyll theyre theyve thing things
    this those though through thus time to today together tomorrow tonight too toward towards
    two under unless until up upon us use used uses using very was wasnt we wed well were werent
    weve what whatever whats when whenever where whereas wheres whether which while who whoever
    whom whos whose why will with within without wont would wouldnt wow yeah yep yes yesterday
    yet you youd youll your youre yours yourself youve
"""

FUNCTION_WORDS = frozenset(_FUNCTION_WORDS_TEXT.split())
"""English words that are no name on their own and begin sentences."""

_CALENDAR_WORDS_TEXT = """
    april august december february friday january july june march may monday november october
    saturday september sunday thursday tuesday wednesday
"""

CALENDAR_WORDS = frozenset(_CALENDAR_WORDS_TEXT.split())
"""Capitalised by convention; dates are not concepts here."""

_GENERIC_KEYS_TEXT = """
    action answer assumption attention background bug caution caveat comment conclusion context
    correction date decided decision detail details done edit error example examples fact
    feature fix fixed fyi gotcha hint idea important info input issue key known lesson link
    location memory name next note notes observation output plan preference problem ps question
    reason reference reminder result rule see solution source status step steps subject summary
    task time tip title todo topic type update updated user warning wip
"""

GENERIC_KEYS = frozenset(_GENERIC_KEYS_TEXT.split())
"""Keys of `key: value` that say what sort of memory it is and not what it is about."""

SPEAKER_KEYS = ROLES  # keys that are a role in a conversation wherever they stand before a colon

CLAUSE_WORDS = frozenset(("i", "we", "you", "he", "she", "it", "they", "there", "who", "which"))
"""Words that make what stands before a colon a clause and not a key."""

_NAME_CONNECTORS_TEXT = """
    al bin da de del della den der di do dos du el et for ibn la le les of the und van von y
"""

NAME_CONNECTORS = frozenset(_NAME_CONNECTORS_TEXT.split())
"""Words in lower case that may stand inside a capitalised run, never at its ends."""

_NEGATION_WORDS_TEXT = """
    aint arent cannot cant couldnt didnt doesnt dont hadnt hardly hasnt havent isnt neither never no
    none nor not shouldnt wasnt werent without wont wouldnt
"""

NEGATION_WORDS = frozenset(_NEGATION_WORDS_TEXT.split())
"""Words that make the rest of their clause say that something is not so."""

_HEDGE_WORDS_TEXT = """
    can could if imagine may maybe might must perhaps planning possibly pretend probably
    shall should suppose unless want wanted wants whether will wish would
"""

HEDGE_WORDS = frozenset(_HEDGE_WORDS_TEXT.split())
"""Words that make the rest of their sentence a wish, a plan or a condition."""

_QUESTION_WORDS_TEXT = """
    are can could did do does had has have how is may might should was were what when where which
    who whom whose why will would
"""

QUESTION_WORDS = frozenset(_QUESTION_WORDS_TEXT.split())
"""First words that make a sentence a question even without its mark."""

_ADVERBS_TEXT = """
    actually also always been being both currently formally generally had has have heavily in is are
    just mainly mostly now officially often only permanently really recently still strongly
    temporarily then usually was were
"""

ADVERBS = frozenset(_ADVERBS_TEXT.split())
"""Words that may stand between a subject and what is said of it."""

_DETERMINERS_TEXT = """
    a an any another both each her his its our my own some such the their these this those
"""

DETERMINERS = frozenset(_DETERMINERS_TEXT.split())
"""Words that begin a phrase without being part of its name."""

_ATTRIBUTES_TEXT = """
    current dear favorite favourite first last new next old only own same upcoming
"""

ATTRIBUTES = frozenset(_ATTRIBUTES_TEXT.split())
"""Adjectives that name nothing alone; left out at the start of a phrase."""

_BACKWARD_WORDS_TEXT = """
    above earlier existing following former latter one ones original previous prior
"""

BACKWARD_WORDS = frozenset(_BACKWARD_WORDS_TEXT.split())
"""Words that point to another place of the text: a phrase that begins with one names nothing."""

_SAYING_WORDS_TEXT = """
    agreed began believe believed confirmed decided feel felt found guess hear heard hope know knew
    learned mean means mentioned noted notes realized said say says started think thinks thought
    told
"""

SAYING_WORDS = frozenset(_SAYING_WORDS_TEXT.split())
"""Verbs before a statement that are no part of its subject."""

_STATING_WORDS_TEXT = """
    belongs depends fixes lives migrated moved obsoletes owns prefer prefers relies replaced
    replaces require required requires resolved resolves solves superseded supersedes switched works
"""

STATING_WORDS = frozenset(_STATING_WORDS_TEXT.split())
"""Verbs that state a relation and nothing else; they end a stop-word-free run."""

_LY_NOUNS_TEXT = """
    ally assembly butterfly family fly italy jelly july reply supply
"""

LY_NOUNS = frozenset(_LY_NOUNS_TEXT.split())  # words in -ly that are no adverbs

_VALUE_ATTRIBUTES_TEXT = """
    age birthday budget city color colour country deadline diet drink editor email favorite
    favourite food framework goal hobby hometown job language major name nickname number occupation
    os password phone plan port priority profession region role school size sport status team
    timezone title
"""

VALUE_ATTRIBUTES = frozenset(_VALUE_ATTRIBUTES_TEXT.split())
"""What somebody has whose value may be a plain word ("my favorite color is blue"); of anything else
a plain word is a mood or a state ("my kids are excited")."""
