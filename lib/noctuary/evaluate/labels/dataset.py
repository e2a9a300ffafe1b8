"""A labelled set: a folder with a corpus, its queries and what else there is to judge by.

| file | holds |
|---|---|
| `corpus.jsonl` or `corpus.jsonl.gz` | one memory a line, with its `id` |
| `queries.jsonl` | one labelled query a line |
| `adversarial.jsonl` (optional) | queries that the corpus does not answer |
| `qrels.jsonl` (optional) | further judgements, grades of 0 included |

What belongs here: loading, with file and line of every fault. What does not: running or scoring.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noctuary.errors import CorpusFileError, LineFault, SourceFormatError, SourceMissingError
from noctuary.evaluate.labels.faults import FaultKind, LineError, query_file_error
from noctuary.evaluate.labels.lines import parse_object, read_id, read_lines
from noctuary.evaluate.labels.qrels import Qrels, read_qrels
from noctuary.evaluate.labels.queries import (
    Query,
    QuerySet,
    group_queries,
    read_numbered_queries,
)

CORPUS_FILES = ("corpus.jsonl.gz", "corpus.jsonl")
QUERIES_FILE = "queries.jsonl"
ADVERSARIAL_FILE = "adversarial.jsonl"
QRELS_FILE = "qrels.jsonl"


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """A set whose every label is an id of its corpus.

    Attributes:
        name: The folder's name.
        corpus_ids: Ids of the corpus, as text.
        queries: The labelled queries; those of the same file without an answer are apart.
        adversarial: Queries of the file of its own that the corpus does not answer.
        qrels: Further judgements; empty if there is no such file.
    """

    name: str
    corpus_ids: frozenset[str]
    queries: QuerySet
    adversarial: tuple[Query, ...] = ()
    qrels: Qrels = field(default_factory=dict[str, dict[str, int]])

    @property
    def unanswerable(self) -> tuple[Query, ...]:
        """Every query without an answer, of both files."""
        return (*self.queries.unanswerable, *self.adversarial)


def load_labelled_set(directory: Path) -> LabelledSet:
    """Load a set and check that its files agree with each other.

    Args:
        directory: The set's folder.

    Raises:
        SourceMissingError: If the folder, its corpus or its queries are missing.
        SourceFormatError: If there are two corpora.
        CorpusFileError: If lines of the corpus are no memories or ids stand twice.
        QueryFileError: If queries have faults, among them labels outside the corpus, adversarial
            queries with labels, and query ids that both files use. See `read_queries`.
        QrelsFileError: If judgements have faults or name unknown queries or memories.
    """
    corpus_ids = frozenset(str(row["id"]) for row in read_corpus_rows(directory))
    queries = [q for _, q in read_numbered_queries(directory / QUERIES_FILE, corpus_ids)]
    query_ids = {q.query_id for q in queries}
    adversarial = _read_adversarial(directory / ADVERSARIAL_FILE, corpus_ids, query_ids)
    query_ids.update(q.query_id for q in adversarial)
    judgements = directory / QRELS_FILE
    return LabelledSet(
        name=directory.absolute().name,
        corpus_ids=corpus_ids,
        queries=group_queries(queries),
        adversarial=adversarial,
        qrels=read_qrels(judgements, query_ids=query_ids, corpus_ids=corpus_ids)
        if judgements.is_file()
        else {},
    )


def find_corpus(directory: Path) -> Path:
    """Return the corpus file of a set's folder.

    Raises:
        SourceMissingError: If the folder or its corpus is missing.
        SourceFormatError: If it holds both forms: they might differ.
    """
    if not directory.is_dir():
        raise SourceMissingError(f"{directory} is no folder; a labelled set is one")
    found = [path for name in CORPUS_FILES if (path := directory / name).is_file()]
    if not found:
        raise SourceMissingError(f"{directory} is no labelled set: it lacks {CORPUS_FILES[0]}")
    if len(found) > 1:
        raise SourceFormatError(f"{directory} holds {' and '.join(CORPUS_FILES)}; keep one of them")
    return found[0]


def read_corpus_rows(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the memories of a set as its file has them, in file order.

    Args:
        directory: The set's folder.

    Raises:
        SourceMissingError: If there is no corpus.
        CorpusFileError: At the end, if lines are no memories, lack an id or repeat one; a file
            without any memory is a fault as well.
    """
    path = find_corpus(directory)
    faults: list[LineFault] = []
    first_line: dict[str, int] = {}
    for number, line in read_lines(path, "corpus", CorpusFileError):
        try:
            row, memory_id = _parse_memory(line)
        except LineError as error:
            faults.append(error.at(number))
            continue
        if memory_id in first_line:
            message = f"duplicate id {memory_id!r} (first on line {first_line[memory_id]})"
            faults.append(LineFault(number, FaultKind.DUPLICATE_MEMORY_ID, message))
            continue
        first_line[memory_id] = number
        yield row
    if not first_line and not faults:
        message = "it holds no memory; expected one JSON object a line"
        faults.append(LineFault(0, FaultKind.EMPTY_FILE, message))
    if faults:
        raise CorpusFileError(path, faults)


def _parse_memory(line: bytes) -> tuple[dict[str, Any], str]:
    row = parse_object(line)
    if "id" not in row:
        raise LineError(FaultKind.MISSING_FIELD, "a memory needs an id, found none")
    memory_id = read_id(row["id"])
    if memory_id is None:
        message = f"id must be an integer or a text, found {row['id']!r}"
        raise LineError(FaultKind.WRONG_TYPE, message)
    if not isinstance(row.get("content"), str):
        message = f"memory {memory_id!r}: content must be a text, found {row.get('content')!r}"
        raise LineError(FaultKind.WRONG_TYPE, message)
    return row, memory_id


def _read_adversarial(
    path: Path, corpus_ids: frozenset[str], taken: Collection[str]
) -> tuple[Query, ...]:
    if not path.is_file():
        return ()
    found = read_numbered_queries(path, corpus_ids)
    faults: list[LineFault] = []
    for number, query in found:
        if query.query_id in taken:
            message = f"query_id {query.query_id!r} is one of {QUERIES_FILE} as well"
            faults.append(LineFault(number, FaultKind.DUPLICATE_QUERY_ID, message))
        if query.relevant_ids:
            message = f"query {query.query_id!r} has labels, but nothing answers what stands here"
            faults.append(LineFault(number, FaultKind.LABELLED_ADVERSARIAL, message))
    if faults:
        raise query_file_error(path, faults)
    return tuple(query for _, query in found)
