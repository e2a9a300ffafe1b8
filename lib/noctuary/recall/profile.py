"""RetrievalProfile: how a recall ranks, flag by flag, and the layers that it is merged from."""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from noctuary.core.errors import ConfigError, StoreError
from noctuary.core.settings import (
    CONFIG_FILE_NAME,
    ENV_PREFIX,
    FUSIONS,
    RecallSettings,
    Settings,
    nearest_hint,
    nearest_names,
)
from noctuary.core.store import find_home
from noctuary.core.types import NOTHING
from noctuary.recall.result import RecallWarning

# The flags: each with its default, its trade-off, and its range or choices.
#
# Every range is about one flag: values that are good one by one are good together, so layers can
# be checked before they are merged. Defaults of phases 1 to 9 are those of the reference pipeline
# (research notes on MemPalace, section 1), of 10 to 14 those of the RFC, of the scorers those of
# libravdb 1.3.12; where noctuary departs from them, docs/decisions/0007 says why.

RAW, SUMMARIES = TURN_VIEWS = ("raw", "summaries")
OWN, TURNS = SUMMARY_VECTORS = ("own", "turns")
SCORERS = ("fusion", "hybrid", "two_pass")
SUPERSEDE_ACTIONS = ("filter", "annotate")


class Range(NamedTuple):
    """Both ends belong to it; the sentence says so, for example "must lie in [0, 1]"."""

    low: float
    high: float
    sentence: str


def _between(low: float, high: float) -> Range:
    # Short where that loses nothing: 1e+09, and 2147483647 in full.
    ends = [f"{end:g}" if float(f"{end:g}") == end else str(end) for end in (low, high)]
    return Range(low, high, f"must lie in [{', '.join(ends)}]")


SHARE = _between(0.0, 1.0)
COSINE = _between(-1.0, 1.0)
WEIGHT = _between(0.0, 1e9)
DURATION = _between(1e-6, 1e9)  # quotients, and microseconds of it, stay finite
COUNT = _between(1, 2**31 - 1)  # no more rows are addressed by the pack's int32 codes
COUNT_OR_NONE = _between(0, 2**31 - 1)
DAYS_OR_NONE = _between(0, 1_000_000)  # 2,700 years: in microseconds well within 64 bits


class Flag(NamedTuple):
    """The declaration of a flag: default, help, and range or choices."""

    default: Any
    meaning: str
    among: Range | tuple[str, ...] | None = None


def _flag(default: Any, meaning: str, among: Range | tuple[str, ...] | None = None) -> Any:
    """Declare a flag; `Any`, because an instance has a value in its place."""
    return Flag(default, meaning, among)


