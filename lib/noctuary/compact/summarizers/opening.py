"""Which summarizer the settings ask for, and what stands in where it cannot be had.

What belongs here: the choice. What does not: the summarizers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from noctuary.compact.attempts import Outcome
from noctuary.compact.extractive import EXTRACTIVE
from noctuary.compact.summarizers.base import Draft, Refusal, Request, Summarizer
from noctuary.compact.summarizers.endpoint import EndpointSummarizer, endpoint_recipe
from noctuary.compact.summarizers.sentences import SentenceSummarizer
from noctuary.compact.summarizers.seq2seq import Seq2SeqSummarizer
from noctuary.errors import ConfigError
from noctuary.hashing import JsonValue
from noctuary.hosted.endpoint import Endpoint
from noctuary.settings import CompactionSettings
from noctuary.settings.api_key import read_api_key


@dataclass(frozen=True, slots=True)
class UnavailableSummarizer:
    """Refuses everything: the configured summarizer is set up wrongly, and the night goes on.

    Attributes:
        name: Of the summarizer it stands for.
        recipe: Likewise, so that what that one wrote on earlier nights is used again.
        uses_context: Likewise.
        detail: What is wrong.
    """

    name: str
    recipe: Mapping[str, JsonValue]
    uses_context: bool
    detail: str

    @property
    def densities(self) -> tuple[float, float]:
        """Return those of the extractive summarizer, which stands in."""
        return EXTRACTIVE.densities

    def drafts(
        self, requests: Sequence[Request], *, density: float, aggressive: bool = False
    ) -> list[Draft | Refusal]:
        """Refuse every request."""
        return [Refusal(Outcome.UNAVAILABLE, self.detail)] * len(requests)


def open_summarizer(settings: CompactionSettings) -> Summarizer:
    """Return the configured summarizer; never raises and loads no model yet.

    A wrong address, a key that is not set, a model that cannot be loaded: such a summarizer
    refuses every request with Outcome.UNAVAILABLE, and the extractive one stands in for it.
    """
    if settings.summarizer == "llm":
        try:
            key = read_api_key(settings.api_key_variable, "compaction.api_key_variable")
            endpoint = Endpoint(settings.llm_url, settings.llm_model, key)
        except (ConfigError, ValueError) as error:
            recipe = endpoint_recipe(settings.llm_model, settings.include_named_users)
            return UnavailableSummarizer("llm", recipe, True, f"compaction.llm_*: {error}")
        return EndpointSummarizer(endpoint, settings.include_named_users)
    if settings.summarizer == "seq2seq":
        return Seq2SeqSummarizer(settings.seq2seq_model)
    return EXTRACTIVE if settings.summarizer == EXTRACTIVE.name else SentenceSummarizer()
