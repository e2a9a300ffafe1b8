"""What goes into an assembly and comes out: turns, parts, and every constant with its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from noctuary.core.types import dataclass
from noctuary.recall.profile import RetrievalProfile, value_faults
from noctuary.recall.result import RecallWarning

PartKind = Literal["I1", "I2", "tail", "variant"]
PartSource = Literal["authored", "session", "memory"]


class Turn(NamedTuple):
    """One turn of the session that a prompt continues; a blank one is left out."""

    role: str  # "user", "assistant", or any other name
    text: str
    id: str | None = None  # unique in the session; None gives "turn-" and its place
    at_us: int | None = None  # microseconds since the epoch
    bundle: str | None = None  # what belongs together, for example a tool call and its result


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of the prompt."""

    kind: PartKind  # "I1" hard, "I2" soft, "tail" recent turns, "variant" what the query found
    source: PartSource
    id: str  # of the node, the turn or the memory
    text: str  # the content as it was given
    rendered: str  # the piece of `Context.text`, with its line break
    tokens: int  # of `rendered`
    score: float | None  # sigma of libravdb 7.8, in [0, 1]; None for what is there unfound
    why: Mapping[str, Any]  # the rule that put it here (`rule`) and its numbers

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        names = ("kind", "source", "id", "text", "tokens", "score")
        return {**{name: getattr(self, name) for name in names}, "why": dict(self.why)}


class Degradation(NamedTuple):
    """Why no legal assembly exists, so that only hard nodes and the last turns are there, uncut."""

    code: str  # "hard_over_reserve", "hard_over_budget" or "tail_base_over_budget"
    needed_tokens: int
    allowed_tokens: int
    message: str  # both in a sentence, with what to do


@dataclass(frozen=True, slots=True)
class Context:
    """An assembled prompt."""

    query: str
    text: str  # the whole, rendered; "" where there is nothing to say
    parts: tuple[Part, ...]  # in the order of the text
    tokens: int  # of the whole text: those of the parts and of the tags around them
    frame_tokens: int  # of the tags alone
    budget_tokens: int
    token_counter: str  # "tokenizer:<name>" or "estimate"
    profile: str
    degraded: tuple[Degradation, ...] = ()  # why `tokens` may exceed the budget
    warnings: tuple[RecallWarning, ...] = ()  # what was missing on the way
    snapshot_id: str | None = None  # where memories came from
    store: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "parts": [part.to_json() for part in self.parts],
            "degraded": [reason._asdict() for reason in self.degraded],
            "warnings": [warning.to_json() for warning in self.warnings],
        }


# ContextProfile: every constant of an assembly with its default, and the profiles with a name.


@dataclass(frozen=True, slots=True)
class ContextProfile:
    """How one context is assembled: immutable, validated as a whole.

    Sections are those of the libravdb mathematics.
    """

    name: str = "default"
    coarse_depth: int = 16  # k1 of 7.4, candidates of the first pass, >= 1
    coarse_threshold: float = 0.2  # theta1 of 7.4, its least similarity, in [-1, 1]
    keyword_gain: float = 0.3  # kappa of 7.5, >= 0; more punishes what lacks the query's words
    final_depth: int = 8  # k2 of 7.5, what the second pass keeps, in [1, coarse_depth]
    hop_decay: float = 0.5  # eta_hop of 7.7, in (0, 1): a hop target's share of its parent's score
    hop_threshold: float = 0.15  # theta_hop of 7.7, in [0, 1]: least score of a hop target
    authority_recency_weight: float = 0.5  # alpha_r of 7.3; the three are scaled to sum to 1
    authority_frequency_weight: float = 0.2  # alpha_f of 7.3
    authority_authored_weight: float = 0.3  # alpha_a of 7.3
    authority_decay_per_s: float = 1e-5  # lambda_r of 7.3; 1e-5 halves every 19 hours
    # Least factor that authority multiplies with, in [0, 1]. 0 is the reference: a memory that
    # nobody recalls or wrote by hand keeps 0.1 % of its score after a week.
    authority_floor: float = 0.5
    hard_fraction: float = 0.0  # alpha1 of 7.8, share of the budget for hard nodes; 0: no limit
    soft_fraction: float = 0.3  # alpha2 of 7.8, share of the budget for soft nodes
    tail_target_tokens: int = 128  # recent turns to aim at; more leaves less for memories
    min_tail_turns: int = 4  # m, the last turns that are always there; they win over the target

    def __post_init__(self) -> None:
        faults = _faults(self)
        if faults:
            raise ValueError("; ".join(faults))

    def retrieval(self) -> RetrievalProfile:
        """Return the ranking of memories by the same two passes: everything else is off."""
        return _retrieval(self)


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
    """Return a profile by its name, or the one given; a `ValueError` where none has that name."""
    if isinstance(profile, ContextProfile):
        return profile
    known = PROFILES.get(profile)
    if known is None:
        names = ", ".join(PROFILES)
        raise ValueError(f"profile must be one of {names} or a ContextProfile, found {profile!r}")
    return known
