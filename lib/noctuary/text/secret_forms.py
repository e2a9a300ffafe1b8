"""What a secret looks like: the tokens of services, numbers with a checksum, seed phrases."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile
from math import log2

from noctuary.text.tokens import STOP_WORDS

# What the tokens of services look like: one row per family of formats that issuers publish.
#
# The prefixes and lengths are those that the issuers document. Lengths are lower bounds: a token
# that grows stays a match. Every pattern starts at a literal or a look-behind and repeats a
# bounded class, so that ten hostile megabytes take linear time. A new format is a row here and a
# shape in `tests/support/credential_shapes.py`, which measures what is found.


MIN_TOKEN_CHARS = 15
"""Shortest run that any format here matches (a Slack token cut off). Longer would skip more words
and miss those."""


@dataclass(frozen=True)
class SecretRule:
    """One credential format.

    Attributes:
        name: What is counted in the report.
        hints: Lower-case literals, one of which every match holds; the cheap test before the
            pattern.
        source: The format, compiled for the first text with a hint: most processes scan a few.
    """

    name: str
    hints: tuple[str, ...]
    source: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The format."""
        return re.compile(self.source)


def rule(name: str, hints: str, pattern: str) -> SecretRule:
    """Return a rule; hints are separated by spaces."""
    return SecretRule(name, tuple(hints.split()), pattern)


START = r"(?<![A-Za-z0-9_])"


def _token(name: str, hints: str, pattern: str) -> SecretRule:
    return rule(name, hints, f"{START}(?:{pattern})")


