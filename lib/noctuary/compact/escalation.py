"""From requests to settled texts: primary cut, aggressive cut, extractive, decline.

A draft is taken if it is strictly smaller than its sources by one and the same estimate, reads like
no secret, passes the gate and states nothing that its sources do not. The aggressive cut is for
drafts that are not smaller. A draft that fails otherwise is followed by the extractive one, because
a denser draft of the same model would be no more faithful. Source: research/peers.md 1.7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.gate import TAU_PRESERVE, FactReport, GateReport, check_facts, judge
from noctuary.compact.summarizers import (
    AGGRESSIVE_SUFFIX,
    EXTRACTIVE,
    Attempt,
    Draft,
    Outcome,
    Refusal,
    Request,
    Summarizer,
    source_tokens,
)
from noctuary.core.files import JsonValue
from noctuary.core.settings import CompactionSettings
from noctuary.text.marks import estimate_tokens
from noctuary.text.secrets import find_text_sensitivity

Encode = Callable[[list[str]], NDArray[np.floating[Any]]]
"""Vectors of the given texts, shape (m, d), encoded as documents."""


@dataclass(frozen=True, slots=True)
class SummarySettings:
    """What decides the text and the verdict of a summary.

    Attributes:
        density: Share of the sources kept by the primary cut, in [0, 1]; 0 for the summarizer's
            own.
        aggressive_density: Share kept where the primary cut is not smaller, likewise.
        threshold: Least alignment of an accepted summary, in [-1, 1].
    """

    density: float = 0.0
    aggressive_density: float = 0.0
    threshold: float = TAU_PRESERVE

    @staticmethod
    def of(settings: CompactionSettings) -> SummarySettings:
        """Return what the settings of a store say."""
        return SummarySettings(
            density=settings.density,
            aggressive_density=settings.aggressive_density,
            threshold=settings.preserve_threshold,
        )

    def densities_of(self, summarizer: Summarizer) -> tuple[float, float]:
        """Return the densities that a summarizer is asked for."""
        own = summarizer.densities
        return self.density or own[0], self.aggressive_density or own[1]

    def to_json(self) -> dict[str, JsonValue]:
        """Return the settings for a digest."""
        return asdict(self)


DEFAULT_SETTINGS = SummarySettings()


class Candidate(NamedTuple):
    """A draft that was smaller, and what the checks say of it."""

    draft: Draft
    tokens: int
    report: GateReport
    facts: FactReport


@dataclass(slots=True)
class Trial:
    """What became of one request.

    Attributes:
        request: The cluster.
        source_tokens: Estimated tokens of its turns.
        parent_ids: Ids of `request.context`.
        attempts: What was rejected, in the order of trying.
        last: The last candidate that was judged, taken or not; None where none came so far.
        taken: True where `last` is the summary.
        fallback: Why the configured summarizer's draft is not used; "" where it is.
    """

    request: Request
    source_tokens: int
    parent_ids: tuple[str, ...] = ()
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    last: Candidate | None = None
    taken: bool = False
    fallback: str = ""

    def reject(
        self,
        outcome: Outcome,
        reason: str,
        *,
        method: str,
        text: str = "",
        candidate: Candidate | None = None,
        parent_ids: tuple[str, ...] = (),
    ) -> None:
        """Write down why a draft is not taken."""
        self.attempts.append(
            Attempt(
                cluster_id=self.request.cluster_id,
                place=len(self.attempts),
                method=method,
                text=text,
                source_tokens=self.source_tokens,
                summary_tokens=estimate_tokens(text),
                report=None if candidate is None else candidate.report,
                facts=None if candidate is None else candidate.facts,
                outcome=outcome,
                reason=reason,
                parent_ids=parent_ids,
            )
        )


def escalate(
    requests: Sequence[Request],
    encode: Encode,
    *,
    summarizer: Summarizer = EXTRACTIVE,
    settings: SummarySettings = DEFAULT_SETTINGS,
    parent_ids: Sequence[tuple[str, ...]] = (),
) -> list[Trial]:
    """Return what became of each request, in their order.

    Args:
        requests: Independent clusters of at least two turns each.
        encode: Called at most twice per summarizer, and never with a text that is a turn verbatim.
        summarizer: Who writes first; the extractive one follows where its drafts fail.
        settings: Densities and threshold.
        parent_ids: Ids of the context of each request; () where there is none.

    Raises:
        ValueError: The encoder returned another number of vectors than it was given texts.
    """
    shown = parent_ids or [()] * len(requests)
    trials = [
        Trial(request, source_tokens(request.texts), ids)
        for request, ids in zip(requests, shown, strict=True)
    ]
    stands_in = settings
    if summarizer.name != EXTRACTIVE.name:
        _try(trials, summarizer, encode, settings)
        # What was configured is a share of what the configured summarizer cuts.
        stands_in = replace(settings, density=0.0, aggressive_density=0.0)
        for trial in trials:
            trial.fallback = "" if trial.taken else trial.attempts[-1].outcome.value
    _try([trial for trial in trials if not trial.taken], EXTRACTIVE, encode, stands_in)
    return trials


def _try(
    trials: Sequence[Trial], summarizer: Summarizer, encode: Encode, settings: SummarySettings
) -> None:
    """Let one summarizer try: its primary cut, then its aggressive one where that was not smaller.

    Afterwards each trial is taken or has one attempt more.
    """
    waiting = list(trials)
    for aggressive, density in zip((False, True), settings.densities_of(summarizer), strict=True):
        if not waiting:
            return
        requests = [trial.request for trial in waiting]
        drafts = summarizer.drafts(requests, density=density, aggressive=aggressive)
        method = summarizer.name + (AGGRESSIVE_SUFFIX if aggressive else "")
        smaller: list[tuple[Trial, Draft]] = []
        too_large: list[Trial] = []
        for trial, draft in zip(waiting, drafts, strict=True):
            shown = trial.parent_ids if summarizer.uses_context else ()
            if isinstance(draft, Refusal):
                trial.reject(draft.outcome, draft.detail, method=method, parent_ids=shown)
            elif (fault := _look(trial, draft)) is None:
                smaller.append((trial, draft))
            else:
                outcome, reason = fault
                text = "" if outcome is Outcome.SECRET else draft.text
                trial.reject(outcome, reason, method=draft.method, text=text, parent_ids=shown)
                if outcome is Outcome.NOT_SMALLER:
                    too_large.append(trial)
        _judge_all(smaller, encode, settings)
        waiting = too_large


def _look(trial: Trial, draft: Draft) -> tuple[Outcome, str] | None:
    """Return why a draft is not even judged, or None."""
    secret = find_text_sensitivity(draft.text)
    if secret is not None:
        # Turns are joined: "the password?" and the answer to it may meet.
        return Outcome.SECRET, f"its text reads like {secret}"
    tokens = estimate_tokens(draft.text)
    if tokens >= trial.source_tokens:
        return (
            Outcome.NOT_SMALLER,
            f"its {tokens} tokens are not fewer than the {trial.source_tokens} of its sources",
        )
    return None


def _judge_all(
    drafted: Sequence[tuple[Trial, Draft]], encode: Encode, settings: SummarySettings
) -> None:
    for (trial, draft), vector in zip(drafted, _vectors(drafted, encode), strict=True):
        candidate = Candidate(
            draft=draft,
            tokens=estimate_tokens(draft.text),
            report=judge(
                vector,
                trial.request.vectors,
                raw=draft.raw_confidence,
                threshold=settings.threshold,
            ),
            facts=check_facts(draft.text, trial.request.texts),
        )
        trial.last = candidate
        trial.taken = candidate.report.passed and candidate.facts.passed
        if not trial.taken:
            trial.reject(
                Outcome.FACTS if candidate.report.passed else Outcome.GATE,
                "; ".join((*candidate.report.reasons, *candidate.facts.reasons)),
                method=draft.method,
                text=draft.text,
                candidate=candidate,
                parent_ids=() if draft.kept else trial.parent_ids,
            )


def _vectors(
    drafted: Sequence[tuple[Trial, Draft]], encode: Encode
) -> list[NDArray[np.floating[Any]]]:
    """Return one vector per draft; a draft that is one turn verbatim already has its own."""
    own = [_own_vector(trial.request, draft) for trial, draft in drafted]
    mixed = [draft.text for (_, draft), vector in zip(drafted, own, strict=True) if vector is None]
    encoded = list(encode(mixed)) if mixed else []
    if len(encoded) != len(mixed):
        raise ValueError(f"the encoder returned {len(encoded)} vectors for {len(mixed)} summaries")
    rows = iter(encoded)
    return [next(rows) if vector is None else vector for vector in own]


def _own_vector(request: Request, draft: Draft) -> NDArray[np.floating[Any]] | None:
    if len(draft.kept) == 1:
        return request.vectors[draft.kept[0]]
    places = (i for i, text in enumerate(request.texts) if text == draft.text)
    place = next(places, None)
    return None if place is None else request.vectors[place]
