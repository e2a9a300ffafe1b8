"""Which texts hold a secret, and which rows their owner marked as sensitive."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from string import ascii_lowercase, digits

from noctuary.text.flags import find_mark
from noctuary.text.secret_forms import (
    MIN_SEED_WORDS,
    MIN_TOKEN_CHARS,
    TEXT_FORMATS,
    TOKEN_FORMATS,
    SecretRule,
    decode_text,
    find_card,
    find_iban,
    find_seed_phrase,
    find_unnamed,
    is_base32,
    is_code,
    is_password,
    judge_key,
    judge_pass,
    judge_password,
    judge_phrase,
    judge_pin,
    judge_stated,
    unwrap,
)
from noctuary.text.tokens import normalize

# A text without what hides a secret from a reader of its letters: the copy that is scanned too.
# Every pattern repeats bounded classes or one class, so that hostile text takes linear time.

_LOOKALIKES = dict(
    zip(
        "авеѕіјкмнорстухАВЕЅІЈКМНОРСТУХԁԛԝһɡαοενικρτυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
        "abesijkmhopctyxABESIJKMHOPCTYXdqwhgaoevikptuABEZHIKMNOPTYX",
        strict=True,
    )
)
_ALIKE = "".join(_LOOKALIKES)
_TO_LATIN = str.maketrans(_LOOKALIKES)

# Letters, digits and signs of assignments; punctuation of Chinese text is left as it is.
_COMPATIBLE = (
    "\uff03-\uff05\uff0d\uff10-\uff19\uff1d\uff20-\uff3a\uff3f\uff41-\uff5a"
    "\u2070-\u209c\u2460-\u24ea\U0001d400-\U0001d7ff"
)
_INVISIBLE = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff"
_UNUSUAL = re.compile(f"[{_INVISIBLE}{_COMPATIBLE}{_ALIKE}]")
_ASCII = bytes(range(128))
_DISGUISED = re.compile(f"[{_INVISIBLE}{_COMPATIBLE}]|[A-Za-z_][{_ALIKE}]|[{_ALIKE}][A-Za-z_]")
_MIXED_WORD = re.compile(f"(?=[{_ALIKE}]{{0,63}}[A-Za-z])[A-Za-z0-9{_ALIKE}]{{2,64}}")
_ENTITY = re.compile(r"&(?:#(\d{2,5})|#[xX]([0-9A-Fa-f]{2,4})|([A-Za-z]{2,8}));")
_ENTITY_NAMES = {
    "amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "equals": "=", "colon": ":",
    "lowbar": "_", "underbar": "_", "hyphen": "-", "dash": "-", "sol": "/", "period": ".",
    "commat": "@", "plus": "+", "num": "#", "dollar": "$", "excl": "!", "ast": "*", "percnt": "%",
    "nbsp": " ", "semi": ";", "quest": "?", "shy": "",
}  # fmt: skip
_PERCENT = re.compile(r"%(?:25){0,4}([2-7][0-9A-Fa-f])")
MIN_SPELLED = 8
_SPELLED = re.compile(b"\1{%d,}" % MIN_SPELLED)


def find_plain(text: str) -> str:
    """Return the text as its reader sees it, the text itself where nothing is disguised."""
    plain = text
    if "&" in plain and _ENTITY.search(plain):
        plain = _ENTITY.sub(_decode_entity, plain)
    if "%" in plain and _PERCENT.search(plain):
        plain = _PERCENT.sub(lambda found: chr(int(found[1], 16)), plain)
    # One class of what is not ASCII first: it is looked for many times as fast.
    if not plain.isascii() and _UNUSUAL.search(leave_ascii(plain)) and _DISGUISED.search(plain):
        plain = _MIXED_WORD.sub(lambda found: found[0].translate(_TO_LATIN), normalize(plain))
    return plain


def leave_ascii(text: str) -> str:
    """Return a text without its ASCII characters, empty where the rest is quotes and dashes."""
    raw = text.encode("utf-8", "surrogatepass")
    return raw.translate(None, _ASCII).decode("utf-8", "surrogatepass").strip("’‘“”–—…•")


def close_spelled(words: list[str], lengths: list[int]) -> str:
    """Return what eight or more letters in a row say that stand apart, an empty text without."""
    # Of eight in a row two are every fourth of the text.
    if b"\1\1" not in bytes(map((1).__eq__, lengths[::4])):
        return ""
    apart = _SPELLED.finditer(bytes(map((1).__eq__, lengths)))
    return "\n".join("".join(words[slice(*run.span())]) for run in apart)


def join_broken(text: str, prefixes: tuple[str, ...]) -> list[str]:
    """Return the last word of each line that begins like a token, with the next line's first."""
    # Lines that hold nothing but one word may be further parts: every length is returned.
    joined = list[str]()
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1]):
        last = line.rsplit(None, 1)[-1:]
        word = last[0].lstrip("\"'`(") if last else ""
        if not word or not word.lower().startswith(prefixes):
            continue
        for part in lines[number + 1 : number + 5]:
            words = part.split(None, 1)
            word += words[0] if words else ""
            joined.append(word)
            if len(words) != 1:
                break
    return joined


