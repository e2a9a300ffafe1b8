"""Closed word lists, dates and written forms that extraction reads."""

from __future__ import annotations

import re
from typing import NamedTuple

from noctuary.text.marks import ROLES

# Closed word lists of the extractor, all folded. Lists only; every look-up is one hash.


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

SPEAKER_KEYS = ROLES
"""Keys that are a role in a conversation wherever they stand before a colon."""

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

LY_NOUNS = frozenset(_LY_NOUNS_TEXT.split())
"""Words in -ly that are no adverbs."""

_VALUE_ATTRIBUTES_TEXT = """
    age birthday budget city color colour country deadline diet drink editor email favorite
    favourite food framework goal hobby hometown job language major name nickname number occupation
    os password phone plan port priority profession region role school size sport status team
    timezone title
"""

VALUE_ATTRIBUTES = frozenset(_VALUE_ATTRIBUTES_TEXT.split())
"""What somebody has whose value may be a plain word ("my favorite color is blue"); of anything else
a plain word is a mood or a state ("my kids are excited")."""

_NUMBER_WORDS_TEXT = """
    zero one two three four five six seven eight nine ten eleven twelve
    first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth
"""

_COUNTED = 13  # zero to twelve; the ordinals follow from first


def _number_words() -> dict[str, int]:
    found = _NUMBER_WORDS_TEXT.split()
    cardinals = {word: value for value, word in enumerate(found[:_COUNTED])}
    return cardinals | {word: value for value, word in enumerate(found[_COUNTED:], start=1)}


NUMBER_WORDS = _number_words()
"""Spelled numbers and ordinals, and what they count."""


# Dates with a year, written in digits or with an English month. No relative dates, no clock.


_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH_OF = {name[:3]: number for number, name in enumerate(_MONTHS, start=1)}
_DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_LOOK_BACK_CHARS = 28
"""Longest text read before a year: "30th of September, " and its like. Bounds the work per year."""

_ORDINAL = r"(?:st|nd|rd|th)?"
_MONTH = rf"(?P<month>{'|'.join(f'{name}|{name[:3]}' for name in _MONTHS)}|sept)\.?"
_YEAR = re.compile(r"(?<!\d)[12]\d{3}(?!\d)")
_BEFORE_YEAR = re.compile(
    rf"(?<![\w.])(?:(?P<day>\d{{1,2}}){_ORDINAL}\s(?:of\s)?)?{_MONTH}"
    rf"(?:\s(?P<day_after>\d{{1,2}}){_ORDINAL})?\s?,?\s?$",
    re.IGNORECASE,
)
_DOTTED_BEFORE_YEAR = re.compile(r"(?<![\w.])(?P<day>\d{1,2})\.\s?(?P<number>\d{1,2})\.\s?$")
_AFTER_YEAR = re.compile(
    r"(?P<mark>[-/])(?P<number>\d{2})(?:(?P=mark)(?P<day>\d{2}))?(?![\d/-])"
    r"|\s?[年년]\s?(?P<cjk_number>\d{1,2})\s?[月월](?:\s?(?P<cjk_day>\d{1,2})\s?[日일])?"
)


class Date(NamedTuple):
    """A date in a text."""

    start: int
    end: int
    iso: str  # `2024-05-12`, or `2024-05` where no day is given


def find_dates(content: str) -> list[Date]:
    """Return the dates of a text, left to right.

    Read are `2024-05-12`, `2024/05/12`, `2024-05`, `12 May 2024`, `May 12, 2024`, `May 2024`,
    `12.05.2024` and years with the characters for year, month and day. A year alone and a date
    without its year are not dates here; `5/12/2024` is left out because its order is unknown.
    """
    found = (_around(content, match) for match in _YEAR.finditer(content))
    return [date for date in found if date is not None]


