"""Over-merge guards: each says why two names must not become one concept.

A guard takes the traits of two names and answers yes when it forbids the merge. The order of the
tables below decides which reason is counted when several apply. Guards protect what a machine
guessed; names that an author or a rule declared to be one pass only `never`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from noctuary.graph.canonical.keys import joined, spelling_key, stem
from noctuary.graph.canonical.kinds import OWN_NAMES, may_be_one
from noctuary.graph.canonical.lexicon import NEGATING_PREFIXES, NEGATIONS, OPPOSITES
from noctuary.graph.canonical.traits import Traits
from noctuary.graph.lexicon import FUNCTION_WORDS, NAME_CONNECTORS

_PARTICLES = NAME_CONNECTORS - FUNCTION_WORDS

Guard = Callable[[Traits, Traits], bool]
Stage = Literal["spacing", "plural", "article", "qualifier", "several", "minhash", "embedding"]

NAME_MIN_CHARS = 4
"""Shortest name that may merge, spaces not counted. Shorter ones (ids, IDS, the UN) share their
letters by chance; raising it loses merges such as tag / tags."""

ESTABLISHED_DF = 3
"""Memories from which on a proper name is no slip of the pen. Lower keeps rare spellings apart."""

SUBSTITUTED_COSINE_MIN = 0.96
"""Least cosine of two names that put one word for another: eldest child / eldest son and monthly /
weekly photos reach 0.93 as siblings do. Lower finds more synonyms (big / huge impact) and more
siblings."""

INFLECTED_COSINE_MIN = 0.9
"""... where the words are forms of one: find ways, finding ways. Lower adds next to nothing."""

PREFIXED_MIN_CHARS = 3
"""Shortest rest behind a negating prefix: un + do, but not in + to."""


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
    """One name negates the other or says the opposite: stable, unstable; upload, download."""
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
    """One says all that the other says and more: jazz rock is a sort of jazz, and not it."""
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
    """The Predator is another film than Predator; only plurals carry the article freely.

    The Beatles, Beatles; in lower case (the monorepo, monorepo) it is grammar and means nothing.
    """
    bare = min(left, right, key=lambda traits: len(traits.tokens))
    return len(bare.tokens) == 1 and bare.proper and not bare.tokens[0].endswith("s")


def widely_used_base(left: Traits, right: Traits) -> bool:
    """Plain X stands in more memories than "X (q)": Santa Rosa (mountain), Santa Rosa.

    On encyclopedia passages every second such pair was two things. Nothing is lost: a memory with a
    qualified title is about the plain name as well.
    """
    qualified, base = (left, right) if left.base == right.stats.name else (right, left)
    return base.stats.df > qualified.stats.df


def several_differences(left: Traits, right: Traits) -> bool:
    """Only together do an article, a space and a plural make them alike: The Front Line, Frontline.

    Each of them alone is harmless, two at once are mostly two names.
    """
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
    # The qualifier may hold a year; what it qualifies was compared letter by letter.
    "qualifier": (differing_kinds, short_name, widely_used_base),
    "several": (several_differences,),
    "minhash": _FUZZY,
    "embedding": _FUZZY,
}  # fmt: skip
"""Which guards a stage asks, in the order in which they are counted."""


def refusal(left: Traits, right: Traits, stage: Stage) -> str:
    """Return why a stage must not merge two names: the guard's name, or "" where it may."""
    for guard in GUARDS[stage]:
        if guard(left, right):
            return guard.__name__
    return ""


def unlike_words(left: Traits, right: Traits, cosine: float) -> bool:
    """Say whether two names swap a word and their vectors are not near enough to excuse it."""
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
    """Say whether some spelling of each has the same letters in the same case: ProjectAltay."""
    ours, theirs = (
        {"".join(char for char in surface if char.isalnum()) for surface in traits.stats.surfaces}
        for traits in (left, right)
    )
    return bool(ours & theirs)