class RetrievalProfile:
    """How one recall ranks: immutable, validated as a whole. docs/profiles.md has every flag."""

    # No dataclass: of 86 fields with their meanings and ranges it costs 5 ms in every process.

    fusion: str = _flag("cc", "cc adds up score differences; rrf sees only ranks.", FUSIONS)
    lexical_weight: float = _flag(
        0.5,
        "Weighs words against vectors; more favours names, codes and rare words. 0: off.",
        WEIGHT,
    )
    dense_weight: float = _flag(
        0.5, "Weighs vectors against words; more favours paraphrases. 0: off.", WEIGHT
    )
    lexical_coverage: float = _flag(
        0.3, "Words count less if the best hit has less of the rarest words than this. 0: never.",
        SHARE,
    )  # fmt: skip
    graph_weight: float = _flag(
        1.0, "Weighs the graph; more lifts linked memories, including chance ones. 0: off.", WEIGHT
    )
    session_weight: float = _flag(
        1.0, "Weighs sessions further; more orders turns by their context. 0: off.", WEIGHT
    )
    importance_prior: float = _flag(
        0.3, "Share of its score that a memory of importance 0 loses.", SHARE
    )
    exact_match_bonus: float = _flag(
        0.0, "Lifts memories that contain every query word, long ones too. 0: off.", WEIGHT
    )
    rrf_k: int = _flag(60, "Flattens the first ranks of rrf.", COUNT)
    depth: int = _flag(50, "Candidates per leg; more finds more and takes longer.", COUNT)

    scorer: str = _flag(
        "fusion",
        "hybrid and two_pass replace the group above with cosine formulas; they need vectors.",
        SCORERS,
    )
    quality_penalty: float = _flag(
        0.5, "Share of its score that a summary of confidence 0 loses.", SHARE
    )
    coarse_depth: int = _flag(
        16, "Candidates of two_pass's first pass; more is slower and loses less.", COUNT
    )
    coarse_threshold: float = _flag(0.2, "Lowest cosine of that pass; higher keeps fewer.", COSINE)
    authority_floor: float = _flag(
        0.5, "Lowest factor of authority; with the reference's 0, memories fade within days.", SHARE
    )

    model_guard: bool = _flag(
        True, "Compare the query's encoder with the vectors'; off risks nonsense."
    )
    model_guard_strict: bool = _flag(
        False, "Return nothing on a mismatch. Off: use words only, with a warning."
    )

    reranker: str = _flag(
        "", "Name or directory of a cross-encoder: better order, much slower. Empty: none."
    )
    rerank_depth: int = _flag(
        30, "Memories that the reranker reads; time grows in proportion.", COUNT
    )
    rerank_timeout_ms: float = _flag(
        1500.0, "After this time the fused order stands, with a warning.", DURATION
    )

    date_boost: float = _flag(
        0.5, "Lifts memories of the query's dates, or that say them, by this share. 0: off.", SHARE
    )

    ltp_enabled: bool = _flag(False, "Lift memories recalled often lately; needs the access log.")
    time_decay_enabled: bool = _flag(False, "Lower old memories; hurts if old facts stay true.")
    half_life_days: float = _flag(90.0, "Age at which the decaying share has halved.", DURATION)
    decay_floor: float = _flag(
        0.9, "Share of its score that a memory keeps at any age; the reference has 0.", SHARE
    )
    tagging_enabled: bool = _flag(False, "Lift memories filed in the last 24 hours.")

    association_enabled: bool = _flag(
        False, "Lift memories recalled together with other candidates."
    )

    mmr_enabled: bool = _flag(False, "Trade relevance for diversity; near duplicates drop out.")
    mmr_lambda: float = _flag(
        0.7, "Share of relevance; 1 keeps the order, less diversifies more.", SHARE
    )

    pinned_memory_enabled: bool = _flag(
        False, "Lift the most used, new and tagged memories for every query."
    )

    query_expansion_enabled: bool = _flag(
        False, "Search again with words from past results; finds more, some irrelevant."
    )

    supersede_filter_enabled: bool = _flag(False, "Replace memories with their newer version.")
    supersede_action: str = _flag(
        "filter", "filter removes the older memory; annotate marks both.", SUPERSEDE_ACTIONS
    )

    consolidation_enabled: bool = _flag(
        False, "Let a summary replace its turns: shorter, but further from the original words."
    )
    turn_view: str = _flag(
        "raw",
        "Search turns, or their summaries and then the turns of hits: searches fewer tokens, "
        "misses a few details.",
        TURN_VIEWS,
    )
    summary_vectors: str = _flag(
        "own",
        "Compare a summary by its own text, or by each of its turns: finds and reads more.",
        SUMMARY_VECTORS,
    )
    include_archived: bool = _flag(
        False, "Search archived memories too; finds more, replaced ones included."
    )

    wing_diversity_weight: float = _flag(
        0.3, "Penalty on a wing that fills the answer; only with mmr_enabled.", WEIGHT
    )
    candidate_pool_multiplier: int = _flag(
        1, "Multiplies depth; more lets small wings in and takes longer.", COUNT
    )
    wing_quota: int = _flag(
        2,
        "Memories of every wing that always enter the pool; only with the penalty.",
        COUNT_OR_NONE,
    )

    explain: bool = _flag(False, "Return every phase's effect on every score.")
    candidate_trace: bool = _flag(False, "Return the dropped memories, where and why.")
    replay_log: bool = _flag(False, "Keep everything a repetition needs, including the query.")

    max_scan_depth: int = _flag(
        0, "Most rows scored per night; the next night continues there. 0: all.", COUNT_OR_NONE
    )

    adaptive_compaction: bool = _flag(
        False, "Plan an archive every night; only `proposals compact --apply` archives."
    )
    compaction_threshold: float = _flag(
        0.3, "A replaced memory with a lower LTP score may be archived; more archives more.", SHARE
    )
    compaction_age_days: int = _flag(30, "Fewest days since its last recall.", DAYS_OR_NONE)
    decay_enabled: bool = _flag(False, "Let that LTP score fall with those days.")
    decay_lambda: float = _flag(0.01, "How fast it falls, per day.", WEIGHT)

    def __init__(self, **flags: Any) -> None:
        if unknown := [name for name in flags if name not in FLAGS]:
            raise TypeError(f"RetrievalProfile has no flag {', '.join(unknown)}")
        values = {**_DEFAULTS, **flags}
        if faults := value_faults(values):
            raise ValueError("; ".join(faults))
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a profile cannot be changed: replaced({name}=...) returns another")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a profile cannot be changed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RetrievalProfile) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"RetrievalProfile({', '.join(shown)})"

    @staticmethod
    def off() -> "RetrievalProfile":
        """Return plain fusion: both legs, no graph, no prior, every phase off."""
        return RetrievalProfile(**OFF)

    def replaced(self, **flags: Any) -> "RetrievalProfile":
        """Return a profile with other values of some flags; ValueError lists every fault."""
        return RetrievalProfile(**{**self.__dict__, **flags})

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(self.__dict__)