TOKEN_FORMATS: tuple[SecretRule, ...] = (
    _token(
        "aws_access_key",
        "akia asia abia acca absk",
        r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])|ABSK[A-Za-z0-9+/]{60}",
    ),
    _token(
        "github_token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22}",
    ),
    _token(
        "gitlab_token",
        "glpat- gloas- gldt- glrt- glptt- glft- glimt- glsoat- glcbt- glagent-",
        r"gl(?:pat|oas|dt|rt|ptt|ft|imt|soat|cbt|agent)-[A-Za-z0-9_-]{20}",
    ),
    _token("slack_token", "xox xapp-", r"xox[a-z]-[A-Za-z0-9-]{10}|xapp-\d-[A-Za-z0-9-]{10}"),
    rule(
        "slack_token",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/]{20}",
    ),
    _token(
        "stripe_key",
        "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
        r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10}|whsec_[A-Za-z0-9+/]{24}",
    ),
    rule("anthropic_key", "sk-ant-", r"(?<![A-Za-z0-9])sk-ant-[A-Za-z0-9_-]{20}"),
    rule(
        "openai_key",
        "sk-",
        # A digit must follow within the key, which hyphenated English never has.
        r"(?<![A-Za-z0-9_-])sk-(?=[A-Za-z_-]{0,60}\d)[A-Za-z0-9_-]{20}",
    ),
    _token(
        "model_key",
        "gsk_ pplx- r8_ xai- lsv2_ hf_ pa-",
        r"gsk_[A-Za-z0-9]{40}|pplx-[A-Za-z0-9]{40}|r8_[A-Za-z0-9]{37}|xai-[A-Za-z0-9]{60}"
        r"|lsv2_(?:pt|sk)_[a-f0-9]{32}|hf_[A-Za-z0-9]{30}"
        # "pa-" begins ordinary hyphenated words too: a digit and a capital must follow.
        r"|pa-(?=[A-Za-z_-]{0,43}\d)(?=[a-z0-9_-]{0,43}[A-Z])[A-Za-z0-9_-]{43}",
    ),
    _token(
        "google_key",
        "aiza ya29. gocspx-",
        r"AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20}|GOCSPX-[A-Za-z0-9_-]{20}",
    ),
    _token("azure_key", "q~", r"[A-Za-z0-9]{3}\dQ~[A-Za-z0-9_~.-]{31}"),
    rule(
        "signed_url",
        "sig= x-amz-signature=",
        r"(?i)[?&](?:sig|x-amz-signature)=[a-z0-9%/+_-]{40}",
    ),
    _token(
        "cloud_token",
        "do dapi hv .atlasv1. hrku- dp. fo1_ fm2_ pul- pscale_ sbp_ sb_secret_ nfp_ tskey- ltai"
        " akid",
        r"do[opr]_v1_[a-f0-9]{64}|dapi[a-f0-9]{32}|hv[sbr]\.[A-Za-z0-9_-]{24}"
        r"|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60}|HRKU-[A-Za-z0-9_-]{36}"
        r"|dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{40}|fo1_[A-Za-z0-9_-]{43}"
        r"|fm2_[A-Za-z0-9+/=_-]{60}|pul-[a-f0-9]{40}|pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32}"
        r"|sbp_[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{20}|nfp_[A-Za-z0-9]{36}"
        r"|tskey-[a-z]{2,12}-[A-Za-z0-9-]{20}|LTAI[A-Za-z0-9]{16}(?![A-Za-z0-9]{10})|AKID[A-Za-z0-9]{32}",
    ),
    _token(
        "chat_token",
        "discord",
        r"discord(?:app)?\.com/api/webhooks/\d{17,20}/[A-Za-z0-9_-]{60}",
    ),
    # Nothing but its three parts tells a bot's token: a letter that begins an encoded number, dots.
    _token("chat_token", ".", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}"),
    _token("chat_token", ":aa", r"\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    _token(
        "shop_token",
        "shpat_ shpss_ shpca_ shppa_ sq0 eaa ezak eztk shippo_live_ flwseck",
        r"shp(?:at|ss|ca|pa)_[a-fA-F0-9]{32}|sq0(?:csp|atp|idp)-[A-Za-z0-9_-]{22}"
        r"|EAA[A-Za-z0-9_-]{57}|EZ[AT]K[A-Za-z0-9]{54}|shippo_live_[a-f0-9]{40}"
        r"|FLWSECK-[A-Za-z0-9]{32}",
    ),
    _token(
        "mail_token",
        "sg. key- -us xkeysib- xsmtpsib- re_",
        r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16}|key-[a-f0-9]{32}(?![A-Za-z0-9])"
        r"|[a-f0-9]{32}-us\d{1,2}(?![A-Za-z0-9])|x(?:keysib|smtpsib)-[a-f0-9]{64}"
        r"|re_(?=[A-Za-z_]{0,33}\d)[A-Za-z0-9]{8}_[A-Za-z0-9]{24}",
    ),
    _token(
        "service_token",
        "npm_ pypi- rubygems_ dckr_ akcp sqp_ squ_ sqa_ bkua_ ccipat_ pnu_ pmak- glsa_ glc_ nrak-"
        " sntry phx_ essu_ fig lin_ ntn_ secret_ atatt3 atctt3 atbb pat tfp_ cfpat- sl. sk v1.0-"
        " 4b1d ops_ey",
        r"npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50}|rubygems_[a-f0-9]{48}"
        r"|dckr_[po]at_[A-Za-z0-9_-]{24}|AKCp[A-Za-z0-9]{65}|sq[apu]_[a-f0-9]{40}|bkua_[a-f0-9]{40}"
        r"|CCIPAT_[A-Za-z0-9]{20,24}_[a-f0-9]{40}|pnu_[A-Za-z0-9]{36}|PMAK-[a-f0-9]{24}-[a-f0-9]{34}"
        r"|glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}|glc_[A-Za-z0-9+/=]{32}|NRAK-[A-Z0-9]{27}"
        r"|sntry[su]_[A-Za-z0-9+/=_-]{40}|phx_[A-Za-z0-9]{40}|essu_[A-Za-z0-9+/=]{40}"
        r"|fig[a-z]{1,2}_[A-Za-z0-9_-]{36}|lin_(?:api|oauth)_[A-Za-z0-9]{32}|ntn_[A-Za-z0-9]{40}"
        r"|secret_[A-Za-z0-9]{43}|AT(?:ATT|CTT)3[A-Za-z0-9_=-]{60}|ATBB[A-Za-z0-9]{32}"
        r"|pat[A-Za-z0-9]{14}\.[a-f0-9]{64}|tfp_[A-Za-z0-9_.-]{44}|CFPAT-[A-Za-z0-9_-]{43}"
        r"|sl\.(?:u\.)?[A-Za-z0-9_-]{120}|SK[a-f0-9]{32}(?![A-Za-z0-9])"
        r"|v1\.0-[a-f0-9]{24}-[a-f0-9]{100}"
        # A SHA that happens to begin like it has no letter beyond f.
        r"|4b1d(?=[a-f0-9]{0,37}[g-zA-Z])[A-Za-z0-9]{38}|ops_eyJ[A-Za-z0-9+/]{40}",
    ),
    _token("google_key", ":apa91b", r"AAAA[A-Za-z0-9_-]{7}:APA91b[A-Za-z0-9_-]{100}"),
    rule(
        "password_hash",
        "$",
        r"\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{53}(?![./A-Za-z0-9])"
        r"|\$(?:[156]|apr1)\$(?:rounds=\d{1,9}\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{22}"
        r"|\$y\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{1,60}\$[./A-Za-z0-9]{43}"
        r"|\$argon2(?:id|i|d)\$(?:v=\d{1,3}\$)?m=[^\s$]{1,60}\$[A-Za-z0-9+/]{8,200}\$[A-Za-z0-9+/]{16}",
    ),
    _token("wallet_key", "prv", r"[xyzt]prv[1-9A-HJ-NP-Za-km-z]{90}"),
    rule("jwt", "eyj", r"(?<![A-Za-z0-9_.-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\."),
    rule("connection_string", "accountkey=", r"(?i:accountkey)=[A-Za-z0-9+/=]{40}"),
)  # fmt: skip


