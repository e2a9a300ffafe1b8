"""The seq2seq summarizer with a tiny T5 of random weights, built and saved here."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact.summaries import summarize_batch
from noctuary.compact.summarizers import (
    PREFIX,
    Decoder,
    Draft,
    Outcome,
    Refusal,
    Request,
    Seq2SeqSummarizer,
    mean_probability,
    pack,
)
from tests.support.clusters import CONTENTS, Bag, cluster_text

MAX_INPUT = 24


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5 of one layer over the words of CONTENTS."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    words = sorted({word for text in (*CONTENTS, PREFIX) for word in text.split()})
    vocabulary = {w: i for i, w in enumerate(["<pad>", "</s>", "<unk>", *words])}
    raw: Any = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
        model_max_length=MAX_INPUT,
    )  # fmt: skip
    torch.manual_seed(3)
    sizes: Any = T5Config
    config = sizes(
        vocab_size=len(vocabulary), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2,
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, n_positions=MAX_INPUT,
        tie_word_embeddings=False,
    )  # fmt: skip
    directory = tmp_path_factory.mktemp("t5")
    made = T5ForConditionalGeneration(config)
    with torch.no_grad():
        # Special tokens score 0, so that some word is always likelier and something is written.
        made.lm_head.weight[:3] = 0.0
    made.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def request(*texts: str) -> Request:
    return Request("c", texts, np.ones((len(texts), 2)))


def test_a_draft_is_the_models_own_and_the_same_every_time(model: Path) -> None:
    found = Seq2SeqSummarizer(str(model)).write(request(*CONTENTS), 0.4)
    again = Seq2SeqSummarizer(str(model)).write(request(*CONTENTS), 0.4)
    assert isinstance(found, Draft)
    assert isinstance(again, Draft)
    assert found.text == again.text != ""
    assert found.raw_confidence == again.raw_confidence
    assert found.raw_confidence is not None
    assert 0.0 < found.raw_confidence < 1.0


def test_the_confidence_is_that_of_a_forward_pass_over_the_same_tokens(model: Path) -> None:
    """A naive twin: the decoder is run once over what greedy decoding chose."""
    import torch

    decoder = Decoder.open(str(model))
    text, logs = decoder.decode(PREFIX + CONTENTS[0], 6)
    inputs = decoder.tokenizer(PREFIX + CONTENTS[0], return_tensors="pt")
    with torch.inference_mode():
        out = decoder.model.generate(**inputs, max_new_tokens=6, do_sample=False)
        scores = decoder.model(
            input_ids=inputs["input_ids"], decoder_input_ids=out[:, :-1]
        ).logits.log_softmax(-1)
        naive = scores[0].gather(1, out[0, 1:, None])[:, 0].tolist()
    assert logs == pytest.approx(naive, abs=1e-4)
    assert mean_probability(logs) == pytest.approx(math.exp(sum(naive) / len(naive)), abs=1e-4)
    assert len(logs) <= 6
    assert text == " ".join(text.split())


def test_a_cluster_longer_than_the_input_is_read_piece_by_piece(model: Path) -> None:
    decoder = Decoder.open(str(model))
    assert decoder.max_input == MAX_INPUT
    writer = Seq2SeqSummarizer(str(model))
    short = writer.write(request(*CONTENTS[:2]), 0.4)
    long = writer.write(request(*CONTENTS * 3), 0.4)
    assert isinstance(short, Draft)
    assert isinstance(long, Draft)
    assert len(long.text.split()) > len(short.text.split())


def test_a_night_with_a_model_of_random_weights_has_its_summaries(model: Path) -> None:
    result = summarize_batch(
        [cluster_text("c", 0, 1, 2, 3)], Bag(), summarizer=Seq2SeqSummarizer(str(model))
    )
    (summary,) = result.summaries
    assert summary.status == "accepted"
    assert summary.method.startswith("extractive") == bool(summary.fallback)
    assert len(result.attempts) >= bool(summary.fallback)


@pytest.mark.parametrize("what", ["nothing", "an empty directory", "damaged weights"])
def test_a_model_that_cannot_be_loaded_refuses_every_request(
    tmp_path: Path, model: Path, what: str
) -> None:
    directory = tmp_path / "model"
    if what != "nothing":
        directory.mkdir()
    if what == "damaged weights":
        for path in model.iterdir():
            (directory / path.name).write_bytes(path.read_bytes()[:200])
    writer = Seq2SeqSummarizer(str(directory))
    found = [writer.write(request(*texts), 0.4) for texts in ("ab", "cd")]
    assert [isinstance(f, Refusal) and f.outcome for f in found] == [Outcome.UNAVAILABLE] * 2


def test_other_weights_are_another_recipe(model: Path, tmp_path: Path) -> None:
    recipe = Seq2SeqSummarizer(str(model)).recipe
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in model.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert Seq2SeqSummarizer(str(copy)).recipe["weights"] == recipe["weights"]
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    assert Seq2SeqSummarizer(str(copy)).recipe["weights"] != recipe["weights"]


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(1, 40))
def test_pieces_hold_every_turn_once_and_fit(counts: list[int], room: int) -> None:
    texts = [f"t{i}" for i in range(len(counts))]
    pieces = pack(texts, counts, room)
    assert " ".join(text for text, _ in pieces).split() == texts
    assert all(tokens <= room for _, tokens in pieces)


@given(st.lists(st.floats(-50, 0), max_size=9))
def test_a_mean_probability_stays_in_range(logs: list[float]) -> None:
    value = mean_probability(logs)
    assert (value is None) == (not logs)
    assert value is None or math.exp(min(logs)) - 1e-9 <= value <= 1.0
