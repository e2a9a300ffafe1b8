"""Stage lexical_index: tokens kept per memory, postings rebuilt when the corpus changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from noctuary.corpus.columns import count_rows
from noctuary.files import read_array, remove_tree, write_array, write_text
from noctuary.lexical.counting import CountTerms
from noctuary.lexical.merging import merge_postings
from noctuary.lexical.postings import Postings
from noctuary.lexical.tokenizing import TOKENS_KIND, TokenizeMemories, iter_keyed
from noctuary.night.context import MEMORIES, POSTING_ARRAYS, POSTING_TERMS, Night
from noctuary.night.corpus import CORPUS
from noctuary.shards.files import list_shards
from noctuary.shards.filling import fill
from noctuary.shards.fragment_store import KEY, FragmentStore
from noctuary.shards.task import RecordBatch
from noctuary.text.tokens import TOKENIZER_VERSION
from noctuary.work.stage import Stage, StageResult

LEXICAL_INDEX = Stage("lexical_index", "1", (POSTING_TERMS, *POSTING_ARRAYS))


def index_memories(night: Night) -> StageResult:
    """Build the BM25 postings of the corpus."""
    corpus = night.result_of(CORPUS)
    counts = {"computed": 0}

    def body() -> tuple[int, dict[str, Any]]:
        tokens = night.fragments(TOKENS_KIND)
        task, rows = TokenizeMemories(), count_rows(night.work(MEMORIES))
        counts["computed"] = fill(
            tokens,
            iter_keyed(night.work(MEMORIES)),
            task,
            night.runner(),
            night.shards(task.name),
            night.progress,
        ).computed
        postings = _count_and_merge(night, tokens, rows)
        write_text(night.work(POSTING_TERMS), json.dumps(postings.terms, ensure_ascii=False))
        arrays = (postings.starts, postings.positions, postings.scores)
        for name, array in zip(POSTING_ARRAYS, arrays, strict=True):
            write_array(night.work(name), array)
        held = np.zeros(rows, dtype=np.bool_)
        held[postings.positions] = True
        return rows, {
            "terms": len(postings.terms),
            "postings": int(postings.positions.size),
            "memories_without_tokens": rows - int(held.sum()),
        }

    result = night.run(
        LEXICAL_INDEX, {"corpus": corpus.digest, "tokenizer": str(TOKENIZER_VERSION)}, body
    )
    return night.finish(result.with_notes(texts_tokenized=counts["computed"]))


def load_postings(night: Night) -> Postings:
    """Read the postings that the stage wrote."""
    starts, positions, scores = (read_array(night.work(name)) for name in POSTING_ARRAYS)
    return Postings(
        terms=json.loads(night.work(POSTING_TERMS).read_text(encoding="utf-8")),
        starts=starts,
        positions=positions,
        scores=scores,
        n_memories=night.result_of(LEXICAL_INDEX).rows,
    )


def _count_and_merge(night: Night, tokens: FragmentStore, rows: int) -> Postings:
    """Count terms shard by shard and join what was counted; the parts are kept for no later run."""
    task = CountTerms()
    directory = night.shards(task.name)
    remove_tree(directory)
    try:
        shards = list(list_shards(_placed(night, tokens), directory / "tokens", task.name))
        found = night.runner().run(task, shards, directory / "counted", night.progress)
        return merge_postings([fragment.path for fragment in found], rows)
    finally:
        remove_tree(directory)


def _placed(night: Night, tokens: FragmentStore) -> Iterator[RecordBatch]:
    """Yield every memory's position and tokens."""
    import pyarrow as pa

    position = 0
    for batch in iter_keyed(night.work(MEMORIES)):
        values = tokens.take(tokens.find(batch.column(KEY).to_pylist()))
        places = np.arange(position, position + batch.num_rows, dtype=np.int32)
        yield pa.RecordBatch.from_arrays([pa.array(places), values], names=["position", "value"])
        position += batch.num_rows
