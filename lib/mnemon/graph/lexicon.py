"""Closed word lists of the extractor, all folded. Lists only; every look-up is one hash."""

from __future__ import annotations

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

_SPEAKER_KEYS_TEXT = """
    agent ai assistant human me system tool user
"""

SPEAKER_KEYS = frozenset(_SPEAKER_KEYS_TEXT.split())
"""Keys that are a role in a conversation wherever they stand before a colon."""

CLAUSE_WORDS = frozenset(("i", "we", "you", "he", "she", "it", "they", "there", "who", "which"))
"""Words that make what stands before a colon a clause and not a key."""

_NAME_CONNECTORS_TEXT = """
    al bin da de del della den der di do dos du el et for ibn la le les of the und van von y
"""

NAME_CONNECTORS = frozenset(_NAME_CONNECTORS_TEXT.split())
"""Words in lower case that may stand inside a capitalised run, never at its ends."""