def _decode_entity(found: re.Match[str]) -> str:
    decimal, hexadecimal, name = found.groups()
    if name:
        return _ENTITY_NAMES.get(name, found[0])
    code = int(decimal) if decimal else int(hexadecimal, 16)
    return chr(code) if code >= 0x20 else " "


# Secrets that a word before them tells: passwords, PINs, keys and codes, in a dozen languages.
#
# A text is searched in lower case; the value is judged as it was written. Every repeat is bounded.
# The better a word and a verb say that a value follows, the less the value has to look like one:
# "password: hunter2" and "PIN is 4711" count, "password hunter2" does, "token hunter2" does not,
# and a word out of a dictionary counts only in quotes or after a verb that quotes ("lautet").

_QUOTES = "\"'`“”„‘’«»「」『』"
_FOR_WHAT = (
    r"(?:[ \t](?:of|for|to|on|at|from|für|fürs|fuer|vom|von|zum|zur|der|des|am|de|del|du|para|do|da"
    r"|dla|della|al|voor|van|от|для|к|на|ot|dlya)[ \t][^\s:=.]{1,20}(?:[ \t][^\s:=.]{1,20}){0,4}?"
    r"|[ \t]\([^()\n]{1,30}\))"
)
_QUOTE = rf"[{_QUOTES}*]{{0,3}}"
_SAYS = (
    r"(?:[ \t]\((?=[^\s()]{4,60}\))"
    r"|\s{0,5}(?:[:=]{1,2}>?|(?<=\s)-(?=\s)|：|[–—→]|->|是|为|為|は|는|은)\s{0,5}"
    r"|\s{1,3}(?:(?:is|was|ist|war)(?: now| still| currently| jetzt| nun)?"
    r"|(?:is |was |has been )?(?:changed|reset|set) to|lautet:?|es|era|est|è|é|je"
    r"|used to be|jest|to|är|er|это|adalah|là|είναι)\s{1,5}(?:(?:the|le|el|la|die)\s)?)"
)
# "to" says a value only behind these; nothing does behind those.
_CHANGED = re.compile(r"(?:chang|set|reset|updat)[a-z]{0,3}\s[^.\n]{0,50}\Z")
_NO_VALUE = re.compile(
    r"(?<![a-z])(?:without|weak|failed|invalid|wrong|incorrect|bad)(?: an?| any| the)?\s\Z"
)
# How a value follows: something says so, a space alone, or what it was made for and then a verb.
_FOLLOWS = (
    rf"(?:(?:{_FOR_WHAT}|[ \t][а-яё]{{2,15}})?{_QUOTE}(?P<says>{_SAYS})"
    rf"|(?:(?:[ \t](?:от|для|к|на))?[ \t][а-яё]{{2,15}})?[ \t]{{1,3}}){_QUOTE}"
)
_VALUE = rf"(?P<value>[^\s,;，。；{_QUOTES}]{{4,200}})"
_ASCII_VALUE = r"(?P<value>[!#-&(-+\--:<-_a-~]{4,200})"