def _around(content: str, year: re.Match[str]) -> Date | None:
    after = _AFTER_YEAR.match(content, year.end())
    if after is not None:
        number = after["number"] or after["cjk_number"]
        iso = _iso(year.group(), number, after["day"] or after["cjk_day"])
        return Date(year.start(), after.end(), iso) if iso else None
    return _ending_with(content, year)


def _ending_with(content: str, year: re.Match[str]) -> Date | None:
    low = max(0, year.start() - _LOOK_BACK_CHARS)
    before = content[low : year.start()]
    match = _BEFORE_YEAR.search(before)
    if match is not None:
        number, day = str(_MONTH_OF[match["month"][:3].lower()]), match["day_after"] or match["day"]
    else:
        match = _DOTTED_BEFORE_YEAR.search(before)
        if match is None:
            return None
        number, day = match["number"], match["day"]
    iso = _iso(year.group(), number, day)
    return Date(low + match.start(), year.end(), iso) if iso else None


def _iso(year: str, number: str, day: str | None) -> str | None:
    """Return the ISO form, or None for a month or day that no calendar has."""
    if not 1 <= int(number) <= len(_MONTHS):
        return None
    if day is None:
        return f"{int(year):04}-{int(number):02}"
    if not 1 <= int(day) <= _DAYS_OF_MONTH[int(number) - 1]:
        return None
    return f"{int(year):04}-{int(number):02}-{int(day):02}"


# Things with a written form of their own: addresses, paths, tickets, versions, names in code.


# Every repeat that could start anew at each word is bounded: reading stays linear in the text.
# The name of the group is the kind; the first alternative that fits wins.
_IDENTIFIER = re.compile(
    r"""
    (?P<url>https?://[^\s<>"')\]]+)
    | (?P<email>\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})
    | (?P<path>
        (?<![\w/.])(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}                        # from a root
        | \b[A-Za-z]:\\(?:[\w.@+-]{1,64}\\){0,11}[\w.@+-]{1,64}            # from a drive
        | \b[\w-]{1,64}(?:/[\w.-]{1,64}){0,11}/[\w-]{1,64}\.[A-Za-z]\w{0,7}\b
        | \b[\w-]{1,64}(?:\.[\w-]{1,64}){0,4}?                             # file name by its ending
          \.(?:py|js|ts|tsx|go|rs|java|c|h|cpp|rb|sh|sql|md|json|ya?ml|toml|txt|csv|lock|env)\b)
    | (?P<ticket>\bCVE-\d{4}-\d{4,7}\b | \b[A-Z][A-Z0-9]+-\d+\b | (?<!\w)\#\d+\b)
    | (?P<version>\bv\d+(?:\.\d+)*\b | \b\d+\.\d+\.\d+(?:[-+.][\w.]+)?\b)
    | (?P<identifier>
        \b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b                         # snake_case
        | \b[a-z]+(?:[A-Z][a-z0-9]+)+\b                                    # camelCase
        | \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b                  # UUID
        | \b(?=[a-f]{0,39}\d)(?=\d{0,39}[a-f])[0-9a-f]{7,40}\b)            # commit
    """,
    re.VERBOSE,
)
# No identifier holds a space, and each shows one of these; most words of a text are passed over.
_HINT = re.compile(r"[/@_#\\]|[a-z][A-Z]|\.\w|-\d|-[0-9a-f]{4}-|\bv\d|[a-f]\d|\d[a-f]")
_CHUNK = re.compile(r"\S+")


class Identifier(NamedTuple):
    """An identifier in a text: offsets into it, end exclusive."""

    start: int
    end: int
    kind: str  # "url", "email", "path", "ticket", "version" or "identifier"


def find_identifiers(content: str) -> list[Identifier]:
    """Return the identifiers of a text, left to right, not overlapping."""
    if _HINT.search(content) is None:
        return []
    return [
        Identifier(*match.span(), match.lastgroup or "identifier")
        for chunk in _CHUNK.finditer(content)
        if _HINT.search(chunk.group())
        for match in _IDENTIFIER.finditer(content, *chunk.span())
    ]
