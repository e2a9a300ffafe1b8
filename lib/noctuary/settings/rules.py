"""Ranges of settings and which of them go together. What belongs here: sentences about values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from noctuary.settings.scale_sections import RUNNERS
from noctuary.settings.sections import (
    FUSIONS,
    GRAPH_EXTRACTORS,
    HOOK_SCOPES,
    ON_DROP,
    PROVIDERS,
    SUMMARIZERS,
    CompactionSettings,
    EncoderSettings,
    EvaluationSettings,
    GraphSettings,
    HookSettings,
)

if TYPE_CHECKING:
    from noctuary.settings.tree import Settings


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
