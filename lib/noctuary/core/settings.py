"""Every setting: one frozen tree, read from one TOML file with environment overrides.

docs/configuration.md says what each one means and trades; a test holds the two together. Standard
library only, because a hook reads its settings too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from noctuary.core.errors import ConfigError
from noctuary.core.types import dataclass


def nearest_names(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return up to `most` known names, the nearest first; empty only if nothing is known."""
    import difflib  # only a slip of the finger needs it

    return difflib.get_close_matches(name, list(known), n=most, cutoff=0.0)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the nearest known one, if any."""
    matches = nearest_names(name, known)
    return f"; the nearest known one is {matches[0]}" if matches else ""


def require_web_address(url: str) -> None:
    """Refuse what is no plain http or https address.

    Raises:
        ValueError: The text does not quote the address, which may hold a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an endpoint's URL starts with http:// or https:// and names a host")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise ValueError("an endpoint's URL holds characters that a URL cannot have; encode them")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an endpoint's URL holds a user or a password; pass an API key instead")
    try:
        _ = parts.port
    except ValueError as error:
        raise ValueError("an endpoint's URL has a port that is no number up to 65535") from error


def join_path(url: str, path: str) -> str:
    """Return the address of a /path below a base URL; its query stays, its fragment goes."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path, fragment=""))


# What a value must be, declared beside its default.


def _checked(default: Any, must: str, holds: Callable[[Any], bool]) -> Any:
    return field(default=default, metadata={"must": must, "holds": holds})


def _at_least(low: float, default: float, why: str = "") -> Any:
    must = "be >= 0" if low == 0 else f"be at least {low:g}{why}"
    return _checked(default, must, lambda value: value >= low)


def _above_zero(default: float) -> Any:
    return _checked(default, "be > 0", lambda value: value > 0)


def _within(low: int, high: int, default: float) -> Any:
    return _checked(default, f"lie in [{low}, {high}]", lambda value: low <= value <= high)


def _one_of(choices: tuple[str, ...], default: str) -> Any:
    """Declare a text that is one of some; a fault says which one was found."""
    told = " or ".join(f'"{choice}"' for choice in choices)
    told = told if len(choices) == 2 else f"one of {', '.join(choices)}"
    return _checked(default, f"be {told}", lambda value: value in choices)


FUSIONS = ("cc", "rrf")
PROVIDERS = ("local", "voyage", "openai", "cohere")


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The memory store to read."""

    path: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class SensitiveSettings:
    """Whether `recall_sensitive` may look into rows that never leave the store."""

    recall: bool = False


@dataclass(frozen=True, slots=True)
class CorpusSettings:
    """What is exported and what is set aside."""

    turn_categories: tuple[str, ...] = ("turn", "dialog_turn")
    max_content_bytes: int = _at_least(1, 1_048_576)


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """The embedding model; with a hosted provider, contents and queries are sent there."""

    model: str = "all-MiniLM-L6-v2"
    provider: str = _one_of(PROVIDERS, PROVIDERS[0])
    url: str = ""
    api_key_variable: str = ""
    dimension: int = _at_least(0, 0)
    budget_usd: float = _at_least(0, 5.0)
    usd_per_million_tokens: float = _at_least(0, 0.0)


@dataclass(frozen=True, slots=True)
class TierSettings:
    """The LanceDB tables of vector prefixes."""

    small_dims: int = _at_least(1, 64)
    medium_dims: int = 256
    uri: str = ""


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Clusters of old turns and their summaries."""

    cluster_size: int = 20
    protected_tail_turns: int = _at_least(0, 4)
    preserve_threshold: float = _within(-1, 1, 0.65)
    density: float = _within(0, 1, 0.0)
    aggressive_density: float = _within(0, 1, 0.0)
    summarizer: str = _one_of(("sentences", "extractive", "llm"), "sentences")
    llm_url: str = ""
    llm_model: str = ""
    api_key_variable: str = ""
    include_named_users: bool = False


@dataclass(frozen=True, slots=True)
class CurationSettings:
    """Proposals for tidying the memory store itself."""

    enabled: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Publishing."""

    keep: int = _at_least(2, 7, ", or rollback has nowhere to go")


