"""Secrets that a word before them tells: passwords, PINs, keys and codes, in a dozen languages.

What belongs here: the words, and what may stand between them and the value. What does not: which
values count (`noctuary.text.secret_values`), formats that tell themselves
(`noctuary.text.token_formats`).

A text is searched in lower case; the value is judged as it was written. Every repeat is bounded.
The better a word and a verb say that a value follows, the less the value has to look like one:
"password: hunter2" and "PIN is 4711" count, "password hunter2" does, "token hunter2" does not, and
a word out of a dictionary counts only in quotes or after a verb that quotes ("lautet").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from noctuary.text.disguises import leave_ascii
from noctuary.text.secret_numbers import decode_text
from noctuary.text.secret_values import (
    is_base32,
    is_code,
    is_password,
    judge_key,
    judge_pass,
    judge_password,
    judge_phrase,
    judge_pin,
    judge_stated,
)

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


@dataclass(frozen=True, eq=False)
class _Named:
    """Words, what follows them, and which values count.

    Attributes:
        starts: Lower-case literals, one of which every match begins with.
        source: A pattern of a lower-case text, with the groups `value` and, where it can be told,
            `says`; compiled for the first text that has a start.
        judge: Of the value, and what says that it follows ("" for a space alone).
    """

    starts: tuple[str, ...]
    source: str
    judge: Callable[[str, str], bool]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.source)


def _named(starts: str, pattern: str, judge: Callable[[str, str], bool]) -> _Named:
    return _Named(tuple(starts.split(";")), pattern, judge)


def _password(
    starts: str,
    ending: str = "",
    before: str = "",
    judge: Callable[[str, str], bool] = judge_password,
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
    lambda value, says: is_code(value),
)
_FACTOR = _named(
    "otp;2fa;mfa;authenticator;two-factor",
    rf"(?:otp|2fa|mfa|authenticator|two-factor)[ _-](?:secret|seed|key){_FOLLOWS}"
    r"(?P<value>[a-z2-7]{16,64}|[a-z2-7]{4}(?:[ -][a-z2-7]{4}){3,15})",
    lambda value, says: is_base32(value),
)
# Commands and files that take a password by position; a command ends where the next begins.
_FLAG = r"[ =]{1,3}[\"']?"
_ARGUMENT = r"(?P<value>[^\s\"']{6,200})"


def _command(names: str, arguments: str) -> tuple[str, tuple[_Named, ...]]:
    pattern = rf"(?<!\w)(?:{names.replace(' ', '|')})\b{arguments}{_ARGUMENT}"
    return names, (
        _named(names.replace(" ", ";"), pattern, lambda value, says: is_password(value)),
    )


_COMMANDS = (
    _command("curl", r"[^\n]{0,80}?[ ](?:-u|--user)[ =][\"']?[^\s:\"']{1,60}:"),
    _command("mysql mysqldump mariadb", r"[^\n;&|]{0,80}?[ ]-p[\"']?"),
    _command("sshpass", r"[ ]{1,3}-p[ ]{0,3}[\"']?"),
    _command("login", r"[ \t]{1,3}[^\s]{1,100}\s{1,3}password[ \t]{1,3}"),
    _command(
        "snowsql docker mongo mongosh mongodump",
        rf"(?:(?<!docker)|[ ]login)\b[^\n;&|]{{0,120}}?[ ](?:-p|--password){_FLAG}",
    ),
    _command("redis", rf"-cli\b[^\n;&|]{{0,80}}?[ ](?:-a|--pass){_FLAG}"),
    _command("sqlcmd", r"[^\n;&|]{0,80}?[ ]-p[ ]{0,3}[\"']?"),
    _command("ldapsearch ldapmodify", rf"[^\n;&|]{{0,120}}?[ ]-w{_FLAG}"),
    _command("sqlplus", r"[ ]{1,3}[^\s/]{1,60}/(?=[^\s/]{6,200}@)"),
    _command("smbclient", r"[^\n;&|]{0,80}?[ ](?:-u|--user)[ =]{0,3}[^\s%]{1,60}%"),
)
# Looked for as whole words of the letters alone, each with the rules to try.
_WHOLE: Mapping[str, tuple[_Named, ...]] = {
    word: rules
    for words, rules in (
        *_COMMANDS,
        (
            "psw pw mdp senha parol sifre sifresi mima pasuwado",
            (
                _password(
                    "psw;pw;mdp;senha;parol;sifre;mima;pasuwado",
                    r"(?:(?<=sifre)si)?(?![a-z])(?: shi| wa| nova)?",
                    r"(?<![a-z])",
                ),
            ),
        ),
        (
            # A clue or a key, and a word, as well: a number alone is none.
            "clave parola",
            (
                _password(
                    "clave;parola",
                    r"(?![a-z])(?: nueva| nuova)?",
                    r"(?<![a-z])",
                    lambda value, says: is_password(value),
                ),
            ),
        ),
        (
            "contrasena wachtwoord losenord loesenord salasana haslo heslo",
            (
                _password(
                    "contrasena;wachtwoord;losenord;loesenord;salasana;haslo;heslo",
                    r"(?:(?<=haslo)(?: do [^\s:]{1,20})? to)?(?![^\W_])",
                ),
            ),
        ),
        (
            "pin pincode code codigo codice combination geheimzahl puk digicode opens zugangscode",
            (_PINS,),
        ),
        (
            "recovery backup scratch rescue wiederherstellungscode wiederherstellungscodes",
            (_RECOVERY,),
        ),
        ("otp totp hotp fa mfa authenticator factor", (_FACTOR,)),
        (
            "auth",
            (
                _named(
                    '"auth;_auth',
                    r"[\"_]auth[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?P<value>[a-z0-9+/]{8,400}={0,2})",
                    lambda value, says: ":" in decode_text(value)[1:],
                ),
            ),
        ),
    )
    for word in words.split()
}
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
    """Tell whether a text says a password, a PIN, a key or a code after the word for it.

    Args:
        text: As it was written.
        lowered: The same in lower case.
        said: Those of `NAMING_WORDS` that are a run of its letters; others may be among them.
    """
    rules = list[_Named]()
    for part, behind, named in _INSIDE:
        if part in lowered and (behind is None or behind.search(lowered)):
            rules += named
    for word in said:
        rules += _WHOLE.get(word, ())
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
