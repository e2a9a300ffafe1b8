"""Every setting: one frozen tree, read from one TOML file with environment overrides."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from noctuary.core.errors import ConfigError
from noctuary.core.types import dataclass

# The known names nearest to a name that is unknown. Nothing else.


def nearest_names(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return up to `most` known names, the nearest first; empty only if nothing is known."""
    import difflib  # only a slip of the finger needs it

    return difflib.get_close_matches(name, list(known), n=most, cutoff=0.0)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the nearest known one, if there is one.

    Args:
        name: What was found.
        known: What could have been meant.
    """
    matches = nearest_names(name, known)
    return f"; the nearest known one is {matches[0]}" if matches else ""


# Addresses of endpoints as settings hold them: what is refused before anything is sent there.


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
    """Return the address of a path below a base URL; its query stays, its fragment goes.

    Args:
        url: The base, with or without a slash at its end.
        path: Starts with a slash.
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path, fragment=""))


# The sections of the settings: names, types, defaults and what each one trades.


FUSIONS = ("cc", "rrf")
ON_DROP = ("refuse", "report")
GRAPH_EXTRACTORS = ("rules", "llm")
HOOK_SCOPES = ("store", "project")
SUMMARIZERS = ("sentences", "extractive", "seq2seq", "llm")
PROVIDERS = ("local", "voyage", "openai", "cohere")


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
            model; with a hosted provider, its name there.
        provider: "local", or who embeds over the network: "voyage", "openai" or "cohere"; contents
            of memories that are not sensitive are sent there, and every query.
        url: Base URL in the place of the provider's own; empty: the provider's.
        api_key_variable: Environment variable that holds the provider's key.
        dimension: Length of the vectors asked for; 0 means the model's own.
        budget_usd: A night whose estimate is above this embeds nothing and fails; 0 sends nothing.
        usd_per_million_tokens: What the provider asks; 0 means what is known of the model.
    """

    model: str = "all-MiniLM-L6-v2"
    provider: str = "local"
    url: str = ""
    api_key_variable: str = ""
    dimension: int = 0
    budget_usd: float = 5.0
    usd_per_million_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class TierSettings:
    """The LanceDB tables of vector prefixes.

    Attributes:
        small_dims: Dimensions of the smallest tier.
        medium_dims: Dimensions of the middle tier; the full tier has whatever the model gives.
        uri: Where the tables lie, `s3://bucket/prefix`; empty: in the store's own directory.
    """

    small_dims: int = 64
    medium_dims: int = 256
    uri: str = ""


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Clusters of old turns and their summaries.

    Attributes:
        cluster_size: Target turns per cluster; not positive means 20 (libravdb section 5).
        protected_tail_turns: Newest turns of each session that are never summarised.
        preserve_threshold: Q_align below which a summary is not accepted (libravdb section 5.3).
        density: Share of a cluster that a summary keeps, of its tokens ("sentences") or its turns
            ("extractive"); 0 for the summarizer's own.
        aggressive_density: The same for the second try, where the first was not smaller.
        summarizer: "sentences" (those that add most words), "extractive" (the most central turns),
            "seq2seq" (a local transformers model) or "llm" (an OpenAI-compatible endpoint); the
            others fall back to extractive.
        seq2seq_model: Directory or name of the seq2seq model.
        llm_url: Base URL of the endpoint; contents of turns are sent there.
        llm_model: Its model.
        api_key_variable: Environment variable that holds its key; empty: no key.
        include_named_users: Let the endpoint see turns of named users too.
    """

    cluster_size: int = 20
    protected_tail_turns: int = 4
    preserve_threshold: float = 0.65
    density: float = 0.0
    aggressive_density: float = 0.0
    summarizer: str = "sentences"
    seq2seq_model: str = ""
    llm_url: str = ""
    llm_model: str = ""
    api_key_variable: str = ""
    include_named_users: bool = False


