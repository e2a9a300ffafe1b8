"""From clusters to judged summaries, batch by batch, with those of earlier nights used again.

What belongs here: the loop over a batch and the rules of re-use. What does not: which draft is
tried when (escalation), how it is written (summarizers) or judged (gate, facts), how it is stored
(tables). Raw turns are only read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from noctuary.compact.attempts import TRIED_AGAIN, Attempt, Outcome
from noctuary.compact.cluster_text import ClusterText
from noctuary.compact.clusters import Cluster
from noctuary.compact.context import Earlier, SessionContext
from noctuary.compact.escalation import DEFAULT_SETTINGS, Encode, SummarySettings, Trial, escalate
from noctuary.compact.extractive import EXTRACTIVE, source_tokens
from noctuary.compact.facts.check import FACTS_VERSION
from noctuary.compact.summarizers.base import Request, Summarizer
from noctuary.compact.summary import METHOD_NONE, METHOD_TRIVIAL, Status, Summary
from noctuary.hashing import hash_json
from noctuary.types import summary_id

RECIPE_VERSION = "2"
# Raised when the same turns would be summarised to other text or other numbers, so that old ones
# are not re-used.


class Known(NamedTuple):
    """What earlier nights made with the same recipe; see `noctuary.compact.tables.read_known`.

    Attributes:
        summaries: By cluster id.
        attempts: Rejected candidates by cluster id; clusters without any are left out.
    """

    summaries: Mapping[str, Summary]
    attempts: Mapping[str, tuple[Attempt, ...]]


NOTHING_KNOWN = Known({}, {})


class BatchResult(NamedTuple):
    """What a batch came to.

    Attributes:
        summaries: One per cluster, in the order of the batch.
        attempts: Every rejected candidate of these clusters, those of earlier nights included, in
            the order of the batch.
        made: Clusters that were summarised tonight; the others were used again.
    """

    summaries: list[Summary]
    attempts: list[Attempt]
    made: int


def recipe_digest(
    fingerprint_digest: str,
    settings: SummarySettings = DEFAULT_SETTINGS,
    summarizer: Summarizer = EXTRACTIVE,
) -> str:
    """Return what decides a summary beside its turns: encoder, settings, summarizer, versions.

    Summaries stored under another digest must not be passed as `known`.
    """
    return hash_json(
        [
            [RECIPE_VERSION, FACTS_VERSION],
            fingerprint_digest,
            settings.to_json(),
            [summarizer.name, dict(summarizer.recipe)],
            dict(EXTRACTIVE.recipe),
        ]
    )


def summarize_batch(
    batch: Sequence[ClusterText],
    encode: Encode,
    *,
    summarizer: Summarizer = EXTRACTIVE,
    known: Known = NOTHING_KNOWN,
    settings: SummarySettings = DEFAULT_SETTINGS,
    context: SessionContext | None = None,
) -> BatchResult:
    """Summarise every cluster of a batch and judge every candidate.

    A cluster is used again if it is known, its summarizer would be shown the same earlier
    summaries, and it did not fall back for want of an answer (`TRIED_AGAIN`).

    Args:
        batch: Clusters; those of one session oldest first. How clusters are cut into batches does
            not change the result.
        encode: Vectors of the given texts, shape (m, d), from the encoder of the batch's vectors.
        summarizer: Who writes; where its drafts fail the extractive one follows.
        known: What earlier nights made with the same `recipe_digest`.
        settings: Densities and threshold.
        context: Carries sessions over from batch to batch; needed where `summarizer.uses_context`
            and a session may be longer than a batch.

    Raises:
        ValueError: The encoder returned another number of vectors than it was given texts, or a
            cluster's contents and vectors differ in number.
    """
    kept = SessionContext() if context is None else context
    settled: dict[int, tuple[Summary, tuple[Attempt, ...]]] = {}
    made = 0
    for wave in _waves(batch, summarizer.uses_context):
        fresh: list[tuple[int, tuple[Earlier, ...]]] = []
        for place in wave:
            cluster = batch[place].cluster
            parents = kept.before(cluster) if summarizer.uses_context else ()
            if _is_settled(cluster, known, parents):
                again = _rebind(known.summaries[cluster.cluster_id], cluster)
                settled[place] = again, known.attempts.get(cluster.cluster_id, ())
            elif cluster.trivial:
                settled[place] = _trivial(batch[place]), ()
                made += 1
            else:
                fresh.append((place, parents))
        trials = escalate(
            [_request(batch[place], parents) for place, parents in fresh],
            encode,
            summarizer=summarizer,
            settings=settings,
            parent_ids=[tuple(earlier.summary_id for earlier in p) for _, p in fresh],
        )
        for (place, _), trial in zip(fresh, trials, strict=True):
            settled[place] = _summary_of(batch[place].cluster, trial), tuple(trial.attempts)
        made += len(fresh)
        for place in wave:
            kept.remember(settled[place][0])
    pairs = [settled[place] for place in range(len(batch))]
    return BatchResult(
        [summary for summary, _ in pairs], [a for _, attempts in pairs for a in attempts], made
    )


def summarize_group(
    group: ClusterText, encode: Encode, *, settings: SummarySettings = DEFAULT_SETTINGS
) -> BatchResult:
    """Summarise one group of memories extractively and judge the result; see `summarize_batch`."""
    return summarize_batch([group], encode, settings=settings)


def fallback_counts(summaries: Iterable[Summary]) -> dict[str, int]:
    """Return how often the configured summarizer's text is not used, by reason, sorted."""
    return dict(sorted(Counter(s.fallback for s in summaries if s.fallback).items()))