# The English words of BIP-39 in their order: what seed phrases of wallets are made of.
#
# From the `mnemonic` package 0.21, Copyright (c) 2013-2016 Pavol Rusnak, MIT licence: permission
# is granted to use, copy, modify and distribute it provided that this notice is kept; it comes
# without warranty of any kind. The list is frozen by the standard: SHA-256 of its lines begins
# 2f5eed53.


_LINES = """
abandon ability able about above absent absorb abstract absurd abuse access accident account
accuse achieve acid acoustic acquire across act action actor actress actual adapt add addict
address adjust admit adult advance advice aerobic affair afford afraid again age agent agree ahead
aim air airport aisle alarm album alcohol alert alien all alley allow almost alone alpha already
also alter always amateur amazing among amount amused analyst anchor ancient anger angle angry
animal ankle announce annual another answer antenna antique anxiety any apart apology appear apple
approve april arch arctic area arena argue arm armed armor army around arrange arrest arrive arrow
art artefact artist artwork ask aspect assault asset assist assume asthma athlete atom attack
attend attitude attract auction audit august aunt author auto autumn average avocado avoid awake
aware away awesome awful awkward axis baby bachelor bacon badge bag balance balcony ball bamboo
banana banner bar barely bargain barrel base basic basket battle beach bean beauty because become
beef before begin behave behind believe below belt bench benefit best betray better between beyond
bicycle bid bike bind biology bird birth bitter black blade blame blanket blast bleak bless blind
blood blossom blouse blue blur blush board boat body boil bomb bone bonus book boost border boring
borrow boss bottom bounce box boy bracket brain brand brass brave bread breeze brick bridge brief
bright bring brisk broccoli broken bronze broom brother brown brush bubble buddy budget buffalo
build bulb bulk bullet bundle bunker burden burger burst bus business busy butter buyer buzz
cabbage cabin cable cactus cage cake call calm camera camp can canal cancel candy cannon canoe
canvas canyon capable capital captain car carbon card cargo carpet carry cart case cash casino
castle casual cat catalog catch category cattle caught cause caution cave ceiling celery cement
census century cereal certain chair chalk champion change chaos chapter charge chase chat cheap
check cheese chef cherry chest chicken chief child chimney choice choose chronic chuckle chunk
churn cigar cinnamon circle citizen city civil claim clap clarify claw clay clean clerk clever
click client cliff climb clinic clip clock clog close cloth cloud clown club clump cluster clutch
coach coast coconut code coffee coil coin collect color column combine come comfort comic common
company concert conduct confirm congress connect consider control convince cook cool copper copy
coral core corn correct cost cotton couch country couple course cousin cover coyote crack cradle
craft cram crane crash crater crawl crazy cream credit creek crew cricket crime crisp critic crop
cross crouch crowd crucial cruel cruise crumble crunch crush cry crystal cube culture cup cupboard
curious current curtain curve cushion custom cute cycle dad damage damp dance danger daring dash
daughter dawn day deal debate debris decade december decide decline decorate decrease deer defense
define defy degree delay deliver demand demise denial dentist deny depart depend deposit depth
deputy derive describe desert design desk despair destroy detail detect develop device devote
diagram dial diamond diary dice diesel diet differ digital dignity dilemma dinner dinosaur direct
dirt disagree discover disease dish dismiss disorder display distance divert divide divorce dizzy
doctor document dog doll dolphin domain donate donkey donor door dose double dove draft dragon
drama drastic draw dream dress drift drill drink drip drive drop drum dry duck dumb dune during
dust dutch duty dwarf dynamic eager eagle early earn earth easily east easy echo ecology economy
edge edit educate effort egg eight either elbow elder electric elegant element elephant elevator
elite else embark embody embrace emerge emotion employ empower empty enable enact end endless
endorse enemy energy enforce engage engine enhance enjoy enlist enough enrich enroll ensure enter
entire entry envelope episode equal equip era erase erode erosion error erupt escape essay essence
estate eternal ethics evidence evil evoke evolve exact example excess exchange excite exclude
excuse execute exercise exhaust exhibit exile exist exit exotic expand expect expire explain
expose express extend extra eye eyebrow fabric face faculty fade faint faith fall false fame
family famous fan fancy fantasy farm fashion fat fatal father fatigue fault favorite feature
february federal fee feed feel female fence festival fetch fever few fiber fiction field figure
file film filter final find fine finger finish fire firm first fiscal fish fit fitness fix flag
flame flash flat flavor flee flight flip float flock floor flower fluid flush fly foam focus fog
foil fold follow food foot force forest forget fork fortune forum forward fossil foster found fox
fragile frame frequent fresh friend fringe frog front frost frown frozen fruit fuel fun funny
furnace fury future gadget gain galaxy gallery game gap garage garbage garden garlic garment gas
gasp gate gather gauge gaze general genius genre gentle genuine gesture ghost giant gift giggle
ginger giraffe girl give glad glance glare glass glide glimpse globe gloom glory glove glow glue
goat goddess gold good goose gorilla gospel gossip govern gown grab grace grain grant grape grass
gravity great green grid grief grit grocery group grow grunt guard guess guide guilt guitar gun
gym habit hair half hammer hamster hand happy harbor hard harsh harvest hat have hawk hazard head
health heart heavy hedgehog height hello helmet help hen hero hidden high hill hint hip hire
history hobby hockey hold hole holiday hollow home honey hood hope horn horror horse hospital host
hotel hour hover hub huge human humble humor hundred hungry hunt hurdle hurry hurt husband hybrid
ice icon idea identify idle ignore ill illegal illness image imitate immense immune impact impose
improve impulse inch include income increase index indicate indoor industry infant inflict inform
inhale inherit initial inject injury inmate inner innocent input inquiry insane insect inside
inspire install intact interest into invest invite involve iron island isolate issue item ivory
jacket jaguar jar jazz jealous jeans jelly jewel job join joke journey joy judge juice jump jungle
junior junk just kangaroo keen keep ketchup key kick kid kidney kind kingdom kiss kit kitchen kite
kitten kiwi knee knife knock know lab label labor ladder lady lake lamp language laptop large
later latin laugh laundry lava law lawn lawsuit layer lazy leader leaf learn leave lecture left
leg legal legend leisure lemon lend length lens leopard lesson letter level liar liberty library
license life lift light like limb limit link lion liquid list little live lizard load loan lobster
local lock logic lonely long loop lottery loud lounge love loyal lucky luggage lumber lunar lunch
luxury lyrics machine mad magic magnet maid mail main major make mammal man manage mandate mango
mansion manual maple marble march margin marine market marriage mask mass master match material
math matrix matter maximum maze meadow mean measure meat mechanic medal media melody melt member
memory mention menu mercy merge merit merry mesh message metal method middle midnight milk million
mimic mind minimum minor minute miracle mirror misery miss mistake mix mixed mixture mobile model
modify mom moment monitor monkey monster month moon moral more morning mosquito mother motion
motor mountain mouse move movie much muffin mule multiply muscle museum mushroom music must mutual
myself mystery myth naive name napkin narrow nasty nation nature near neck need negative neglect
neither nephew nerve nest net network neutral never news next nice night noble noise nominee
noodle normal north nose notable note nothing notice novel now nuclear number nurse nut oak obey
object oblige obscure observe obtain obvious occur ocean october odor off offer office often oil
okay old olive olympic omit once one onion online only open opera opinion oppose option orange
orbit orchard order ordinary organ orient original orphan ostrich other outdoor outer output
outside oval oven over own owner oxygen oyster ozone pact paddle page pair palace palm panda panel
panic panther paper parade parent park parrot party pass patch path patient patrol pattern pause
pave payment peace peanut pear peasant pelican pen penalty pencil people pepper perfect permit
person pet phone photo phrase physical piano picnic picture piece pig pigeon pill pilot pink
pioneer pipe pistol pitch pizza place planet plastic plate play please pledge pluck plug plunge
poem poet point polar pole police pond pony pool popular portion position possible post potato
pottery poverty powder power practice praise predict prefer prepare present pretty prevent price
pride primary print priority prison private prize problem process produce profit program project
promote proof property prosper protect proud provide public pudding pull pulp pulse pumpkin punch
pupil puppy purchase purity purpose purse push put puzzle pyramid quality quantum quarter question
quick quit quiz quote rabbit raccoon race rack radar radio rail rain raise rally ramp ranch random
range rapid rare rate rather raven raw razor ready real reason rebel rebuild recall receive recipe
record recycle reduce reflect reform refuse region regret regular reject relax release relief rely
remain remember remind remove render renew rent reopen repair repeat replace report require rescue
resemble resist resource response result retire retreat return reunion reveal review reward rhythm
rib ribbon rice rich ride ridge rifle right rigid ring riot ripple risk ritual rival river road
roast robot robust rocket romance roof rookie room rose rotate rough round route royal rubber rude
rug rule run runway rural sad saddle sadness safe sail salad salmon salon salt salute same sample
sand satisfy satoshi sauce sausage save say scale scan scare scatter scene scheme school science
scissors scorpion scout scrap screen script scrub sea search season seat second secret section
security seed seek segment select sell seminar senior sense sentence series service session settle
setup seven shadow shaft shallow share shed shell sheriff shield shift shine ship shiver shock
shoe shoot shop short shoulder shove shrimp shrug shuffle shy sibling sick side siege sight sign
silent silk silly silver similar simple since sing siren sister situate six size skate sketch ski
skill skin skirt skull slab slam sleep slender slice slide slight slim slogan slot slow slush
small smart smile smoke smooth snack snake snap sniff snow soap soccer social sock soda soft solar
soldier solid solution solve someone song soon sorry sort soul sound soup source south space spare
spatial spawn speak special speed spell spend sphere spice spider spike spin spirit split spoil
sponsor spoon sport spot spray spread spring spy square squeeze squirrel stable stadium staff
stage stairs stamp stand start state stay steak steel stem step stereo stick still sting stock
stomach stone stool story stove strategy street strike strong struggle student stuff stumble style
subject submit subway success such sudden suffer sugar suggest suit summer sun sunny sunset super
supply supreme sure surface surge surprise surround survey suspect sustain swallow swamp swap
swarm swear sweet swift swim swing switch sword symbol symptom syrup system table tackle tag tail
talent talk tank tape target task taste tattoo taxi teach team tell ten tenant tennis tent term
test text thank that theme then theory there they thing this thought three thrive throw thumb
thunder ticket tide tiger tilt timber time tiny tip tired tissue title toast tobacco today toddler
toe together toilet token tomato tomorrow tone tongue tonight tool tooth top topic topple torch
tornado tortoise toss total tourist toward tower town toy track trade traffic tragic train
transfer trap trash travel tray treat tree trend trial tribe trick trigger trim trip trophy
trouble truck true truly trumpet trust truth try tube tuition tumble tuna tunnel turkey turn
turtle twelve twenty twice twin twist two type typical ugly umbrella unable unaware uncle uncover
under undo unfair unfold unhappy uniform unique unit universe unknown unlock until unusual unveil
update upgrade uphold upon upper upset urban urge usage use used useful useless usual utility
vacant vacuum vague valid valley valve van vanish vapor various vast vault vehicle velvet vendor
venture venue verb verify version very vessel veteran viable vibrant vicious victory video view
village vintage violin virtual virus visa visit visual vital vivid vocal voice void volcano volume
vote voyage wage wagon wait walk wall walnut want warfare warm warrior wash wasp waste water wave
way wealth weapon wear weasel weather web wedding weekend weird welcome west wet whale what wheat
wheel when where whip whisper wide width wife wild will win window wine wing wink winner winter
wire wisdom wise wish witness wolf woman wonder wood wool word work world worry worth wrap wreck
wrestle wrist write wrong yard year yellow you young youth zebra zero zone zoo
"""
SEED_WORDS: tuple[str, ...] = tuple(_LINES.split())
"""2,048 words; a word's index is the eleven bits that it stands for."""


