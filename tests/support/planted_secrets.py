"""Secrets as people write them down, by kind: what the secret scan must find, made by seed.

Written from public descriptions (ISO 7812 and 13616, BIP-32 and 39, the issuers' pages on their
tokens) and from how people talk; nothing here looks at the rules, and all values are random. Add
templates, do not soften them: they are what is measured.
"""

from __future__ import annotations

import base64
import hashlib
import random
import string
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import ClassVar
from urllib.parse import quote

from noctuary.text.secret_forms import seed_words

_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE32 = string.ascii_uppercase + "234567"

_NOUNS = """
harbour lantern velvet pickle thunder orbit meadow copper walrus summer anchor biscuit ginger
falcon marble cactus puddle rocket saffron willow badger candle domino ember
"""
_COMMON = _NOUNS.split()

_PASSWORD_PROSE = (
    "my password is {pw}", "My netflix password is {pw}, don't tell the kids.",
    "The password for the guest wifi is {pw}", "I changed my password to {pw} yesterday.",
    "login is ana, password {pw}", "She told me her password was {pw}.",
    'The admin password is "{word}".', "use the password {pw} to get in",
    "Mira: the router's password is {pw} by the way", "new password = {pw}",
)  # fmt: skip
_PASSWORD_ABROAD = (
    "Das Passwort lautet {pw}.", "Das Passwort für das WLAN ist {pw}",
    "Das Kennwort lautet {Word}.", "Mein Passwort: {pw}", "La contraseña del wifi es {pw}.",
    "mi contraseña es {pw}", "la clave del router es {pw}", "Le mot de passe du wifi est {pw}",
    "mon mot de passe : {pw}", "La password del router è {pw}", "A senha do wifi é {pw}.",
    "Het wachtwoord is {pw}", "Hasło do wifi to {pw}", "Мой пароль {pw}", "Пароль от вайфая: {pw}",
    "пароль — {pw}", "我的密码是{pw}", "WiFi密码：{pw}", "密码改成{pw}了",
    "パスワードは{pw}です", "비밀번호는 {pw} 입니다",
    "Wifi şifresi {pw}", "Lösenordet är {pw}",
)  # fmt: skip
_TRANSLITERATED = (
    "contrasena: {pw}", "la contrasena es {pw}", "parol ot wifi: {pw}", "moy parol {pw}",
    "haslo to {pw}", "wifi sifresi {pw}", "losenord: {pw}", "mima shi {pw}", "pasuwado wa {pw}",
)  # fmt: skip
_SHORT_NAMES = (
    "pw: {pw}", "PW={pw}", "pwd {pw}", "user ana pw {pw}", "pass: {pw}", "psw: {pw}",
)  # fmt: skip
_PASSPHRASES = (
    "passphrase: {words}", "The passphrase is {words}.",
    'passphrase of the backup disk: "{words}"', "My GPG passphrase is '{words}'",
    "ssh key passphrase {words}", "passphrase = {dashed}",
    "the vault's master password is {dashed}",
)  # fmt: skip
_PINS = (
    "The alarm PIN is {pin}.", "my card PIN is {pin}", "PIN: {pin}", "pin code {pin}",
    "The PIN for the debit card is {pin}", "alarm code {pin}, press hash afterwards",
    "The code for the front door is {pin}", "gate code: {pin}#", "The safe opens with {pin}",
    "The combination of the safe is {pin}", "phone unlock code is {pin}",
    "SIM PIN {pin}, PUK {digits:8}", "Bank card ends in 4821, its pin is {pin}",
)  # fmt: skip
_PINS_ABROAD = (
    "Die PIN der Karte ist {pin}.", "Die Geheimzahl lautet {pin}",
    "Der Code der Alarmanlage ist {pin}", "El PIN de la tarjeta es {pin}",
    "el código de la alarma es {pin}", "Le code PIN de la carte est {pin}",
    "Le code de l'alarme est le {pin}", "Пин-код карты {pin}", "ПИН карты: {pin}",
    "код сигнализации {pin}", "银行卡密码是{digits:6}", "我的银行卡PIN码是{pin}",
    "门禁密码{pin}", "暗証番号は{pin}です",
)  # fmt: skip
_RECOVERY = (
    "recovery code: {rec}", "GitHub recovery codes: {rec} {rec}",
    "My backup code for Google is {digits:4} {digits:4}", "The recovery key is {key48}",
    "2FA backup codes: {digits:8}, {digits:8}", "recovery code {rec}",
)  # fmt: skip
_TOTP = (
    "TOTP secret {b32:32}", "the TOTP secret is {b32:16}", "The TOTP seed for gitlab: {b32:26}",
    "2FA secret {b32:32}", "otpauth://totp/Git:ana?secret={b32:32}&issuer=Git",
    "authenticator key {b32spaced}",
)  # fmt: skip
_CARDS = (
    "Visa {visa}, CVV {digits:3}", "Visa {visa4} exp 09/28 cvv {digits:3}", "Amex {amex}",
    "my Amex is {amex4} exp 04/29", "card number {mc}", "mastercard {mc4}",
    "Discover {discover4} 11/27", "pay with {visa-} please", "card: {visa}|12|2029|{digits:3}",
)  # fmt: skip
_IBANS = (
    "IBAN {iban}", "please pay to {iban}", "Konto: {iban4}",
    "My account is {iban4}, BIC COBADEFFXXX",
)  # fmt: skip
_SSNS = (
    "SSN {ssn}", "my social security number is {ssn}", "Social Security: {ssn}", "ssn={ssn9}",
    "Her SSN is {ssn}.", "US social security no. {ssn}",
)  # fmt: skip
_SEEDS = (
    "{seed12}", "wallet: {seed12}", "seed phrase: {seed12}", "seed phrase {seed24}", "{seed24}",
    "Ledger, written down in May.\n{seedlines}", "{seednumbered}", "recovery phrase: {seedcommas}",
    "{seed15}", "{SEED12}",
)  # fmt: skip
_AWS = (
    "{b64:40}", "from the console:\n{b64:40}\nkeep it", "AWS secret key {b64:40}",
    "aws secret: {b64:40}", "the AWS secret access key is {b64:40}",
)  # fmt: skip
_NAMED = (
    "vercel token {alnum:24}", "my vercel token: {alnum:24}", "The deploy token is {hex:40}",
    "netlify auth token {alnum:43}", "cloudflare api token {alnum:40}", "heroku api key {uuid}",
    "datadog api key {hex:32}", "the api key for openweather is {hex:32}",
    "algolia admin key {hex:32}", "okta api token 00{alnum:40}", "client secret {alnum:32}",
    "el token de vercel es {alnum:24}", "API-Schlüssel {hex:32}", "токен бота {alnum:32}",
    "密钥是{alnum:32}", "FCM server key AAAA{alnum:7}:APA91b{alnum:134}",
    "FCM key: AAAA{alnum:7}:APA91b{alnum:134}",
)  # fmt: skip
_FILES = (
    '{{"username":"ana","key":"{hex:32}"}}',
    'kaggle.json: {{"username": "ana", "key": "{hex:32}"}}', "KAGGLE_KEY={hex:32}",
    '{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{userpass}"}}}}}}',
    '"auth": "{userpass}"', "//registry.npmjs.org/:_auth={userpass}",
)  # fmt: skip
_COMMANDS = (
    "snowsql -a xy12345 -u ana -p {pw}", "snowsql -p {pw} -u ana",
    "docker login -u ana -p {pw} registry.example.net", "redis-cli -h cache -a {pw} ping",
    "mongosh --username ana --password {pw} --host db", "sqlcmd -S db -U sa -P {pw}",
    "sqlplus scott/{pw}@orcl", "ldapsearch -D cn=admin -w {pw} -b dc=x",
    "smbclient //nas/share -U ana%{pw}",
)  # fmt: skip
_COOKIES = (
    "Cookie: session={alnum:32}", "Set-Cookie: sid=s%3A{alnum:32}.{alnum:43}; Path=/; HttpOnly",
    "curl -b 'sessionid={hex:32}' https://example.net",
    "cookie: theme=dark; auth_token={alnum:40}", "PHPSESSID={hex:26}", "JSESSIONID={HEX:32}",
)  # fmt: skip
_URLS = (
    "{enc:postgres://app:{pw}@db.internal:5432/prod}",
    "DATABASE_URL={enc:mysql://root:{pw}@10.0.0.5/shop}",
    "url=mongodb%2Bsrv%3A%2F%2Fsvc%3A{alnum:16}%40cluster0.abcde.mongodb.net%2Fprod",
    "postgres://app:%40{alnum:8}%2F{alnum:3}@db.internal/prod",
    "redirect?dsn={enc:amqp://guest:{pw}@mq:5672/}",
)  # fmt: skip
_HASHES = (
    "$2b$12${bcrypt:53}", "ana:$2y$10${bcrypt:53}", "hash is $2a$10${bcrypt:53}",
    "root:$6${alnum:12}${bcrypt:86}:19000:0:99999:7:::",
    "$argon2id$v=19$m=65536,t=3,p=4${b64:22}${b64:43}",
)  # fmt: skip
_CHAINS = (
    "private key 0x{hex:64}", "eth private key: 0x{hex:64}", "My Ethereum private key is {hex:64}",
    "wallet key 0x{hex:64}", "wif {wif}", "bitcoin private key {wif}", "{wif}",
    "xprv9s21ZrQH143K{base58:96}",
)  # fmt: skip
_TOKENS = (
    "gh" + "p_{alnum:36}", "gl" + "pat-{alnum:20}", "AK" + "IA{b32:16}", "sk_" + "live_{alnum:24}",
    "np" + "m_{alnum:36}",
)  # fmt: skip