_LOCKED = (
    r"(?:front door|back door|door|gate|alarm|safe|garage|lock|lockbox|locker|key ?box|building"
    r"|entrance|house|keypad|vault|shed|phone|sim|card|alarmanlage|haustür|tür|tresor|karte|alarma"
    r"|puerta|portal|caja fuerte|tarjeta|alarme|porte|portail|coffre|immeuble|carte)"
)
_DIGITS = r"#?(?P<value>\d{4,8}|\d\d-\d\d-\d\d)(?![a-z0-9_%]|[.,:/-]\d)"


def _behind(words: str, name: str, before: str = "") -> str:
    """Return a pattern for a name that stands behind one of some words."""
    between = "|".join(
        f"(?<={before}{word}{gap}{name})" for word in words.split() for gap in ("[ _-]", "", "'s ")
    )
    return f"{name}(?![a-z])(?:{between})"


_NO_LETTER = "(?<![a-z])"
# Of other codes it is ordinary to say the number.
_ORDINARY = """
area bar billing color colour country course coupon currency dial dialing dialling discount dress
error exit fault hex http item language model order paint part post postal product promo qr ral
response result return sort source status tax trouble voucher zip
"""
_NOT_ORDINARY = "".join(f"(?<!{_NO_LETTER}{word}[ _-]code)" for word in _ORDINARY.split())

_KEY = (
    r"(?:secret(?:[ _-]?(?:access[ _-]?)?key)?(?:_base)?|token|credentials?|ключ"
    r"|токен[а-я]{0,2}|clé api|密钥|密鑰|令牌|"
    + _behind(
        "api access auth encryption private server wallet deploy admin signing master account"
        " storage service bot app fcm client license wifi wlan",
        "key",
    )
    + "|"
    + _behind("api zugangs zugriffs wlan wifi netzwerk", "schlüssel")
    + ")"
)
_PIN = (
    r"(?:pin(?<![a-z]pin)(?:[ -]?(?:code|number|nummer|码))?(?![a-z])|puk(?<![a-z]puk)(?![a-z])"
    r"|geheimzahl|digicode|(?:code(?<![a-z]code)"
    + _NOT_ORDINARY
    + r"|combination|c[oó]digo|codice)[ \t]"
    r"(?:for|of|to|der|des|für|vom|zum|zur|de|del|du|della)[ \t]"
    rf"(?:l'|[^\s:=.]{{1,12}}[ \t]){{0,3}}?{_LOCKED}|safe opens with"
    r"|код[ \t](?:от |для |на )?(?:сигнализации|домофона|сейфа|двери|подъезда|карты|замка)"
    r"|пин(?<![а-я]пин)(?:-?код[а-я]{0,2})?(?![а-я])|"
    + _behind(
        "door gate alarm safe garage lock lockbox locker box building entrance house keypad vault"
        " access entry unlock security tür haustür eingangstür wohnungstür zugangs",
        "code",
        _NO_LETTER,
    )
    + "|"
    + _behind("safe lock vault locker", "combination", _NO_LETTER)
    + ")"
)

Judge = Callable[[str, str], bool]  # of the value, and what says that it follows ("" for a space)


@dataclass(frozen=True, eq=False)
class _Named:
    """Words, what follows them, and which values count."""

    starts: tuple[str, ...]  # lower-case literals, one of which every match begins with
    # A pattern of a lower-case text, with the groups `value` and, where it can be told, `says`;
    # compiled for the first text that has a start.
    source: str
    judge: Judge

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.source)


def _named(starts: str, pattern: str, judge: Judge) -> _Named:
    return _Named(tuple(starts.split(";")), pattern, judge)


def _password(
    starts: str, ending: str = "", before: str = "", judge: Judge = judge_password
) -> _Named:
    pattern = rf"{before}(?:{starts.replace(';', '|')}){ending}{_FOLLOWS}{_VALUE}"
    return _named(starts, pattern, judge)


