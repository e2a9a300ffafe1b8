"""The conversational signal of a text: what it states about people, days, amounts and tastes.

What belongs here: D of libravdb's gate with its weights (research/peers.md 1.2), and what of a text
it is read from. What does not: the formula (`scalar`). English, but for digits and units; a text of
another language has less to go by. Standard library only.
"""

from __future__ import annotations

import re

from noctuary.promote.marks import Mark, Weighed, either, weigh_presence
from noctuary.text.sentences import SENTENCE_END

_MONTH = (
    "(?i:january|february|april|june|july|august|september|october|november|december)|March|May"
)
_SHORT_MONTH = "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec"
_WEEKDAY = "(?i:mon|tues|wednes|thurs|fri|satur|sun)day"
_FEW = "(?i:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty)"

_DATE = either(
    r"\b(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])\b",
    r"(?<![\d./])\d{1,2}/\d{1,2}/(?:\d{4}|\d\d)(?![\d/])",
    r"(?<![\d./])\d{1,2}\.\d{1,2}\.(?:19|20)\d\d(?!\d)",
    rf"\b(?:{_MONTH}|{_SHORT_MONTH})\.? \d{{1,2}}(?:st|nd|rd|th)?(?![\d:])",
    rf"\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?(?:{_MONTH}|{_SHORT_MONTH})\b",
    r"\b(?i:after|before|by|during|early|every|from|in|last|late|mid|next|since|this|till|until)"
    rf"[ -](?:{_MONTH})\b",
    rf"\b(?:{_MONTH}) (?:19|20)\d\d\b",
    r"\b(?i:after|around|before|by|during|from|in|since|till|until) (?:19|20)\d\d\b",
    rf"\b{_WEEKDAY}s?\b",
    r"\b(?i:yesterday)\b",
    r"\b(?i:last|next) (?i:week|weekend|month|year|spring|summer|autumn|fall|winter)\b",
    rf"\b(?:\d{{1,3}}|(?i:a|an|a few)|{_FEW}) (?i:days?|weeks?|months?|years?) (?i:ago|from now)\b",
    rf"\b(?i:in) (?:\d{{1,3}}|{_FEW}) (?i:days|weeks|months|years)\b",
    r"\d{2,4}年|\d{1,2}月\d{1,2}[日号]",
)

_UNITS = (
    "years?|yrs?|months?|weeks?|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|ms|kg|mg|lbs?|"
    "pounds?|oz|tons?|tonnes?|km|cm|mm|miles?|ft|feet|inch(?:es)?|ml|lit(?:er|re)s?|cups?|percent|"
    "dollars?|euros?|bucks|[KMGT]i?B|people|persons?|kids?|children|employees|engineers|users?|"
    "customers?|rows?|invoices?|requests?|tokens?|dogs?|cats?|times|pages?|degrees|calories|kcal|"
    "servers?|nodes?|cores?|rooms?|bedrooms?|guests?|students?|tickets?"
)
_COUNTED = (
    "years|months|weeks|days|hours|minutes|kids|children|brothers|sisters|sons|daughters|siblings|"
    "dogs|cats|people|times|bedrooms|rooms|engineers|cars|servers|jobs|miles|classes|guests"
)
_QUANTITY = either(
    rf"(?<![\w.])\d{{1,15}}(?:[.,]\d{{1,15}}){{0,5}}[ -]?(?i:{_UNITS})\b",
    r"(?<![\w.])\d{1,15}(?:[.,]\d{1,15}){0,5}(?: ?%|[hgmslk]\b)",
    r"[$€£¥₹] ?\d",
    rf"\b(?:{_FEW}|(?i:a dozen|a hundred|hundreds of|a couple of)) (?i:{_COUNTED})\b",
    r"\d[\d.,]{0,15} ?(?:个|块|元|公斤|岁|小时|分钟|天|周)",
)

_RELATIONS = (
    "aunt|boss|boyfriend|brother|cat|client|coach|co-?worker|colleague|cousin|dad|daughter|dentist|"
    "doctor|dog|father|fianc[eé]e?|friend|girlfriend|grand(?:father|ma|mother|pa)|husband|kitten|"
    "landlord|lead|manager|mentor|mom|mother|mum|neighbou?r|nephew|niece|partner|pup(?:py)?|"
    "roommate|sister|son|teacher|uncle|wife"
)
_NAME = either(
    r"\b(?:Mr|Mrs|Ms|Dr|Prof|Professor|Doctor|Herr|Frau|Señora?)\.? [^\W\d_a-z][\w'’-]+",
    rf"\b(?i:my|our) (?:[a-z-]{{2,20}} )?(?i:{_RELATIONS})"
    r"(?:['’]s name is|(?: is)? (?:called|named)| is|,)? "
    rf"(?!{_WEEKDAY}|(?:{_MONTH})\b|I['’])[^\W\d_a-z][^\W\d_]+",
)

