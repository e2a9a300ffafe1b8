"""Texts of many memories searched for dictionary names, as a task over record batches.

What belongs here: the task, its input and output, and running it in this process. What does not:
matching one text (`noctuary.graph.dictionary`), which texts are searched (`sync`), other processes
(`noctuary.night.name_search`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from noctuary.files import write_text
from noctuary.graph.dictionary import Dictionary, Tokens, index_dictionary
from noctuary.graph.state.rows import TextRows
from noctuary.graph.tables import ArrowTable
from noctuary.shards.task import BatchFunction, RecordBatch

SEARCH_ROW_MS = 0.06
"""About what one text of 200 characters takes on one core."""


class TextSearch(Protocol):
    """Whoever searches many texts."""

    def __call__(
        self, names: Mapping[str, bool], texts: Iterator[RecordBatch], count: int, *, words: bool
    ) -> Iterator[RecordBatch]:
        """Yield what is found, as `search_texts` gives it; read as slowly as it is asked for.

        Args:
            names: By folded name, whether a mention must show a capital or a digit.
            texts: Batches of `mid`, `content` and `own`, the folded names of the text's subjects.
            count: About how many texts there are.
            words: Whether the words of each text are wanted as well.
        """
        ...


@dataclass(frozen=True, slots=True)
class SearchTexts:
    """The task. Its results rest on the dictionary, so that the salt of its shards must name it.

    Attributes:
        dictionary: A file that `write_dictionary` wrote.
        words: Whether the words of each text are wanted as well.
    """

    dictionary: Path
    words: bool

    @property
    def name(self) -> str:
        """See `BatchTask`."""
        return "search_texts"

    @property
    def row_ms(self) -> float:
        """See `BatchTask`."""
        return SEARCH_ROW_MS

    def open(self, threads: int) -> BatchFunction:
        """See `BatchTask`; one thread is used."""
        del threads
        names = json.loads(self.dictionary.read_text(encoding="utf-8"))
        dictionary = index_dictionary(names, {})
        return lambda texts: search_texts(texts, dictionary, words=self.words)


def write_dictionary(names: Mapping[str, bool], path: Path) -> None:
    """Write names and their case rules to where every worker reads them."""
    write_text(path, json.dumps(dict(sorted(names.items())), ensure_ascii=False))


def search_here(
    names: Mapping[str, bool], texts: Iterator[RecordBatch], count: int, *, words: bool
) -> Iterator[RecordBatch]:
    """Search in this process; see `TextSearch`."""
    del count
    dictionary = index_dictionary(names, {})
    for batch in texts:
        yield search_texts(batch, dictionary, words=words)


def search_texts(texts: RecordBatch, dictionary: Dictionary, *, words: bool) -> RecordBatch:
    """Return one row whose columns are the state's tables `word`, `matched` and `declined`.

    Each is a list of rows, so that a batch may give as many of each as there are.

    Args:
        texts: `mid`, `content` and `own`.
        dictionary: The names.
        words: Whether `word` is filled.
    """
    rows = TextRows()
    mids, contents, own = (texts.column(name).to_pylist() for name in ("mid", "content", "own"))
    for mid, content, subjects in zip(mids, contents, own, strict=True):
        tokens = Tokens(content)
        rows.add_matches(mid, content, tokens, dictionary, frozenset(subjects))
        if words:
            rows.add_words(mid, tokens)
    return pack_tables(rows.tables())


def pack_tables(tables: Mapping[str, ArrowTable]) -> RecordBatch:
    """Return one row that holds whole tables, a column each."""
    import pyarrow as pa

    lists = {}
    for name, table in tables.items():
        rows = table.combine_chunks().to_struct_array()
        rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
        lists[name] = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)
    return pa.record_batch(lists)


def unpack_tables(packed: RecordBatch) -> dict[str, ArrowTable]:
    """Return the tables that `pack_tables` put in each row, those of one name together."""
    import pyarrow as pa

    return {name: _table_of(packed.column(name), pa) for name in packed.schema.names}


def _table_of(column: Any, pa: Any) -> ArrowTable:
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(column.flatten())])