# A word between quotes, or at the end of a sentence that does nothing but quote.
_STATED = _named(
    "password;passwort;mot de passe;kennwort;contraseña",
    rf"(?:password|passwort|kennwort|contraseña|mot de passe)(?:{_FOR_WHAT})?"
    rf"(?:(?P<says>\s{{1,3}}(?:is|was|ist|es|est)\s{{1,3}}[{_QUOTES}]{{1,3}})(?P<value>\w{{5,60}})[{_QUOTES}]"
    r"|\s{1,3}lautet:?\s{1,3}(?P<stated>\w{5,60})[.!]?\s{0,3}(?:\n|\Z))",
    judge_stated,
)
_PASS = (
    _password(
        "password;passwd;passcode;passphrase;passwort;passord;palavra-passe;mot de passe",
        r"(?:en|et|_base|_?\d)?(?![^\W_])",
    ),
    _password("pass", r"(?=[\"']?\s?[:=])", r"(?<![a-z])", judge_pass),
    _STATED,
    _named(
        "passphrase;pass phrase;master password",
        rf"(?:pass ?phrase|master password){_FOLLOWS}"
        r"(?P<value>[^\W\d_]{3,12}(?:[ -][^\W\d_]{3,12}){3,11})(?:[ -]\d{1,4})?"
        rf"(?=\s{{0,5}}(?:\Z|[\n.,;!?)*{_QUOTES}]))",
        judge_phrase,
    ),
)
_KEYS = _named("secret;token;credential;key", _KEY + _FOLLOWS + _VALUE, judge_key)
# Looked for as parts of words: APP_SECRETKEY, dbpwd.
_INSIDE = (
    # Not "passed", "passes", "passage"; not "keyboard".
    ("pass", re.compile(r"pass(?:[wcop]|[\"']?\s?[:=]|e(?![a-z])| phrase)"), _PASS),
    ("pwd", None, (_password("pwd"),)),
    ("kennwort", None, (_password("kennwort"), _STATED)),
    ("key", re.compile("key(?![a-z])"), (_KEYS,)),
    *((word, None, (_KEYS,)) for word in ("secret", "token", "credential")),
)

_PINS = _named(
    "pin;code;codigo;codice;código;combination;geheimzahl;puk;digicode;safe opens;код;пин",
    _PIN + _FOLLOWS + _DIGITS,
    judge_pin,
)
_RECOVERY = _named(
    "recovery;backup;scratch;rescue;wiederherstellungs",
    r"(?:recovery|backup|scratch|rescue|wiederherstellungs)[ -]?(?:codes?|keys?|schlüssel)"
    + _FOLLOWS
    + r"(?P<value>[a-z0-9]{4,10}(?:[ -][a-z0-9]{4,10}){1,11}|[a-z0-9]{8,64})(?![\w-])",
    is_code,
)
_FACTOR = _named(
    "otp;2fa;mfa;authenticator;two-factor",
    rf"(?:otp|2fa|mfa|authenticator|two-factor)[ _-](?:secret|seed|key){_FOLLOWS}"
    r"(?P<value>[a-z2-7]{16,64}|[a-z2-7]{4}(?:[ -][a-z2-7]{4}){3,15})",
    is_base32,
)
# Commands and files that take a password by position; a command ends where the next begins.
_FLAG = r"[ =]{1,3}[\"']?"
_ARGUMENT = r"(?P<value>[^\s\"']{6,200})"


def _command(names: str, arguments: str) -> _Named:
    pattern = rf"(?<!\w)(?:{names.replace(' ', '|')})\b{arguments}{_ARGUMENT}"
    return _named(names.replace(" ", ";"), pattern, is_password)


