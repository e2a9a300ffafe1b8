"""What the tokens of services look like: one row per family of formats that issuers publish.

What belongs here: formats whose every match is one run without a space, at least
`MIN_TOKEN_CHARS` long; that is what lets a text of short words pass without a pattern being tried.
What does not: secrets with spaces in them, assignments and looking for them
(`noctuary.text.secret_rules`).

The prefixes and lengths are those that the issuers document. Lengths are lower bounds: a token that
grows stays a match. Every pattern starts at a literal or a look-behind and repeats a bounded class,
so that ten hostile megabytes take linear time. A new format is a row here and a shape in
`tests/support/credential_shapes.py`, which measures what is found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

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