FLAGS: Mapping[str, Flag] = {
    name: flag for name, flag in vars(RetrievalProfile).items() if isinstance(flag, Flag)
}
"""By name, in declaration order."""
_DEFAULTS = {name: flag.default for name, flag in FLAGS.items()}
FIELD_NAMES = tuple(FLAGS)
FIELD_TYPES: Mapping[str, type] = {name: type(default) for name, default in _DEFAULTS.items()}
# Infinities and NaN lie in no range.
RANGES = {name: flag.among for name, flag in FLAGS.items() if isinstance(flag.among, Range)}
CHOICES = {
    name: flag.among
    for name, flag in FLAGS.items()
    if flag.among and not isinstance(flag.among, Range)
}

_HEADINGS = {
    "fusion": "legs and fusion",
    "scorer": "scorers of libravdb",
    "model_guard": "model guard (phase 10)",
    "reranker": "reranker",
    "date_boost": "dates in the question",
    "ltp_enabled": "use, age and newness (phase 1)",
    "association_enabled": "association (phase 2)",
    "mmr_enabled": "diversity (phase 5)",
    "pinned_memory_enabled": "pinned memories (phase 6)",
    "query_expansion_enabled": "query expansion (phase 7)",
    "supersede_filter_enabled": "superseded memories (phase 8)",
    "consolidation_enabled": "summaries (phase 9)",
    "wing_diversity_weight": "balance of wings (phase 11)",
    "explain": "explaining (phase 12)",
    "max_scan_depth": "scans (phase 14)",
    "adaptive_compaction": "compaction (phase 13)",
}
_STARTS = [FIELD_NAMES.index(first) for first in _HEADINGS]
GROUPS: Mapping[str, tuple[str, ...]] = {
    heading: FIELD_NAMES[start:stop]
    for heading, start, stop in zip(_HEADINGS.values(), _STARTS, [*_STARTS[1:], None], strict=True)
}
"""Flags by heading; together every flag once, in declaration order."""


def value_faults(values: Mapping[str, Any]) -> list[str]:
    """Return one sentence per flag of the wrong type or out of range; a whole number is a float."""
    found = (_fault(name, value, FIELD_TYPES[name]) for name, value in values.items())
    return [fault for fault in found if fault is not None]


