"""Secrets that a word before them tells: passwords, PINs, keys and codes, in a dozen languages.

What belongs here: the words, what may stand between them and the value, and which values count.
What does not: formats that tell themselves (`mnemon.text.token_formats`).

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
from itertools import takewhile

from mnemon.text.disguises import leave_ascii
from mnemon.text.secret_numbers import decode_text, entropy_bits
from mnemon.text.stopwords import STOP_WORDS

MIN_SECRET_ENTROPY_BITS = 2.5
"""Shannon bits per character that an assigned value needs: eight random characters, one of them
repeated, have 2.75, padded words less. Lower drops more harmless rows, higher misses weak
passwords."""

MIN_SECRET_CHARS = 8
"""Shortest assigned value that is judged: below, versions, ports and counts look like passwords."""

MIN_PASSWORD_CHARS = 6
"""The same where the word before says password and nothing else."""

MIN_RANDOM_CHARS = 16
"""Shortest value that counts after "token" or "key" with nothing but a space between."""

# Not a value but where it comes from: a variable, a template, a path, an address, a call, a vault.
_INDIRECT = re.compile(
    r"[$<{%*~/.\[(]|[a-z][a-z\d+.-]{1,20}://|os\.|env\b|process\.|[a-z_.]{1,80}[\[(]|arn:aws|!vault"
    r"|@microsoft\.|(?:vault|kv|secrets?|ssm|secretsmanager|key(?:vault|ring|chain)|projects)[/:]"
    r"|secrets\.[a-z_]",
    re.IGNORECASE,
)
# What is said about passwords and has a digit.
_TECHNICAL = re.compile(
    r"(?:sha|md|base|utf|aes|rsa|bcrypt|argon|pbkdf|oauth|ntlm|scrypt|http|tls|ssl|ipv|web|v|wpa|saml"
    r"|blake|ed|x|pkcs|rfc|iso|python|windows|office|microsoft|gen|version|phase|step|level|day)"
    r"[-_ ]?\d{1,6}(?:-[a-z]{2,12})?\Z|\d{1,2}(?:fa|password|x|th|st|nd|rd)\Z"
    # Counts, rates and sizes: 128k-token, 99.5%, 17/20, 30-day, 12+characters-long.
    r"|\d[\d.,/]{0,9}\+?(?:%|[-_]?(?:k|m|ms|min|[kmg]b|tokens?|chars?|characters?|digits?|letters?"
    r"|words?|bits?|bytes?|seconds?|minutes?|hours?|days?|weeks?|months?|years?|times?|attempts?"
    r"|tries|users?|tests?|pass(?:ed)?|fail(?:ed)?)(?:[-/][a-z]{2,12}){0,2})?\Z",
    re.IGNORECASE,
)
_SYMBOLS = frozenset("!@#$%^&*+?")
_CLOSING = ".,:?)]}>"


def is_secret_value(value: str, least: int = MIN_SECRET_CHARS) -> bool:
    """Tell whether an assigned value looks like a credential: long, mixed and of high entropy."""
    if _INDIRECT.match(value):
        return False
    value = value.rstrip(_CLOSING)
    if len(value) < least or not any(c.isalpha() for c in value):
        return False
    # Below eight characters a symbol alone may be punctuation.
    mixed = any(c.isdigit() for c in value) or (
        len(value) >= MIN_SECRET_CHARS and not _SYMBOLS.isdisjoint(value)
    )
    return mixed and entropy_bits(value) >= MIN_SECRET_ENTROPY_BITS


def is_password(value: str) -> bool:
    """Tell whether what follows the word "password" looks like one."""
    if _is_chain_of_words(value):
        return True
    return is_secret_value(value, MIN_PASSWORD_CHARS) and not _TECHNICAL.match(
        value.rstrip(_CLOSING)
    )


def _is_random(value: str) -> bool:
    value = value.rstrip(_CLOSING).removeprefix("0x")
    return (
        len(value) >= MIN_RANDOM_CHARS
        and is_secret_value(value)
        and any(c.isdigit() for c in value)
        and _KEY_CHARS.fullmatch(value) is not None
        and entropy_bits(value) >= 3
        and not re.match(r"\d{4}-\d\d", value)
    )


# What keys are made of, and what names are: words and numbers, billing-service-2024.
_KEY_CHARS = re.compile(r"[A-Za-z0-9_~.+/=-]*")
_NAME = re.compile(r"(?:[a-z]+|[A-Z][a-z]+|\d+)(?:[-_./:](?:[a-z]+|[A-Z][a-z]+|\d+))+", re.ASCII)


def _is_chain_of_words(value: str) -> bool:
    """Tell whether four words or more hang together: correct-horse-battery-staple."""
    parts = value.rstrip(_CLOSING).split("-")
    return (
        len(parts) >= 4
        and all(3 <= len(part) <= 10 and part.isalpha() for part in parts)
        and STOP_WORDS.isdisjoint(parts)
    )


def _is_base32(value: str) -> bool:
    joined = value.replace(" ", "").replace("-", "")
    return len(joined) >= MIN_RANDOM_CHARS and (
        joined.isupper() or not set("234567").isdisjoint(joined)
    )


def _is_code(value: str) -> bool:
    # Groups up to the first word of the sentence that goes on.
    groups = takewhile(lambda group: any(c.isdigit() for c in group), value.split())
    return len("".join(groups).replace("-", "")) >= MIN_SECRET_CHARS and not re.match(
        r"(?:19|20)\d\d-\d\d", value
    )


_TALK_WORDS = """
ask backup bad broken case changed changes changing characters correct dialog different empty
encrypted entropy entry expired expires file files first forgotten generator good gpg hash invalid
kept key keys known last length less long longer lost manager minimum missing needed never new none
null old one optional page passphrase passphrases password passwords policy prompt prompted prompts
protected protection recommended required reset rotated safe same saved second see set short shared
ssh still stored string strong text twice two unknown unset used using valid value weak word words
written wrong asked case chosen correctly entered generated handed hidden kept longer memorable
optional possible printed private public random recorded secret secure sensitive separately shown
somewhere stays supposed typed under usually
aber auf auch bekannt das dem den der die ein eine geheim im ist kein keine lang leider mehr mit
muss nicht noch nur oder sehr sicher soll und unter vergessen wird wurde zu
avec dans est mais pas plus sont sous tres trop
"""
_TALK = STOP_WORDS | frozenset(_TALK_WORDS.split())
_QUOTES = "\"'`“”„‘’«»「」『』"


def _is_phrase(words: str) -> bool:
    """Tell whether words are a passphrase: all small or all capitals, none said about them."""
    parts = words.lower().replace("-", " ").split()
    alike = words.islower() or words.istitle() or words.isupper()
    # The best known one has a word of the talk in it.
    return alike and _TALK.isdisjoint(parts[parts[:2] == ["correct", "horse"] :])


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


def _judge_password(value: str, says: str) -> bool:
    if not says:
        return is_password(value) and any(c.isdigit() for c in value)
    return is_password(value) or (value.rstrip(_CLOSING).isdecimal() and len(value) <= 12)


def _judge_pass(value: str, says: str) -> bool:
    return is_password(value) and not _TEST_RUN.match(value)


def _judge_stated(value: str, says: str) -> bool:
    return value.isalpha() and value.lower() not in _TALK


def _judge_key(value: str, says: str) -> bool:
    if _NAME.fullmatch(bare := value.rstrip(_CLOSING)) or _TECHNICAL.match(bare):
        return False
    return is_secret_value(value) if says else _is_random(value)


def _judge_phrase(value: str, says: str) -> bool:
    return _is_phrase(value) and (bool(says) or value.islower())


def _judge_pin(value: str, says: str) -> bool:
    return bool(says) or not _YEAR.fullmatch(value)


# What test runners write behind PASS: a function, a path, a script.
_TEST_RUN = re.compile(
    r"test|(?:[\w.+-]{1,80}/){1,9}[\w.+-]{0,80}:?\Z|[\w+-]{1,80}\.[a-z]{1,4}\b", re.IGNORECASE
)
_YEAR = re.compile(r"(?:19|20)\d\d")


def _named(starts: str, pattern: str, judge: Callable[[str, str], bool]) -> _Named:
    return _Named(tuple(starts.split(";")), pattern, judge)


def _password(
    starts: str,
    ending: str = "",
    before: str = "",
    judge: Callable[[str, str], bool] = _judge_password,
) -> _Named:
    pattern = rf"{before}(?:{starts.replace(';', '|')}){ending}{_FOLLOWS}{_VALUE}"
    return _named(starts, pattern, judge)


# A word between quotes, or at the end of a sentence that does nothing but quote.
_STATED = _named(
    "password;passwort;mot de passe;kennwort;contraseña",
    rf"(?:password|passwort|kennwort|contraseña|mot de passe)(?:{_FOR_WHAT})?"
    rf"(?:(?P<says>\s{{1,3}}(?:is|was|ist|es|est)\s{{1,3}}[{_QUOTES}]{{1,3}})(?P<value>\w{{5,60}})[{_QUOTES}]"
    r"|\s{1,3}lautet:?\s{1,3}(?P<stated>\w{5,60})[.!]?\s{0,3}(?:\n|\Z))",
    _judge_stated,
)
_PASS = (
    _password(
        "password;passwd;passcode;passphrase;passwort;passord;palavra-passe;mot de passe",
        r"(?:en|et|_base|_?\d)?(?![^\W_])",
    ),
    _password("pass", r"(?=[\"']?\s?[:=])", r"(?<![a-z])", _judge_pass),
    _STATED,
    _named(
        "passphrase;pass phrase;master password",
        rf"(?:pass ?phrase|master password){_FOLLOWS}"
        r"(?P<value>[^\W\d_]{3,12}(?:[ -][^\W\d_]{3,12}){3,11})(?:[ -]\d{1,4})?"
        rf"(?=\s{{0,5}}(?:\Z|[\n.,;!?)*{_QUOTES}]))",
        _judge_phrase,
    ),
)
_KEYS = _named("secret;token;credential;key", _KEY + _FOLLOWS + _VALUE, _judge_key)
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
    _judge_pin,
)
_RECOVERY = _named(
    "recovery;backup;scratch;rescue;wiederherstellungs",
    r"(?:recovery|backup|scratch|rescue|wiederherstellungs)[ -]?(?:codes?|keys?|schlüssel)"
    + _FOLLOWS
    + r"(?P<value>[a-z0-9]{4,10}(?:[ -][a-z0-9]{4,10}){1,11}|[a-z0-9]{8,64})(?![\w-])",
    lambda value, says: _is_code(value),
)
_FACTOR = _named(
    "otp;2fa;mfa;authenticator;two-factor",
    rf"(?:otp|2fa|mfa|authenticator|two-factor)[ _-](?:secret|seed|key){_FOLLOWS}"
    r"(?P<value>[a-z2-7]{16,64}|[a-z2-7]{4}(?:[ -][a-z2-7]{4}){3,15})",
    lambda value, says: _is_base32(value),
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
        _judge_password,
    ),
    _named("ключ;токен;schlüssel;clé;密钥;密鑰;令牌", _KEY + _FOLLOWS + _VALUE, _judge_key),
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
        _ABROAD_LETTER.search(leave_ascii(lowered))
        or any(word in lowered for word in _WITH_COMMON_LETTER)
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