@dataclass(frozen=True, slots=True)
class RecallSettings:
    """Defaults of the read path; see noctuary.recall.profile for what each one trades."""

    profile: str = "default"
    fusion: str = _one_of(FUSIONS, FUSIONS[0])
    lexical_weight: float = _at_least(0, 0.5)
    dense_weight: float = _at_least(0, 0.5)
    graph_weight: float = _at_least(0, 1.0)
    importance_prior: float = _within(0, 1, 0.3)
    exact_match_bonus: float = _at_least(0, 0.0)
    log_retrievals: bool = True
    stale_after_hours: float = _at_least(0, 36.0)


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What recall sees of the store itself, since the snapshot."""

    enabled: bool = True
    max_rows: int = _at_least(0, 2_000)
    deadline_ms: float = _above_zero(50.0)


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """What is measured every night, and what follows from it."""

    enabled: bool = True
    queries: str = ""
    exact_queries: int = _at_least(0, 60)
    adopt: bool = True
    on_drop: str = _one_of(("refuse", "report"), "refuse")
    report_texts: bool = False
    generator_url: str = ""
    generator_model: str = ""
    judge_url: str = ""
    judge_model: str = ""
    api_key_variable: str = ""
    generated_queries: int = _at_least(0, 40)


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """What besides the rules finds concepts and relations."""

    extractor: str = _one_of(("rules", "llm"), "rules")
    llm_url: str = ""
    llm_model: str = ""
    api_key_variable: str = ""
    llm_batch_memories: int = _at_least(1, 8)
    include_named_users: bool = False


@dataclass(frozen=True, slots=True)
class TranscriptSettings:
    """Conversations that agents keep as JSON lines."""

    path: str = ""
    include_sidechains: bool = False
    tool_chars: int = _at_least(0, 400)


@dataclass(frozen=True, slots=True)
class PromotionSettings:
    """Which turns are proposed as durable memories (libravdb's gating scalar)."""

    enabled: bool = True
    threshold: float = _within(0, 1, 0.35)


@dataclass(frozen=True, slots=True)
class HookSettings:
    """What `noctuary hook` puts into an agent's prompts."""

    memories: int = _at_least(0, 3)
    budget_tokens: int = _at_least(0, 1_500)
    restore_tokens: int = _at_least(0, 1_500)
    deadline_ms: float = _above_zero(250.0)
    abstain: bool = True
    scope: str = _one_of(("store", "project"), "store")
    user: str = ""
    in_subagents: bool = False
    capture: bool = True
    start_server: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """When the nightly job runs once its schedule is switched on."""

    cron: str = "0 3 * * *"
    timezone: str = ""


@dataclass(frozen=True, slots=True)
class SensorSettings:
    """When a change of the store starts a night of its own, once the sensor is switched on."""

    poll_seconds: float = _at_least(1, 60.0)
    minimum_minutes: float = _at_least(0, 15.0)


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Who runs the heavy steps of a night, and how much they may use."""

    kind: str = _one_of(("local", "ray"), "local")
    workers: int = _at_least(0, 0)
    memory_mb: int = _at_least(256, 2_048)
    address: str = ""
    object_store_mb: int = _at_least(0, 0)


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Who is told of a night that failed, or did not happen; never with a text of a memory."""

    command: str = ""
    webhook: str = ""


ENV_PREFIX = "NOCTUARY_"
CONFIG_FILE_NAME = "noctuary.toml"
# Variables that say where things are, as against what they do; the last one is for tests and
# benchmarks.
_LOCATION_VARIABLES = frozenset(
    {"NOCTUARY_HOME", "NOCTUARY_CONFIG", "NOCTUARY_STORE", "NOCTUARY_SHARED"}
)
_PROFILES = "profiles"
_NOT_IN_JSON = "notify"  # shapes no artifact, and an address may hold a key: no part of a manifest


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole tree; immutable, validated on load.

    Attributes:
        profiles: The tables [profiles.NAME] as they stand in the file; noctuary.recall.profile
            checks them. No part of `to_json`: they shape how a snapshot is asked.
        origins: Where each value that was set comes from, by `section.key`: "in <file>" or
            "environment <variable>". No part of equality or `to_json`.
    """

    source: SourceSettings = field(default_factory=SourceSettings)
    sensitive: SensitiveSettings = field(default_factory=SensitiveSettings)
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    tiers: TierSettings = field(default_factory=TierSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    curation: CurationSettings = field(default_factory=CurationSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    recall: RecallSettings = field(default_factory=RecallSettings)
    live: LiveSettings = field(default_factory=LiveSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    graph: GraphSettings = field(default_factory=GraphSettings)
    transcripts: TranscriptSettings = field(default_factory=TranscriptSettings)
    promotion: PromotionSettings = field(default_factory=PromotionSettings)
    hook: HookSettings = field(default_factory=HookSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    sensor: SensorSettings = field(default_factory=SensorSettings)
    runner: RunnerSettings = field(default_factory=RunnerSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)
    profiles: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]], hash=False
    )
    origins: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)

    @staticmethod
    def load(
        config_path: Path | None = None,
        *,
        home: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Settings:
        """Return the settings in force: later wins of defaults, TOML file and environment.

        Args:
            config_path: The file; None means `NOCTUARY_CONFIG`, else `<home>/noctuary.toml` if it
                is there.
            home: noctuary's home directory.
            environ: The environment; None means the process's own.

        Raises:
            ConfigError: Listing every fault of the file and the environment at once.
        """
        env = os.environ if environ is None else environ
        chosen = config_path or _configured_path(env)
        if chosen is None and home is not None and (home / CONFIG_FILE_NAME).is_file():
            chosen = home / CONFIG_FILE_NAME
        faults: list[str] = []
        settings = _DEFAULTS
        if chosen is not None:
            raw, where = _read_toml(chosen), f"in {chosen}"
            settings = _take_profiles(settings, raw.pop(_PROFILES, {}), where, faults)
            settings = _apply(settings, raw, where, faults)
        settings = _apply(settings, _from_environ(env, faults), "", faults)
        faults += [*_range_faults(settings), *_joint_faults(settings), *_endpoint_faults(settings)]
        if faults:
            raise ConfigError("noctuary's settings have faults:\n  - " + "\n  - ".join(faults))
        return settings

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return plain nested dicts (tuples as lists), for manifests and digests."""
        told = {name: asdict(getattr(self, name)) for name in _KEYS if name != _NOT_IN_JSON}
        told["corpus"]["turn_categories"] = list(self.corpus.turn_categories)
        return told


_DEFAULTS = Settings()
_KEYS = {
    section.name: [key.name for key in fields(getattr(_DEFAULTS, section.name))]
    for section in fields(Settings)
    if section.name not in (_PROFILES, "origins")
}
"""The keys of every section, in declaration order."""


def known_settings() -> list[str]:
    """Return every setting as `section.key`, in declaration order."""
    return [f"{section}.{key}" for section, keys in _KEYS.items() for key in keys]


def _configured_path(env: Mapping[str, str]) -> Path | None:
    value = env.get("NOCTUARY_CONFIG", "").strip()
    try:
        return Path(value).expanduser() if value else None
    except RuntimeError:
        raise ConfigError(
            f"NOCTUARY_CONFIG is {value}, which names no home directory that this machine knows: "
            "write the path in full"
        ) from None


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib  # most processes have no file to read

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"no configuration file at {path}: create it or unset NOCTUARY_CONFIG"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _from_environ(env: Mapping[str, str], faults: list[str]) -> dict[str, dict[str, str]]:
    """Map `NOCTUARY_<SECTION>_<KEY>` to {section: {key: text}}."""
    given = [name for name in env if name.startswith(ENV_PREFIX)]
    names = {_variable(name): name for name in known_settings()} if given else {}
    found: dict[str, dict[str, str]] = {}
    for variable in given:
        if variable in names:
            section, _, key = names[variable].partition(".")
            found.setdefault(section, {})[key] = env[variable]
        elif variable not in _LOCATION_VARIABLES:
            faults.append(f"unknown variable {variable}{nearest_hint(variable, names)}")
    return found


def _variable(name: str) -> str:
    return f"{ENV_PREFIX}{name.replace('.', '_').upper()}"


def _take_profiles(settings: Settings, raw: Any, where: str, faults: list[str]) -> Settings:
    """Keep the tables [profiles.NAME] as they are."""
    if not isinstance(raw, Mapping):
        faults.append(f"[{_PROFILES}] {where} must be a table, found {type(raw).__name__}")
        return settings
    tables = cast(Mapping[str, Any], raw)
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            kind = type(table).__name__
            faults.append(f"[{_PROFILES}.{name}] {where} must be a table, found {kind}")
    return replace(settings, profiles={n: t for n, t in tables.items() if isinstance(t, Mapping)})


def _apply(settings: Settings, raw: Mapping[str, Any], file: str, faults: list[str]) -> Settings:
    """Return the settings with the values of a file (`file` says which) or the environment."""
    where = file or "in the environment"
    for section, values in raw.items():
        if section not in _KEYS:
            hint = nearest_hint(section, [*_KEYS, _PROFILES])
            faults.append(f"unknown section [{section}] {where}{hint}")
            continue
        if not isinstance(values, Mapping):
            faults.append(f"[{section}] {where} must be a table, found {type(values).__name__}")
            continue
        current, origins = getattr(settings, section), dict(settings.origins)
        for key, value in cast(Mapping[str, Any], values).items():
            name = f"{section}.{key}"
            if key not in _KEYS[section]:
                faults.append(f"unknown key {name} {where}{nearest_hint(key, _KEYS[section])}")
                continue
            origins[name] = file or f"environment {_variable(name)}"
            try:
                current = replace(current, **{key: _coerce(value, getattr(current, key))})
            except ValueError as error:
                faults.append(f"{name} {where}: {error}")
        settings = replace(settings, **{section: current}, origins=origins)
    return settings


def _coerce(value: Any, default: Any) -> Any:
    """Return the value with the default's type; text is parsed, for the environment."""
    if isinstance(default, bool):
        return _as_bool(value)
    if isinstance(default, int | float):
        return _as_number(value, type(default))
    if isinstance(default, tuple):
        items = [s.strip() for s in value.split(",")] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(i, str) for i in items):
            raise ValueError(f"expected a list of texts, found {value!r}")
        return tuple(i for i in items if i)
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r}")  # noqa: TRY004
    return value