# Secrets that a check of their own tells: cards, accounts, seed phrases, wrapped keys.


# ISO/IEC 7812: Visa, Mastercard (both ranges), Discover, JCB, UnionPay; Amex, Diners.
_CARD = re.compile(
    # It starts at a digit, which is fast to look for; what stands before is looked at then.
    r"[2-6](?<![\w.,+#/-][2-6])(?:"
    r"(?:(?<=4)\d{3}|(?<=5)[1-5]\d\d|(?<=2)(?:2[2-9]\d|[3-6]\d\d|7[01]\d|720)|(?<=6)(?:011|[25]\d\d|4[4-9]\d)"
    r"|(?<=3)5[2-8]\d)([ -]?)\d{4}\1\d{4}\1\d{4}"
    r"|(?<=3)[47]\d\d([ -]?)\d{6}\2\d{5}|(?<=3)(?:0[0-5]|[68]\d)\d([ -]?)\d{6}\3\d{4}"
    r")(?![\w-]|[.,]\d)",
    re.ASCII,
)
_CARD_WORD = re.compile("diner|card|kart|carte|tarjeta|карт|卡", re.IGNORECASE)
# ISO 13616 registry, release 98: the length, then its countries.
_REGISTRY = """
15:NO 16:BE 18:DK,FI,FO,GL,NL,SD 19:MK,SI 20:AT,BA,EE,KZ,LT,LU,MN,XK 21:CH,HR,LI,LV
22:BG,BH,CR,DE,GB,GE,IE,ME,RS,VA 23:AE,GI,IL,IQ,OM,SO,TL 24:AD,CZ,ES,MD,PK,RO,SA,SE,SK,TN,VG
25:LY,PT,ST 26:IS,TR 27:BI,DJ,FR,GR,IT,MC,MR,SM 28:AL,AZ,BY,CY,DO,GT,HU,LB,NI,PL,SV
29:BR,EG,PS,QA,UA 30:JO,KW,MU 31:MT,SC 32:LC 33:RU
"""
_IBAN_LENGTHS = {
    country: int(length)
    for length, countries in (line.split(":") for line in _REGISTRY.split())
    for country in countries.split(",")
}
_IBAN = re.compile(
    r"[A-Z](?<![A-Za-z0-9][A-Z])[A-Z]\d\d(?:[ -]?[A-Z0-9]){11,29}(?![a-z0-9])", re.ASCII
)

