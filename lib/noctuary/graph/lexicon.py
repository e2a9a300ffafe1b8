"""Closed word lists of the extractor, all folded; every look-up is one hash."""

from __future__ import annotations

from noctuary.text.marks import ROLES

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
