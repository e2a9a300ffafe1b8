"""Over-merge guards: why two names must not become one concept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from noctuary.graph.fold import fold_name, fold_word, without_accents, word_pattern
from noctuary.graph.word_lists import FUNCTION_WORDS, NAME_CONNECTORS, WORD_LISTS
from noctuary.text.dates import NUMBER_WORDS

# Closed word lists of canonicalisation (words.txt).

STAGES = frozenset(WORD_LISTS["stages"])
NEGATIONS = frozenset(WORD_LISTS["negations"])
NEGATING_PREFIXES = WORD_LISTS["negating_prefixes"]
_PAIRED = WORD_LISTS["opposites"]
_PAIRS = frozenset(zip(_PAIRED[::2], _PAIRED[1::2], strict=True))
OPPOSITES = _PAIRS | {(two, one) for one, two in _PAIRS}

# Which kinds of concept may be one thing.

Family = Literal["words", "speaker", "code", "exact"]

_WORD_KINDS = (
    "title", "heading", "key", "label", "leading", "tag", "keyword", "quoted", "name", "placed",
    "run",
)  # fmt: skip
_FAMILIES: dict[str, Family] = {
    **dict.fromkeys(_WORD_KINDS, "words"), "speaker": "speaker", "identifier": "code",
}  # fmt: skip

# Kinds that an author gave as a whole memory's name: two of them are two things unless they are one
# spelling. `leading`, `key` and `label` name a subject in passing and are not among them.
OWN_NAMES = frozenset({"title"})


def family(kind: str) -> Family:
    """Return the merge family of a kind; "exact" for dates, sessions, tickets and unknown kinds."""
    return _FAMILIES.get(kind, "exact")


def may_be_one(left: str, right: str, *, spelled: bool) -> bool:
    """Return whether names of two kinds may denote one concept."""
    families = {family(left), family(right)}
    if "exact" in families:
        return False
    if "code" in families:
        return spelled and "speaker" not in families
    return True


# Keys shared by the spellings of one name, for buckets: pure functions of the folded name.

ARTICLE = "the"  # the article that names carry or drop

_ARTICLE_AND_SPACE = f"{ARTICLE} "

# Shortest word that loses its plural ending: tags, but not gas, news stays news.
SINGULAR_MIN_CHARS = 4
STEM_MIN_CHARS = 3  # least that is left of a word without its ending: making, but not bring

_VERB_ENDINGS = ("ing", "ed", "s", "e")
_UNCOUNTED = ("ss", "us", "is")
_SIBILANT_PLURALS = ("sses", "shes", "ches", "xes", "zes")
_NO_PLURALS = frozenset({"news", "series", "species", "alias", "bias", "atlas", "canvas", "always"})


def singular(word: str) -> str:
    """Return an English noun without its plural ending; others as they are."""
    if len(word) < SINGULAR_MIN_CHARS or word in _NO_PLURALS or not word.endswith("s"):
        return word
    if word.endswith(_UNCOUNTED):
        return word
    if word.endswith("ies") and len(word) > len("dies"):
        return word[: -len("ies")] + "y"
    if word.endswith(_SIBILANT_PLURALS):
        return word[: -len("es")]
    return word[:-1]


def stem(word: str) -> str:
    """Return the stem shared by regular forms of an English verb: make, making; plan, planned."""
    for ending in _VERB_ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= STEM_MIN_CHARS:
            word = word[: -len(ending)]
            break
    return word[:-1] if word[-2:-1] == word[-1:] else word


def spelling_key(name: str) -> str:
    """Return the key shared by all spellings of a folded name; never empty."""
    if name.isascii() and not name.endswith("s") and not name.startswith(_ARTICLE_AND_SPACE):
        return name.replace(" ", "")  # as below; most names are of this sort
    tokens = without_article(name.split())
    return joined([*tokens[:-1], singular(tokens[-1])])


def joined(tokens: Sequence[str]) -> str:
    """Return the words without spaces and without accents on Latin letters."""
    return without_accents("".join(tokens))


def without_article(tokens: Sequence[str]) -> Sequence[str]:
    """Return the words without a leading article, unless nothing else is there."""
    return tokens[1:] if len(tokens) > 1 and tokens[0] == ARTICLE else tokens


# How a name is described to canonicalisation, and which of two names is the better one.


class NameStats(NamedTuple):
    """A folded name and how the memories hold it."""

    name: str  # folded (`noctuary.graph.fold.fold_name`), never empty
    kind: str  # its strongest kind (`noctuary.graph.extract.KINDS`)
    surfaces: tuple[str, ...]
    df: int


def rank(stats: NameStats) -> tuple[int, int, str]:
    """Return the sort key of names: most memories, then the longest, then the smallest first."""
    return (-stats.df, -len(stats.name), stats.name)


def ranked(names: Sequence[NameStats]) -> list[NameStats]:
    """Return the names best first, whatever order they came in."""
    found = sorted(names, key=rank)
    if len({stats.name for stats in found}) < len(found):
        twice = Counter(stats.name for stats in found).most_common(1)[0][0]
        raise ValueError(f"found two NameStats for {twice!r}, expected one a name: add up their df")
    return found


# Traits of one name for guards and spelling rules: words, case, numbers, versions, qualifier.

# Longest roman numeral read as a number (xviii): longer ones are words or years in stone.
ROMAN_MAX_CHARS = 5
_ONES = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
_ROMAN = {"x" * tens + one: 10 * tens + n for tens in range(4) for n, one in enumerate(_ONES)}
_DIGITS = re.compile(r"\d+")
_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+)", re.IGNORECASE)
_QUALIFIED = re.compile(r"\s*(.*\S)\s*[(（]([^()（）]+)[)）]\s*")


@dataclass(frozen=True, slots=True)
class Traits:
    """A name as the guards see it."""

    stats: NameStats
    tokens: tuple[str, ...]
    capitals: frozenset[str]
    content: frozenset[str]
    common: bool
    proper: bool
    numbers: tuple[str, ...]  # digit runs, roman numerals and number words, sorted
    letters: tuple[str, ...]  # one-letter words, sorted: plan a, plan b
    versions: tuple[str, ...]  # dotted versions and words such as beta, sorted
    # folded name without the parenthesis at its end; "" unless every spelling has one
    base: str
    qualifier: str  # text in that parenthesis, folded; "" as above


def read_traits(stats: NameStats) -> Traits:
    """Return the traits of a name; pure."""
    tokens = tuple(stats.name.split())
    capitals, lower = _cases(stats.surfaces)
    named = capitals - lower
    counted = set(tokens) - NAME_CONNECTORS - FUNCTION_WORDS
    base, qualifier = _qualified(stats.surfaces)
    return Traits(
        stats=stats,
        tokens=tokens,
        capitals=frozenset((named & set(tokens)) - NAME_CONNECTORS - {ARTICLE}),
        content=frozenset(singular(token) for token in tokens if token not in FUNCTION_WORDS),
        common=tokens[-1] in lower,
        proper=bool(counted) and counted <= named,
        numbers=tuple(sorted(number for token in tokens for number in _numbers(token))),
        letters=tuple(sorted(token for token in tokens if len(token) == 1 and token.isalpha())),
        versions=_versions(stats.surfaces, tokens),
        base=base,
        qualifier=qualifier,
    )


def _cases(surfaces: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the words seen with a capital or a digit in front, and those seen without."""
    capitals: set[str] = set()
    lower: set[str] = set()
    for surface in surfaces:
        for text in word_pattern(surface).findall(surface):
            (capitals if _is_shaped(text) else lower).update(fold_word(text).split())
    return capitals, lower