def _plain(templates: tuple[str, ...]) -> Callable[[random.Random, int], str]:
    return lambda rng, number: fill(templates[number % len(templates)], rng)


def _token(rng: random.Random, number: int) -> str:
    return fill(_TOKENS[number % len(_TOKENS)], rng)


def _zero_width(rng: random.Random, number: int) -> str:
    token = _token(rng, number)
    gap = ("\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad")[number // 5 % 5]
    if number % 2:
        return "use " + gap.join(token)
    at = rng.randrange(2, len(token) - 1)
    return f"the token {token[:at]}{gap}{token[at:]} works"


def _broken_line(rng: random.Random, number: int) -> str:
    token = _token(rng, number)
    at = rng.randrange(6, len(token) - 3)
    cut = ("\n", " \n", "\n  ", " \n  ")[number % 4]
    return f"use this one:\n{token[:at]}{cut}{token[at:]}\nthanks"


def _spaced(rng: random.Random, number: int) -> str:
    token = fill("AK" + "IA{b32:16}", rng)
    if number % 3 == 0:
        return " ".join(token)
    if number % 3 == 1:
        return "key " + " ".join(token[at : at + 4] for at in range(0, 20, 4)) + " of prod"
    return " ".join(_token(rng, number))


def _full_width(rng: random.Random, number: int) -> str:
    text = fill(("password={pw}", "my password is {pw}", "api_key={hex:32}")[number % 3], rng)
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def _entities(rng: random.Random, number: int) -> str:
    text = fill(("password={pw}", "password: {pw}", _TOKENS[0])[number % 3], rng)
    if number % 4 == 0:
        return "".join(f"&#{ord(c)};" for c in text)
    if number % 4 == 1:
        return "".join(f"&#x{ord(c):x};" for c in text)
    if number % 4 == 2:
        return text.replace("=", "&equals;").replace(":", "&colon;").replace("_", "&lowbar;")
    return "".join(f"&#{ord(c)};" if c in "=:_aeo" else c for c in text)


def _homoglyphs(rng: random.Random, number: int) -> str:
    text = fill(
        ("password={pw}", "password: {pw}", "api_key = {hex:32}", "the passcode is {pw}")[
            number % 4
        ],
        rng,
    )
    name, rest = text[:14], text[14:]
    swaps = str.maketrans("aeocp", "аеоср") if number % 2 else str.maketrans("ao", "αο")
    return name.translate(swaps) + rest


def _wrapped(rng: random.Random, number: int) -> str:
    said = ("", "password={pw}", "aws_secret_access_key={b64:40}")[number % 3]
    inner = fill(said, rng) or _token(rng, number)
    return ("{}", "blob: {}", '{{"data": {{"key": "{}"}}}}')[number // 3 % 3].format(
        base64.b64encode(inner.encode()).decode()
    )


KINDS: Mapping[str, Callable[[random.Random, int], str]] = {
    "password in prose": _plain(_PASSWORD_PROSE),
    "password, other languages": _plain(_PASSWORD_ABROAD),
    "password, transliterated": _plain(_TRANSLITERATED), "pw and pass": _plain(_SHORT_NAMES),
    "passphrase of words": _plain(_PASSPHRASES), "pin": _plain(_PINS),
    "pin, other languages": _plain(_PINS_ABROAD), "recovery code": _plain(_RECOVERY),
    "totp secret": _plain(_TOTP), "card": _plain(_CARDS), "iban": _plain(_IBANS),
    "social security": _plain(_SSNS), "seed phrase": _plain(_SEEDS),
    "aws secret key": _plain(_AWS), "named key": _plain(_NAMED),
    "credential file": _plain(_FILES), "command": _plain(_COMMANDS), "cookie": _plain(_COOKIES),
    "encoded url": _plain(_URLS), "password hash": _plain(_HASHES), "chain key": _plain(_CHAINS),
    "zero width": _zero_width, "broken line": _broken_line, "spaced": _spaced,
    "full width": _full_width, "entities": _entities, "homoglyphs": _homoglyphs,
    "base64": _wrapped,
}  # fmt: skip


def planted(count: int, seed: int = 18) -> Iterator[tuple[str, str]]:
    """Yield (kind, text), the kinds in turn."""
    for number in range(count):
        kind = [*KINDS][number % len(KINDS)]
        yield kind, KINDS[kind](random.Random(f"{seed}:{number}"), number // len(KINDS))


def fill(template: str, rng: random.Random) -> str:
    """Return a template with random values for its fields."""
    return _Fields(rng).fill(template)


class _Fields(string.Formatter):
    """Format fields made at random: a name, or a class of characters and a count."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def fill(self, template: str) -> str:
        while "{enc:" in template:
            start = template.index("{enc:")
            end = (
                template.index("}", template.index("}", start) + 1)
                if "{pw}" in template[start:]
                else template.index("}", start)
            )
            template = (
                template[:start]
                + quote(self.fill(template[start + 5 : end]), safe="")
                + template[end + 1 :]
            )
        return self.vformat(template, (), _Values(self._rng))

    def format_field(self, value: object, format_spec: str) -> str:
        if isinstance(value, str) and format_spec:
            return "".join(self._rng.choices(value, k=int(format_spec)))
        return str(value)


class _Values(dict[str, str]):
    """Field -> its value, or the characters that a count draws from."""

    _CLASSES: ClassVar[Mapping[str, str]] = {
        "alnum": _ALNUM, "hex": _HEX, "HEX": _HEX.upper(), "digits": string.digits,
        "b32": _BASE32, "b64": _ALNUM + "+/", "base58": _BASE58, "bcrypt": "./" + _ALNUM,
    }  # fmt: skip

    def __init__(self, rng: random.Random) -> None:
        super().__init__(self._CLASSES)
        self._rng = rng

    def __missing__(self, name: str) -> str:
        made = next((make for start, make in _MADE if name.lower().startswith(start)), _card)
        return made(name, self._rng)


def _word(name: str, rng: random.Random) -> str:
    if name in {"words", "dashed"}:
        return (" " if name == "words" else "-").join(rng.sample(_COMMON, rng.choice((4, 5, 6))))
    word = rng.choice([w for w in _COMMON if len(w) > 5])
    return word.capitalize() if name == "Word" else word


def _groups(
    count: int, size: int, classes: str, gap: str = "-"
) -> Callable[[str, random.Random], str]:
    return lambda name, rng: gap.join("".join(rng.choices(classes, k=size)) for _ in range(count))


def _uuid(name: str, rng: random.Random) -> str:
    return "-".join("".join(rng.choices(_HEX, k=n)) for n in (8, 4, 4, 4, 12))


def _password(name: str, rng: random.Random) -> str:
    word = rng.choice(_COMMON)
    return (
        f"{word}{rng.randint(1, 99)}",
        f"{word.capitalize()}{rng.randint(10, 2029)}!",
        "".join(rng.choices(_ALNUM, k=8)) + str(rng.randint(0, 9)),
        "".join(rng.choices(_ALNUM, k=2)) + "7x!" + "".join(rng.choices(_ALNUM, k=4)),
    )[rng.randrange(4)]


def _number(name: str, rng: random.Random) -> str:
    if name.startswith("ssn"):
        parts = (rng.randint(100, 665), rng.randint(10, 99), rng.randint(1000, 9999))
        return ("" if name == "ssn9" else "-").join(map(str, parts))
    country, lengths = rng.choice(
        (
            ("DE", "d18"),
            ("GB", "a4d14"),
            ("FR", "d23"),
            ("NL", "a4d10"),
            ("ES", "d20"),
            ("CH", "d17"),
            ("PL", "d24"),
            ("NO", "d11"),
        )
    )
    letters, digits = (4, int(lengths[3:])) if lengths[0] == "a" else (0, int(lengths[1:]))
    account = "".join(
        rng.choices(string.ascii_uppercase, k=letters) + rng.choices(string.digits, k=digits)
    )
    spelled = "".join(str(int(c, 36)) for c in account + country + "00")
    iban = f"{country}{98 - int(spelled) % 97:02d}{account}"
    return " ".join(iban[at : at + 4] for at in range(0, len(iban), 4)) if name == "iban4" else iban


def _card(name: str, rng: random.Random) -> str:
    issuer = name.rstrip("4-")
    prefix, length = {
        "visa": ("4", 16),
        "mc": (str(rng.randint(51, 55)), 16),
        "amex": (rng.choice(("34", "37")), 15),
        "discover": ("6011", 16),
    }[issuer]
    body = prefix + "".join(rng.choices(string.digits, k=length - len(prefix) - 1))
    total = sum(sum(divmod(int(c) * (2 - at % 2), 10)) for at, c in enumerate(reversed(body)))
    number = body + str(-total % 10)
    gap = {"4": " ", "-": "-"}.get(name[-1], "")
    cuts = (0, 4, 10, 15) if issuer == "amex" else (0, 4, 8, 12, 16)
    return gap.join(number[a:b] for a, b in pairwise(cuts))


def _seed(name: str, rng: random.Random) -> str:
    count = int(digits) if (digits := "".join(filter(str.isdigit, name))) else 12
    entropy = rng.randbytes(count * 4 // 3)
    checked = int.from_bytes(entropy) << (count // 3) | hashlib.sha256(entropy).digest()[0] >> (
        8 - count // 3
    )
    known = list(seed_words())
    words = [known[checked >> (11 * at) & 2047] for at in reversed(range(count))]
    if name == "seedlines":
        return "\n".join(words)
    if name == "seednumbered":
        return "\n".join(f"{at}. {word}" for at, word in enumerate(words, 1))
    text = (", " if name == "seedcommas" else " ").join(words)
    return text.upper() if name[0] == "S" else text


def _wif(name: str, rng: random.Random) -> str:
    payload = b"\x80" + rng.randbytes(32) + b"\x01" * rng.randrange(2)
    raw = payload + hashlib.sha256(hashlib.sha256(payload).digest()).digest()[:4]
    number, text = int.from_bytes(raw), ""
    while number:
        number, rest = divmod(number, 58)
        text = _BASE58[rest] + text
    return text


_MADE: tuple[tuple[str, Callable[[str, random.Random], str]], ...] = (
    ("pin", lambda name, rng: "".join(rng.choices(string.digits, k=rng.choice((4, 4, 4, 6))))),
    ("pw", _password), ("word", _word), ("dashed", _word), ("uuid", _uuid), ("ssn", _number),
    ("userpass", lambda name, rng: base64.b64encode(f"ana:{_password('', rng)}".encode()).decode()),
    ("rec", _groups(2, 5, _HEX)), ("key48", _groups(8, 6, string.digits)), ("iban", _number),
    ("b32spaced", _groups(8, 4, _BASE32.lower(), " ")), ("seed", _seed), ("wif", _wif),
)  # fmt: skip