_COMMANDS = {
    "curl": r"[^\n]{0,80}?[ ](?:-u|--user)[ =][\"']?[^\s:\"']{1,60}:",
    "mysql mysqldump mariadb": r"[^\n;&|]{0,80}?[ ]-p[\"']?",
    "sshpass": r"[ ]{1,3}-p[ ]{0,3}[\"']?",
    "login": r"[ \t]{1,3}[^\s]{1,100}\s{1,3}password[ \t]{1,3}",
    "snowsql docker mongo mongosh mongodump":
        rf"(?:(?<!docker)|[ ]login)\b[^\n;&|]{{0,120}}?[ ](?:-p|--password){_FLAG}",
    "redis": rf"-cli\b[^\n;&|]{{0,80}}?[ ](?:-a|--pass){_FLAG}",
    "sqlcmd": r"[^\n;&|]{0,80}?[ ]-p[ ]{0,3}[\"']?",
    "ldapsearch ldapmodify": rf"[^\n;&|]{{0,120}}?[ ]-w{_FLAG}",
    "sqlplus": r"[ ]{1,3}[^\s/]{1,60}/(?=[^\s/]{6,200}@)",
    "smbclient": r"[^\n;&|]{0,80}?[ ](?:-u|--user)[ =]{0,3}[^\s%]{1,60}%",
}  # fmt: skip
# Looked for as whole words of the letters alone, each with the rule to try.
_NAMED_BY = {
    **{names: _command(names, arguments) for names, arguments in _COMMANDS.items()},
    "psw pw mdp senha parol sifre sifresi mima pasuwado": _password(
        "psw;pw;mdp;senha;parol;sifre;mima;pasuwado",
        r"(?:(?<=sifre)si)?(?![a-z])(?: shi| wa| nova)?",
        r"(?<![a-z])",
    ),
    # A clue or a key, and a word, as well: a number alone is none.
    "clave parola": _password(
        "clave;parola", r"(?![a-z])(?: nueva| nuova)?", r"(?<![a-z])", is_password
    ),
    "contrasena wachtwoord losenord loesenord salasana haslo heslo": _password(
        "contrasena;wachtwoord;losenord;loesenord;salasana;haslo;heslo",
        r"(?:(?<=haslo)(?: do [^\s:]{1,20})? to)?(?![^\W_])",
    ),
    "pin pincode code codigo codice combination geheimzahl puk digicode opens zugangscode": _PINS,
    "recovery backup scratch rescue wiederherstellungscode wiederherstellungscodes": _RECOVERY,
    "otp totp hotp fa mfa authenticator factor": _FACTOR,
    "auth": _named(
        '"auth;_auth',
        r"[\"_]auth[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?P<value>[a-z0-9+/]{8,400}={0,2})",
        lambda value, says: ":" in decode_text(value)[1:],
    ),
}
_WHOLE = {word: named for words, named in _NAMED_BY.items() for word in words.split()}
NAMING_WORDS = frozenset(_WHOLE)
# Tried where a text has other than ASCII letters.
_ABROAD = (
    _password(
        "contraseña;парол;lösenord;jelszó;mật khẩu;hasło;şifre;κωδικός;كلمة المرور;كلمة السر;סיסמה",
        r"(?:et|si|in|im|m|[ьяюе])?(?:(?<=hasło)(?: do [^\s:]{1,20})? to)?(?![^\W_])",
    ),
    _STATED,
    _named(
        "密码;密碼;口令;パスワード;비밀번호",
        r"(?:密码|密碼|口令|パスワード|비밀번호)"
        r"(?P<says>\s{0,3}(?:[:=：是为為はは는은]|改成|改为|设为|设置为|换成))?"
        rf"\s{{0,3}}{_QUOTE}{_ASCII_VALUE}",
        judge_password,
    ),
    _named("ключ;токен;schlüssel;clé;密钥;密鑰;令牌", _KEY + _FOLLOWS + _VALUE, judge_key),
    replace(_PINS, starts=("código", "code", "код", "пин")),
    replace(_RECOVERY, starts=("wiederherstellungsschl",)),
    _named(
        "暗証番号;门禁;取款",
        rf"(?:暗証番号|门禁密?码|取款密码)[:=：是为は\s]{{0,3}}{_DIGITS}",
        lambda value, says: True,
    ),
)
# Each of their words has one of these letters, or is one of those: one search for all is a tenth.
_ABROAD_LETTER = re.compile("[ñпöóẩłşكס密パ비кт令証禁款]")
_WITH_COMMON_LETTER = ("clé", "tür", "schlüssel", "κωδικός")


def find_named(text: str, lowered: str, said: Iterable[str]) -> bool:
    """Tell whether a text says a password, a PIN, a key or a code after the word for it."""
    rules = list[_Named]()
    for part, behind, named in _INSIDE:
        if part in lowered and (behind is None or behind.search(lowered)):
            rules += named
    rules += [_WHOLE[word] for word in said if word in _WHOLE]
    if not lowered.isascii() and (
        (abroad := leave_ascii(lowered))
        and (_ABROAD_LETTER.search(abroad) or any(word in lowered for word in _WITH_COMMON_LETTER))
    ):
        rules += _ABROAD
    if not rules:
        return False
    # A few letters are longer in lower case; then what has changed is judged.
    original = text if len(text) == len(lowered) else lowered
    return any(_follows(rule, original, lowered) for rule in dict.fromkeys(rules))