def _fault(name: str, value: Any, kind: type) -> str | None:
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        return f"{name} must be {kind.__name__}, found {value!r}"
    if name in CHOICES and value not in CHOICES[name]:
        return f"{name} must be one of {', '.join(CHOICES[name])}, found {value!r}"
    # Comparing, and not math.isfinite: a whole number may be too large for a float.
    if name in RANGES and not RANGES[name].low <= value <= RANGES[name].high:
        return f"{name} {RANGES[name].sentence}, found {value!r}"
    return None


# The profiles that ship: names, one line each, and what they change of the layers below.
#
# Sources: seed-hybrid is the hybrid of the integration design, sections A.3 and B; libravdb has
# the constants of mathematical reference sections 1 and 7 as its code ships them.


OFF: Mapping[str, Any] = {
    "lexical_coverage": 0.0, "date_boost": 0.0,
    "graph_weight": 0.0, "importance_prior": 0.0, "exact_match_bonus": 0.0, "scorer": "fusion",
    "model_guard": False, "model_guard_strict": False, "reranker": "", "ltp_enabled": False,
    "time_decay_enabled": False, "tagging_enabled": False, "association_enabled": False,
    "mmr_enabled": False, "pinned_memory_enabled": False, "query_expansion_enabled": False,
    "supersede_filter_enabled": False, "consolidation_enabled": False, "turn_view": RAW,
    "include_archived": False, "wing_diversity_weight": 0.0, "candidate_pool_multiplier": 1,
    "explain": False, "candidate_trace": False, "replay_log": False, "adaptive_compaction": False,
    "decay_enabled": False,
}  # fmt: skip
"""Everything that plain fusion lacks, including flags that are off by default: a lower layer may
have switched them on."""


DEFAULT = "default"  # the profile that is always there; an unknown name falls back to it
DESCRIPTION = "description"  # key of a profile's table with one line for `noctuary profile list`


class Shipped(NamedTuple):
    """A profile that ships: one line, and its flags."""

    description: str
    values: Mapping[str, Any]


SHIPPED: Mapping[str, Shipped] = {
    DEFAULT: Shipped("the built-in values with your configuration, and what the night adopted", {}),
    "off": Shipped("plain fusion, with your weights: no graph, no importance, no phases", OFF),
    "seed-hybrid": Shipped(
        "the reference design: RRF (k 60, depth 50, weights 1 and 1) of words and cosine, then "
        "importance",
        {
            **OFF, "fusion": "rrf", "lexical_weight": 1.0, "dense_weight": 1.0, "rrf_k": 60,
            "depth": 50, "importance_prior": 0.3,
        },
    ),
    "synapse": Shipped(
        "the reference pipeline with its own switches: use, age without a floor, newness",
        {
            "ltp_enabled": True, "tagging_enabled": True, "time_decay_enabled": True,
            "decay_floor": 0.0,
        },
    ),
    "compact": Shipped(
        "searches summaries in place of their old turns, and returns the turns of hits",
        # The reference's penalty of .5 puts a summary behind every turn that stays as it is.
        {"turn_view": SUMMARIES, "summary_vectors": TURNS, "quality_penalty": 0.05},
    ),
    "libravdb": Shipped(
        "libravdb section 1: cosine, recency and scope, times a summary's quality; no phases",
        {
            **OFF, "scorer": "hybrid", "quality_penalty": 0.5, "coarse_depth": 16,
            "coarse_threshold": 0.2,
        },
    ),
    "libravdb-two-pass": Shipped(
        "libravdb section 7 without a floor: days-old memories fade to nothing, so only compare",
        {
            **OFF, "scorer": "two_pass", "quality_penalty": 0.5, "coarse_depth": 16,
            "coarse_threshold": 0.2, "authority_floor": 0.0,
        },
    ),
}  # fmt: skip
"""Shipped profiles by name."""


# Merging a profile, every value with its source. Later wins: built-in; what the snapshot's
# evaluation adopted, then `noctuary.toml` ([recall] and its variables, [profiles.default], the
# named profile as shipped and as [profiles.NAME]); this call. A layer with faults is left out as a
# whole, with one warning that lists them all.

