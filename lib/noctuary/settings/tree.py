"""Every setting of noctuary: one frozen tree, read from one TOML file with environment overrides.

What belongs here: where settings come from and how text becomes a value. Nothing here is read at
import; `Settings.load` is explicit.

Order, later wins: built-in default, TOML file (`NOCTUARY_CONFIG`, else `<home>/noctuary.toml`),
environment (`NOCTUARY_<SECTION>_<KEY>`, for example `NOCTUARY_ENCODER_MODEL`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, cast

from noctuary.errors import ConfigError
from noctuary.settings.rules import range_faults
from noctuary.settings.scale_sections import RunnerSettings
from noctuary.settings.sections import (
    CompactionSettings,
    CorpusSettings,
    CurationSettings,
    EncoderSettings,
    EvaluationSettings,
    GraphSettings,
    HookSettings,
    PromotionSettings,
    RecallSettings,
    ScheduleSettings,
    SnapshotSettings,
    TierSettings,
    TranscriptSettings,
)
from noctuary.settings.source_sections import (
    LiveSettings,
    SensitiveSettings,
    SensorSettings,
    SourceSettings,
)
from noctuary.settings.suggest import nearest_hint
from noctuary.values import dataclass

ENV_PREFIX = "NOCTUARY_"
CONFIG_FILE_NAME = "noctuary.toml"
# Variables that steer where things are, as against what they do; the last one is for tests and
# benchmarks.
_LOCATION_VARIABLES = frozenset(
    {"NOCTUARY_HOME", "NOCTUARY_CONFIG", "NOCTUARY_STORE", "NOCTUARY_SHARED"}
)
_PROFILES = "profiles"
_NOT_SECTIONS = frozenset({_PROFILES, "origins"})


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole tree; immutable, validated on load.

    Attributes:
        profiles: The tables [profiles.NAME] as they stand in the file; what is in them is checked
            where a recall uses them (noctuary.recall.profile.layers). No part of `to_json`: they
            shape how a snapshot is asked, not what is in it.
        origins: Where each value that was set explicitly comes from, by `section.key`: "in <file>"
            or "environment <variable>". No part of equality or `to_json`.
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
        """Return the settings in force.

        Args:
            config_path: The TOML file; None means `NOCTUARY_CONFIG`, else `<home>/noctuary.toml` if
            it
                exists.
            home: noctuary's home directory, where the default file is looked for.
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
            raw, where = _read_toml(chosen), f"in {chosen}"
            settings = _take_profiles(settings, raw.pop(_PROFILES, {}), where, faults)
            settings = _apply(settings, raw, where, lambda _: where, faults)
        variables = _from_environ(env, faults)
        settings = _apply(settings, variables, "in the environment", _environ_origin, faults)
        faults.extend(range_faults(settings))
        if faults:
            raise ConfigError("noctuary's settings have faults:\n  - " + "\n  - ".join(faults))
        return settings

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return plain nested dicts (tuples as lists), for manifests and digests."""
        return {
            section: {
                key: _plain(getattr(getattr(self, section), key)) for key in _section_keys(section)
            }
            for section in _section_names()
        }


def known_settings() -> list[str]:
    """Return every setting as `section.key`, in declaration order."""
    return [f"{section}.{key}" for section in _section_names() for key in _section_keys(section)]


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
    names = {_variable(name): name for name in known_settings()}
    found: dict[str, dict[str, str]] = {}
    for variable, value in env.items():
        if not variable.startswith(ENV_PREFIX) or variable in _LOCATION_VARIABLES:
            continue
        if variable not in names:
            faults.append(f"unknown variable {variable}{nearest_hint(variable, names)}")
            continue
        section, _, key = names[variable].partition(".")
        found.setdefault(section, {})[key] = value
    return found


def _variable(name: str) -> str:
    return f"{ENV_PREFIX}{name.replace('.', '_').upper()}"


def _environ_origin(name: str) -> str:
    return f"environment {_variable(name)}"


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


def _apply(
    settings: Settings,
    raw: Mapping[str, Any],
    where: str,
    origin_of: Callable[[str], str],
    faults: list[str],
) -> Settings:
    sections = _section_names()
    for section, values in raw.items():
        if section not in sections:
            known = [*sections, _PROFILES]
            faults.append(f"unknown section [{section}] {where}{nearest_hint(section, known)}")
            continue
        if not isinstance(values, Mapping):
            faults.append(f"[{section}] {where} must be a table, found {type(values).__name__}")
            continue
        table = cast(Mapping[str, Any], values)
        settings = _apply_section(settings, section, table, where, faults)
        settings = _note_origins(settings, section, table, origin_of)
    return settings


def _apply_section(
    settings: Settings, section: str, values: Mapping[str, Any], where: str, faults: list[str]
) -> Settings:
    current = getattr(settings, section)
    keys = _section_keys(section)
    for key, value in values.items():
        if key not in keys:
            faults.append(f"unknown key {section}.{key} {where}{nearest_hint(key, keys)}")
            continue
        try:
            current = replace(current, **{key: _coerce(value, getattr(current, key))})
        except ValueError as error:
            faults.append(f"{section}.{key} {where}: {error}")
    return replace(settings, **{section: current})


def _note_origins(
    settings: Settings,
    section: str,
    values: Mapping[str, Any],
    origin_of: Callable[[str], str],
) -> Settings:
    known = set(_section_keys(section))
    found = {f"{section}.{key}": origin_of(f"{section}.{key}") for key in values if key in known}
    return replace(settings, origins={**settings.origins, **found})


def _section_names() -> list[str]:
    return [f.name for f in fields(Settings) if f.name not in _NOT_SECTIONS]


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


def _plain(value: Any) -> Any:
    return list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