def _follows(rule: _Named, text: str, lowered: str) -> bool:
    for literal in rule.starts:
        start = lowered.find(literal)
        while start >= 0:
            if found := rule.pattern.match(lowered, start):
                groups = found.groupdict()
                value = text[slice(*found.span("value" if groups["value"] else "stated"))]
                says = groups.get("says") or ""
                before = lowered[max(0, start - 60) : start]
                is_said = says.split()[:1] != ["to"] or _CHANGED.search(before)
                if is_said and not _NO_VALUE.search(before) and rule.judge(value, says):
                    return True
            start = lowered.find(literal, start + 1)
    return False


# Rules of our own instead of a package's: measured against three of them on labelled texts, these
# find more, flag less and load nothing (docs/decisions/0022-secrets.md).

_Hints = tuple[tuple[str, SecretRule], ...]


def _hints_of(rules: Iterable[SecretRule]) -> _Hints:
    return tuple((hint, known) for known in rules for hint in known.hints)


# Every byte but a small letter is a space.
_NO_LETTERS = bytes(code if chr(code) in ascii_lowercase else 32 for code in range(256))
# A number has zeros for its digits and a space for what stands between them.
_SHAPE = bytes(
    48 if chr(code) in digits else 32 if chr(code) in " -" else 120 for code in range(256)
)
# Those of digits are tried where a text has a number, most others where it assigns something.
_NUMBER_HINTS = _hints_of(known for known in TEXT_FORMATS if known.name == "social_security_number")
_PLAIN_HINTS = _hints_of(
    known for known in TEXT_FORMATS if known.name in {"private_key", "aws_access_key"}
)
_TEXT_HINTS = _hints_of(known for known in TEXT_FORMATS if known.name != "social_security_number")
_TOKEN_HINTS = _hints_of(TOKEN_FORMATS)
_IS_LONG = (MIN_TOKEN_CHARS - 1).__lt__
# The long word that every row has, twice; a token needs other letters than T and Z.
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T\d:.+Z-]*", re.ASCII)
# It, and a long English word: no token is made of small letters alone.
_NO_TOKEN = re.compile(
    rf"{TIMESTAMP.pattern}|[(\"']?[A-Za-z]?[a-z]{{1,40}}(?:-[a-z]{{1,40}}){{0,9}}[.,:;?!)\"']{{0,3}}",
    re.ASCII,
)
_TOKEN_RUN = re.compile(rf"[!-~]{{{MIN_TOKEN_CHARS},}}")
# Where a token may be cut by a line break: what it begins with, as far as it is no English word.
_NO_PREFIX = {"asia", "discord", "abia", "acca", "sntry", "sig=", "v1.0-", "x-amz-signature="}
_CUT_PREFIXES = tuple(
    hint
    for known in TOKEN_FORMATS
    for hint in known.hints
    if (len(hint) > 3 or hint in {"xox", "hf_"}) and hint not in _NO_PREFIX
)
# What a text with such a token has for certain: the letters before a sign, as a word of their own,
# or the beginning of those that go on with letters.
_CUT_STARTS = ("xox", "akia", "aiza", "eyj", "atatt", "dapi")
_CUT_WORDS = frozenset(re.split("[^a-z]", prefix)[0] for prefix in _CUT_PREFIXES)
_SAID_WORDS = NAMING_WORDS | _CUT_WORDS


def find_secret(text: str) -> str | None:
    """Return the name of the first credential in a text, or None; never the match."""
    # The text is looked at as it is and, where anything in it is disguised, as its reader sees it.
    found = _find(text)
    if found is None and (plain := find_plain(text)) != text:
        found = _find(plain)
    return found