GIVEN = "given"  # `ResolvedProfile.used` where the call brought a whole RetrievalProfile
NEAREST_SHOWN = 3  # known names shown for an unknown one: enough to find a slip of the finger
RECALL_FLAGS = tuple(name for name in RecallSettings._fields if name in FLAGS)
"""Keys of [recall] that are flags."""

_KEPT = 64  # merged profiles that a process keeps: it asks with a handful, a merge costs 0.2 ms
_merged: "dict[tuple[RecallSettings, str], ResolvedProfile]" = {}


class Layer(NamedTuple):
    """Some values, where they come from, and what a warning calls them."""

    values: Mapping[str, Any]
    source: str
    title: str = ""


class ResolvedProfile(NamedTuple):
    """A profile, and where each flag's value came from; what the warnings name was left out."""

    profile: RetrievalProfile
    requested: str | None
    used: str
    sources: Mapping[str, str]
    warnings: tuple[RecallWarning, ...] = ()


def resolve_for_recall(
    settings: Settings,
    adopted: Mapping[str, Any] = NOTHING,
    profile: RetrievalProfile | str | Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> ResolvedProfile:
    """Return what a recall ranks with; cached by everything that it depends on.

    `profile` is a name, flags on top of the configured profile, or a whole profile (None: the
    configured one); `overrides` are on top of any of these. ValueError lists the call's own faults.
    """
    if isinstance(profile, RetrievalProfile):
        asked = _given(overrides)
        given = profile.replaced(**asked) if asked else profile
        return ResolvedProfile(given, None, GIVEN, dict.fromkeys(FIELD_NAMES, "this call"))
    name = profile if isinstance(profile, str) else None
    asked = overrides or {}
    if isinstance(profile, Mapping):
        asked = {**profile, **{f: v for f, v in asked.items() if v is not None}}
    # Texts and not the mappings: 1, 1.0 and True are equal, but only one of them is of a flag's
    # type.
    content = repr((settings.origins, settings.profiles, adopted, name, asked))
    known = _merged.get((settings.recall, content))
    if known is None:
        known = _merge(name, settings, adopted, _given(asked))
        if len(_merged) >= _KEPT:
            _merged.clear()
        _merged[settings.recall, content] = known
    return known


def _merge(
    name: str | None, settings: Settings, adopted: Mapping[str, Any], asked: Mapping[str, Any]
) -> ResolvedProfile:
    used, warnings = settings.recall.profile if name is None else name, list[RecallWarning]()
    if not (named := _named_layers(used, settings)):
        near = ", ".join(nearest_names(used, known_profiles(settings), NEAREST_SHOWN))
        message = f"no profile {used!r}: {DEFAULT} is in force; the nearest known ones are {near}"
        warnings.append(RecallWarning("unknown_profile", message))
        used = DEFAULT
    own = settings.profiles.get(DEFAULT, {})
    layers = [
        Layer(adopted, "store: adopted by its evaluation", "what the store's evaluation adopted"),
        *_recall_layers(settings),
        Layer(_flags_of(own), f"config [profiles.{DEFAULT}]", f"profile {DEFAULT} (config)"),
        *(named if used != DEFAULT else ()),
    ]
    values, sources = dict(_DEFAULTS), dict.fromkeys(FIELD_NAMES, "built-in")
    for layer in [*layers, Layer(asked, "this call")]:
        if faults := flag_faults(layer.values):
            message = f"{layer.title} is left out: {'; '.join(faults)}"
            warnings.append(RecallWarning("bad_profile", message))
            used = DEFAULT if [layer] == named else used
            continue
        for flag, value in layer.values.items():
            values[flag] = float(value) if FIELD_TYPES[flag] is float else value
            sources[flag] = layer.source
    merged = RetrievalProfile(**values)
    return ResolvedProfile(merged, name, used, MappingProxyType(sources), tuple(warnings))


def _named_layers(name: str, settings: Settings) -> list[Layer]:
    """Return the definitions of a profile: as shipped, then of the settings."""
    places = (("shipped", SHIPPED[name].values if name in SHIPPED else None),
              ("config", settings.profiles.get(name)))  # fmt: skip
    return [
        Layer(_flags_of(table), f"named {name} ({place})", f"profile {name} ({place})")
        for place, table in places
        if table is not None
    ]


def _recall_layers(settings: Settings) -> Iterator[Layer]:
    """Yield the flags of [recall] that were set, each with its own source."""
    for flag in RECALL_FLAGS:
        value, origin = getattr(settings.recall, flag), settings.origins.get(f"recall.{flag}")
        # Settings made in code have no origins: what differs from the default was set.
        if origin is None and value == getattr(RecallSettings(), flag):
            continue
        # A variable as it is, a file with its section.
        if origin is None or not origin.startswith("environment "):
            origin = f"config [recall] {origin or ''}".rstrip()
        yield Layer({flag: value}, origin)


def _flags_of(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != DESCRIPTION}


def _given(overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the flags of a call; None as a value means not given. ValueError names every fault."""
    asked = {flag: value for flag, value in (overrides or {}).items() if value is not None}
    if faults := flag_faults(asked):
        raise ValueError("; ".join(faults))
    return asked


def flag_faults(values: Mapping[str, Any]) -> list[str]:
    """Return one sentence per flag that is unknown, of the wrong type or out of range."""
    unknown = [flag for flag in values if flag not in FIELD_TYPES]
    faults = [f"unknown flag {f!r}{nearest_hint(str(f), FIELD_NAMES)}" for f in unknown]
    return [*faults, *value_faults({f: v for f, v in values.items() if f in FIELD_TYPES})]


class ProfileEntry(NamedTuple):
    """One named profile, with the faults of its flags."""

    name: str
    description: str
    defined: tuple[str, ...]  # of "shipped" and "config", the later wins
    faults: tuple[str, ...]


def known_profiles(settings: Settings) -> list[str]:
    """Return the names of all profiles, the shipped ones first."""
    return list(dict.fromkeys([*SHIPPED, *settings.profiles]))


def list_profiles(settings: Settings) -> list[ProfileEntry]:
    """Return every profile, the shipped ones first."""
    entries: list[ProfileEntry] = []
    for name in known_profiles(settings):
        own = settings.profiles.get(name, {})
        shipped = SHIPPED[name].description if name in SHIPPED else ""
        places = (("shipped", name in SHIPPED), ("config", name in settings.profiles))
        defined = tuple(place for place, is_there in places if is_there)
        faults = tuple(f"config: {fault}" for fault in flag_faults(_flags_of(own)))
        entries.append(ProfileEntry(name, str(own.get(DESCRIPTION, shipped)), defined, faults))
    return entries


def configured_profile(
    settings: Settings, adopted: Mapping[str, Any] = NOTHING
) -> RetrievalProfile:
    """Return the profile that answers a call which asks for nothing special."""
    return resolve_for_recall(settings, adopted).profile


def current_settings() -> tuple[Settings, tuple[RecallWarning, ...]]:
    """Return the settings, and a warning where they are bad: the defaults are in force then."""
    try:
        home = find_home()
        # Names first: reading every value of the environment costs a tenth of a recall.
        names = [name for name in os.environ if name.startswith(ENV_PREFIX)]
        environ = tuple(sorted((name, os.environ[name]) for name in names))
        named = os.environ.get("NOCTUARY_CONFIG", "").strip()
        stamp = _stamp(Path(named) if named else home / CONFIG_FILE_NAME)
        return _load(home, environ, stamp), ()
    except (ConfigError, StoreError, OSError) as error:
        return Settings(), (RecallWarning("bad_settings", f"defaults are in force: {error}"),)


@lru_cache(maxsize=8)  # a process has one home and one configuration, tests have some
def _load(
    home: Path, environ: tuple[tuple[str, str], ...], _stamp: tuple[int, int, int] | None
) -> Settings:
    return Settings.load(home=home, environ=dict(environ))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.expanduser().stat()
    except (OSError, RuntimeError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