def _is_shaped(word: str) -> bool:
    """Return whether a word has a capital anywhere or starts with a digit."""
    return word[0].isdigit() or (not word.islower() and any(char.isupper() for char in word))


def _numbers(token: str) -> list[str]:
    if token in NUMBER_WORDS:
        return [str(NUMBER_WORDS[token])]
    if len(token) <= ROMAN_MAX_CHARS and token in _ROMAN:
        return [str(_ROMAN[token])]
    return [digits.lstrip("0") or "0" for digits in _DIGITS.findall(token)]


def _versions(surfaces: Sequence[str], tokens: Sequence[str]) -> tuple[str, ...]:
    dotted = {match for surface in surfaces for match in _VERSION.findall(surface)}
    return tuple(sorted(dotted | (STAGES & set(tokens))))


def _qualified(surfaces: Sequence[str]) -> tuple[str, str]:
    matches = [_QUALIFIED.fullmatch(surface) for surface in surfaces]
    found = {
        (fold_name(match.group(1)), fold_name(match.group(2)))
        for match in matches
        if match is not None
    }
    if len(found) != 1 or None in matches:
        return "", ""
    base, qualifier = found.pop()
    # A call, a plural in brackets ("term(s)") and a bare function word qualify nothing.
    if not base or len(qualifier) < 2 or qualifier in FUNCTION_WORDS:
        return "", ""
    return base, qualifier


# Over-merge guards: each is a reason why two names must not become one concept.
#
# A guard takes the traits of two names and returns True to forbid the merge. The order of the
# tables below decides which reason is counted when several apply. Guards protect against guessed
# merges; names that an author or a rule declared to be one pass only `never`.

_PARTICLES = NAME_CONNECTORS - FUNCTION_WORDS