SEED_SIZES = (12, 15, 18, 21, 24)
MIN_SEED_WORDS = SEED_SIZES[0]
_SEED = b"\1" * MIN_SEED_WORDS
_SEED_RUN = re.compile(b"\1{%d,}" % MIN_SEED_WORDS)
_SEED_NAMED = re.compile(
    "seed|recover|mnemonic|passphrase|wallet|ledger|trezor|metamask|bip-?39|secret|backup phrase"
    "|semilla|frase|wiederherstellung|助记词|助記詞|сид|мнемо"
)

# Of ASCII text, the first of each four characters stands for less than 32.
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/_-])(?:[A-Za-f][A-Za-z0-9+/_-]{3}){4,}[A-Za-z0-9+/_-]{0,3}"
    r"(?![A-Za-z0-9+/_-])={0,2}"
)
_LAYOUT = dict.fromkeys(map(ord, "\t\n\r"))
_ALONE_CHARS = 40
_ALONE = re.compile(r"[\"'`(]?([A-Za-z0-9+/]{40})[\"'`),.]?", re.ASCII)
_WIF = re.compile(
    r"(?<![A-Za-z0-9])(?:5[HJK][1-9A-HJ-NP-Za-km-z]{49}|[KL][1-9A-HJ-NP-Za-km-z]{51})(?![A-Za-z0-9])"
)
_MIN_ALONE_BITS = 4.3
"""Random base64 of 40 characters has 4.75 on average, a path or a name of that length 4."""


