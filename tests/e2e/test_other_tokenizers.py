"""Models whose tokenizer is not WordPiece: a real night with one, and questions answered by it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.cli.doctor import check_serving
from noctuary.core.settings import Settings
from noctuary.embed.onnx import MODEL_FILE
from noctuary.embed.sentence import open_sentence_encoder
from noctuary.recall.inputs import encode_query, forget_queries, text_encoder
from tests.e2e.driver import DONE, FAILED, run, run_night
from tests.e2e.stores import Bench, build_small_source, sample_rows
from tests.support.cross_encoder import require_models

ASK = (
    "import json, sys\n"
    "from noctuary import recall\n"
    "found = recall(sys.argv[1], store=sys.argv[2], dry_run=True)\n"
    "heavy = [n for n in ('torch', 'transformers', 'sentence_transformers') if n in sys.modules]\n"
    "print(json.dumps([[[w.code, w.message] for w in found.warnings], heavy,\n"
    "                  [m.dense is not None for m in found.memories]]))\n"
)
QUESTIONS = (
    "who looks after the heating?",
    "Qui s'occupe du chauffage ? Ünïcödé 我们明天去北京",
    "",
    "two words " * 300,
)


@pytest.fixture(autouse=True)
def _forgotten() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    forget_queries()


def _trained(kind: str, texts: list[str]) -> Any:
    """Return a tokenizer as such models have it, trained on some lines."""
    import tokenizers as tk
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    if kind == "roberta":
        made = tk.Tokenizer(tk.models.BPE(unk_token="<unk>"))
        made.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = tk.pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = tk.trainers.BpeTrainer(
            vocab_size=600, special_tokens=special, initial_alphabet=alphabet
        )
    else:
        made = tk.Tokenizer(tk.models.Unigram())
        made.normalizer = tk.normalizers.NFKC()
        made.pre_tokenizer = tk.pre_tokenizers.Metaspace()
        trainer = tk.trainers.UnigramTrainer(
            vocab_size=600, special_tokens=special, unk_token="<unk>"
        )
    made.train_from_iterator(texts, trainer)
    made.post_processor = tk.processors.TemplateProcessing(
        single="<s> $A </s>",
        special_tokens=[(token, made.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
        cls_token="<s>", sep_token="</s>", mask_token="<mask>", model_max_length=128,
    )  # fmt: skip


def save_model(directory: Path, kind: str, **pooling: Any) -> Path:
    """Save a random model of two thin layers as sentence-transformers folders are laid out."""
    require_models()
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoConfig, AutoModel

    tokenizer = _trained(kind, [row.content for row in sample_rows()])
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    positions = {"num_attention_heads": 4, "max_position_embeddings": 130, "pad_token_id": 1}
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), initializer_range=0.3, **sizes, **positions
    )
    torch.manual_seed(7)
    part = directory.with_name("part")
    AutoModel.from_config(config).save_pretrained(part)
    tokenizer.save_pretrained(part)
    transformer = Transformer(str(part), max_seq_length=128)
    modules = [transformer, Pooling(32, pooling_mode="mean", **pooling)]
    SentenceTransformer(modules=list(modules), device="cpu").save(str(directory))
    shutil.rmtree(part)
    return directory


def ask(bench: Bench, first: str = "") -> Any:
    """Ask in a fresh process: codes of warnings, heavy imports, which memories have a vector."""
    words = [sys.executable, "-c", first + ASK, QUESTIONS[0], str(bench.store)]
    cold = run(words, bench.store.parent)
    assert (cold.code, cold.err) == (0, "")
    return json.loads(cold.out)


@pytest.mark.parametrize("kind", ["xlm-roberta", pytest.param("roberta", marks=pytest.mark.slow)])
def test_questions_are_encoded_as_the_model_itself_would(kind: str, tmp_path: Path) -> None:
    model = save_model(tmp_path / f"tiny-{kind}", kind)
    bench = Bench(build_small_source(tmp_path), tmp_path / "store")
    named = {"NOCTUARY_ENCODER_MODEL": str(model), "NOCTUARY_EVALUATION_ENABLED": "false"}
    ran = run_night(bench.source, bench.store, extra=named)
    assert ran.code == DONE, ran.says

    warnings, heavy, dense = ask(bench)
    assert (warnings, heavy) == ([], [])
    assert any(dense)
    ((code, message),), _, dense = ask(bench, "import sys\nsys.modules['tokenizers'] = None\n")
    assert code == "dense_unavailable"
    assert "pip install onnxruntime tokenizers" in message
    assert dense
    assert not any(dense), "words find what they find"

    forget_queries()
    hurried = bench.ask(QUESTIONS[0], deadline_ms=1)
    assert {w.code for w in hurried.warnings} & {"dense_unavailable", "deadline_dense"}
    warm = bench.ask(QUESTIONS[0])
    assert warm.warnings == ()
    assert any(memory.dense is not None for memory in warm.memories)
    assert bench.ask(QUESTIONS[1], deadline_ms=5_000).warnings == ()

    reference = open_sentence_encoder(str(model)).model
    for question in QUESTIONS:
        expected = reference.encode([question], normalize_embeddings=True)[0]
        found = encode_query(bench.paths, bench.manifest, question)
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert told(bench) == ("ok", f"{model.name}, 32 dimensions, by ONNX Runtime")
    share = text_encoder(bench.paths, bench.manifest).known_share("heating 钥匙")
    assert share == 1.0 if kind == "roberta" else 0.0 < share < 1.0, "bytes are all known"

    (export,) = bench.paths.encoders.glob("*.onnx")
    (export / MODEL_FILE).write_bytes(b"damaged")
    forget_queries()
    assert told(bench)[0] == "fail"
    assert run_night(bench.source, bench.store, extra=named).code == DONE
    assert told(bench)[0] == "ok"


def told(bench: Bench) -> tuple[str, str]:
    found = check_serving(bench.paths, Settings(), is_hooked=False)
    return next((f.level, f.message) for f in found if f.name == "encoder")


def test_a_model_that_nothing_reads_is_refused_before_anything_is_embedded(tmp_path: Path) -> None:
    model = save_model(tmp_path / "odd", "xlm-roberta", include_prompt=False)
    store = tmp_path / "store"
    ran = run_night(
        build_small_source(tmp_path), store, extra={"NOCTUARY_ENCODER_MODEL": str(model)}
    )
    assert ran.code == FAILED
    assert "nothing could encode a question for it" in ran.report["message"]
    assert "leaves the tokens of its prompt out" in ran.report["message"]
    assert not (store / "work" / "vectors").exists()
    assert not (store / "CURRENT").exists()
