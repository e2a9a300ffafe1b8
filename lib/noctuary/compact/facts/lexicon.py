"""Closed word lists of the fact check, folded as noctuary.graph.fold does. Lists only."""

from __future__ import annotations

_UNITS_TEXT = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen
"""
UNITS = {word: value for value, word in enumerate(_UNITS_TEXT.split())}
"""Number words below twenty."""

_TENS_TEXT = "twenty thirty forty fifty sixty seventy eighty ninety"
TENS = {word: 10 * place for place, word in enumerate(_TENS_TEXT.split(), start=2)}
"""Number words of the tens."""

_ORDINALS_TEXT = """
    first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
    fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth
"""
_TENTHS_TEXT = "twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth"
ORDINALS = {word: value for value, word in enumerate(_ORDINALS_TEXT.split(), start=1)} | {
    word: 10 * place for place, word in enumerate(_TENTHS_TEXT.split(), start=2)
}
"""Number words that order."""

SCALES = {
    "hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000,
    "lakh": 100_000, "crore": 10_000_000,
}  # fmt: skip
"""Number words that multiply what stands before them."""

SUFFIX_SCALES = {"k": 1_000, "m": 1_000_000, "mn": 1_000_000, "bn": 1_000_000_000}
"""Letters behind digits that multiply them."""

VAGUE_NUMBERS: dict[str, tuple[str, ...]] = {
    "one": ("1",), "first": ("1",), "second": ("2",), "once": ("1",), "twice": ("2",),
    "both": ("2",), "couple": ("2",), "pair": ("2",), "dozen": ("12",), "half": ("0.5", "50"),
    "quarter": ("0.25", "25"), "double": ("2",), "triple": ("3",), "single": ("1",),
    "a": ("1",), "an": ("1",),
}  # fmt: skip
_FOREIGN_NUMBERS_TEXT = """
    ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf
    un deux trois quatre cinq six sept huit neuf dix onze douze
    uno dos tres cuatro cinco seis siete ocho nueve diez once doce
    uno due tre quattro cinque sei sette otto nove dieci undici dodici
    один два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать
"""
for _line in _FOREIGN_NUMBERS_TEXT.strip().splitlines():
    for _value, _word in enumerate(_line.split(), start=1):
        VAGUE_NUMBERS[_word] = (*VAGUE_NUMBERS.get(_word, ()), str(_value))
"""Words that support a number in a source and claim none in a summary: "one of them" counts
nothing."""

_MONTHS_TEXT = """
    january february march april may june july august september october november december
"""
MONTHS = {name: number for number, name in enumerate(_MONTHS_TEXT.split(), start=1)}
"""Months by name."""

_WEEKDAYS_TEXT = "monday tuesday wednesday thursday friday saturday sunday"
WEEKDAYS = {name: number for number, name in enumerate(_WEEKDAYS_TEXT.split(), start=1)}
"""Days of the week, Monday first."""

_NEGATORS_TEXT = """
    aint arent cannot cant couldnt didnt doesnt dont hadnt hasnt havent isnt mustnt neither never
    no nobody none nor not nothing nowhere shouldnt wasnt werent without wont wouldnt
    nicht kein keine keinen keiner keines nie niemals nichts
    pas jamais rien aucun aucune
    nunca jamas nada ninguno ninguna
    nessuno niente
    nao nenhum nenhuma
    не нет ни никогда ничего нельзя
    """
NEGATORS = frozenset(_NEGATORS_TEXT.split())
"""Words that deny their clause. What another language uses for something else ("no" is one of
English and Spanish alike, French "ne" and Italian "non" are left out) denies only with it."""

_DENYING_TEXT = """
    absent against avoid avoided avoiding avoids barely cancel canceled cancelled cancelling
    cancels declined declines decline denied denies deny dislike disliked dislikes disagree
    disagreed disagrees fail failed failing fails few forbid forbidden forgot forgets hardly hate
    hated hates hesitant impossible inability incapable instead insufficient lack lacked lacking
    lacks less little longer lost miss missed misses missing neglected prevent prevented prevents
    prohibited quit rarely rather refuse refused refuses reject rejected rejects reluctant
    scarcely seldom skip skipped skips stop stopped stopping stops unable unaware unavailable
    uncertain unclear unlikely unhappy unknown unsuccessful unsure unwilling zero
    """
DENYING = frozenset(_DENYING_TEXT.split())
"""Words that deny without a negator. Beside one of them a clause with and a clause without a
negator may say the same."""

IDLE_NEGATIONS = (
    ("not", "only"), ("not", "just"), ("not", "merely"), ("not", "to"), ("no", "doubt"),
    ("no", "wonder"), ("no", "problem"), ("no", "worries"), ("no", "matter"), ("no", "way"),
    ("cant", "wait"), ("cannot", "wait"), ("couldnt", "agree"), ("why", "not"), ("or", "not"),
    ("if", "not"), ("whether", "not"), ("nothing", "but"), ("not", "bad"),
)  # fmt: skip
"""Pairs of neighbouring words in which a negator denies nothing."""

CJK_NEGATORS = "不没沒未无無别非"
"""Characters that deny in Chinese; Japanese is denied by endings, see JAPANESE_NEGATIONS."""

_CJK_IDLE_TEXT = """
    不错 不過 不过 不仅 不但 不同 不好意思 不少 差不多 没问题 沒問題 没关系 非常 别人 特别 区别 分别
    无论 是不是 有没有 能不能 要不要 好不好 除非 非洲
"""
CJK_IDLE = tuple(_CJK_IDLE_TEXT.split())
"""Words in which those characters deny nothing."""

JAPANESE_NEGATIONS = ("ない", "ません", "なかった", "なく")
"""Endings that deny in Japanese."""

_FIRST_PERSON_TEXT = "i me my mine myself im ive we us our ours weve"
FIRST_PERSON = frozenset(_FIRST_PERSON_TEXT.split())
"""Words by which a speaker speaks of himself."""

_OTHER_PERSONS_TEXT = """
    you your yours yourself youre youve youll youd he him his hes she her hers shes they them their
    theirs theyre it its who
    """
OTHER_PERSONS = frozenset(_OTHER_PERSONS_TEXT.split())
"""Words that may stand for a name that is not written in a clause."""

_OPENERS_TEXT = """
    additionally agents all another assistant attendees chat client clients colleagues conversation
    customer customers details dialogue discussion everyone family finally friend friends goals
    group highlights issues key later meanwhile meeting members notes others overall participants
    people person plans points questions speaker speakers summary team tasks themes topics updates
    user users various
    """
OPENERS = frozenset(_OPENERS_TEXT.split())
"""Words that begin a sentence of a summary without naming anyone."""

_FINITE_VERBS_TEXT = """
    and became began bought brought built came can chose could did does drove ate fell felt flew
    forgot found gave got grew had has heard held hit is kept knew led left lent let lost made
    may met might paid put ran read rode said sang sat saw sent set should slept sold spent
    spoke stood swam taught thought threw told took understood was went will woke won wore would
    wrote
"""
FINITE_VERBS = frozenset(_FINITE_VERBS_TEXT.split())
"""Words behind a sentence's first word that make it somebody or something that acts; regular verbs
show it by their endings."""
