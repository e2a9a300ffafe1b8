"""Every setting of mnemon: one frozen tree, read from one TOML file with environment overrides.

What belongs here: names, types, defaults and ranges of settings, and where they come from. Nothing
here is read at import; `Settings.load` is explicit. Standard library only, because a hook reads its
settings too.

Order, later wins: built-in default, TOML file (`MNEMON_CONFIG`, else `<home>/mnemon.toml`),
environment (`MNEMON_<SECTION>_<KEY>`, for example `MNEMON_ENCODER_MODEL`).
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from mnemon.errors import ConfigError

ENV_PREFIX = "MNEMON_"
CONFIG_FILE_NAME = "mnemon.toml"
# Variables that steer where things are, as against what they do; the last one is for tests and
# benchmarks.
_LOCATION_VARIABLES = frozenset({"MNEMON_HOME", "MNEMON_CONFIG", "MNEMON_STORE", "MNEMON_SHARED"})

FUSIONS = ("cc", "rrf")


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The memory store to read.

    Attributes:
        path: SQLite file, JSONL(.gz) file or data set folder; empty means the bundled sample.
    """

    path: str = ""


@dataclass(frozen=True, slots=True)
class CorpusSettings:
    """What is exported and what is set aside.

    Attributes:
        turn_categories: Categories whose rows, when they have a session, are turns of a
            conversation.
        max_content_bytes: Longer contents are quarantined; protects memory and the encoder.
    """

    turn_categories: tuple[str, ...] = ("turn", "dialog_turn")
    max_content_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """The embedding model.

    Attributes:
        model: `all-MiniLM-L6-v2` (bundled) or the name or path of a local sentence-transformers
            model.
    """

    model: str = "all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True)
class TierSettings:
    """The LanceDB tables of vector prefixes.

    Attributes:
        small_dims: Dimensions of the smallest tier.
        medium_dims: Dimensions of the middle tier; the full tier has whatever the model gives.
    """

    small_dims: int = 64
    medium_dims: int = 256


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Clusters of old turns and their summaries.

    Attributes:
        cluster_size: Target turns per cluster; not positive means 20 (libravdb section 5).
        protected_tail_turns: Newest turns of each session that are never summarised.
        preserve_threshold: Q_align below which a summary is not accepted (libravdb section 5.3).
    """

    cluster_size: int = 20
    protected_tail_turns: int = 4
    preserve_threshold: float = 0.65


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Publishing.

    Attributes:
        keep: Published snapshots kept for rollback, the serving one included; at least 2.
    """

    keep: int = 7


@dataclass(frozen=True, slots=True)
class RecallSettings:
    """Defaults of the read path; see mnemon.recall.profile for what each one trades.

    Attributes:
        fusion: "cc" (convex combination of scores) or "rrf" (weighted reciprocal rank fusion).
        lexical_weight: Weight of the lexical leg; 0 switches it off.
        dense_weight: Weight of the dense leg; 0 switches it off.
        graph_weight: Factor of the score that the concept graph adds; 0 switches it off.
        importance_prior: Share of the score that importance may take away, in [0, 1].
        log_retrievals: Append what was recalled to the access log.
        stale_after_hours: Recall warns when no night went through for longer; 0 never warns.
    """

    fusion: str = "cc"
    lexical_weight: float = 0.5
    dense_weight: float = 0.5
    graph_weight: float = 1.0
    importance_prior: float = 0.3
    log_retrievals: bool = True
    stale_after_hours: float = 36.0


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """When the nightly job runs once its schedule is switched on.

    Attributes:
        cron: Five cron fields.
        timezone: IANA name; empty means the machine's local zone.
    """

    cron: str = "0 3 * * *"
    timezone: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole tree; immutable, validated on load."""

    source: SourceSettings = field(default_factory=SourceSettings)
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    tiers: TierSettings = field(default_factory=TierSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    recall: RecallSettings = field(default_factory=RecallSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)

    @staticmethod
    def load(
        config_path: Path | None = None,
        *,
        home: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Settings:
        """Return the settings in force.

        Args:
            config_path: The TOML file; None means `MNEMON_CONFIG`, else `<home>/mnemon.toml` if it
                exists.
            home: mnemon's home directory, where the default file is looked for.
            environ: The environment; None means the process's own.

        Raises:
            ConfigError: Listing every fault of the file and the environment at once.
        """
        env = os.environ if environ is None else environ
        chosen = config_path or _configured_path(env)
        if chosen is None and home is not None and (home / CONFIG_FILE_NAME).is_file():
            chosen = home / CONFIG_FILE_NAME
        faults: list[str] = []
        settings = Settings()
        if chosen is not None:
            settings = _apply(settings, _read_toml(chosen), f"in {chosen}", faults)
        settings = _apply(settings, _from_environ(env, faults), "in the environment", faults)
        faults.extend(_range_faults(settings))
        if faults:
            raise ConfigError("mnemon's settings have faults:\n  - " + "\n  - ".join(faults))
        return settings

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return plain nested dicts (tuples as lists), for manifests and digests."""
        return {
            section.name: {
                key.name: _plain(getattr(getattr(self, section.name), key.name))
                for key in fields(getattr(self, section.name))
            }
            for section in fields(self)
        }