_MAX_LOWER_PAIRS = 0.4
"""Neighbours that are both small letters, as a share: .17 of random base64, .7 of names."""


def find_card(text: str) -> bool:
    """Tell whether a text holds the number of a payment card: issuer, length, Luhn's check.

    Other registers number with fourteen digits and Luhn's check as well (French companies): those
    are a card's in its groups, or where a word says so.
    """
    return any(
        _has_luhn_digit(found[0])
        and (
            len(found[0]) > 14 or _CARD_WORD.search(text, max(0, found.start() - 40), found.start())
        )
        for found in _CARD.finditer(text)
    )


def _has_luhn_digit(number: str) -> bool:
    digits = [int(char) for char in reversed(number) if char.isdigit()]
    doubled = sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return len(set(digits)) > 1 and (sum(digits[::2]) + doubled) % 10 == 0


def find_iban(text: str) -> bool:
    """Tell whether a text holds an account number: its country's length, ISO 7064 mod 97-10."""
    for found in _IBAN.finditer(text):
        joined = found[0].replace(" ", "").replace("-", "")
        length = _IBAN_LENGTHS.get(joined[:2], 99)
        number = joined[:length]
        if len(number) == length:
            moved = number[4:] + number[:4]
            if int("".join(str(int(char, 36)) for char in moved)) % 97 == 1:
                return True
    return False


