"""Function words that carry no evidence of what a memory is about.

What belongs here: one set, folded as tokens are (case-folded, Latin accents stripped). What does
not: stems, and any word that is a content word of another language here: Spanish "son", "sin" and
"era" and every German or French list are left out on purpose, because one store mixes languages
and the words are not told apart by language. Foreign function words must be listed at all because
their document frequency is low in a mostly English store, so BM25 alone would take them for rare
words.
"""

from __future__ import annotations

_ENGLISH = """
a about above after again against all also am an and any are as at be because been before being
below between both but by can cannot could did do does doing down during each either else ever few
for from further had has have having he her here hers herself him himself his how i if in into is
it its itself just let me more most my myself neither no nor not now of off on once only or other
our ours ourselves out over own please same shall she should so some such than that the their
theirs them themselves then there these they this those through to too under until up upon us very
was we were what when where whether which while who whom whose why will with would yet you your
yours yourself yourselves arent cant couldnt didnt doesnt dont hadnt hasnt havent im isnt ive
shouldnt thats theres theyre wasnt werent whats wheres whos wont wouldnt youd youll youre youve
"""

_SPANISH = """
al como con cual cuando cuanto de del desde donde el ellas ellos en entre eran es esa esas ese eso
esos esta estaba estan estas este esto estos estoy fue fueron ha hace hacia han hasta la las le
les lo los mi mis muy nos nosotros nuestra nuestro para pero por porque que quien se ser si sobre
su sus tambien tengo tiene tienen tu tus un una unas uno unos y ya yo
"""

_RUSSIAN = """
а без более больше будет будто бы был была были было быть в вам вас весь во вот все всего всех вы
где да даже для до его ее если есть еще же за здесь и из или им их к как какая какие какой какого
какое когда которая которое которые который кто куда ли либо мне мной мое моего моей мои моя может
можно мой мы на над надо наш наша наше не него нее нет ни них но ну о об однако он она они оно от
очень по под после потом потому почему при про с сам свое своего своей своих свой свою себе себя
сейчас со так также такой там твой тебе тебя тем то тоже того той только том тот ту ты у уж уже
хотя чего чем что чтобы чье чья эта эти это этого этой этом этот эту я
"""

STOP_WORDS: frozenset[str] = frozenset((_ENGLISH + _SPANISH + _RUSSIAN).split())
"""Stop words of English, Spanish and Russian, folded."""

NEGATED_SUFFIX = "n't"
"""Every English contraction with this ending ("don't", "can't") is a function word."""


def is_stop_word(word: str) -> bool:
    """Tell whether a folded word is a function word."""
    return word in STOP_WORDS or word.endswith(NEGATED_SUFFIX)