def _waves(batch: Sequence[ClusterText], in_order: bool) -> list[list[int]]:
    """Return places that may be summarised together: a session's clusters one after the other."""
    if not in_order:
        return [list(range(len(batch)))]
    waves: list[list[int]] = []
    ranks: Counter[tuple[str | None, str, str | None]] = Counter()
    for place, (cluster, _, _) in enumerate(batch):
        key = cluster.user, cluster.session_id, cluster.wing
        if ranks[key] == len(waves):
            waves.append([])
        waves[ranks[key]].append(place)
        ranks[key] += 1
    return waves


def _is_settled(cluster: Cluster, known: Known, parents: Sequence[Earlier]) -> bool:
    summary = known.summaries.get(cluster.cluster_id)
    if summary is None or summary.fallback in TRIED_AGAIN:
        return False
    if summary.status == "trivial":
        return True
    shown = summary.parent_ids
    if summary.fallback:
        # The text is extractive; what its summarizer was shown stands with the rejected candidate.
        shown = known.attempts[cluster.cluster_id][0].parent_ids
    return shown == tuple(earlier.summary_id for earlier in parents)


def _rebind(summary: Summary, cluster: Cluster) -> Summary:
    """Give a re-used summary today's positions: rows move when an earlier one comes or goes."""
    return replace(
        summary,
        source_positions=cluster.member_positions,
        source_ids=cluster.member_ids,
        first_us=cluster.first_us,
        last_us=cluster.last_us,
        user=cluster.user,
        wing=cluster.wing,
    )


def _request(item: ClusterText, parents: Sequence[Earlier]) -> Request:
    return Request(
        cluster_id=item.cluster.cluster_id,
        texts=item.contents,
        vectors=item.vectors,
        user=item.cluster.user,
        context=tuple(earlier.text for earlier in parents),
    )


def _summary_of(cluster: Cluster, trial: Trial) -> Summary:
    """Return the summary of a settled cluster: what was taken, or the last one that was judged."""
    last = trial.last
    if not trial.taken and trial.attempts[-1].outcome is Outcome.SECRET:
        last = None
    return _summary(
        cluster,
        text=last.draft.text if last else "",
        status="accepted" if trial.taken else "declined",
        method=last.draft.method if last else METHOD_NONE,
        tokens=(trial.source_tokens, last.tokens if last else 0),
        reason="" if trial.taken else trial.attempts[-1].reason,
        trial=trial,
    )


def _trivial(item: ClusterText) -> Summary:
    tokens = source_tokens(item.contents)
    return _summary(
        item.cluster,
        text=item.contents[0],
        status="trivial",
        method=METHOD_TRIVIAL,
        tokens=(tokens, tokens),
        reason="one turn: it stands for itself",
    )


def _summary(
    cluster: Cluster,
    *,
    text: str,
    status: Status,
    method: str,
    tokens: tuple[int, int],
    reason: str,
    trial: Trial | None = None,
) -> Summary:
    judged = trial.last if trial is not None and text else None
    return Summary(
        summary_id=summary_id(cluster.cluster_id, method, text),
        cluster_id=cluster.cluster_id,
        session_id=cluster.session_id,
        text=text,
        status=status,
        method=method,
        source_ids=cluster.member_ids,
        source_positions=cluster.member_positions,
        first_us=cluster.first_us,
        last_us=cluster.last_us,
        source_tokens=tokens[0],
        summary_tokens=tokens[1],
        report=judged.report if judged else None,
        reason=reason,
        user=cluster.user,
        wing=cluster.wing,
        parent_ids=trial.parent_ids if trial and judged and not judged.draft.kept else (),
        facts=judged.facts if judged else None,
        fallback=trial.fallback if trial is not None else "",
    )