def _find(text: str) -> str | None:
    # Every text of every night passes here: what is cheap to tell keeps the rest from being tried.
    lowered = text.lower()
    raw = lowered.encode("utf-8", "surrogatepass")
    letters = raw.translate(_NO_LETTERS).decode("ascii").split()
    said = _SAID_WORDS.intersection(letters)
    words = text.split()
    lengths = list(map(len, words))
    hints = _TEXT_HINTS if ":" in text or "=" in text else _PLAIN_HINTS
    if found := _find_format(text, lowered, hints):
        return found
    if max(lengths, default=0) >= MIN_TOKEN_CHARS:
        long = [w for w in compress(words, map(_IS_LONG, lengths)) if not _NO_TOKEN.fullmatch(w)]
        if long and (found := _find_token(long)):
            return found
    if find_named(text, lowered, said):
        return "assigned_password"
    shape = raw.translate(_SHAPE)
    if (
        b"000" in shape
        and (b"00000000" in shape or b"0000 0000" in shape or b"000 00 0000" in shape)
        and (found := _find_number(text, lowered))
    ):
        return found
    if len(letters) >= MIN_SEED_WORDS and find_seed_phrase(letters, words):
        return "seed_phrase"
    if "\n" in text and (found := _find_cut(text, lowered, said)):
        return found
    return _find_spelled(words, lengths) if lengths.count(1) >= MIN_SPELLED else None


def _find_format(text: str, lowered: str, hints: _Hints) -> str | None:
    for hint, known in hints:
        if hint in lowered and known.pattern.search(text):
            return known.name
    return None


def _find_token(long: list[str]) -> str | None:
    """Look at the long words alone: no token has a space, and most texts have no long word."""
    joined = "\n".join(long)
    if not joined.isascii():
        # Chinese has no spaces.
        long = _TOKEN_RUN.findall(joined)
        if not long:
            return None
        joined = "\n".join(long)
    if found := _find_format(joined, joined.lower(), _TOKEN_HINTS) or find_unnamed(long):
        return found
    if not (inner := unwrap(joined)):
        return None
    return _find_format(inner, inner.lower(), _TEXT_HINTS) or _find_worded(inner)


def _find_worded(text: str) -> str | None:
    """Look for a token or for what a word names in a text that was hidden within another."""
    lowered = text.lower()
    said = NAMING_WORDS.intersection(re.findall("[a-z]+", lowered))
    return _find_format(text, lowered, _TOKEN_HINTS) or (
        "assigned_password" if find_named(text, lowered, said) else None
    )


def _find_number(text: str, lowered: str) -> str | None:
    if find_card(text):
        return "payment_card"
    if find_iban(text):
        return "bank_account"
    return _find_format(text, lowered, _NUMBER_HINTS)


def _find_cut(text: str, lowered: str, said: frozenset[str]) -> str | None:
    if said.isdisjoint(_CUT_WORDS):
        for start in _CUT_STARTS:
            if start in lowered:
                break
        else:
            return None
    cut = "\n".join(join_broken(text, _CUT_PREFIXES))
    return _find_format(cut, cut.lower(), _TOKEN_HINTS)


def _find_spelled(words: list[str], lengths: list[int]) -> str | None:
    closed = close_spelled(words, lengths)
    return _find_worded(closed) if closed else None


PLACEHOLDER = "placeholder"
_SECRET_PREFIX = "secret:"
_PLACEHOLDERS = re.compile(r"\[(?:REDACTED|SENSITIVE)", re.IGNORECASE)


def find_text_sensitivity(text: str) -> str | None:
    """Return why a text must not be kept (a placeholder, a kind of secret), or None."""
    if _PLACEHOLDERS.search(text):
        return PLACEHOLDER
    secret = find_secret(text)
    return None if secret is None else _SECRET_PREFIX + secret


def read_rules() -> list[str]:
    """Return the lines of this package: what another version of it judged is judged again."""
    here = Path(__file__).parent
    return [
        path.read_text("utf-8") for kind in ("py", "txt") for path in sorted(here.glob(f"*.{kind}"))
    ]


# Is a row sensitive: the marks that its owner or its store set, then every text of it.

_MAX_NESTING = 8


def find_fields_sensitivity(fields: Mapping[str, object]) -> str | None:
    """Return why a row must not leave its store (a mark, or what a text holds), or None."""
    # Every text of the row is scanned, also of fields that would not be exported.
    return find_mark(fields) or find_text_sensitivity("\n".join(_texts(tuple(fields.values()))))


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif depth < _MAX_NESTING:
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from _texts(key, depth + 1)
                yield from _texts(item, depth + 1)
        elif isinstance(value, list | tuple):
            for item in value:
                yield from _texts(item, depth + 1)