def _as_bool(value: Any) -> bool:
    text = str(value).strip().lower()
    if text in {"1", "true", "yes", "on"}:
        return True
    if text in {"0", "false", "no", "off"}:
        return False
    raise ValueError(f"expected true or false, found {value!r}")


def _as_number(value: Any, kind: type[int] | type[float]) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"expected a number, found {value!r}")  # noqa: TRY004
    if kind is int and isinstance(value, float) and not value.is_integer():
        raise ValueError(f"expected a whole number, found {value!r}")
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        raise ValueError(f"expected {kind.__name__}, found {value!r}") from None
    if not isfinite(number):
        raise ValueError(f"expected a finite number, found {value!r}")
    return number


def _range_faults(settings: Settings) -> Iterable[str]:
    """Yield a sentence for each value that is not what its declaration says."""
    for section in _KEYS:
        values = getattr(settings, section)
        for declared in fields(values):
            value = getattr(values, declared.name)
            if declared.metadata and not declared.metadata["holds"](value):
                found = f", found {value!r}" if isinstance(value, str) else ""
                yield f"{section}.{declared.name} must {declared.metadata['must']}{found}"


# What must hold between values, or is more than a range.


def _joint_faults(s: Settings) -> Iterable[str]:
    hosted = f'encoder.provider = "{s.encoder.provider}" needs encoder.'
    if s.encoder.provider != PROVIDERS[0]:
        if s.encoder.model == _DEFAULTS.encoder.model:
            yield f"{hosted}model, as it is named there"
        if not s.encoder.api_key_variable:
            yield f"{hosted}api_key_variable"
    if s.tiers.medium_dims < s.tiers.small_dims:
        yield "tiers.medium_dims must be >= tiers.small_dims"
    # A key in it would be shown and logged.
    if s.tiers.uri and not re.fullmatch(r"s3://[^\s/@?#:]+(/[^\s/@?#:]+)+/?", s.tiers.uri):
        yield "tiers.uri must be empty or s3://bucket/prefix, without credentials in it"
    if not s.recall.profile:
        yield "recall.profile must name a profile, found an empty text"
    if len(s.schedule.cron.split()) != 5:
        yield f"schedule.cron needs five fields, found {s.schedule.cron!r}"


def _endpoint_faults(s: Settings) -> Iterable[str]:
    c, e, g = s.compaction, s.evaluation, s.graph
    if c.summarizer == "llm" and not (c.llm_url and c.llm_model):
        yield 'compaction.summarizer = "llm" needs compaction.llm_url and compaction.llm_model'
    if g.extractor == "llm" and not (g.llm_url and g.llm_model):
        yield 'graph.extractor = "llm" needs graph.llm_url and graph.llm_model'
    # Written queries need both endpoints; who grades its own questions grades them too well.
    written = (e.generator_url, e.generator_model, e.judge_url, e.judge_model)
    if any(written) and not all(written):
        yield "evaluation.generator_* and judge_* (url and model) go together: set all four or none"
    elif all(written) and e.generator_model == e.judge_model:
        yield "evaluation.judge_model must not be evaluation.generator_model"
    try:
        if s.notify.webhook:
            require_web_address(s.notify.webhook)
    except ValueError as error:
        yield f"notify.webhook: {error}"
    try:
        if s.notify.command:
            import shlex  # recall reads settings as well, and needs none of it

            shlex.split(s.notify.command)
    except ValueError as error:
        yield f"notify.command: {error}"
