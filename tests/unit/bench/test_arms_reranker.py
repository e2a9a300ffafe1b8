from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.arms import SetContext, list_arms
from bench.arms.reranker import RERANKED
from tests.support.arms import ask, build_context, ids, records

TEXT = "the cat and the ladder"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> SetContext:
    made = build_context(tmp_path_factory.mktemp("reranked"), records())
    return replace(made, reranker=str(write_cross_encoder(tmp_path_factory.mktemp("model"))))


def write_cross_encoder(directory: Path) -> Path:
    """Write a cross-encoder of one tiny layer with random weights."""
    import torch

    # Loaded by name: it ships no types that a checker could follow.
    transformers: Any = importlib.import_module("transformers")
    words = ["cat", "feline", "ladder", "lantern", "payment", "trip", "walnut", "saddle", "number"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    torch.manual_seed(5)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16, max_position_embeddings=64, num_labels=1,
        initializer_range=1.0,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(directory)
    transformers.BertTokenizerFast(vocab=vocabulary).save_pretrained(directory)
    return directory


def test_the_head_is_ordered_by_the_cross_encoder_and_the_tail_kept(context: SetContext) -> None:
    from sentence_transformers import CrossEncoder

    arms = {arm.name: arm for arm in list_arms(context)}
    base = ids(arms["noctuary"].make(), ask(TEXT), 50)
    hits = arms["reranker"].make().retrieve_hits(ask(TEXT), 50)
    content = {str(row["id"]): row["content"] for row in context.rows}
    assert context.reranker is not None
    model = CrossEncoder(context.reranker, local_files_only=True)
    scores = model.predict([(TEXT, content[i]) for i in base[:RERANKED]])
    expected = dict(zip(base, [float(s) for s in scores], strict=False))
    assert dict(hits[:RERANKED]) == pytest.approx(expected)
    found = [i for i, _ in hits]
    assert found[:RERANKED] != base[:RERANKED]
    assert found[RERANKED:] == base[RERANKED:]
    values = [score for _, score in hits]
    assert values == sorted(values, reverse=True)
    assert found[:3] == ids(arms["reranker"].make(), ask(TEXT), 3)
    assert arms["reranker"].make().retrieve_hits(ask(TEXT), 0) == []
