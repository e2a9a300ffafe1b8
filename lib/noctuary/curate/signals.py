"""What the ingestion gate reads from the words of a turn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from noctuary.text.marks import SENTENCE_END


class Finder(NamedTuple):
    """Something to look for in a text."""

    # Linear in the length of the text: no repetition inside a repetition without a bound
    pattern: re.Pattern[str]
    # A much cheaper pattern that is in every text that `pattern` is in; most prose is done with
    # after it
    hint: re.Pattern[str]

    def is_in(self, text: str) -> bool:
        """Say whether it occurs."""
        return bool(self.hint.search(text) and self.pattern.search(text))

    def count(self, text: str) -> int:
        """Return how often it occurs, not overlapping."""
        return sum(1 for _ in self.pattern.finditer(text)) if self.hint.search(text) else 0


class Mark(NamedTuple):
    """What a signal looks for."""

    name: str  # as the table and the commands show it
    weight: float  # what its presence, or each occurrence, adds; in (0, 1]
    finder: Finder
    in_urls: bool = True  # False: it is looked for outside of them


class Weighed(NamedTuple):
    """What the marks of one signal found in a text."""

    total: float  # a sum of weights, in [0, 1]
    names: tuple[str, ...]  # of the marks that are there, in the order of the list


def either(*patterns: str, flags: int = 0, hint: str = "") -> Finder:
    """Return a finder of any of several patterns; ^ and $ mean lines."""
    joined = "|".join(f"(?:{p})" for p in patterns)
    return Finder(re.compile(joined, flags | re.MULTILINE), re.compile(hint, flags))


def _weigh(marks: Sequence[Mark], text: str, norm: float = 1.0, *, each: bool = False) -> Weighed:
    """Return the sum over the marks of a text by `norm`, at most 1; with `each`, of occurrences."""
    total, names = 0.0, list[str]()
    for name, weight, finder, in_urls in marks:
        # The path of an address is no file.
        read = text if in_urls else _URL_PATTERN.sub(" ", text)
        if count := finder.count(read) if each else int(finder.is_in(read)):
            total += weight * count
            names.append(name)
    return Weighed(min(total / norm, 1.0), tuple(names))


# What code looks like inside a sentence: paths, calls, commands, addresses, codes, references.

_EXTENSIONS = (
    "bash|bat|c|cc|cfg|cjs|conf|cpp|crt|cs|css|csv|cu|dart|db|diff|dll|docx|dylib|ex|exe|exs|go|"
    "gradle|gz|h|hpp|hs|html|ini|ipynb|jar|java|jl|jpg|js|json|jsonl|jsx|kt|log|lua|md|mjs|ndjson|"
    "parquet|patch|pdf|pem|php|png|proto|ps1|py|pyi|rb|rs|rst|scala|scss|sh|sql|sqlite|svelte|svg|"
    "swift|tar|tex|tf|toml|ts|tsx|txt|vue|wasm|whl|xlsx|xml|yaml|yml|zip|zsh"
)
"""Endings by which a word is a file. No endings that are words or domains ("so", "in", "com")."""

_NAMED_LIKE_FILES = (
    "angular|backbone|chart|d3|discord|ember|express|moment|next|node|nuxt|p5|react|require|"
    "socket|three|vue"
)
"""Products whose name ends in .js."""

_SEGMENT = r"[\w.@+-]{1,80}"
_ROOTS = (
    "Applications|Library|Users|app|bin|data|dev|etc|home|lib|mnt|opt|private|proc|root|sbin|srv|"
    "sys|tmp|usr|var|workspace"
)
_SOURCE_FOLDERS = (
    "app|apps|assets|bin|build|cmd|config|dist|docs?|internal|lib|node_modules|packages|pkg|"
    "public|scripts|src|tests?"
)

FILE_PATH = either(
    # In a folder, with an ending that files have.
    rf"(?<![\w/:.@-])(?:{_SEGMENT}/){{1,20}}[\w@+-][\w.@+-]{{0,79}}?\.(?:{_EXTENSIONS})(?![\w-])",
    rf"(?<![\w/:.])(?:~|\.{{1,2}})/{_SEGMENT}(?:/{_SEGMENT}){{0,20}}",
    rf"(?<![\w/:.~])/(?:{_ROOTS})/{_SEGMENT}",
    rf"(?<![\w/:.~])/(?!api/|v\d)[\w.@+-]{{2,80}}(?:/{_SEGMENT}){{2,20}}",
    rf"(?<![\w/:.~])(?:{_SOURCE_FOLDERS})/{_SEGMENT}/{_SEGMENT}",
    # A name alone.
    rf"(?<![\w./\\@-])(?!(?i:{_NAMED_LIKE_FILES})\.js\b)"
    rf"[A-Za-z_][\w-]{{0,79}}(?:\.[\w-]{{1,40}}){{0,4}}?\.(?:{_EXTENSIONS})(?![\w-]|\.\w)",
    r"(?<![\w/.])\.(?:bashrc|dockerignore|editorconfig|env|eslintrc|gitignore|npmrc|zshrc)\b",
    r"\b(?:CMakeLists\.txt|Dockerfile|Jenkinsfile|Makefile|Procfile)\b",
    r"(?<![A-Za-z])[A-Za-z]:\\[\w.-]",
    hint=r"[/\\]|\.[A-Za-z]|file\b",
)

_URL = r"(?<!\w)(?i:[a-z][a-z0-9+.-]{1,20}://|www\.)[^\s<>\"'`)\]]{2,}"
ADDRESS = either(
    _URL,
    r"\b(?:DELETE|GET|HEAD|OPTIONS|PATCH|POST|PUT) /[\w/{}:.-]*",
    r"(?<![\w/.])/(?:api|graphql|healthz?|oauth2?|rpc|v\d{1,2}|webhooks?)"
    r"(?:/[\w{}:.-]+){0,20}(?![\w/])",
    r"\blocalhost:\d{2,5}\b",
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\w.])",
    hint=r"/|(?i:www)|localhost|\d\.\d",
)
_URL_PATTERN = re.compile(_URL)

DEFINITION = either(
    r"\bdef \w{1,80}\s?\(",
    r"\bfunction(?: \w{1,80})?\(",
    r"\bfunc (?:\([^()\n]{0,80}\) )?\w{1,80}(?:\[[^\]\n]{0,80}\])?\(",
    r"\bfn \w{1,80}(?:<[^<>\n]{0,80}>)?\(",
    r"\b(?:public|private|protected|static) "
    r"(?:[\w<>\[\],?]{1,60} ){1,4}\w{1,60}\([^()\n]{0,200}\)\s?\{",
    r"=\s?(?:async )?\([^()\n]{0,200}\)\s?=>",
    hint=r"\(",
)

_NO_PLURAL = r"(?!(?:e?s|ies|ed|n|r)\))"
"""Prose brackets endings: "friend(s)"."""
_BUILTINS = (
    "assert|avg|count|filter|free|isinstance|len|malloc|map|max|min|parseInt|print|printf|println|"
    "range|reduce|require|setTimeout|sizeof|sum|super|typeof"
)
CALL = either(
    r"(?<![\w.])(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Za-z_]\w{0,60}\(\)",
    rf"(?<![\w.])(?:[A-Za-z_]\w{{0,60}}\.){{1,6}}[a-z_]\w{{1,60}}\({_NO_PLURAL}",
    rf"(?<![\w.])(?:[A-Za-z]\w{{0,60}})?_\w{{0,60}}\({_NO_PLURAL}",
    rf"(?<![\w.])(?!macOS)[a-z][a-z0-9]{{1,30}}[A-Z]\w{{0,60}}\({_NO_PLURAL}",
    rf"(?<![\w.])(?:{_BUILTINS})\({_NO_PLURAL}",
    r"(?<![\w.])[a-z]\w{1,60}\((?:[\"']|\w{1,40}=)",
    hint=r"\(",
)

_GIT_WORDS = (
    "add|am|apply|bisect|blame|branch|checkout|cherry-pick|clean|clone|commit|config|diff|fetch|"
    "init|log|merge|pull|push|rebase|reflog|remote|reset|restore|rev-parse|revert|show|stash|"
    "status|submodule|switch|tag|worktree"
)
_COMMAND_HINT = (
    r"[$`]|--|\b(?:apt|apt-get|awk|brew|cargo|cd|chmod|chown|conda|curl|docker|docker-compose|echo|"
    r"export|find|git|go|grep|helm|journalctl|kubectl|ls|make|mkdir|mypy|npm|npx|pip3?|pipx|pnpm|"
    r"podman|poetry|psql|pytest|python3?|rm|rsync|ruff|scp|sed|ssh|sudo|systemctl|tar|terraform|uv|"
    r"wget|xargs|yarn) "
)
COMMAND = either(
    r"^[ \t]{0,8}\$ [a-z][\w./-]*",
    rf"\bgit (?:-\w \S{{1,80}} )?(?:{_GIT_WORDS})\b",
    r"\b(?:docker|podman) (?:build|compose|exec|images|inspect|logs|ps|pull|push|rm|run|stop)\b",
    r"\bdocker-compose \w",
    r"\b(?:kubectl|journalctl|systemctl|npx|sudo) [\w-]",
    r"\b(?:npm|pnpm|yarn) (?:add|audit|ci|i|install|publish|remove|run|start|test|update)\b",
    r"\b(?:pip3?|pipx|conda|brew|apt|apt-get|uv pip) "
    r"(?:-\w )?(?:install|uninstall|update|upgrade)\b",
    r"\b(?:uv|poetry) (?:add|lock|remove|run|sync)\b",
    r"\bpython3? (?:-\w|\S{1,80}\.py\b)",
    r"\bcargo (?:add|bench|build|check|clippy|fmt|run|test|update)\b",
    # English words that are commands too need an argument that English does not have.
    r"\bgo (?:build|get|install|mod|run|test|vet) (?:\.|-\w|tidy\b|init\b|[\w.-]{1,80}/)",
    r"`(?:go|make|cat|ls|cd|cp|mv|find|test|time|kill)(?: [^`\n]{1,200})?`",
    r"\bmake (?:-[A-Za-z]|[A-Z_]{2,40}=)",
    r"\b(?:curl|wget) (?:-|https?:)",
    r"\bssh (?:-\w|\w[\w.-]{0,40}@)|\bscp -?\S{1,80} \S{0,80}:|\brsync -",
    r"\bchmod (?:[ugoa]{0,4}[+-][rwx]|[0-7]{3,4})|\bchown \w{1,40}:",
    r"\brm -[rf]|\bmkdir -p\b|\bls -[a-zA-Z]",
    r"\b(?:grep|sed|awk|tar|find|xargs|psql|pytest|mypy|ruff) -\w|\btar x|\bgrep [\"']",
    r"\bcd (?:~|\.{1,2}|/\w)",
    r"\bexport [A-Z_]{2,40}=|\becho [\"$]",
    r"\bterraform (?:apply|destroy|init|plan)\b|\bhelm (?:install|list|rollback|upgrade)\b",
    # Long options with a dash or a value inside, and any inside code.
    r"(?<!\S)--[a-z]{2,30}(?:-[a-z]{1,30}|=)|`[^`\n]{0,200} --?[a-z][^`\n]{0,200}`",
    hint=_COMMAND_HINT,
)

STACK_TRACE = either(
    r"Traceback \(most recent call last\)",
    r'^[ \t]{0,8}File "[^"\n]{1,300}", line \d+',
    r"^[ \t]{1,12}at [\w.$<>/ ]{1,200}\([^()\n]{0,300}(?::\d+|Native Method|Unknown Source)\)",
    r"^[ \t]{1,12}at \S{1,300}:\d+:\d+",
    r"\bException in thread \"",
    r"^goroutine \d+ \[",
    r"\bCaused by: [\w.]{1,200}(?:Error|Exception)",
    r"^(?:[\w.]{1,200}\.)?[A-Z]\w{1,80}(?:Error|Exception): ",
    r"^thread '[^'\n]{1,80}' panicked at",
    hint=r"[:(\[\"']",
)

_HEX_WORD = r"(?=[0-9a-f]{0,63}\d)(?=[0-9a-f]{0,63}[a-f])[0-9a-f]"
HEX_OR_HASH = either(
    r"\b0[xX][0-9a-fA-F]{2,}\b",
    rf"(?<![\w-]){_HEX_WORD}{{7,64}}(?![\w-])",
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    r"\bsha(?:1|256|512):[0-9a-f]{8,}",
    hint=r"\d|[a-f]-[a-f]",
)

_ERRNO = (
    "EACCES|EADDRINUSE|EAGAIN|EAI_AGAIN|EBADF|EBUSY|ECHILD|ECONNABORTED|ECONNREFUSED|ECONNRESET|"
    "EEXIST|EFAULT|EHOSTUNREACH|EINTR|EINVAL|EIO|EISDIR|ELOOP|EMFILE|ENETUNREACH|ENOENT|ENOMEM|"
    "ENOSPC|ENOSYS|ENOTDIR|ENOTEMPTY|ENOTFOUND|ENOTSUP|ENXIO|EPERM|EPIPE|ERESOLVE|EROFS|ESRCH|"
    "ETIMEDOUT|EXDEV"
)
ERROR_CODE = either(
    rf"\b(?:{_ERRNO})\b",
    r"\bE\d{3,5}\b",
    r"\b(?:CVE-\d{4}|CS|HRESULT|KB|LNK|MSB|ORA|PGRST|SQLSTATE|TS)[-_ ]?\d{3,}\b",
    r"\bERR_[A-Z_]{3,60}\b",
    r"\bHTTP(?:/[\d.]{1,3})? [1-5]\d\d\b",
    r"\b(?i:errno|(?:error|exit|return|status)(?: code| status)?) [A-Z]{0,3}-?\d{1,5}\b",
    r"\bSIG(?:ABRT|BUS|FPE|HUP|ILL|INT|KILL|PIPE|SEGV|TERM)\b",
    r"\b0x8[0-9A-Fa-f]{7}\b",
    hint=r"\d|[A-Z]{3}",
)

GIT_REF = either(
    rf"\b(?i:at|cherry-picked|commit|merged?|rev|revert(?:ed)?|revision|sha|tag)"
    rf"[ :#`]{{1,3}}{_HEX_WORD}{{7,40}}\b",
    r"\b(?:MR|PR|(?i:bug|issue|merge request|pull request)(?= ?#)) ?#?\d+\b",
    r"\b[\w-]{1,60}/[\w.-]{1,60}#\d+\b",
    r"\bHEAD[~^@]|\bdetached HEAD\b",
    r"\b(?:origin|upstream)/[\w./-]{1,100}|\brefs/\w{1,40}/",
    r"\b(?:bugfix|chore|feat|feature|fix|hotfix|release)/[\w.]{0,60}[-\d][\w.-]{0,60}",
    r"\b(?i:branch) [`\"'][\w./-]{1,100}[`\"']",
    hint=r"[/#\d]|HEAD|(?i:branch)",
)

CODE_FENCE = either(r"^ {0,3}(?:```|~~~)", hint="```|~~~")


# The conversational signal of a text: what it states about people, days, amounts and tastes.
#
# English, but for digits and units; a text of another language has less to go by. Standard library
# only.

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
    """Return what a text states: without fenced code and without its questions."""
    prose = _FENCED.sub("\n", text)
    kept: list[str] = []
    start = 0
    for end in SENTENCE_END.finditer(prose + "\n"):
        sentence = prose[start : end.start()]
        kept.append("" if _ASKED.search(sentence) else sentence)
        kept.append(prose[end.start() : end.end()])
        start = end.end()
    return "".join(kept)


def conversational_structure(text: str) -> Weighed:
    """Return D: dates, quantities, people, preferences, facts."""
    return _weigh(_MARKS, declared(text))


# The technical signals of a text: how technical it is, how specific, actionable and structured.
#
# Weights: research/peers.md 1.2.

TECHNICAL_NORM = 1.5
"""Sum of weights at which a text is wholly technical. Lower judges more turns by code alone."""

CHARS_PER_TOKEN = 4
"""Of the estimate inside P: a divisor only, never a budget (libravdb mathematics, section 3)."""

_TOKENS_PER_UNIT = 100
"""P is a density: marks per so many tokens; a text shorter than that counts as that long."""

_FUNCTION = either(DEFINITION.pattern.pattern, CALL.pattern.pattern, hint=r"\(")

_TECHNICAL = (
    Mark("code fence", 0.5, CODE_FENCE),
    Mark("function", 0.4, _FUNCTION),
    Mark("shell command", 0.4, COMMAND),
    Mark("address", 0.3, ADDRESS),
    Mark("stack trace", 0.5, STACK_TRACE),
    Mark("hash", 0.3, HEX_OR_HASH),
    Mark("file path", 0.4, FILE_PATH, in_urls=False),
)

_SPECIFIC = (
    Mark("function", 0.3, _FUNCTION),
    Mark("error code", 0.5, ERROR_CODE),
    Mark("git reference", 0.4, GIT_REF),
    Mark("address", 0.3, ADDRESS),
    Mark("file path", 0.4, FILE_PATH, in_urls=False),
)

_THING = (
    "(?:api|bug|build|crash|deploy(?:ment)?|error|failure|issue|leak|migration|problem|race|"
    "regression|tests?)"
)
_DECISION = either(
    r"\bADR-?\d+\b",
    r"\bwe(?:['’]ve| have)? (?:decided|agreed|settled|chose|opted)\b",
    r"\bI(?:['’]ve| have)? decided (?:on|to (?:adopt|drop|keep|migrate|move|replace|use))\b",
    r"\b(?:let['’]s|(?:we|I)(?:['’]ll| will| should)?) "
    r"(?:go with|stick (?:with|to)|standardi[sz]e on|switch to|migrate to)\b",
    r"\bdecision(?: is|:| was)",
    r"\b(?:architecture|design) decision\b",
    r"\b(?:chose|picked|use|using|prefer) \S{1,40} (?:over|instead of|rather than) \S",
    r"\b(?:I(?:['’]m| am)|we(?:['’]re| are)) going with\b",
    flags=re.IGNORECASE,
)
_RESOLUTION = either(
    r"\broot cause\b",
    rf"\b(?:fixed|resolved|solved|patched) (?:(?:the|this|that|it|by|with|in|my|our)\b|{_THING}\b)",
    rf"\b{_THING} (?:is|was|are|were|has been|got) (?:now )?(?:fixed|resolved|solved|caused by)\b",
    r"\b(?:works?|working) (?:again|now)\b",
    r"\bworkaround\b",
    r"\b(?:culprit|fix|solution) (?:is|was)\b",
    r"\bturn(?:ed|s) out to be (?:a|an|the)\b",
    flags=re.IGNORECASE,
)
_MILESTONE = either(
    r"\bmilestones?\b",
    r"\b(?:deployed|merged|rolled out|shipped)\b",
    r"\breleased (?:v?\d|the|to|in|on)\b|\bv\d+\.\d+(?:\.\d+)? (?:is out|released)\b",
    r"\b(?:went|is|are|now|goes) live\b|\bin production\b",
    r"\b(?:all )?(?:tests|checks|CI) (?:now )?(?:are |is )?(?:pass(?:es|ing|ed)?|green)\b",
    r"\b(?:cutover|deploy(?:ment)?|feature|migration|refactor(?:ing)?|release|rewrite|rollout) "
    r"(?:is |are |was )?(?:now )?(?:complete|completed|done|finished)\b",
    flags=re.IGNORECASE,
)
_CONFIGURATION = either(
    r"(?<![\w-])[A-Z][A-Z0-9_]{2,60}=[^\s=]",
    r"\b(?i:sets?|setting) [`\"']?(?:\w{1,60}[_.-][\w.-]{1,60}|[A-Z_]{3,60})[`\"']? (?i:to|=)",
    r"\b(?i:set) `[^`\n]{1,80}` (?i:to)\b",
    r"\b(?i:bump|change|decrease|increase|lower|raise|reduce|upgrade|downgrade)(?:e?d)? "
    r"(?:[\w`'._-]{1,60} ){1,6}?(?i:to|from) (?:`|v?\d)",
    r"\b(?i:disabled?|enabled?|turn(?:ed)? (?:on|off)|flipped?|toggled?) (?:the )?"
    r"(?:[\w`'._-]{1,60} ){0,3}?(?i:feature flag|flag|option|setting|switch)\b",
    r"\b(?i:config(?:uration)? (?:change|value|file|key)|feature flags?)\b",
)
_ACTIONABLE = (
    Mark("decision", 0.5, _DECISION),
    Mark("resolution", 0.4, _RESOLUTION),
    Mark("milestone", 0.3, _MILESTONE),
    Mark("configuration change", 0.4, _CONFIGURATION),
)

_DATA_STRUCTURE = either(
    r"\b(?:enum|interface|struct|trait) [A-Z]\w{0,80}(?:<[^<>\n]{0,80}>)?\s?(?:\{|$|extends\b)",
    r"^[ \t]{0,40}(?:export )?(?:abstract )?class [A-Z]\w{0,80}"
    r"(?:\([^()\n]{0,200}\)| extends [\w.]{1,80})?\s?[:{]",
    r"\btype [A-Z]\w{0,80}(?:<[^<>\n]{0,80}>)? = ",
    r"\b(?i:create table|alter table) [\w.`\"]",
    r"@dataclass\b|\b(?:BTreeMap|HashMap|HashSet|NamedTuple|TypedDict|defaultdict|ndarray)\b",
    r"\{\s{0,20}\"\w{1,60}\"\s?:",
    hint=r"[{@]|class|struct|enum|interface|trait|type |(?i:table)|Map|Set|Tuple|Dict|dict|array",
)
_DEPENDENCY = either(
    r"^[ \t]{0,8}import [\w.]{1,80}(?: as \w{1,40})?;?[ \t]{0,8}$",
    r"^[ \t]{0,8}from [\w.]{1,80} import \w",
    r"^[ \t]{0,8}import .{1,200} from [\"']",
    r"\brequire\([\"']|#include [<\"]|^[ \t]{0,8}use (?:crate|std|super)::",
    r"\b(?:Cargo\.toml|Gemfile|go\.mod|package(?:-lock)?\.json|pom\.xml|pyproject\.toml|requirements\.txt)\b",
    r"\b[a-z][\w-]{1,60}(?:==|>=|~=|@\^?)\d+\.\d",
    r"\b(?:pip3?|npm|yarn|pnpm|cargo|poetry|uv) (?:pip )?(?:add|i|install)\b",
    hint=r"import|require|include|use |\.(?:json|mod|toml|xml)|Gemfile|\d\.\d|(?:add|i|install)\b",
)
_TEST_CASE = either(
    r"\bdef test_\w|\btest_\w{2,60}\b|\bfunc Test[A-Z]\w{0,60}\(",
    r"\b(?:describe|it|test)\([\"'`]",
    r"@Test\b|#\[test\]|\bpytest\b",
    r"^[ \t]{0,40}assert \w{1,60}.{0,80}?(?:==|!=|<|>| in | is )|\bexpect\([^()\n]{0,200}\)\.",
    r"\b(?i:unit|integration|regression|property|end-to-end|e2e)[ -](?i:tests?)\b",
    r"\b(?i:test (?:cases?|suite|fixture))\b",
    hint=r"(?i:test)|assert|expect|describe|it\(",
)
_DOC_COMMENT = either(
    r"\"\"\"|'''",
    r"/\*\*",
    r"^[ \t]{0,40}//[/!] ",
    r"(?<!\w)@(?:param|returns?|throws) |:(?:param|returns?|raises)\b[^:\n]{0,60}:",
)
_STRUCTURED = (
    Mark("function definition", 0.4, DEFINITION),
    Mark("data structure", 0.3, _DATA_STRUCTURE),
    Mark("dependency", 0.3, _DEPENDENCY),
    Mark("test case", 0.2, _TEST_CASE),
    Mark("doc comment", 0.2, _DOC_COMMENT),
)


def technical_density(text: str) -> Weighed:
    """Return T: how technical a text is; 0 for a blank one."""
    return _weigh(_TECHNICAL, text, TECHNICAL_NORM)


def specificity(text: str) -> Weighed:
    """Return P: how many specific things a text names for its length."""
    tokens = max(len(text) // CHARS_PER_TOKEN, 1)
    return _weigh(_SPECIFIC, text, max(tokens / _TOKENS_PER_UNIT, 1.0), each=True)


def actionability(text: str) -> Weighed:
    """Return A: decisions, resolutions, milestones, changed settings."""
    return _weigh(_ACTIONABLE, text)


def structure(text: str) -> Weighed:
    """Return Dt: definitions, data structures, dependencies, tests, comments."""
    return _weigh(_STRUCTURED, text)


# The signals of one text: everything that the gate reads from the words alone.

READ_CHARS = 16_384
"""Code points of a text that are read. More finds marks deep inside pasted logs; less is faster."""

_DIGITS = 6


class Signals(NamedTuple):
    """What the words of a text say; every number is in [0, 1]."""

    t: float  # technical density, T: how far the technical branch counts
    d: float  # conversational structure, D
    p: float  # technical specificity, P
    a: float  # actionability, A
    dtech: float  # technical structure, Dt
    marks: tuple[str, ...] = ()  # names of what was found, sorted


BLANK = Signals(0.0, 0.0, 0.0, 0.0, 0.0)


def read_signals(text: str) -> Signals:
    """Return the signals of what a person said (research/peers.md 1.2); 0 for a blank text."""
    read = text[:READ_CHARS]
    if not read.strip():
        return BLANK
    readers = technical_density, conversational_structure, specificity, actionability, structure
    found = [reader(read) for reader in readers]
    marks = {name for weighed in found for name in weighed.names}
    return Signals(*(round(w.total, _DIGITS) for w in found), marks=tuple(sorted(marks)))


# The gating scalar G: how much a turn deserves to be remembered for good.
#
# Pure functions of numbers in [0, 1]. Source: libravdb's gate, research/peers.md 1.2.

NOVELTY_WEIGHT = 0.35
REPETITION_WEIGHT = 0.40
CONVERSATION_WEIGHT = 0.25
"""Of the conversational branch: H, R and D. A novel turn with nothing else reaches .35."""

SPECIFICITY_WEIGHT = 0.40
ACTION_WEIGHT = 0.35
STRUCTURE_WEIGHT = 0.25
"""Of the technical branch: P, A and Dt."""

REPEATED_COSINE = 0.80
REPEATED_HITS = 10
REPEATED_CAP = 5
"""F: earlier turns this much alike, of so many nearest; so many of them are all that counts."""

SATURATED_COSINE = 0.85
DURABLE_HITS = 5
SATURATED_CAP = 3
"""S: durable memories this much alike, of so many nearest; so many of them veto repetition."""


class Gate(NamedTuple):
    """G of one turn and its two branches, in [0, 1]."""

    g: float
    gconv: float
    gtech: float


def novelty(durable_cosines: list[float]) -> float:
    """Return H: 1 - the mean of the nearest durable cosines, negatives as 0; 1 without any."""
    if not durable_cosines:
        return 1.0
    return 1.0 - sum(min(max(c, 0.0), 1.0) for c in durable_cosines) / len(durable_cosines)


def repetition(turn_cosines: list[float], durable_cosines: list[float]) -> float:
    """Return R = F (1 - S): what is said again and again, unless it is kept already."""
    said = sum(c >= REPEATED_COSINE for c in turn_cosines)
    kept = sum(c >= SATURATED_COSINE for c in durable_cosines)
    return min(said / REPEATED_CAP, 1.0) * (1.0 - min(kept / SATURATED_CAP, 1.0))


def gate(signals: Signals, h: float, r: float) -> Gate:
    """Return G = (1 - T) Gconv + T Gtech with both branches, to 6 digits."""
    gconv = NOVELTY_WEIGHT * h + REPETITION_WEIGHT * r + CONVERSATION_WEIGHT * signals.d
    action = ACTION_WEIGHT * signals.a
    gtech = SPECIFICITY_WEIGHT * signals.p + action + STRUCTURE_WEIGHT * signals.dtech
    gconv, gtech = round(gconv, _DIGITS), round(gtech, _DIGITS)
    mixed = (1.0 - signals.t) * gconv + signals.t * gtech
    # Rounding must not lead out of the interval of the branches.
    low, high = sorted((gconv, gtech))
    return Gate(min(max(round(mixed, _DIGITS), low), high), gconv, gtech)


def said_something(signals: Signals) -> bool:
    """Say whether the words alone speak for a turn, in the branch that counts.

    Novelty and repetition cannot: in an empty store everything is new, and what is said most often
    is "thanks".
    """
    gtech = gate(signals, 0.0, 0.0).gtech
    return (1.0 - signals.t) * signals.d > 0.0 or signals.t * gtech > 0.0