Guard = Callable[[Traits, Traits], bool]
Stage = Literal["spacing", "plural", "article", "qualifier", "several", "minhash", "embedding"]

# Shortest name that may merge, spaces not counted. Shorter ones (ids, IDS, the UN) share their
# letters by chance; raising it loses merges such as tag / tags.
NAME_MIN_CHARS = 4
# Memories from which on a proper name is no slip of the pen. Lower keeps rare spellings apart.
ESTABLISHED_DF = 3
# Least cosine of two names that put one word for another: eldest child / eldest son and monthly /
# weekly photos reach 0.93 as siblings do. Lower finds more synonyms (big / huge impact) and more
# siblings.
SUBSTITUTED_COSINE_MIN = 0.96
# ... where the words are forms of one: find ways, finding ways. Lower adds next to nothing.
INFLECTED_COSINE_MIN = 0.9
PREFIXED_MIN_CHARS = 3  # shortest rest behind a negating prefix: un + do, but not in + to


def differing_kinds(left: Traits, right: Traits) -> bool:
    """A date, a session or a code name is not a word; a speaker is not a code name."""
    return not may_be_one(left.stats.kind, right.stats.kind, spelled=False)


def differing_kinds_spelled(left: Traits, right: Traits) -> bool:
    """As above, where only spacing or accents differ: code names may be words."""
    return not may_be_one(left.stats.kind, right.stats.kind, spelled=True)


def short_name(left: Traits, right: Traits) -> bool:
    """One of the two is too short for likeness to mean anything."""
    return min(len(joined(left.tokens)), len(joined(right.tokens))) < NAME_MIN_CHARS


def differing_versions(left: Traits, right: Traits) -> bool:
    """Python 3.11 is not Python 3.12; the beta is not the release."""
    return left.versions != right.versions


def differing_numbers(left: Traits, right: Traits) -> bool:
    """Charles I is not Charles II, 1914 is not 1918, part one is not part two."""
    return left.numbers != right.numbers


def differing_letters(left: Traits, right: Traits) -> bool:
    """Plan A is not plan B, John F. Kennedy is not John N. Kennedy."""
    return left.letters != right.letters


def differing_capitals(left: Traits, right: Traits) -> bool:
    """A word that one name always capitalises is missing in the other.

    Maria Anna of Bavaria is not Maria Leopoldine of Bavaria. Written with other spaces or accents
    the word is still there: Mac Donald, MacDonald.
    """
    if joined(left.tokens) == joined(right.tokens):
        return False
    return bool(left.capitals - set(right.tokens) or right.capitals - set(left.tokens))


def differing_accents(left: Traits, right: Traits) -> bool:
    """Two differing accents are two words: Từ Dụ, Từ Dũ; an accent may only be left out."""
    pairs = zip(left.tokens, right.tokens, strict=False)
    return len(left.tokens) == len(right.tokens) and any(
        ours != theirs and joined([ours]) not in (ours, theirs) for ours, theirs in pairs
    )


def spelled_letters(left: Traits, right: Traits) -> bool:
    """Letters with stops are an acronym and no word: B.E.A.T. is not beat; P.T.S.D. is PTSD."""
    ours, theirs = len(left.letters), len(right.letters)
    return max(ours, theirs) > 1 and ours != theirs and not _same_letters(left, right)


def two_established(left: Traits, right: Traits) -> bool:
    """Memories use both steadily and with other capitals: Christ Church, Christchurch."""
    if min(left.stats.df, right.stats.df) < ESTABLISHED_DF or not (left.proper and right.proper):
        return False
    return not _same_letters(left, right)


def differing_qualifiers(left: Traits, right: Traits) -> bool:
    """Mercury (planet) is not Mercury (element), and neither is plain Mercury by likeness."""
    return left.qualifier != right.qualifier


def opposed(left: Traits, right: Traits) -> bool:
    """One name is the negation or the opposite of the other: stable, unstable; upload, download."""
    ours, theirs = set(left.tokens), set(right.tokens)
    if NEGATIONS & (ours ^ theirs):
        return True
    only_ours, only_theirs = ours - theirs, theirs - ours
    if any((a, b) in OPPOSITES for a in only_ours for b in only_theirs):
        return True
    return _prefixed(only_ours, only_theirs) or _prefixed(only_theirs, only_ours)


def judged_by_spelling(left: Traits, right: Traits) -> bool:
    """One spelling key, so the spelling rules have spoken: The Killer, Killer; Alien, Aliens."""
    return spelling_key(left.stats.name) == spelling_key(right.stats.name)


def narrower(left: Traits, right: Traits) -> bool:
    """One has all words of the other and more: jazz rock is a sort of jazz, and not it."""
    return left.content < right.content or right.content < left.content


