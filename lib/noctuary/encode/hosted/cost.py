"""What embedding costs: estimated before anything is sent, counted as it is answered.

What belongs here: tokens, money, the budget of a night. What does not: who pays, or what is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from noctuary.encode.hosted.faults import BudgetError

_PIECE = re.compile(r"[A-Za-z]{1,5}|[0-9]{1,2}|[^\W\d_A-Za-z\u2e80-\u9fff\uac00-\ud7ff]{1,2}|\S")
"""What counts as one token: five Latin letters, two digits or two letters of another alphabet, else
one character that is no space. This is 1.08 times WordPiece's tokens of prose, of code and of
Markdown alike; the usual four characters per token are 0.85, 0.92 and 0.63 times
(docs/encoders.md). Longer pieces let nights begin that end at the budget."""

_CONTROL_TOKENS = 2

_MILLION = 1_000_000


class Estimate(NamedTuple):
    """What embedding some texts will cost, about.

    Attributes:
        texts: How many.
        tokens: Of all of them.
        usd: At the price in force.
    """

    texts: int
    tokens: int
    usd: float


def estimate_cost(texts: Iterable[str], usd_per_million_tokens: float, max_tokens: int) -> Estimate:
    """Return what embedding texts will cost.

    Args:
        texts: As they will be sent.
        usd_per_million_tokens: At least 0.
        max_tokens: Of one text that the model reads, and that is paid for.
    """
    each = [min(count_pieces(text) + _CONTROL_TOKENS, max_tokens) for text in texts]
    tokens = sum(each)
    return Estimate(len(each), tokens, tokens / _MILLION * usd_per_million_tokens)


def count_pieces(text: str) -> int:
    """Return about how many tokens a text has for a tokenizer that nobody has here; at least 0.

    Not `noctuary.text.token_estimate`, which keeps the ratios of its reference.
    """
    return sum(1 for _ in _PIECE.finditer(text))


@dataclass
class Spending:
    """What one night spends on vectors, over all of its stages.

    Attributes:
        budget_usd: What it may cost, at least 0.
        usd_per_million_tokens: The price, at least 0.
        texts: Sent and answered.
        tokens: Paid for, as the provider counts them; estimated where it does not say.
        estimated_tokens: Of all that was let through.
        requests: Answered.
    """

    budget_usd: float
    usd_per_million_tokens: float
    texts: int = 0
    tokens: int = 0
    estimated_tokens: int = 0
    requests: int = 0

    @property
    def usd(self) -> float:
        """What was spent so far."""
        return self.tokens / _MILLION * self.usd_per_million_tokens

    @property
    def estimated_usd(self) -> float:
        """What all that was let through was estimated to cost."""
        return self.estimated_tokens / _MILLION * self.usd_per_million_tokens

    def allow(self, estimate: Estimate) -> None:
        """Let a piece of work begin.

        Raises:
            BudgetError: With it, the night would cost more than its budget.
        """
        if self.budget_usd <= 0 or self.usd + estimate.usd > self.budget_usd:
            raise BudgetError(
                f"embedding {estimate.texts:,} texts takes about {estimate.tokens:,} tokens and "
                f"{_dollars(estimate.usd)}; {_dollars(self.usd)} of the night's "
                f"{_dollars(self.budget_usd)} are spent. Nothing more was sent: raise "
                "encoder.budget_usd, or choose a cheaper model."
            )
        self.estimated_tokens += estimate.tokens

    def pay(self, texts: int, tokens: int) -> None:
        """Count an answered request."""
        self.texts += texts
        self.tokens += tokens
        self.requests += 1

    def require_left(self, estimate: Estimate) -> None:
        """Refuse the next request of work that turned out dearer than its estimate.

        Raises:
            BudgetError: The budget does not cover it.
        """
        if self.usd + estimate.usd > self.budget_usd:
            raise BudgetError(
                f"{_dollars(self.usd)} of the night's {_dollars(self.budget_usd)} are spent, after "
                f"{self.tokens:,} tokens; the estimate was {self.estimated_tokens:,}. What came is "
                "kept: raise encoder.budget_usd and run the night again."
            )

    def to_notes(self) -> dict[str, int | float]:
        """Return what the night's asset says of it."""
        return {
            "estimated_tokens": self.estimated_tokens,
            "estimated_usd": round(self.estimated_usd, 6),
            "paid_tokens": self.tokens,
            "paid_usd": round(self.usd, 6),
            "requests": self.requests,
        }


def describe_estimate(title: str, estimate: Estimate, spending: Spending) -> str:
    """Return the line that a night shows before it sends anything."""
    return (
        f"{title} is asked for {estimate.texts:,} vectors: about {estimate.tokens:,} tokens, "
        f"{_dollars(estimate.usd)} of {_dollars(spending.budget_usd)} at "
        f"{_dollars(spending.usd_per_million_tokens)} per million tokens"
    )


def _dollars(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.6f}"
