"""Judgements (qrels): which memory was judged for which query, and how it was graded.

What belongs here: the two file formats. What does not: agreement, pooling, metrics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from noctuary.errors import LineFault, QrelsFileError
from noctuary.evaluate.labels.faults import FaultKind, LineError
from noctuary.evaluate.labels.lines import (
    parse_object,
    read_grades,
    read_ids,
    read_lines,
    read_text,
)
from noctuary.evaluate.labels.queries import UNGRADED, Query

Qrels = Mapping[str, Mapping[str, int]]
"""Grade per memory id, per query id. Grade 0 means judged and found not relevant; what is absent
was not judged."""

NOT_RELEVANT = 0
_TREC_FIELDS = 4
_FORMS = (
    'expected {"query_id", "relevant_ids"}, {"query_id", "grades": {id: grade}} '
    "or the TREC line `query_id 0 memory_id grade`"
)


def read_qrels(
    path: Path,
    *,
    query_ids: Collection[str] | None = None,
    corpus_ids: Collection[str] | None = None,
) -> Qrels:
    """Read judgements: JSON lines, TREC lines, or both mixed; blank lines are skipped.

    A JSON line gives ids as `relevant_ids` (grade 1 each), as `grades` (integers from 0), or as
    both, where `grades` wins; other keys are ignored, so a queries.jsonl is a qrels file too. A
    query may take several lines. A TREC line is `query_id iteration memory_id grade`; its negative
    grades (spam in some tracks) are read as 0, as trec_eval's gains do.

    Args:
        path: A file, plain or gzip (.gz), UTF-8.
        query_ids: Given, judgements of other queries are faults.
        corpus_ids: Given, judgements of other memories are faults.

    Returns:
        The grades, queries in the order of the file. A query judged to have no answer is there
        with an empty mapping.

    Raises:
        SourceMissingError: If there is no such file.
        QrelsFileError: If it holds nothing, a line is neither form, a grade is no integer, a pair
            is judged twice, or an id is unknown. The message lists the first ten faults.
    """
    judged: dict[str, dict[str, int]] = {}
    faults: list[LineFault] = []
    queries = None if query_ids is None else frozenset(query_ids)
    corpus = None if corpus_ids is None else frozenset(corpus_ids)
    for number, line in read_lines(path, "file of judgements", QrelsFileError):
        try:
            query_id, grades = _parse(line)
        except LineError as error:
            faults.append(error.at(number))
            continue
        known = judged.setdefault(query_id, {})
        found = _clashes(query_id, grades, known, queries, corpus)
        faults.extend(error.at(number) for error in found)
        known.update(grades)
    if not judged and not faults:
        faults.append(LineFault(0, FaultKind.EMPTY_FILE, f"it holds no judgement; {_FORMS}"))
    if faults:
        raise QrelsFileError(path, faults)
    return judged


def qrels_of(queries: Sequence[Query]) -> Qrels:
    """Return the labels of queries as judgements: what is not relevant there was not judged."""
    return {
        q.query_id: dict(q.grades) if q.grades else dict.fromkeys(q.relevant_ids, UNGRADED)
        for q in queries
    }


def _parse(line: bytes) -> tuple[str, dict[str, int]]:
    return _parse_json(line) if line.lstrip().startswith((b"{", b"[")) else _parse_trec(line)


def _parse_json(line: bytes) -> tuple[str, dict[str, int]]:
    row: Mapping[str, Any] = parse_object(line)
    query_id = read_text(row, "query_id")
    where = f"query {query_id!r}"
    given = row.get("grades")
    if given is None and row.get("relevant_ids") is None:
        message = f"{where} has neither relevant_ids nor grades; {_FORMS}"
        raise LineError(FaultKind.UNLABELLED_QUERY, message)
    ids = () if row.get("relevant_ids") is None else read_ids(row["relevant_ids"], where)
    grades = {} if given is None else read_grades(given, NOT_RELEVANT, where)
    return query_id, {**dict.fromkeys(ids, UNGRADED), **grades}


def _parse_trec(line: bytes) -> tuple[str, dict[str, int]]:
    try:
        fields = line.decode("utf-8").split()
    except UnicodeDecodeError as error:
        raise LineError(FaultKind.NOT_UTF8, f"not UTF-8 text ({error.reason})") from error
    if len(fields) != _TREC_FIELDS:
        message = f"found {len(fields)} fields; {_FORMS}"
        raise LineError(FaultKind.HALF_WRITTEN_LINE, message)
    query_id, _, memory_id, text = fields
    try:
        grade = int(text)
    except ValueError as error:
        raise LineError(
            FaultKind.BAD_GRADE, f"the grade must be an integer, found {text!r}"
        ) from error
    return query_id, {memory_id: max(grade, NOT_RELEVANT)}


def _clashes(
    query_id: str,
    grades: Mapping[str, int],
    known: Mapping[str, int],
    queries: frozenset[str] | None,
    corpus: frozenset[str] | None,
) -> list[LineError]:
    found: list[LineError] = []
    if queries is not None and query_id not in queries:
        found.append(LineError(FaultKind.UNKNOWN_QUERY, f"there is no query {query_id!r}"))
    for memory_id in grades:
        if memory_id in known:
            message = f"{memory_id!r} is judged twice for query {query_id!r}"
            found.append(LineError(FaultKind.DUPLICATE_JUDGEMENT, message))
        if corpus is not None and memory_id not in corpus:
            message = f"query {query_id!r} judges {memory_id!r}, which the corpus lacks"
            found.append(LineError(FaultKind.UNKNOWN_LABEL, message))
    return found