@dataclass(frozen=True, slots=True)
class CurationSettings:
    """Proposals for tidying the memory store itself.

    Attributes:
        enabled: Look for duplicates, superseded facts, contradictions and fragments every night;
            nothing is written to the source without `noctuary proposals curate --apply`.
    """

    enabled: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Publishing.

    Attributes:
        keep: Published snapshots kept for rollback, the serving one included; at least 2.
    """

    keep: int = 7


@dataclass(frozen=True, slots=True)
class RecallSettings:
    """Defaults of the read path; see noctuary.recall.profile for what each one trades.

    Attributes:
        profile: Name of the profile that a call which names none is answered with.
        fusion: "cc" (convex combination of scores) or "rrf" (weighted reciprocal rank fusion).
        lexical_weight: Weight of the lexical leg; 0 switches it off.
        dense_weight: Weight of the dense leg; 0 switches it off.
        graph_weight: Factor of the score that the concept graph adds; 0 switches it off.
        importance_prior: Share of the score that importance may take away, in [0, 1].
        exact_match_bonus: Added to a memory that holds every word of the query; 0 switches it off.
        log_retrievals: Append what was recalled to the access log.
        stale_after_hours: Recall warns when no night went through for longer; 0 never warns.
    """

    profile: str = "default"
    fusion: str = "cc"
    lexical_weight: float = 0.5
    dense_weight: float = 0.5
    graph_weight: float = 1.0
    importance_prior: float = 0.3
    exact_match_bonus: float = 0.0
    log_retrievals: bool = True
    stale_after_hours: float = 36.0


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """What is measured every night, and what follows from it.

    Attributes:
        enabled: Measure at all; off, nothing is adopted and no drop is noticed.
        queries: A file of labelled queries; empty means queries.jsonl beside the source, if any.
        exact_queries: Phrases that are looked for as they stand; more find smaller drops.
        adopt: Let a significant result choose fusion and graph weight of the snapshot.
        on_drop: "refuse" a candidate that recalls significantly worse than what serves, or only
            "report" it.
        report_texts: Show the texts of queries in the night's report, not only their ids.
        generator_url: Base URL of an OpenAI-compatible endpoint that writes queries; empty: none.
        generator_model: Its model.
        judge_url: Base URL of the endpoint that grades them.
        judge_model: Its model; never the generator's own.
        api_key_variable: Environment variable that holds the key of both endpoints; empty: no key.
        generated_queries: Memories that a query is written for.
    """

    enabled: bool = True
    queries: str = ""
    exact_queries: int = 60
    adopt: bool = True
    on_drop: str = "refuse"
    report_texts: bool = False
    generator_url: str = ""
    generator_model: str = ""
    judge_url: str = ""
    judge_model: str = ""
    api_key_variable: str = ""
    generated_queries: int = 40


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """What besides the rules finds concepts and relations.

    Attributes:
        extractor: "rules" alone, or with them "llm" (an OpenAI-compatible endpoint).
        llm_url: Base URL of the endpoint; contents of memories are sent there.
        llm_model: Its model.
        api_key_variable: Environment variable that holds its key; empty: no key.
        llm_batch_memories: Memories per request; more cost less and lose more to a bad answer.
        include_named_users: Let the extractor see memories of named users too.
    """

    extractor: str = "rules"
    llm_url: str = ""
    llm_model: str = ""
    api_key_variable: str = ""
    llm_batch_memories: int = 8
    include_named_users: bool = False


@dataclass(frozen=True, slots=True)
class TranscriptSettings:
    """Conversations that agents keep as JSON lines.

    Attributes:
        path: Their folder or one file; what is new in them joins the source every night. Empty
            means none: then only what the Stop hook has captured joins it.
        include_sidechains: Take the turns of subagents as well.
        tool_chars: Characters kept of one tool call and of its result; 0 keeps names only.
    """

    path: str = ""
    include_sidechains: bool = False
    tool_chars: int = 400


@dataclass(frozen=True, slots=True)
class PromotionSettings:
    """Which turns are proposed as durable memories (libravdb's gating scalar).

    Attributes:
        enabled: Score the user's turns every night; nothing is written to the source.
        threshold: Least gating scalar of a proposal, in [0, 1].
    """

    enabled: bool = True
    threshold: float = 0.35


@dataclass(frozen=True, slots=True)
class HookSettings:
    """What `noctuary hook` puts into an agent's prompts.

    Attributes:
        memories: How many at most per prompt.
        budget_tokens: Tokens of one injection at most, as estimated from script and length.
        restore_tokens: The same for the injection after the agent has compacted its context.
        deadline_ms: Time for one answer; after it the hook answers with what it has.
        abstain: Inject nothing below the scores that the snapshot was calibrated to.
        scope: "store" (everything) or "project" (the wing named as the agent's folder).
        user: Whose memories; empty: those of nobody in particular.
        in_subagents: Inject into subagents as well.
        capture: Keep the turns of a session when the agent stops.
        start_server: Start a warm server in the background when a hook finds none.
    """

    memories: int = 3
    budget_tokens: int = 1_500
    restore_tokens: int = 1_500
    deadline_ms: float = 250.0
    abstain: bool = True
    scope: str = "store"
    user: str = ""
    in_subagents: bool = False
    capture: bool = True
    start_server: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """When the nightly job runs once its schedule is switched on.

    Attributes:
        cron: Five cron fields.
        timezone: IANA name; empty means the machine's local zone.
    """

    cron: str = "0 3 * * *"
    timezone: str = ""


# The sections about the memory store that is read: which, and what of it is live.


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The memory store to read.

    Attributes:
        path: SQLite file, JSONL(.gz) file, data set folder, MemPalace palace, or a PostgreSQL
            database as `env:NAME` (a variable that holds its address) or `postgresql://...`; empty
            means the bundled sample.
        user: Of a PostgreSQL database: only this user's rows and what is shared with them; empty
            means everyone's.
    """

    path: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What recall sees of the store itself, since the snapshot.

    Attributes:
        enabled: Look at all.
        max_rows: Newest rows that are taken in at most; more is a warning.
        deadline_ms: Time for the look; after it the snapshot answers alone.
    """

    enabled: bool = True
    max_rows: int = 2_000
    deadline_ms: float = 50.0


@dataclass(frozen=True, slots=True)
class SensitiveSettings:
    """Rows that never leave the store.

    Attributes:
        recall: Let `recall_sensitive` look into them, in the store itself; nothing is kept.
    """

    recall: bool = False


@dataclass(frozen=True, slots=True)
class SensorSettings:
    """When a change of the store starts a night of its own, once the sensor is switched on.

    Attributes:
        poll_seconds: Time between two looks at the store's change marker.
        minimum_minutes: Least time between two nights that it asks for.
    """

    poll_seconds: float = 60.0
    minimum_minutes: float = 15.0


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Who is told of a night that failed, or did not happen; never with a text of a memory.

    Attributes:
        command: Words of a program, which gets one JSON object on its standard input; empty for
            none. A file that others may write to cannot set it.
        webhook: Address that the same object is posted to, http or https; empty for none.
    """

    command: str = ""
    webhook: str = ""


# The section about how much a night uses: who runs heavy steps.


RUNNERS = ("local", "ray")


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Who runs the heavy steps of a night.

    Attributes:
        kind: "local" (processes of this machine) or "ray" (needs the extra `ray`).
        workers: Workers at once; 0 means the cores of this machine, or the cluster's.
        memory_mb: What the databases inside a night may hold before they spill to disk.
        address: Of a Ray cluster; empty starts one on this machine for the night.
        object_store_mb: Of a Ray that the night starts itself; 0 means three times what its
            workers hold at once.
    """

    kind: str = "local"
    workers: int = 0
    memory_mb: int = 2_048
    address: str = ""
    object_store_mb: int = 0


# Ranges of settings and which of them go together.


def _names_a_bucket(uri: str) -> bool:
    """Tell whether a text is s3://bucket/prefix; a key in it would be shown and logged."""
    return re.fullmatch(r"s3://[^\s/@?#:]+(/[^\s/@?#:]+)+/?", uri) is not None


def range_faults(s: Settings) -> list[str]:
    """Return one sentence per rule that the settings break."""
    rules: list[tuple[bool, str]] = [
        (s.corpus.max_content_bytes >= 1, "corpus.max_content_bytes must be at least 1"),
        *_source_rules(s),
        *_encoder_rules(s.encoder),
        (s.tiers.small_dims >= 1, "tiers.small_dims must be at least 1"),
        (
            s.tiers.medium_dims >= s.tiers.small_dims,
            "tiers.medium_dims must be >= tiers.small_dims",
        ),
        (
            not s.tiers.uri or _names_a_bucket(s.tiers.uri),
            "tiers.uri must be empty or s3://bucket/prefix, without credentials in it",
        ),
        *_compaction_rules(s.compaction),
        (s.snapshot.keep >= 2, "snapshot.keep must be at least 2, or rollback has nowhere to go"),
        (s.recall.profile != "", "recall.profile must name a profile, found an empty text"),
        (
            s.recall.fusion in FUSIONS,
            f'recall.fusion must be "cc" or "rrf", found {s.recall.fusion!r}',
        ),
        (s.recall.lexical_weight >= 0, "recall.lexical_weight must be >= 0"),
        (s.recall.dense_weight >= 0, "recall.dense_weight must be >= 0"),
        (s.recall.graph_weight >= 0, "recall.graph_weight must be >= 0"),
        (s.recall.stale_after_hours >= 0, "recall.stale_after_hours must be >= 0"),
        (0.0 <= s.recall.importance_prior <= 1.0, "recall.importance_prior must lie in [0, 1]"),
        (s.recall.exact_match_bonus >= 0, "recall.exact_match_bonus must be >= 0"),
        (s.evaluation.exact_queries >= 0, "evaluation.exact_queries must be >= 0"),
        (s.evaluation.generated_queries >= 0, "evaluation.generated_queries must be >= 0"),
        (
            s.evaluation.on_drop in ON_DROP,
            f'evaluation.on_drop must be "refuse" or "report", found {s.evaluation.on_drop!r}',
        ),
        *_endpoint_rules(s.evaluation),
        *_graph_rules(s.graph),
        (s.transcripts.tool_chars >= 0, "transcripts.tool_chars must be >= 0"),
        (0.0 <= s.promotion.threshold <= 1.0, "promotion.threshold must lie in [0, 1]"),
        *_hook_rules(s.hook),
        *_notify_rules(s.notify),
        *_scale_rules(s),
        (
            len(s.schedule.cron.split()) == 5,
            f"schedule.cron needs five fields, found {s.schedule.cron!r}",
        ),
    ]
    return [message for holds, message in rules if not holds]


def _source_rules(s: Settings) -> list[tuple[bool, str]]:
    return [
        (s.live.max_rows >= 0, "live.max_rows must be >= 0"),
        (s.live.deadline_ms > 0, "live.deadline_ms must be > 0"),
        (s.sensor.poll_seconds >= 1, "sensor.poll_seconds must be at least 1"),
        (s.sensor.minimum_minutes >= 0, "sensor.minimum_minutes must be >= 0"),
    ]


def _scale_rules(s: Settings) -> list[tuple[bool, str]]:
    return [
        (
            s.runner.kind in RUNNERS,
            f'runner.kind must be "local" or "ray", found {s.runner.kind!r}',
        ),
        (s.runner.workers >= 0, "runner.workers must be >= 0"),
        (s.runner.memory_mb >= 256, "runner.memory_mb must be at least 256"),
        (s.runner.object_store_mb >= 0, "runner.object_store_mb must be >= 0"),
    ]


def _encoder_rules(e: EncoderSettings) -> list[tuple[bool, str]]:
    hosted = e.provider != PROVIDERS[0]
    return [
        (
            e.provider in PROVIDERS,
            f"encoder.provider must be one of {', '.join(PROVIDERS)}, found {e.provider!r}",
        ),
        (
            not hosted or e.model != EncoderSettings().model,
            f'encoder.provider = "{e.provider}" needs encoder.model, as it is named there',
        ),
        (
            not hosted or e.api_key_variable != "",
            f'encoder.provider = "{e.provider}" needs encoder.api_key_variable',
        ),
        (e.dimension >= 0, "encoder.dimension must be >= 0"),
        (e.budget_usd >= 0, "encoder.budget_usd must be >= 0"),
        (e.usd_per_million_tokens >= 0, "encoder.usd_per_million_tokens must be >= 0"),
    ]


def _endpoint_rules(e: EvaluationSettings) -> list[tuple[bool, str]]:
    """Written queries need both endpoints; who grades its own questions grades them too well."""
    wanted = (e.generator_url, e.generator_model, e.judge_url, e.judge_model)
    return [
        (
            all(wanted) or not any(wanted),
            "evaluation.generator_* and judge_* (url and model) go together: set all four or none",
        ),
        (
            not all(wanted) or e.generator_model != e.judge_model,
            "evaluation.judge_model must not be evaluation.generator_model",
        ),
    ]


def _compaction_rules(c: CompactionSettings) -> list[tuple[bool, str]]:
    return [
        (c.protected_tail_turns >= 0, "compaction.protected_tail_turns must be >= 0"),
        (
            -1.0 <= c.preserve_threshold <= 1.0,
            "compaction.preserve_threshold must lie in [-1, 1]",
        ),
        (0.0 <= c.density <= 1.0, "compaction.density must lie in [0, 1]"),
        (0.0 <= c.aggressive_density <= 1.0, "compaction.aggressive_density must lie in [0, 1]"),
        (
            c.summarizer in SUMMARIZERS,
            f"compaction.summarizer must be one of {', '.join(SUMMARIZERS)}, found "
            + repr(c.summarizer),
        ),
        (
            c.summarizer != "seq2seq" or c.seq2seq_model != "",
            'compaction.summarizer = "seq2seq" needs compaction.seq2seq_model',
        ),
        (
            c.summarizer != "llm" or (c.llm_url != "" and c.llm_model != ""),
            'compaction.summarizer = "llm" needs compaction.llm_url and compaction.llm_model',
        ),
    ]


def _notify_rules(n: NotifySettings) -> list[tuple[bool, str]]:
    rules: list[tuple[bool, str]] = []
    try:
        if n.webhook:
            require_web_address(n.webhook)
    except ValueError as error:
        rules.append((False, f"notify.webhook: {error}"))
    try:
        if n.command:
            import shlex  # recall reads settings as well, and needs none of it

            shlex.split(n.command)
    except ValueError as error:
        rules.append((False, f"notify.command: {error}"))
    return rules


def _hook_rules(h: HookSettings) -> list[tuple[bool, str]]:
    return [
        (h.memories >= 0, "hook.memories must be >= 0"),
        (h.budget_tokens >= 0, "hook.budget_tokens must be >= 0"),
        (h.restore_tokens >= 0, "hook.restore_tokens must be >= 0"),
        (h.deadline_ms > 0, "hook.deadline_ms must be > 0"),
        (
            h.scope in HOOK_SCOPES,
            f'hook.scope must be "store" or "project", found {h.scope!r}',
        ),
    ]


def _graph_rules(g: GraphSettings) -> list[tuple[bool, str]]:
    return [
        (
            g.extractor in GRAPH_EXTRACTORS,
            f'graph.extractor must be "rules" or "llm", found {g.extractor!r}',
        ),
        (
            g.extractor != "llm" or (g.llm_url != "" and g.llm_model != ""),
            'graph.extractor = "llm" needs graph.llm_url and graph.llm_model',
        ),
        (g.llm_batch_memories >= 1, "graph.llm_batch_memories must be at least 1"),
    ]


# Every setting of noctuary: one frozen tree, read from one TOML file with environment overrides.
#
# Nothing here is read at import; `Settings.load` is explicit.
#
# Order, later wins: built-in default, TOML file (`NOCTUARY_CONFIG`, else `<home>/noctuary.toml`),
# environment (`NOCTUARY_<SECTION>_<KEY>`, for example `NOCTUARY_ENCODER_MODEL`).


ENV_PREFIX = "NOCTUARY_"
CONFIG_FILE_NAME = "noctuary.toml"
# Variables that steer where things are, as against what they do; the last one is for tests and
# benchmarks.
_LOCATION_VARIABLES = frozenset(
    {"NOCTUARY_HOME", "NOCTUARY_CONFIG", "NOCTUARY_STORE", "NOCTUARY_SHARED"}
)
_PROFILES = "profiles"
_NOT_SECTIONS = frozenset({_PROFILES, "origins"})
_NOT_IN_JSON = "notify"
"""Shapes no artifact, and an address may hold a key: no part of a manifest."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole tree; immutable, validated on load.

    Attributes:
        profiles: The tables [profiles.NAME] as they stand in the file; what is in them is checked
            where a recall uses them (noctuary.recall.profile). No part of `to_json`: they
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
            if section != _NOT_IN_JSON
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


# Every setting of noctuary: one frozen tree, read from one TOML file with environment overrides.
#
# Standard library only, because a hook reads its settings too.
