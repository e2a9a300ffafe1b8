"""What goes into an assembly and comes out: turns, parts, and every constant with its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from noctuary.core.types import dataclass
from noctuary.recall.profile import RetrievalProfile, value_faults
from noctuary.recall.result import RecallWarning

# What goes in and what comes out: turns of a session, parts of a prompt, the assembled context.
#
# Standard library only.


PartKind = Literal["I1", "I2", "tail", "variant"]
PartSource = Literal["authored", "session", "memory"]


class Turn(NamedTuple):
    """One turn of the session that a prompt continues.

    Attributes:
        role: Who speaks: "user", "assistant", or any other name.
        text: What was said; a blank turn is left out.
        id: Its own id, unique in the session; None gives "turn-" and its place.
        at_us: When, microseconds since the epoch; None if unknown.
        bundle: What belongs together, for example a tool call and its result; None for nothing.
    """

    role: str
    text: str
    id: str | None = None
    at_us: int | None = None
    bundle: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of the prompt.

    Attributes:
        kind: "I1" hard and "I2" soft nodes of documents, "tail" recent turns, "variant" what the
            query found.
        source: Where it comes from: "authored", "session" or "memory".
        id: Of the node, the turn or the memory, as text.
        text: The content as it was given; `rendered` is what stands in the prompt.
        rendered: The piece of `Context.text`, with its line break.
        tokens: Cost of `rendered`, >= 0.
        score: sigma of libravdb 7.8, in [0, 1]; None for what is there without being found.
        why: The rule that put it here (`rule`) and the numbers behind it.
    """

    kind: PartKind
    source: PartSource
    id: str
    text: str
    rendered: str
    tokens: int
    score: float | None
    why: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "kind": self.kind,
            "source": self.source,
            "id": self.id,
            "text": self.text,
            "tokens": self.tokens,
            "score": self.score,
            "why": dict(self.why),
        }


class Degradation(NamedTuple):
    """Why no legal assembly exists, so that only hard nodes and the last turns are there, uncut.

    Attributes:
        code: "hard_over_reserve", "hard_over_budget" or "tail_base_over_budget".
        needed_tokens: What had to fit.
        allowed_tokens: What it had to fit into.
        message: Both in a sentence, with what to do.
    """

    code: str
    needed_tokens: int
    allowed_tokens: int
    message: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class Context:
    """An assembled prompt.

    Attributes:
        query: What it was assembled for.
        text: The whole, rendered; "" where there is nothing to say.
        parts: In the order of the text.
        tokens: Of the whole text: those of the parts and of the tags around them.
        frame_tokens: Of the tags alone.
        budget_tokens: What was allowed.
        token_counter: How tokens were counted, all of them: "tokenizer:<name>" or "estimate".
        profile: Name of the profile.
        degraded: Empty, or why the budget could not be kept; then `tokens` may exceed it.
        warnings: What was missing on the way; none of them breaks the budget.
        snapshot_id: The snapshot that memories came from, or None.
        store: The store that was asked, or None.
    """

    query: str
    text: str
    parts: tuple[Part, ...]
    tokens: int
    frame_tokens: int
    budget_tokens: int
    token_counter: str
    profile: str
    degraded: tuple[Degradation, ...] = ()
    warnings: tuple[RecallWarning, ...] = ()
    snapshot_id: str | None = None
    store: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "query": self.query,
            "text": self.text,
            "parts": [part.to_json() for part in self.parts],
            "tokens": self.tokens,
            "frame_tokens": self.frame_tokens,
            "budget_tokens": self.budget_tokens,
            "token_counter": self.token_counter,
            "profile": self.profile,
            "degraded": [reason.to_json() for reason in self.degraded],
            "warnings": [warning.to_json() for warning in self.warnings],
            "snapshot_id": self.snapshot_id,
            "store": self.store,
        }


# ContextProfile: every constant of an assembly with its default, and the profiles with a name.


