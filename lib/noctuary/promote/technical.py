"""The technical signals of a text: how technical it is, how specific, actionable and structured.

What belongs here: the weights of libravdb's gate and the marks that only they use. What does not:
marks of code as such (`code_marks`), the formula (`scalar`). Weights: research/peers.md 1.2.
Standard library only.
"""

from __future__ import annotations

import re

from noctuary.promote.code_marks import (
    ADDRESS,
    CALL,
    CODE_FENCE,
    COMMAND,
    DEFINITION,
    ERROR_CODE,
    FILE_PATH,
    GIT_REF,
    HEX_OR_HASH,
    STACK_TRACE,
    without_urls,
)
from noctuary.promote.marks import Mark, Weighed, either, weigh_occurrences, weigh_presence

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
)
_PATH = Mark("file path", 0.4, FILE_PATH)

_SPECIFIC = (
    Mark("function", 0.3, _FUNCTION),
    Mark("error code", 0.5, ERROR_CODE),
    Mark("git reference", 0.4, GIT_REF),
    Mark("address", 0.3, ADDRESS),
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
    """Return T: how technical a text is; the total is in [0, 1], 0 for a blank one."""
    found = weigh_presence(_TECHNICAL, text)
    path = weigh_presence((_PATH,), without_urls(text))
    total = min((found.total + path.total) / TECHNICAL_NORM, 1.0)
    return Weighed(total, (*found.names, *path.names))


def specificity(text: str) -> Weighed:
    """Return P: how many specific things a text names for its length; the total is in [0, 1]."""
    found = weigh_occurrences(_SPECIFIC, text)
    paths = weigh_occurrences((_PATH,), without_urls(text))
    tokens = max(len(text) // CHARS_PER_TOKEN, 1)
    density = (found.total + paths.total) / max(tokens / _TOKENS_PER_UNIT, 1.0)
    return Weighed(min(density, 1.0), (*found.names, *paths.names))


def actionability(text: str) -> Weighed:
    """Return A: decisions, resolutions, milestones, changed settings; the total is in [0, 1]."""
    found = weigh_presence(_ACTIONABLE, text)
    return Weighed(min(found.total, 1.0), found.names)


def structure(text: str) -> Weighed:
    """Return Dt: definitions, data structures, dependencies, tests, comments; total in [0, 1]."""
    found = weigh_presence(_STRUCTURED, text)
    return Weighed(min(found.total, 1.0), found.names)
