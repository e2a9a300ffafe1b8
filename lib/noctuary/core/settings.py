"""Every setting: one frozen tree, read from one TOML file with environment overrides.

docs/configuration.md documents each one; a test compares the two. Standard
library only, because a hook reads its settings too.
"""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import os
import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit, urlunsplit

from noctuary.core.errors import ConfigError
from noctuary.core.types import INJECTED_ORIGINS, NOTHING, Origin


def nearest_names(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return up to `most` known names, the nearest first; empty only if nothing is known."""
    import difflib  # only a slip of the finger needs it

    return difflib.get_close_matches(name, list(known), n=most, cutoff=0.0)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the nearest known one, if any."""
    matches = nearest_names(name, known)
    return f"; the nearest known one is {matches[0]}" if matches else ""


def require_web_address(url: str) -> None:
    """Refuse anything but a plain http or https address.

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
        raise ValueError("an endpoint's URL has a port that is not a number up to 65535") from error


def join_path(url: str, path: str) -> str:
    """Return the address of a /path below a base URL; its query stays, its fragment goes."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path, fragment=""))


FUSIONS = ("cc", "rrf")
PROVIDERS = ("local", "voyage", "openai", "cohere")


class SourceSettings(NamedTuple):
    """The memory store to read."""

    path: str = ""
    user: str = ""


class CorpusSettings(NamedTuple):
    """Which rows are exported, and which are quarantined."""

    turn_categories: tuple[str, ...] = ("turn", "dialog_turn")
    max_content_bytes: int = 1_048_576


class EncoderSettings(NamedTuple):
    """The embedding model; with a hosted provider, contents and queries are sent there."""

    model: str = "all-MiniLM-L6-v2"
    provider: str = PROVIDERS[0]
    url: str = ""
    api_key_variable: str = ""
    dimension: int = 0
    budget_usd: float = 5.0
    usd_per_million_tokens: float = 0.0


class TierSettings(NamedTuple):
    """The LanceDB tables of vector prefixes."""

    small_dims: int = 64
    medium_dims: int = 256


class CompactionSettings(NamedTuple):
    """Clusters of old turns and their summaries."""

    cluster_size: int = 20
    protected_tail_turns: int = 4
    preserve_threshold: float = 0.65
    density: float = 0.0
    summarizer: str = "sentences"
    llm_url: str = ""
    llm_model: str = ""
    api_key_variable: str = ""
    include_named_users: bool = False


class CurationSettings(NamedTuple):
    """Proposals for tidying the memory store itself."""

    enabled: bool = False


class SnapshotSettings(NamedTuple):
    """Publishing."""

    keep: int = 7


class RecallSettings(NamedTuple):
    """Defaults of the read path; see noctuary.recall.profile for the trade-offs."""

    profile: str = "default"
    fusion: str = FUSIONS[0]
    lexical_weight: float = 0.5
    dense_weight: float = 0.5
    graph_weight: float = 1.0
    importance_prior: float = 0.3
    exact_match_bonus: float = 0.0
    log_retrievals: bool = True
    stale_after_hours: float = 36.0


class LiveSettings(NamedTuple):
    """How recall reads rows newer than the snapshot from the store."""

    enabled: bool = True
    max_rows: int = 2_000
    deadline_ms: float = 50.0


class EvaluationSettings(NamedTuple):
    """Nightly measurements and their consequences."""

    enabled: bool = True
    queries: str = ""
    exact_queries: int = 60
    adopt: bool = True
    on_drop: str = "refuse"
    report_texts: bool = False


class GraphSettings(NamedTuple):
    """Finders of concepts and relations in addition to the rules."""

    extractor: str = "rules"
    llm_url: str = ""
    llm_model: str = ""
    api_key_variable: str = ""
    llm_batch_memories: int = 8
    include_named_users: bool = False


class TranscriptSettings(NamedTuple):
    """Conversations that agents keep as JSON lines."""

    path: str = ""
    include_sidechains: bool = False
    tool_chars: int = 400
    wings: tuple[str, ...] = ()


class PromotionSettings(NamedTuple):
    """Which turns are proposed as durable memories (libravdb's gating scalar)."""

    enabled: bool = True
    threshold: float = 0.35


class HookSettings(NamedTuple):
    """Contents that `noctuary hook` adds to an agent's prompts."""

    memories: int = 3
    budget_tokens: int = 1_500
    restore_tokens: int = 1_500
    deadline_ms: float = 250.0
    abstain: bool = True
    scope: str = "store"
    user: str = ""
    in_subagents: bool = False
    capture: bool = True
    start_server: bool = True
    origins: tuple[str, ...] = INJECTED_ORIGINS


class ScheduleSettings(NamedTuple):
    """When the nightly job runs once its schedule is switched on."""

    cron: str = "0 3 * * *"
    timezone: str = ""


class SensorSettings(NamedTuple):
    """When a change of the store starts a night of its own, once the sensor is switched on."""

    poll_seconds: float = 60.0
    minimum_minutes: float = 15.0


class RunnerSettings(NamedTuple):
    """Who runs the heavy steps of a night, and how much they may use."""

    kind: str = "local"
    workers: int = 0
    memory_mb: int = 2_048
    address: str = ""
    object_store_mb: int = 0


class NotifySettings(NamedTuple):
    """Recipients of a notice when a night failed or did not run; never with text of a memory."""

    command: str = ""
    webhook: str = ""


ENV_PREFIX = "NOCTUARY_"
CONFIG_FILE_NAME = "noctuary.toml"
# Variables for locations instead of behaviour; the last one is for tests and
# benchmarks.
_LOCATION_VARIABLES = frozenset(
    {"NOCTUARY_HOME", "NOCTUARY_CONFIG", "NOCTUARY_STORE", "NOCTUARY_SHARED"}
)
_PROFILES = "profiles"
_SOURCES = "sources"
_NOT_IN_JSON = "notify"  # shapes no artifact, and an address may hold a key: no part of a manifest


class Settings(NamedTuple):
    """The whole tree; immutable, validated on load.

    Attributes:
        profiles: The tables [profiles.NAME] as written in the file; noctuary.recall.profile
            checks them. No part of `to_json`: they affect queries, not snapshots.
        sources: The table [sources]: the stores that a night reads together, by name. No part of
            `to_json`: the manifest records the sources of a snapshot.
        file: The file that was read, None without one. No part of equality or `to_json`.
        origins: Where each value that was set comes from, by `section.key`: "in <file>" or
            "environment <variable>". No part of equality or `to_json`.
    """

    source: SourceSettings = SourceSettings()
    corpus: CorpusSettings = CorpusSettings()
    encoder: EncoderSettings = EncoderSettings()
    tiers: TierSettings = TierSettings()
    compaction: CompactionSettings = CompactionSettings()
    curation: CurationSettings = CurationSettings()
    snapshot: SnapshotSettings = SnapshotSettings()
    recall: RecallSettings = RecallSettings()
    live: LiveSettings = LiveSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    graph: GraphSettings = GraphSettings()
    transcripts: TranscriptSettings = TranscriptSettings()
    promotion: PromotionSettings = PromotionSettings()
    hook: HookSettings = HookSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    sensor: SensorSettings = SensorSettings()
    runner: RunnerSettings = RunnerSettings()
    notify: NotifySettings = NotifySettings()
    profiles: Mapping[str, Mapping[str, Any]] = NOTHING
    sources: Mapping[str, str] = NOTHING
    file: Path | None = None
    origins: Mapping[str, str] = NOTHING

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self[:-2] == other[:-2]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-4])  # tables have no hash

    @staticmethod
    def load(
        config_path: Path | None = None,
        *,
        home: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> "Settings":
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
            settings = settings._replace(file=chosen.absolute())
            settings = _take_profiles(settings, raw.pop(_PROFILES, {}), where, faults)
            settings = _take_sources(settings, raw.pop(_SOURCES, {}), where, faults)
            settings = _apply(settings, raw, where, faults)
        settings = _apply(settings, _from_environ(env, faults), "", faults)
        faults += [*_range_faults(settings), *_joint_faults(settings), *_endpoint_faults(settings)]
        if faults:
            raise ConfigError("noctuary's settings have faults:\n  - " + "\n  - ".join(faults))
        return settings

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return plain nested dicts (tuples as lists), for manifests and digests."""
        told = {name: getattr(self, name)._asdict() for name in _KEYS if name != _NOT_IN_JSON}
        told["corpus"]["turn_categories"] = list(self.corpus.turn_categories)
        told["transcripts"]["wings"] = list(self.transcripts.wings)
        told["hook"]["origins"] = list(self.hook.origins)
        return told


_DEFAULTS = Settings()
_KEYS: dict[str, tuple[str, ...]] = {
    name: getattr(_DEFAULTS, name)._fields
    for name in Settings._fields
    if name not in (_PROFILES, _SOURCES, "file", "origins")
}
"""The keys of every section, in declaration order."""


# The requirement on a value, and its test.
_Check = tuple[str, Callable[[Any], bool]]


def _at_least(low: float, why: str = "") -> _Check:
    return "be >= 0" if low == 0 else f"be at least {low:g}{why}", lambda value: value >= low


def _within(low: int, high: int) -> _Check:
    return f"lie in [{low}, {high}]", lambda value: low <= value <= high


def _one_of(*choices: str) -> _Check:
    told = " or ".join(f'"{choice}"' for choice in choices)
    told = told if len(choices) == 2 else f"one of {', '.join(choices)}"
    return f"be {told}", lambda value: value in choices


_ABOVE_ZERO: _Check = ("be > 0", lambda value: value > 0)

_CHECKS: Mapping[str, _Check] = {
    "corpus.max_content_bytes": _at_least(1),
    "encoder.provider": _one_of(*PROVIDERS),
    "encoder.dimension": _at_least(0),
    "encoder.budget_usd": _at_least(0),
    "encoder.usd_per_million_tokens": _at_least(0),
    "tiers.small_dims": _at_least(1),
    "compaction.protected_tail_turns": _at_least(0),
    "compaction.preserve_threshold": _within(-1, 1),
    "compaction.density": _within(0, 1),
    "compaction.summarizer": _one_of("sentences", "extractive", "llm"),
    "snapshot.keep": _at_least(2, ", or rollback has nowhere to go"),
    "recall.fusion": _one_of(*FUSIONS),
    "recall.lexical_weight": _at_least(0),
    "recall.dense_weight": _at_least(0),
    "recall.graph_weight": _at_least(0),
    "recall.importance_prior": _within(0, 1),
    "recall.exact_match_bonus": _at_least(0),
    "recall.stale_after_hours": _at_least(0),
    "live.max_rows": _at_least(0),
    "live.deadline_ms": _ABOVE_ZERO,
    "evaluation.exact_queries": _at_least(0),
    "evaluation.on_drop": _one_of("refuse", "report"),
    "graph.extractor": _one_of("rules", "llm"),
    "graph.llm_batch_memories": _at_least(1),
    "transcripts.tool_chars": _at_least(0),
    "transcripts.wings": (
        "name folders and their wings (FOLDER=WING)",
        lambda value: all(re.fullmatch(r"(?s).+=\s*\S.*", entry) for entry in value),
    ),
    "promotion.threshold": _within(0, 1),
    "hook.memories": _at_least(0),
    "hook.budget_tokens": _at_least(0),
    "hook.restore_tokens": _at_least(0),
    "hook.deadline_ms": _ABOVE_ZERO,
    "hook.scope": _one_of("store", "person", "project"),
    "hook.origins": (
        f"list some of {', '.join(Origin)}",
        lambda value: set(value) <= set(Origin),
    ),
    "sensor.poll_seconds": _at_least(1),
    "sensor.minimum_minutes": _at_least(0),
    "runner.kind": _one_of("local", "ray"),
    "runner.workers": _at_least(0),
    "runner.memory_mb": _at_least(256),
    "runner.object_store_mb": _at_least(0),
}
"""By setting; one that is missing may be any value of its type. Faults come in this order."""


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
    return settings._replace(profiles={n: t for n, t in tables.items() if isinstance(t, Mapping)})


def _take_sources(settings: Settings, raw: Any, where: str, faults: list[str]) -> Settings:
    """Keep the table [sources]."""
    if not isinstance(raw, Mapping):
        faults.append(f"[{_SOURCES}] {where} must be a table, found {type(raw).__name__}")
        return settings
    taken: dict[str, str] = {}
    for name, named in cast(Mapping[str, Any], raw).items():
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name):
            must = "is no name of a source: use lower-case letters, digits and hyphens"
            faults.append(f"{_SOURCES}.{name} {where} {must}")
        elif not isinstance(named, str) or not named.strip():
            faults.append(f"{_SOURCES}.{name} {where}: expected a path as text, found {named!r}")
        else:
            taken[name] = named.strip()
    if taken and not where.endswith(".toml"):
        faults.append(f"[{_SOURCES}] {where}: the name of a file that lists sources ends in .toml")
    return settings._replace(sources=taken)


def _apply(settings: Settings, raw: Mapping[str, Any], file: str, faults: list[str]) -> Settings:
    """Return the settings with the values of a file (named `file`) or the environment."""
    where = file or "in the environment"
    for section, values in raw.items():
        if section not in _KEYS:
            hint = nearest_hint(section, [*_KEYS, _PROFILES, _SOURCES])
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
                current = current._replace(**{key: _coerce(value, getattr(current, key))})
            except ValueError as error:
                faults.append(f"{name} {where}: {error}")
        settings = settings._replace(**{section: current}, origins=origins)
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
    """Yield a sentence for each value that breaks its requirement."""
    for name, (must, holds) in _CHECKS.items():
        section, _, key = name.partition(".")
        value = getattr(getattr(settings, section), key)
        if not holds(value):
            yield f"{name} must {must}" + (f", found {value!r}" if isinstance(value, str) else "")


# Requirements between values, and those beyond a range.


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
    if not s.recall.profile:
        yield "recall.profile must name a profile, found an empty text"
    if len(s.schedule.cron.split()) != 5:
        yield f"schedule.cron needs five fields, found {s.schedule.cron!r}"


def _endpoint_faults(s: Settings) -> Iterable[str]:
    c, g = s.compaction, s.graph
    if c.summarizer == "llm" and not (c.llm_url and c.llm_model):
        yield 'compaction.summarizer = "llm" needs compaction.llm_url and compaction.llm_model'
    if g.extractor == "llm" and not (g.llm_url and g.llm_model):
        yield 'graph.extractor = "llm" needs graph.llm_url and graph.llm_model'
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
