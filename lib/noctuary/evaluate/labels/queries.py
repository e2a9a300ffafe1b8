"""Labelled queries and their reader (queries.jsonl).

What belongs here: the format and its faults. No metric, no retrieval.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from noctuary.errors import FAULTS_SHOWN as FAULTS_SHOWN
from noctuary.errors import EmptyQuerySetError, LineFault, QueryFileError
from noctuary.evaluate.labels.faults import FaultKind, LineError, query_file_error
from noctuary.evaluate.labels.lines import (
    parse_object,
    read_grades,
    read_ids,
    read_lines,
    read_moment,
    read_optional_int,
    read_optional_text,
    read_text,
    shorten,
)

QueryFault = LineFault
"""A fault of a query file; `QueryFileError.faults` holds every one."""

DEFAULT_STRATUM = "all"
UNGRADED = 1
"""Grade of a relevant id that has none of its own."""

_OWN_KEYS = frozenset(
    {
        "query_id", "text", "stratum", "relevant_ids", "grades", "wing", "as_of", "as_of_seq",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Query:
    """One labelled question.

    Attributes:
        query_id: Unique within its file; never to be used in a ranking.
        text: The question, not blank.
        stratum: The kind of question; macro averages are taken within it.
        relevant_ids: Ids of the memories that answer it, as text, each once; empty for an
            unanswerable question.
        wing: Whose memory is asked, or None.
        as_of: The moment at which it is asked (aware, UTC), or None.
        as_of_seq: The same as a position in the source's order, or None.
        extras: Every other key of the line, untouched.
        grades: Grade (1 or more) of every relevant id; empty means that all have grade 1.
    """

    query_id: str
    text: str
    stratum: str
    relevant_ids: tuple[str, ...]
    wing: str | None = None
    as_of: datetime | None = None
    as_of_seq: int | None = None
    extras: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    grades: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)


@dataclass(frozen=True, slots=True)
class QuerySet:
    """The queries of a file, in file order.

    Attributes:
        ranked: Queries with at least one label: what the metrics are over.
        unanswerable: Queries whose label list is empty: nothing in the corpus answers them; never
            averaged with the others.
    """

    ranked: tuple[Query, ...]
    unanswerable: tuple[Query, ...]


def read_queries(path: Path, corpus_ids: Collection[str] | None = None) -> QuerySet:
    """Read a query file, one JSON object a line; blank lines are skipped.

    Args:
        path: A queries.jsonl file (UTF-8).
        corpus_ids: Every id of the corpus, as text; given, labels outside it are faults.

    Returns:
        The queries with labels and, apart, those without an answer.

    Raises:
        SourceMissingError: If there is no such file.
        EmptyQuerySetError: If it holds no query.
        UnlabelledQueryError: If queries lack their labels and nothing else is wrong.
        UnknownLabelError: If labels are not in the corpus and nothing else is wrong.
        DuplicateQueryError: If query ids stand twice and nothing else is wrong.
        QueryFileError: The base of those four: for every other fault (a line that is half-written
            or not an object, a field that is missing or of the wrong type) and for mixtures. The
            message lists the first ten faults with their lines.
    """
    return group_queries([query for _, query in read_numbered_queries(path, corpus_ids)])


def read_numbered_queries(
    path: Path, corpus_ids: Collection[str] | None = None
) -> list[tuple[int, Query]]:
    """Return the queries of a file in order, each with its line; see `read_queries`."""
    known = None if corpus_ids is None else frozenset(corpus_ids)
    found: list[tuple[int, Query]] = []
    faults: list[LineFault] = []
    first_line: dict[str, int] = {}
    for number, line in read_lines(path, "query file", QueryFileError):
        try:
            query = _parse(line)
        except LineError as error:
            faults.append(error.at(number))
            continue
        faults.extend(error.at(number) for error in _clashes(query, first_line, known))
        first_line.setdefault(query.query_id, number)
        found.append((number, query))
    if faults:
        raise query_file_error(path, faults)
    if not found:
        message = "it holds no query; expected one JSON object a line"
        raise EmptyQuerySetError(path, [LineFault(0, FaultKind.EMPTY_FILE, message)])
    return found


def group_queries(queries: Sequence[Query]) -> QuerySet:
    """Part queries with labels from those without an answer, each in their order."""
    return QuerySet(
        ranked=tuple(q for q in queries if q.relevant_ids),
        unanswerable=tuple(q for q in queries if not q.relevant_ids),
    )


def _clashes(
    query: Query, first_line: Mapping[str, int], known: frozenset[str] | None
) -> list[LineError]:
    """Return the faults that only show against the other lines and the corpus."""
    found: list[LineError] = []
    if query.query_id in first_line:
        message = (
            f"duplicate query_id {query.query_id!r} (first on line {first_line[query.query_id]})"
        )
        found.append(LineError(FaultKind.DUPLICATE_QUERY_ID, message))
    unknown = [] if known is None else [i for i in query.relevant_ids if i not in known]
    if unknown:
        message = f"query {query.query_id!r} names ids that the corpus lacks: {shorten(unknown)}"
        found.append(LineError(FaultKind.UNKNOWN_LABEL, message))
    return found


def _parse(line: bytes) -> Query:
    row = parse_object(line)
    query_id = read_text(row, "query_id")
    relevant_ids, grades = _labels(row, f"query {query_id!r}")
    return Query(
        query_id=query_id,
        text=read_text(row, "text"),
        stratum=read_optional_text(row, "stratum") or DEFAULT_STRATUM,
        relevant_ids=relevant_ids,
        wing=read_optional_text(row, "wing"),
        as_of=read_moment(row, "as_of"),
        as_of_seq=read_optional_int(row, "as_of_seq"),
        extras={key: value for key, value in row.items() if key not in _OWN_KEYS},
        grades=grades,
    )


def _labels(row: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the relevant ids and, where the line has grades, the grade of each."""
    given = row.get("grades")
    grades = {} if given is None else read_grades(given, UNGRADED, where)
    if row.get("relevant_ids") is None:
        if given is None:
            raise LineError(
                FaultKind.UNLABELLED_QUERY,
                f"{where} has no labels: relevant_ids is missing "
                "(an empty list says that nothing answers it)",
            )
        return tuple(grades), grades
    relevant_ids = read_ids(row["relevant_ids"], f"{where}: relevant_ids")
    astray = [memory_id for memory_id in grades if memory_id not in set(relevant_ids)]
    if astray:
        message = f"{where}: grades of ids that are not in relevant_ids: {shorten(astray)}"
        raise LineError(FaultKind.BAD_GRADE, message)
    return relevant_ids, {i: grades.get(i, UNGRADED) for i in relevant_ids} if grades else {}
