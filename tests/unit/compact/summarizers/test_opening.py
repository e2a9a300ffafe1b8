from __future__ import annotations

import numpy as np
import pytest

from noctuary.compact.summaries import recipe_digest, summarize_batch
from noctuary.compact.summarizers import (
    EXTRACTIVE,
    Outcome,
    Refusal,
    Request,
    SentenceSummarizer,
    open_summarizer,
)
from noctuary.core.settings import CompactionSettings
from tests.support.clusters import Bag, cluster_text

LLM = CompactionSettings(summarizer="llm", llm_url="http://127.0.0.1:9/v1", llm_model="m")


def test_sentences_are_the_default_and_the_extractive_one_can_be_had() -> None:
    assert open_summarizer(CompactionSettings()) == SentenceSummarizer()
    assert open_summarizer(CompactionSettings(summarizer="extractive")) is EXTRACTIVE


def test_the_configured_one_is_opened() -> None:
    assert open_summarizer(LLM).name == "llm"


@pytest.mark.parametrize(
    ("settings", "detail"),
    [
        (LLM._replace(llm_url="ftp://nowhere"), "http://"),
        (LLM._replace(api_key_variable="NOCTUARY_TEST_NO_SUCH_KEY"), "NOCTUARY_TEST_NO_SUCH_KEY"),
    ],
    ids=["address", "key"],
)
def test_what_is_set_up_wrongly_refuses_and_the_night_goes_on(
    settings: CompactionSettings, detail: str
) -> None:
    summarizer = open_summarizer(settings)
    refused = summarizer.write(Request("c", ["a", "b"], np.ones((2, 2))), 0.4)
    assert isinstance(refused, Refusal)
    assert refused.outcome is Outcome.UNAVAILABLE
    assert detail in refused.detail
    result = summarize_batch([cluster_text("c", 0, 1, 2, 3)], Bag(), summarizer=summarizer)
    assert result.summaries[0].status == "accepted"
    assert result.summaries[0].fallback == "unavailable"


def test_without_its_key_earlier_summaries_are_still_used() -> None:
    wrong = open_summarizer(LLM._replace(api_key_variable="NOCTUARY_TEST_NO_SUCH_KEY"))
    right = open_summarizer(LLM)
    assert recipe_digest("e", summarizer=wrong) == recipe_digest("e", summarizer=right)
    assert wrong.uses_context == right.uses_context
