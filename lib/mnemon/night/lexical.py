"""Stage lexical_index: tokens memoised per memory, postings rebuilt when the corpus changed."""

from __future__ import annotations

import json
from typing import Any

from mnemon.corpus.export import read_records
from mnemon.files import read_array, write_array, write_text
from mnemon.hashing import hash_text
from mnemon.lexical.fields import document_tokens
from mnemon.lexical.postings import Postings, build_postings
from mnemon.night.context import MEMORIES, POSTING_ARRAYS, POSTING_TERMS, Night
from mnemon.night.corpus import CORPUS
from mnemon.text.tokens import TOKENIZER_VERSION, decode_tokens, encode_tokens
from mnemon.types import MemoryRecord
from mnemon.work.memo import Memo
from mnemon.work.stage import Stage, StageResult

LEXICAL_INDEX = Stage("lexical_index", "1", (POSTING_TERMS, *POSTING_ARRAYS))
TOKENS_KIND = f"tokens:{TOKENIZER_VERSION}"


def tokens_key(record: MemoryRecord) -> str:
    """Return the memo key of a memory's tokens: a hash of the fields that are indexed."""
    return hash_text(record.content, record.tags, record.expanded_keywords, record.category)


def index_memories(night: Night) -> StageResult:
    """Build the BM25 postings of the corpus."""
    corpus = night.result_of(CORPUS)
    counts = {"computed": 0}

    def body() -> tuple[int, dict[str, Any]]:
        records = read_records(night.work(MEMORIES))
        documents, counts["computed"] = _tokenize(night, records)
        postings = build_postings(documents)
        write_text(night.work(POSTING_TERMS), json.dumps(postings.terms, ensure_ascii=False))
        arrays = (postings.starts, postings.positions, postings.scores)
        for name, array in zip(POSTING_ARRAYS, arrays, strict=True):
            write_array(night.work(name), array)
        empty = sum(not tokens for tokens in documents)
        return len(records), {
            "terms": len(postings.terms),
            "postings": int(postings.positions.size),
            "memories_without_tokens": empty,
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


def _tokenize(night: Night, records: list[MemoryRecord]) -> tuple[list[list[str]], int]:
    keys = [tokens_key(r) for r in records]
    with Memo.open(night.paths.memo) as memo:
        known = memo.get_many(TOKENS_KIND, keys)
        fresh: dict[str, bytes] = {}
        for key, r in zip(keys, records, strict=True):
            if key not in known and key not in fresh:
                tokens = document_tokens(r.content, r.tags, r.expanded_keywords, r.category)
                fresh[key] = encode_tokens(tokens)
        memo.put_many(TOKENS_KIND, fresh)
    return [decode_tokens(known[k] if k in known else fresh[k]) for k in keys], len(fresh)