_SEED_NUMBERS = {word: number for number, word in enumerate(SEED_WORDS)}


def find_seed_phrase(letters: list[str], words: list[str]) -> bool:
    """Tell whether twelve or more words of a wallet's list follow each other.

    With spaces between and a word for it beside them, whatever their checksum: other wallets draw
    from the same list with another one, and a phrase that somebody mistyped is as good as whole.
    Otherwise, as in a shopping list or in program text, only where the checksum of BIP-39 holds.

    Args:
        letters: The runs of letters of a text, in lower case.
        words: The same text's words, with what is written beside them.
    """
    known = _SEED_NUMBERS
    # Of twelve in a row four are every third of the text.
    if b"\1\1\1\1" not in bytes(map(known.__contains__, letters[::3])):
        return False
    marks = bytes(map(known.__contains__, letters))
    if _SEED not in marks:
        return False
    apart = [word.lower() for word in words]
    for run in _SEED_RUN.finditer(bytes(map(known.__contains__, apart))):
        start, end = run.span()
        beside = " ".join(apart[max(0, start - 8) : start + 3] + apart[end : end + 6])
        if _SEED_NAMED.search(beside) and any(
            _is_varied(apart[at : at + MIN_SEED_WORDS])
            for at in range(start, end - MIN_SEED_WORDS + 1)
        ):
            return True
    return any(
        _is_varied(letters[at : at + size])
        and _is_checked([known[w] for w in letters[at : at + size]])
        for run in _SEED_RUN.finditer(marks)
        for size in SEED_SIZES
        # A word of the list may stand beside it. One of sixteen shopping lists passes by chance, so
        # that no more places than these are tried.
        if size <= run.end() - run.start() <= size + 1
        for at in {run.start(), run.end() - size}
    )


def _is_varied(words: list[str]) -> bool:
    """Tell whether hardly a word comes twice: of 2,048, two pairs are met once in 2,000 phrases."""
    return len(set(words)) >= len(words) - len(words) // MIN_SEED_WORDS