_ADVERBS = (
    "absolutely|also|always|do|don['’]?t|do not|generally|just|mostly|much|never|rather|really|"
    "still|strongly|typically|usually"
)
_TASTES = "adore|avoid|detest|despise|dislike|enjoy|favou?r|hate|like|loathe|love|prefer"
_NO_TASTE = (
    r"(?! (?:it|that|this|these|those|them|you|your|yours|how|what|when|where|his|her|their|"
    r"to (?:ask|hear|help|know|say|see|think)|"
    r"the (?:idea|look|sound|thought|vibe|way)|hearing|seeing)\b)"
)
"""What people say of what was just said: "I love that!"."""
_NO_RULE = (
    "a|an|as|been|down|ever|fun|gave|gets?|give|good|great|had|happy|have|hear|heard|here|knew|know|let|makes?|mind|"
    "nice|on|one|ready|seen|the|there|thought|up|was|were|worth"
)
"""What follows "always" or "never" where nobody is told anything: "Always up for it"."""
_PREFERENCE = either(
    rf"\bI (?:(?:{_ADVERBS}) ){{0,2}}(?:{_TASTES})\b(?!ly){_NO_TASTE}",
    r"\bI(?:['’]d| would) (?:much |really |strongly )?(?:rather|prefer)\b",
    r"\b(?:my|our) (?:all-time |absolute |personal |new )?(?:favou?rites?|preferred|go-to)\b",
    r"\bI (?:can['’]?t|cannot|can not|could never) (?:bear|stand)\b",
    r"\bI(?:['’]m| am) (?:\w{1,20} )?(?:afraid of|allergic to|fond of|interested in|"
    r"passionate about|scared of|vegan|vegetarian)\b",
    r"\bI(?:['’]m| am) (?:not )?a (?:big |huge )?fan of\b",
    r"(?:^|[.!;:] {1,3}|\b(?:but|please|we) )(?:always|never) "
    rf"(?!(?:{_NO_RULE})\b)[a-z]{{2,20}}\b",
    r"\bplease (?:avoid|do not|don['’]?t (?!worry))",
    r"\bfrom now on\b|\bwe (?:\w{1,20} )?prefer\b",
    r"\b(?:keep in mind|note|remember) that\b(?! \w{1,20} (?:of|where|when)\b)",
    r"(?:^|[.!;:] {1,3}|please )(?:remember|don['’]?t forget) to\b",
    flags=re.IGNORECASE,
)

_NO_MY_FACT = (
    "bad|concern|feeling|goal|god|guess|heart|hope|hunch|impression|intention|issue|mind|mistake|"
    "opinion|plan|pleasure|point|problem|question|take|thinking|thoughts?|understanding|word"
)
_NO_THING = (
    "bit|blast|bunch|chance|chat|clue|couple|doubt|feeling|few|go|good|great|hand|hard|hunch|idea|"
    "issue|little|look|lot|minute|moment|nice|plan|problem|question|reason|sec|suggestion|thought|"
    "time|ton|way|while|wonderful"
)
_FACT = either(
    r"\bI(?:['’]m| am|['’]ve| have)? (?:\w{1,20} )?work(?:ed|ing)? (?:as|at|for|from|in|with)\b",
    r"\bI (?:currently |now |still |used to )?lived? (?:at|in|near|on|with)\b",
    r"\b(?:I|we) (?:also |currently |just |now )?(?:adopted|come from|graduated|grew up|majored|"
    r"manage|moved (?:from|here|in|to)|own|studied|study|teach|volunteer|was born|were born)\b",
    r"\bI(?:['’]m| am) (?:an?|based|divorced|engaged|from|married|pregnant|responsible for|"
    r"retired|single|the|\d{1,3} years old)\b"
    rf"(?! (?:{_NO_THING}|fan|one|same|worst|best)\b)",
    rf"\bI(?:['’]ve| have)(?: got)? (?:an?|my own|no|{_FEW}|\d{{1,4}})\b"
    rf"(?! (?:\w{{1,20}} )?(?:{_NO_THING})\b)",
    rf"\b(?:my|our) (?!(?:\w{{1,20}} )?(?:{_NO_MY_FACT})\b)"
    r"(?:(?!(?:and|but|or|so|that|to|when|which|who)\b)[\w-]{1,30} ){1,3}"
    r"(?:are|has|have|is|lives|runs|uses|was|were|works)\b",
    r"\bmy name['’]s\b|\bcall me [A-Z]",
    r"\bwe (?:currently |now |only |always )?(?:deploy|host|moved to|run|store|use)\b",
    flags=re.IGNORECASE,
)

_MARKS = (
    Mark("date", 0.3, _DATE),
    Mark("quantity", 0.2, _QUANTITY),
    Mark("person", 0.3, _NAME),
    Mark("preference", 0.4, _PREFERENCE),
    Mark("fact", 0.3, _FACT),
)

_FENCED = re.compile(r"^\s{0,3}(```|~~~).*?(?:^\s{0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
_ASKED = re.compile(r"[?？؟][\"'”’»)*_\s]{0,8}$")


def declared(text: str) -> str:
    """Return what a text states: without fenced code and without its questions.

    "Do I prefer tabs?" is no preference.
    """
    prose = _FENCED.sub("\n", text)
    kept: list[str] = []
    start = 0
    for end in SENTENCE_END.finditer(prose):
        kept.append(_unless_asked(prose[start : end.start()]) + end[0])
        start = end.end()
    return "".join([*kept, _unless_asked(prose[start:])])


def _unless_asked(sentence: str) -> str:
    return "" if _ASKED.search(sentence) else sentence


def conversational_structure(text: str) -> Weighed:
    """Return D: dates, quantities, people, preferences, facts; the total is in [0, 1]."""
    found = weigh_presence(_MARKS, declared(text))
    return Weighed(min(found.total, 1.0), found.names)
