"""The sections of the settings: names, types, defaults and what each one trades.

What belongs here: declarations. What does not: the sections about the store that is read
(source_sections.py), ranges (rules.py), reading (tree.py).
"""

from __future__ import annotations

from noctuary.values import dataclass

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
            nothing is written to the source without `noctuary curate --apply`.
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
