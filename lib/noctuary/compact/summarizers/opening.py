"""Which summarizer the settings ask for; nothing is loaded or asked yet, and nothing raises.

One that is set up wrongly refuses every request with Outcome.UNAVAILABLE, and the extractive one
stands in for it.
"""

from __future__ import annotations

from noctuary.compact.extractive import EXTRACTIVE
from noctuary.compact.summarizers.base import Summarizer
from noctuary.compact.summarizers.endpoint import EndpointSummarizer
from noctuary.compact.summarizers.sentences import SentenceSummarizer
from noctuary.compact.summarizers.seq2seq import Seq2SeqSummarizer
from noctuary.settings import CompactionSettings


def open_summarizer(settings: CompactionSettings) -> Summarizer:
    """Return the configured summarizer."""
    if settings.summarizer == "llm":
        return EndpointSummarizer.open(settings)
    if settings.summarizer == "seq2seq":
        return Seq2SeqSummarizer(settings.seq2seq_model)
    return EXTRACTIVE if settings.summarizer == EXTRACTIVE.name else SentenceSummarizer()
