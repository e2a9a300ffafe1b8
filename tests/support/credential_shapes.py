"""Credentials to be found and texts to be left alone: the labelled set of the secret rules.

Shapes are those that issuers publish (their documentation of token formats, as of November 2026);
values are random, so nothing here is or was valid and no scanner finds one in this file. A format
that `noctuary/text/secret_formats.txt` gets is a shape here first.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Iterator, Mapping

_UPPER, _DIGITS = string.ascii_uppercase, string.digits
_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_URL64 = _ALNUM + "-_"
_BASE64 = _ALNUM + "+/"
_CLASSES = {
    "A": _ALNUM, "U": _UPPER + _DIGITS, "D": _DIGITS, "H": _HEX, "W": _URL64, "B": _BASE64,
    "2": _UPPER + "234567", "F": _HEX.upper(), "N": "123456789", "T": _ALNUM + "_~.-",
    "L": string.ascii_letters,
    "9": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}  # fmt: skip

_RANDOM = re.compile(r"\{([A-Z0-9]):(\d+)\}")

TOKENS: Mapping[str, str] = {
    "aws access key": "AKIA{2:16}",
    "aws session key": "ASIA{2:16}",
    "aws bedrock": "ABSK{B:90}",
    "github classic": "ghp_{A:36}",
    "github oauth": "gho_{A:36}",
    "github app": "ghs_{A:36}",
    "github fine-grained": "github_pat_{A:22}_{A:59}",
    "gitlab personal": "glpat-{W:20}",
    "gitlab runner": "glrt-{W:20}",
    "gitlab deploy": "gldt-{W:20}",
    "slack bot": "xoxb-{D:12}-{D:13}-{A:24}",
    "slack user": "xoxp-{D:12}-{D:12}-{D:13}-{H:32}",
    "slack app": "xapp-1-A{U:10}-{D:13}-{H:64}",
    "slack webhook": "https://hooks.slack.com/services/T{U:8}/B{U:10}/{A:24}",
    "stripe secret": "sk_live_{A:24}",
    "stripe restricted": "rk_live_{A:99}",
    "stripe webhook": "whsec_{A:32}",
    "openai legacy": "sk-{A:20}T3BlbkFJ{A:20}",
    "openai project": "sk-proj-{W:74}T3BlbkFJ{W:74}",
    "openai service": "sk-svcacct-{W:74}T3BlbkFJ{W:74}",
    "openrouter": "sk-or-v1-{H:64}",
    "anthropic": "sk-ant-api03-{W:93}AA",
    "anthropic admin": "sk-ant-admin01-{W:93}AA",
    "groq": "gsk_{A:52}",
    "perplexity": "pplx-{A:48}",
    "replicate": "r8_{A:37}",
    "xai": "xai-{A:80}",
    "mem0": "m0-{A:40}",
    "mem0 other": "mem0_{A:24}",
    "mem0 service": "mem0_sk_{H:32}",
    "hindsight": "hsk_{H:32}_{H:16}",
    "hindsight other": "hsk-{A:32}",
    "retaindb": "retaindb_{A:24}",
    "byterover": "brv_{A:32}",
    "basic memory": "bmc_{A:32}",
    "honcho": "hch-v3-{H:61}",
    "supermemory": "sm_{A:22}_{A:64}",
    "supermemory short": "sm_{A:32}",
    "zep": "z_1dWlkIjoi{W:60}.{W:86}",
    "voyage": "pa-{W:30}Q7{W:11}",
    "langsmith": "lsv2_pt_{H:32}_{H:10}",
    "huggingface": "hf_{L:34}",
    "google api": "AIza{W:35}",
    "google oauth": "ya29.{W:120}",
    "google client": "GOCSPX-{W:28}",
    "azure client": "{A:3}{D:1}Q~{T:34}",
    "azure storage": "DefaultEndpointsProtocol=https;AccountName=s1;AccountKey={B:86}==",
    "azure sas": "https://x.blob.core.windows.net/c?sv=2022-11-02&sp=rwd&sig={A:40}%3D",
    "aws presigned": "https://b.s3.amazonaws.com/k?X-Amz-Expires=900&X-Amz-Signature={H:64}",
    "digitalocean": "dop_v1_{H:64}",
    "digitalocean oauth": "doo_v1_{H:64}",
    "databricks": "dapi{H:32}",
    "doppler": "dp.pt.{A:43}",
    "fly": "fo1_{W:43}",
    "fly 2": "fm2_{B:90}",
    "vault": "hvs.{W:95}",
    "vault batch": "hvb.{W:120}",
    "terraform": "{A:14}.atlasv1.{W:67}",
    "heroku": "HRKU-AA{W:58}",
    "planetscale": "pscale_tkn_{W:43}",
    "pulumi": "pul-{H:40}",
    "supabase": "sbp_{H:40}",
    "supabase 2": "sb_secret_{W:31}",
    "netlify": "nfp_{A:36}",
    "tailscale": "tskey-auth-k{A:16}CNTRL-{A:32}",
    "alibaba": "LTAI{A:20}",
    "tencent": "AKID{A:32}",
    "cloudflare ca": "v1.0-{H:24}-{H:146}",
    "clickhouse": "4b1d{A:30}Zz{A:6}",
    "telegram bot": "{D:10}:AA{W:33}",
    "discord bot": "M{A:23}.{W:6}.{W:38}",
    "discord webhook": "https://discord.com/api/webhooks/{D:18}/{W:68}",
    "shopify": "shpat_{H:32}",
    "shopify secret": "shpss_{H:32}",
    "square": "EAAA{W:60}",
    "square secret": "sq0csp-{W:43}",
    "facebook": "EAACEdEose0cBA{A:60}",
    "shippo": "shippo_live_{H:40}",
    "easypost": "EZAK{A:54}",
    "flutterwave": "FLWSECK-{A:32}-X",
    "sendgrid": "SG.{W:22}.{W:43}",
    "mailgun": "key-{H:32}",
    "mailchimp": "{H:32}-us{N:1}",
    "brevo": "xkeysib-{H:64}-{A:16}",
    "resend": "re_{A:6}7x_{A:24}",
    "twilio": "SK{H:32}",
    "npm": "npm_{A:36}",
    "pypi": "pypi-AgEIcHlwaS5vcmc{W:90}",
    "rubygems": "rubygems_{H:48}",
    "dockerhub": "dckr_pat_{W:27}",
    "jfrog": "AKCp{A:69}",
    "sonarqube": "squ_{H:40}",
    "buildkite": "bkua_{H:40}",
    "circleci": "CCIPAT_{A:22}_{H:40}",
    "prefect": "pnu_{A:36}",
    "postman": "PMAK-{H:24}-{H:34}",
    "grafana": "glsa_{A:32}_{H:8}",
    "grafana cloud": "glc_{A:60}",
    "new relic": "NRAK-{U:27}",
    "sentry user": "sntryu_{H:64}",
    "sentry org": "sntrys_{B:80}_{B:43}",
    "posthog": "phx_{A:43}",
    "elastic": "essu_{B:60}",
    "figma": "figd_{W:40}",
    "linear": "lin_api_{A:40}",
    "notion": "ntn_{D:11}{A:35}",
    "notion old": "secret_{A:43}",
    "atlassian": "ATATT3xFfGF0{W:170}={F:8}",
    "bitbucket": "ATBB{A:32}",
    "airtable": "pat{A:14}.{H:64}",
    "typeform": "tfp_{W:59}",
    "contentful": "CFPAT-{W:43}",
    "dropbox": "sl.{W:140}",
    "1password": "ops_eyJ{B:300}",
    "age": "AGE-SECRET-KEY-1{9:58}",
}
"""Issuer -> its format; `{class:count}` is random."""

WORDED: Mapping[str, str] = {
    "password": "password: {pw}",
    "environment": "DB_PASSWORD={pw}",
    "prose": "the wifi password is {pw}",
    "what for": "the passphrase of the backup disk is {pw}",
    "psql": "PGPASSWORD='{pw}' psql -h db",
    "json": '{"client_secret": "{A:30}4z"}',
    "aws secret": "aws_secret_access_key = {B:38}4z",
    "api key": "api_key={H:30}4a",
    "header": "X-Api-Key: {A:30}4z",
    "bearer": "Authorization: Bearer {A:40}",
    "basic": "Authorization: Basic {A:40}",
    "postgres": "postgres://app:{pw}@db.internal:5432/prod",
    "mongodb": "mongodb+srv://svc:{A:16}@cluster0.abcde.mongodb.net/prod",
    "redis": "redis://:{A:20}@cache:6379/0",
    "git": "https://ana:{A:20}@git.example.net/repo.git",
    "netrc": "machine api.example.net login ana password {pw}",
    "curl": "curl -s -u ana:{pw} https://api.example.net/v1",
    "mysql": "mysql -u root -p{pw} shop",
    "sshpass": "sshpass -p '{pw}' ssh ana@host",
    "spanish": "contraseña: {pw}",
    "russian": "пароль: {A:11}7",
    "chinese": "密码：{A:11}7",
    "german": "Passwort ist {pw}",
    "french": "mot de passe : {pw}",
    "rails": "secret_key_base: {H:127}a4",
    "jwt secret": "JWT_SECRET={A:47}4z",
    "encryption key": "encryption key = {H:62}a4",
    "rsa": "-----BEGIN RSA PRIVATE {key}-----\n{B:64}",
    "openssh": "-----BEGIN OPENSSH PRIVATE {key}-----\n{B:70}",
    "pgp": "-----BEGIN PGP PRIVATE {key} BLOCK-----\n\n{B:64}",
    "putty": "PuTTY-User-Key-File-3: ssh-ed25519",
}
"""Secrets that words around them tell."""

HARMLESS: tuple[str, ...] = (
    "commit {H:40}",
    "build for sm_80 and sm_90a: sm_90_tma_warpspecialized_bf16_f32_kernel_128x256, sm_total_count",
    "the classes sm_TotalCountOfRequestsMade2024 and mem0_VectorStoreConfigFactory2",
    "z_index beats z_order_curve_level_12; z_score_of_the_2024_column is below 3",
    "cortex-m0-stm32f030 boards, pod m0-7f9c8d7b6c-abcde, mem0_history_2024_backup_table_v2",
    "hsk-vocabulary-level-3-list and hsk_level6_wordlist2021, brv_memory_bank_2025_11_28",
    "retaindb_project_settings_v3, hch-config-v2-staging, bmc_controller_firmware_v2",
    "sha256:{H:64}",
    "trace id {uuid}",
    'etag W/"{H:32}"',
    "nginx@sha256:{H:64}",
    "data:image/png;base64,{B:200}",
    'integrity="sha512-{B:86}=="',
    "order #{D:12} shipped",
    "https://docs.google.com/document/d/{W:44}/edit",
    "arn:aws:iam::{D:12}:role/deploy",
    "public key ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{B:43} ana@host",
    "-----BEGIN CERTIFICATE-----\n{B:64}",
    "-----BEGIN PUBLIC KEY-----\n{B:64}",
    "pod web-7d9c8b6f5-x2l4q",
    "serial C02{U:9}",
    "password: ${DB_PASSWORD}",
    "secret: well-prepared",
    "password = os.environ['PW2']",
    "token=****************",
    "api_key: <your-api-key-1>",
    "The password policy requires 12 characters and a digit.",
    "token budget: 4096 tokens",
    "private key: /home/me/.ssh/id_ed25519",
    "API key lives in 1Password under harbour-prod",
    "password reset link expires after 24h",
    "passwd: see vault kv/prod/db2",
    "clave: la perseverancia",
    "the secret of a good sauce is patience",
    "the key for the garage door is on hook 14",
    "git branch feature/auth-token-v2-refactor",
    "migration 20260301120000_add_token_expiry",
    "secretKeyRef: my-app-secret",
    "MAX_TOKEN_CHARS = 128",
    "redis://cache:6379/0",
    "postgres://localhost:5432/prod",
    "sk-learn-pipelines-are-a-fine-abstraction",
    "task-force-pa-this-is-one-very-long-branch-name-indeed-truly",
    "curl -u ana https://example.net",
    "mysql -p shop",
    "login page password reset",
    "sig=short",
    "EAA and EAAA are fine",
    "fig_1_of_the_paper",
    "secret_sauce_recipe_of_the_house",
    "pat.pending.in.most.countries.of.the.world",
    "re_compile_pattern_for_long_words",
)


def fill(shape: str, seed: int) -> str:
    """Return a shape with its random parts; equal seeds give equal texts."""
    rng = random.Random(f"{seed}:{shape}")

    def draw(found: re.Match[str]) -> str:
        return "".join(rng.choices(_CLASSES[found[1]], k=int(found[2])))

    words = {"{pw}": _password(rng), "{uuid}": _uuid(rng), "{key}": "KEY"}
    for name, word in words.items():
        shape = shape.replace(name, word)
    return _RANDOM.sub(draw, shape)


def credentials(per_shape: int = 4) -> Iterator[tuple[str, str]]:
    """Yield (issuer, text): each token in four frames, then phrases."""
    frames = (
        "{}", "The staging one is {}, ask Ana first.", "export SERVICE={}",
        "Remember:\n- api.example.net\n- {}\n- rotate monthly",
    )  # fmt: skip
    for number in range(per_shape):
        for issuer, shape in TOKENS.items():
            yield issuer, frames[number % len(frames)].format(fill(shape, number))
        for phrase, shape in WORDED.items():
            yield phrase, fill(shape, number + 1)
        header, claims = ({"alg": "HS256", "typ": "JWT"}, {"sub": str(number), "iat": 1516239022})
        parts = [
            base64.urlsafe_b64encode(json.dumps(p).encode()).decode() for p in (header, claims)
        ]
        yield "jwt", ".".join([*(p.rstrip("=") for p in parts), fill("{W:43}", number)])


def _password(rng: random.Random) -> str:
    word = rng.choice(["Harbour", "Crane", "Pantry", "Violet", "Lantern", "Marble", "Falcon"])
    return f"{word}{rng.randint(10, 99)}{rng.choice('!#&-_')}{''.join(rng.choices(_ALNUM, k=4))}"


def _uuid(rng: random.Random) -> str:
    return "-".join("".join(rng.choices(_HEX, k=n)) for n in (8, 4, 4, 4, 12))