@dataclass(frozen=True, slots=True)
class ContextProfile:
    """How one context is assembled: immutable, validated as a whole.

    Attributes:
        name: What it is called, for the answer.
        coarse_depth: k1 of libravdb 7.4, candidates of the first pass, >= 1.
        coarse_threshold: theta1 of 7.4, least similarity of the first pass, in [-1, 1].
        keyword_gain: kappa of 7.5, >= 0; larger punishes what lacks the query's words.
        final_depth: k2 of 7.5, what the second pass keeps, in [1, coarse_depth].
        hop_decay: eta_hop of 7.7, in (0, 1): what of its parent's score a hop target has.
        hop_threshold: theta_hop of 7.7, in [0, 1]: least score of a hop target.
        authority_recency_weight: alpha_r of 7.3, in [0, 1]; the three are scaled to sum to 1.
        authority_frequency_weight: alpha_f of 7.3.
        authority_authored_weight: alpha_a of 7.3.
        authority_decay_per_s: lambda_r of 7.3, per second, >= 0; 1e-5 halves every 19 hours.
        authority_floor: Least factor that authority multiplies with, in [0, 1]. 0 is the reference:
            a memory that nobody recalls or wrote by hand keeps 0.1 % of its score after a week.
        hard_fraction: alpha1 of 7.8, share of the budget that hard nodes may have; 0 sets no limit.
        soft_fraction: alpha2 of 7.8, share of the budget that soft nodes may have.
        tail_target_tokens: Tokens of recent turns to aim at; more leaves less for memories.
        min_tail_turns: m, the last turns that are always there, >= 0. They win over the target.
    """

    name: str = "default"
    coarse_depth: int = 16
    coarse_threshold: float = 0.2
    keyword_gain: float = 0.3
    final_depth: int = 8
    hop_decay: float = 0.5
    hop_threshold: float = 0.15
    authority_recency_weight: float = 0.5
    authority_frequency_weight: float = 0.2
    authority_authored_weight: float = 0.3
    authority_decay_per_s: float = 1e-5
    authority_floor: float = 0.5
    hard_fraction: float = 0.0
    soft_fraction: float = 0.3
    tail_target_tokens: int = 128
    min_tail_turns: int = 4

    def __post_init__(self) -> None:
        faults = _faults(self)
        if faults:
            raise ValueError("; ".join(faults))

    def retrieval(self) -> RetrievalProfile:
        """Return the ranking of memories by the same two passes: everything else is off."""
        return _retrieval(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


SHARED = (
    "coarse_depth", "coarse_threshold", "keyword_gain", "authority_recency_weight",
    "authority_frequency_weight", "authority_authored_weight", "authority_decay_per_s",
    "authority_floor",
)  # fmt: skip
"""The constants that a recall has as well: by the same names, in the same ranges."""

_UNIT = ("hop_threshold", "hop_decay", "hard_fraction", "soft_fraction")
_WHOLE = {"final_depth": 1, "tail_target_tokens": 0, "min_tail_turns": 0}


def _faults(profile: ContextProfile) -> list[str]:
    """Return what is wrong with the values, a sentence each."""
    faults = value_faults({name: getattr(profile, name) for name in SHARED})
    for name, least in _WHOLE.items():
        value = getattr(profile, name)
        if type(value) is not int or value < least:
            faults.append(f"{name} must be a whole number >= {least}, found {value!r}")
    for name in _UNIT:
        value = getattr(profile, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            faults.append(f"{name} must be a number from 0 to 1, found {value!r}")
    return faults or _faults_together(profile)


def _faults_together(profile: ContextProfile) -> list[str]:
    """Return what is wrong with values that are sound one by one."""
    faults: list[str] = []
    if profile.hop_decay in (0.0, 1.0):
        faults.append(f"hop_decay must lie between 0 and 1, found {profile.hop_decay!r}")
    if profile.final_depth > profile.coarse_depth:
        faults.append(
            f"final_depth must be at most coarse_depth, found {profile.final_depth} and "
            f"{profile.coarse_depth}"
        )
    if profile.hard_fraction + profile.soft_fraction > 1.0:
        faults.append(
            "hard_fraction and soft_fraction must sum to at most 1, found "
            f"{profile.hard_fraction:g} and {profile.soft_fraction:g}"
        )
    return faults


@lru_cache(maxsize=8)  # checking sixty flags costs half a millisecond of every assembly
def _retrieval(profile: ContextProfile) -> RetrievalProfile:
    return replace(
        RetrievalProfile.off(),
        scorer="two_pass",
        model_guard=True,
        **{name: getattr(profile, name) for name in SHARED},
    )


PROFILES: Mapping[str, ContextProfile] = {
    "default": ContextProfile(),
    "reference": ContextProfile(name="reference", authority_floor=0.0),
}
"""Shipped profiles by name. "reference" has libravdb 1.3.12's defaults to the letter. "default"
differs in the floor, which is that of noctuary's own two-pass recall: without it whatever is older
than days scores 0 and a memory store is searched in vain (research/peers.md 1.5)."""


def profile_named(profile: str | ContextProfile) -> ContextProfile:
    """Return a profile by its name, or the one given.

    Raises:
        ValueError: No profile has that name.
    """
    if isinstance(profile, ContextProfile):
        return profile
    known = PROFILES.get(profile)
    if known is None:
        names = ", ".join(PROFILES)
        raise ValueError(f"profile must be one of {names} or a ContextProfile, found {profile!r}")
    return known
