"""What an abstractive summarizer is shown of the session before a cluster.

What belongs here: the choice of earlier summaries within a token budget. What does not: prompts.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from noctuary.compact.clusters import Cluster
from noctuary.compact.summary import Summary

CONTEXT_TOKENS = 96
"""Estimated tokens of earlier summaries per request. More ties a summary closer to what came before
and invites a model to repeat it; the reference's default (research/peers.md 1.7)."""

_SESSIONS = 1024
"""Sessions remembered. Batches come session by session, so that one would do; more forgive a batch
that interleaves a few."""

_Key = tuple[str | None, str, str | None]


class Earlier(NamedTuple):
    """An accepted summary that a later cluster of its session may be shown."""

    summary_id: str
    text: str
    tokens: int


class SessionContext:
    """The newest accepted summaries of each session that fit into CONTEXT_TOKENS.

    One object serves a whole night. Clusters of a session must be remembered oldest first, or a
    summary would be shown what comes after it.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[_Key, list[Earlier]] = OrderedDict()

    def before(self, cluster: Cluster) -> tuple[Earlier, ...]:
        """Return what the next cluster of a session is shown, oldest first; often nothing.

        Never anything of another user, session or wing.
        """
        return tuple(self._sessions.get((cluster.user, cluster.session_id, cluster.wing), ()))

    def remember(self, summary: Summary) -> None:
        """Take in a session's next summary; one that is not accepted is passed over.

        The newest that fit are kept without gaps: one that is too long for the budget hides all
        before it.
        """
        if summary.status != "accepted":
            return
        key = summary.user, summary.session_id, summary.wing
        kept = self._sessions.pop(key, [])
        kept.append(Earlier(summary.summary_id, summary.text, summary.summary_tokens))
        while kept and sum(earlier.tokens for earlier in kept) > CONTEXT_TOKENS:
            kept.pop(0)
        self._sessions[key] = kept
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
