"""What code looks like inside a sentence: paths, calls, commands, addresses, codes, references.

What belongs here: patterns that fire on the real thing and not on English ("and/or" is no path,
"music (loud)" no call, "go home" no command, "every" no error code). What does not: what a pattern
counts (`technical`). Standard library only.
"""

from __future__ import annotations

import re

from noctuary.promote.marks import either

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


def without_urls(text: str) -> str:
    """Return a text whose URLs are blanks: the path of an address is no file."""
    return _URL_PATTERN.sub(" ", text)