def _is_checked(numbers: list[int]) -> bool:
    """Tell whether the last bits are the first ones of the others' SHA-256 (BIP-39)."""
    joined = 0
    for number in numbers:
        joined = joined << 11 | number
    bits = len(numbers) // 3
    entropy = (joined >> bits).to_bytes(len(numbers) * 4 // 3, "big")
    return hashlib.sha256(entropy).digest()[0] >> (8 - bits) == joined & ((1 << bits) - 1)


def find_unnamed(words: list[str]) -> str | None:
    """Return what a long word is by itself: an AWS secret key, a wallet's key; None otherwise."""
    for word in words:
        if len(word) < _ALONE_CHARS:
            continue
        found = _ALONE.fullmatch(word)
        if found and _is_mixed(found[1]) and entropy_bits(found[1]) >= _MIN_ALONE_BITS:
            return "aws_secret_key"
        if (wif := _WIF.search(word)) and _is_mixed(wif[0]):
            return "wallet_key"
    return None


def unwrap(text: str) -> str:
    """Return what the base64 in a text says, where it is text; an empty text otherwise."""
    return "\n".join(filter(None, map(decode_text, _BASE64.findall(text))))


def decode_text(encoded: str) -> str:
    """Return the ASCII text that base64 says (either alphabet, padded or not), or an empty one."""
    plain = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    plain = plain[: len(plain) - (len(plain) % 4 == 1)]
    try:
        raw = base64.b64decode(plain + "=" * (-len(plain) % 4))
        # What PowerShell encodes is UTF-16.
        text = raw.replace(b"\0", b"").decode("ascii")
    except ValueError:
        return ""
    return text if text.translate(_LAYOUT).isprintable() else ""


def _is_mixed(text: str) -> bool:
    """Tell whether letters and digits alternate as chance has it, not as in CamelCaseNames."""
    pairs = sum(a.islower() and b.islower() for a, b in pairwise(text))
    return (
        any(c.isupper() for c in text)
        and any(c.isdigit() for c in text)
        and 0 < pairs < len(text) * _MAX_LOWER_PAIRS
    )


def entropy_bits(text: str) -> float:
    """Return the Shannon entropy in bits per character of the text's own distribution; 0 if empty.

    Source: Shannon, A Mathematical Theory of Communication (1948), section 6.
    """
    total = len(text)
    return sum(n / total * log2(total / n) for n in Counter(text).values())


# Which values are secrets, once a word before them says what they are.
#
# A judge gets the value as it was written and what says that it follows ("" for a space alone).


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


def is_base32(value: str) -> bool:
    """Tell whether a value is the secret of a second factor."""
    joined = value.replace(" ", "").replace("-", "")
    return len(joined) >= MIN_RANDOM_CHARS and (
        joined.isupper() or not set("234567").isdisjoint(joined)
    )


def is_code(value: str) -> bool:
    """Tell whether groups of letters and digits are a recovery code."""
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
written wrong asked case chosen correctly entered generated handed hidden memorable
optional possible printed private public random recorded secret secure sensitive separately shown
somewhere stays supposed typed under usually
aber auf auch bekannt das dem den der die ein eine geheim im ist kein keine lang leider mehr mit
muss nicht noch nur oder sehr sicher soll und unter vergessen wird wurde zu
avec dans est mais pas plus sont sous tres trop
"""
_TALK = STOP_WORDS | frozenset(_TALK_WORDS.split())


def _is_phrase(words: str) -> bool:
    """Tell whether words are a passphrase: all small or all capitals, none said about them."""
    parts = words.lower().replace("-", " ").split()
    alike = words.islower() or words.istitle() or words.isupper()
    # The best known one has a word of the talk in it.
    return alike and _TALK.isdisjoint(parts[parts[:2] == ["correct", "horse"] :])


def judge_password(value: str, says: str) -> bool:
    """Tell whether what follows a word for a password is one."""
    if not says:
        return is_password(value) and any(c.isdigit() for c in value)
    return is_password(value) or (value.rstrip(_CLOSING).isdecimal() and len(value) <= 12)


def judge_pass(value: str, says: str) -> bool:
    """The same of "pass", behind which test runners write what passed."""
    return is_password(value) and not _TEST_RUN.match(value)


def judge_stated(value: str, says: str) -> bool:
    """Tell whether a word between quotes is a password, not what is said about one."""
    return value.isalpha() and value.lower() not in _TALK


def judge_key(value: str, says: str) -> bool:
    """Tell whether what follows a word for a key or a token is one, not the name of one."""
    if _NAME.fullmatch(bare := value.rstrip(_CLOSING)) or _TECHNICAL.match(bare):
        return False
    return is_secret_value(value) if says else _is_random(value)


def judge_phrase(value: str, says: str) -> bool:
    """Tell whether words that follow "passphrase" are one."""
    return _is_phrase(value) and (bool(says) or value.islower())


def judge_pin(value: str, says: str) -> bool:
    """Tell whether digits are a PIN or a code: a year needs a verb before it."""
    return bool(says) or not _YEAR.fullmatch(value)


# What test runners write behind PASS: a function, a path, a script.
_TEST_RUN = re.compile(
    r"[Tt]est[A-Z_/.-]|(?:[\w.+-]{1,80}/){1,9}[\w.+-]{0,80}:?\Z"
    r"|[\w+-]{1,80}\.(?:sh|py|c|cc|cpp|h|t|js|ts|rs|go|rb|exp|pl|java)\b"
)
_YEAR = re.compile(r"(?:19|20)\d\d")
