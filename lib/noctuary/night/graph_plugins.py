"""Which extractor plug-in the night uses, whose memories it sees, and what is added to the rules'.

What belongs here: the choice, the filter, the memo. What does not: the plug-ins and the check of
what they say (noctuary.graph.plugins). The stage of the graph calls this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from noctuary.errors import ConfigError
from noctuary.graph.extraction import Extraction
from noctuary.graph.plugins.base import Extractor, Findings, PluginInput
from noctuary.graph.plugins.llm.extractor import LlmExtractor
from noctuary.graph.plugins.merge import merge_extractions
from noctuary.graph.plugins.spacy import SpacyExtractor
from noctuary.graph.plugins.verify import VERIFY_VERSION, verify_extraction
from noctuary.hashing import hash_text
from noctuary.hosted.endpoint import Endpoint
from noctuary.night.context import Night
from noctuary.settings import GraphSettings
from noctuary.settings.api_key import read_api_key
from noctuary.types import MemoryRecord
from noctuary.work.memo import Memo

FINDINGS_KIND = "graph_plugin:1"
"""Kind of the memo: what plug-ins found. Their keys hold their own versions."""


class Extended(NamedTuple):
    """Extractions with what the plug-in added.

    Attributes:
        extractions: One per memory, in the order given.
        facts: For the stage's facts: what is known of these memories, and "warnings", a list of
            {"code", "message"} that is only there when something went wrong.
        notes: For the stage's notes: what only tonight did.
    """

    extractions: list[Extraction]
    facts: dict[str, Any]
    notes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _MemoCache:
    """The night's memo as a plug-in's cache."""

    memo: Memo

    def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        """Return the remembered values."""
        return self.memo.get_many(FINDINGS_KIND, keys)

    def put_many(self, values: Mapping[str, bytes]) -> None:
        """Remember values durably."""
        self.memo.put_many(FINDINGS_KIND, values)


def extend_extractions(
    night: Night, records: Sequence[MemoryRecord], extractions: Sequence[Extraction]
) -> Extended:
    """Add what the configured plug-in finds; without one, change nothing.

    An endpoint that is down leaves the extractions as they are, and a warning in the facts.

    Args:
        night: Settings and memo.
        records: Tonight's memories.
        extractions: What the rules found in them, one each.

    Raises:
        ConfigError: If the plug-in is set up wrongly: no such pipeline, no API key.
    """
    extractor = open_extractor(night)
    if extractor is None:
        return Extended(list(extractions), {}, {})
    shown = _shown(records, night.settings.graph)
    inputs = {(key := hash_text(r.content)): PluginInput(key, r.content) for r in shown}
    with Memo.open(night.paths.memo) as memo:
        findings = extractor.extract_many(list(inputs.values()), _MemoCache(memo), night.progress)
    merged, facts = _merge(records, extractions, findings, {r.position for r in shown})
    facts = {
        "extractor": extractor.name,
        "fingerprint": extractor.fingerprint,
        **facts,
        "left_out_named_users": len(records) - len(shown),
        **_told(findings),
    }
    return Extended(merged, facts, dict(findings.tonight))


def _merge(
    records: Sequence[MemoryRecord],
    extractions: Sequence[Extraction],
    findings: Findings,
    visible: Set[int],
) -> tuple[list[Extraction], dict[str, Any]]:
    """Return the merged extractions, and what was added and dropped.

    A memory that was not shown stays as it is, even where another one has the same text.
    """
    merged: list[Extraction] = []
    added: Counter[str] = Counter(found=0, stated=0)
    dropped: Counter[str] = Counter()
    for record, base in zip(records, extractions, strict=True):
        extra = findings.extractions.get(hash_text(record.content))
        if extra is None or record.position not in visible:
            merged.append(base)
            continue
        verified = verify_extraction(record.content, extra)
        dropped.update(verified.dropped)
        both = merge_extractions(base, verified.extraction)
        added["found"] += len(both.found) - len(base.found)
        added["stated"] += len(both.stated) - len(base.stated)
        merged.append(both)
    return merged, {"added": dict(added), "dropped": dict(sorted(dropped.items()))}


def plugin_inputs(night: Night) -> dict[str, str]:
    """Return what the graph's stage depends on besides the rules; empty without a plug-in."""
    extractor = open_extractor(night)
    if extractor is None:
        return {}
    users = str(night.settings.graph.include_named_users)
    return {"plugin": f"{VERIFY_VERSION}:{extractor.fingerprint}", "named_users": users}


def asks_every_night(night: Night) -> bool:
    """Say whether the stage has to run though its inputs are the same: an endpoint may be back."""
    return night.settings.graph.extractor == "llm"


def live_findings(night: Night, records: Sequence[MemoryRecord]) -> list[str]:
    """Return the keys of FINDINGS_KIND that are still in use; all others are to be deleted."""
    extractor = open_extractor(night)
    if extractor is None:
        return []
    return [extractor.cache_key(r.content) for r in _shown(records, night.settings.graph)]


def open_extractor(night: Night) -> Extractor | None:
    """Return the configured plug-in, None for the rules alone.

    Raises:
        ConfigError: If it is set up wrongly.
    """
    chosen = night.settings.graph
    if chosen.extractor == "llm":
        key = read_api_key(chosen.api_key_variable, "graph.api_key_variable")
        try:
            endpoint = Endpoint(chosen.llm_url, chosen.llm_model, key)
            return LlmExtractor(endpoint, chosen.llm_batch_memories)
        except ValueError as error:
            raise ConfigError(f"graph.llm_*: {error}") from error
    if chosen.extractor == "spacy":
        return SpacyExtractor.open(chosen.spacy_pipeline)
    return None


def _shown(records: Sequence[MemoryRecord], chosen: GraphSettings) -> list[MemoryRecord]:
    """Return the memories that a plug-in may see: nobody's own, unless these are switched on."""
    return [r for r in records if r.user is None or chosen.include_named_users]


def _told(findings: Findings) -> dict[str, Any]:
    counts: dict[str, Any] = dict(findings.counts)
    if not findings.warnings:
        return counts
    return {**counts, "warnings": [warning._asdict() for warning in findings.warnings]}