def known_settings() -> list[str]:
    """Return every setting as `section.key`, in declaration order."""
    return [f"{s.name}.{k}" for s in fields(Settings) for k in _section_keys(s.name)]


def _configured_path(env: Mapping[str, str]) -> Path | None:
    value = env.get("MNEMON_CONFIG", "").strip()
    try:
        return Path(value).expanduser() if value else None
    except RuntimeError:
        raise ConfigError(
            f"MNEMON_CONFIG is {value}, which names no home directory that this machine knows: "
            "write the path in full"
        ) from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"no configuration file at {path}: create it or unset MNEMON_CONFIG"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _from_environ(env: Mapping[str, str], faults: list[str]) -> dict[str, dict[str, str]]:
    """Map `MNEMON_<SECTION>_<KEY>` to {section: {key: text}}."""
    names = {f"{ENV_PREFIX}{name.replace('.', '_').upper()}": name for name in known_settings()}
    found: dict[str, dict[str, str]] = {}
    for variable, value in env.items():
        if not variable.startswith(ENV_PREFIX) or variable in _LOCATION_VARIABLES:
            continue
        if variable not in names:
            faults.append(f"unknown variable {variable}{_nearest(variable, names)}")
            continue
        section, _, key = names[variable].partition(".")
        found.setdefault(section, {})[key] = value
    return found


def _apply(settings: Settings, raw: Mapping[str, Any], where: str, faults: list[str]) -> Settings:
    sections = {f.name for f in fields(Settings)}
    for section, values in raw.items():
        if section not in sections:
            faults.append(f"unknown section [{section}] {where}{_nearest(section, sections)}")
            continue
        if not isinstance(values, Mapping):
            faults.append(f"[{section}] {where} must be a table, found {type(values).__name__}")
            continue
        settings = _apply_section(settings, section, cast(Mapping[str, Any], values), where, faults)
    return settings


def _apply_section(
    settings: Settings, section: str, values: Mapping[str, Any], where: str, faults: list[str]
) -> Settings:
    current = getattr(settings, section)
    keys = _section_keys(section)
    for key, value in values.items():
        if key not in keys:
            faults.append(f"unknown key {section}.{key} {where}{_nearest(key, keys)}")
            continue
        try:
            current = replace(current, **{key: _coerce(value, getattr(current, key))})
        except ValueError as error:
            faults.append(f"{section}.{key} {where}: {error}")
    return replace(settings, **{section: current})


def _section_keys(section: str) -> list[str]:
    return [f.name for f in fields(getattr(Settings(), section))]


def _coerce(value: Any, default: Any) -> Any:
    """Return the value with the default's type.

    Text is parsed, so that the environment can set anything.
    """
    if isinstance(default, bool):
        return _as_bool(value)
    if isinstance(default, int):
        return _as_number(value, int)
    if isinstance(default, float):
        return _as_number(value, float)
    if isinstance(default, tuple):
        items = [s.strip() for s in value.split(",")] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(i, str) for i in items):
            raise ValueError(f"expected a list of texts, found {value!r}")
        return tuple(i for i in items if i)
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r}")  # noqa: TRY004
    return value


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
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
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError(f"expected a finite number, found {value!r}")
    return number


def _range_faults(s: Settings) -> list[str]:
    rules: list[tuple[bool, str]] = [
        (s.corpus.max_content_bytes >= 1, "corpus.max_content_bytes must be at least 1"),
        (s.tiers.small_dims >= 1, "tiers.small_dims must be at least 1"),
        (
            s.tiers.medium_dims >= s.tiers.small_dims,
            "tiers.medium_dims must be >= tiers.small_dims",
        ),
        (s.compaction.protected_tail_turns >= 0, "compaction.protected_tail_turns must be >= 0"),
        (
            -1.0 <= s.compaction.preserve_threshold <= 1.0,
            "compaction.preserve_threshold must lie in [-1, 1]",
        ),
        (s.snapshot.keep >= 2, "snapshot.keep must be at least 2, or rollback has nowhere to go"),
        (
            s.recall.fusion in FUSIONS,
            f'recall.fusion must be "cc" or "rrf", found {s.recall.fusion!r}',
        ),
        (s.recall.lexical_weight >= 0, "recall.lexical_weight must be >= 0"),
        (s.recall.dense_weight >= 0, "recall.dense_weight must be >= 0"),
        (s.recall.graph_weight >= 0, "recall.graph_weight must be >= 0"),
        (s.recall.stale_after_hours >= 0, "recall.stale_after_hours must be >= 0"),
        (0.0 <= s.recall.importance_prior <= 1.0, "recall.importance_prior must lie in [0, 1]"),
        (
            len(s.schedule.cron.split()) == 5,
            f"schedule.cron needs five fields, found {s.schedule.cron!r}",
        ),
    ]
    return [message for holds, message in rules if not holds]


def _nearest(name: str, known: Any) -> str:
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"; the nearest known one is {matches[0]}" if matches else ""


def _plain(value: Any) -> Any:
    return list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