def differing_prepositions(left: Traits, right: Traits) -> bool:
    """Names with capitals that swap a small word: Slave to Love is not Slave of Love."""
    ours, theirs = set(left.tokens), set(right.tokens)
    named = bool(left.capitals) and bool(right.capitals)
    return named and bool(ours - theirs) and bool(theirs - ours)


def one_word_repeated(left: Traits, right: Traits) -> bool:
    """Nothing but one word, once and again: puka, Puka Puka; Side by Side, Side by Side by Side."""
    return left.content == right.content and len(left.content) == 1


def reordered_particles(left: Traits, right: Traits) -> bool:
    """A particle makes the order matter: Zeid bin Ra'ad is the son of Ra'ad bin Zeid."""
    particles = _PARTICLES & (left.content | right.content)
    return bool(particles) and left.content == right.content and left.tokens != right.tokens


def two_titles(left: Traits, right: Traits) -> bool:
    """Both are names that authors gave to whole memories: The Circle and Circle are two works."""
    return left.stats.kind in OWN_NAMES and right.stats.kind in OWN_NAMES


def proper_plural(left: Traits, right: Traits) -> bool:
    """The plural of a name always capitalised is another: Alien, Aliens; Simpson, Simpsons."""
    return not (left.common and right.common)


def proper_and_common(left: Traits, right: Traits) -> bool:
    """The Matrix is no matrix: with an article, both are proper names or neither is."""
    return left.proper != right.proper


def article_of_one_word(left: Traits, right: Traits) -> bool:
    """The Predator is no Predator; plurals carry the article freely: The Beatles, Beatles."""
    bare = min(left, right, key=lambda traits: len(traits.tokens))
    return len(bare.tokens) == 1 and bare.proper and not bare.tokens[0].endswith("s")


def widely_used_base(left: Traits, right: Traits) -> bool:
    """Plain X is in more memories than "X (q)": Santa Rosa (mountain), Santa Rosa.

    On encyclopedia passages every second such pair was two things. Nothing is lost: a memory with a
    qualified title is about the plain name as well.
    """
    qualified, base = (left, right) if left.base == right.stats.name else (right, left)
    return base.stats.df > qualified.stats.df


def several_differences(left: Traits, right: Traits) -> bool:
    """Two harmless differences at once are mostly two names: The Front Line, Frontline."""
    return True


_DECLARED_APART: tuple[Guard, ...] = (short_name, differing_versions, differing_numbers)
_FUZZY: tuple[Guard, ...] = (
    differing_kinds,
    *_DECLARED_APART,
    differing_letters,
    differing_qualifiers,
    opposed,
    two_titles,
    judged_by_spelling,
    narrower,
    reordered_particles,
    one_word_repeated,
    differing_capitals,
    differing_prepositions,
)
# Which guards a stage asks, in the order in which they are counted.
GUARDS: dict[Stage, tuple[Guard, ...]] = {
    "spacing": (
        differing_kinds_spelled, *_DECLARED_APART, differing_accents, spelled_letters,
        two_established,
    ),
    "plural": (differing_kinds, *_DECLARED_APART, differing_qualifiers, two_titles, proper_plural),
    "article": (
        differing_kinds, *_DECLARED_APART, differing_qualifiers, two_titles, proper_and_common,
        article_of_one_word,
    ),
    # The qualifier may hold a year; the names before it were compared letter by letter.
    "qualifier": (differing_kinds, short_name, widely_used_base),
    "several": (several_differences,),
    "minhash": _FUZZY,
    "embedding": _FUZZY,
}  # fmt: skip


def refusal(left: Traits, right: Traits, stage: Stage) -> str:
    """Return why a stage must not merge two names: the guard's name, or "" where it may."""
    for guard in GUARDS[stage]:
        if guard(left, right):
            return guard.__name__
    return ""


def unlike_words(left: Traits, right: Traits, cosine: float) -> bool:
    """Return whether two names swap a word and their vectors are too far apart to excuse it."""
    ours, theirs = left.content - right.content, right.content - left.content
    if not ours or not theirs:
        return False
    is_inflected = {stem(word) for word in ours} == {stem(word) for word in theirs}
    return cosine < (INFLECTED_COSINE_MIN if is_inflected else SUBSTITUTED_COSINE_MIN)


def _prefixed(longer: set[str], shorter: set[str]) -> bool:
    return any(
        prefix + word in longer
        for word in shorter
        if len(word) >= PREFIXED_MIN_CHARS
        for prefix in NEGATING_PREFIXES
    )


def _same_letters(left: Traits, right: Traits) -> bool:
    """Return whether two spellings have the same letters in the same case: ProjectAltay."""
    ours, theirs = (
        {"".join(char for char in surface if char.isalnum()) for surface in traits.stats.surfaces}
        for traits in (left, right)
    )
    return bool(ours & theirs)
