"""Labelled queries and their reader (queries.jsonl).

What belongs here: the format and its faults. No metric, no retrieval.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from mnemon.errors import SourceEmptyError, SourceFormatError, SourceMissingError

FAULTS_SHOWN = 10
"""Faults spelled out in a message: enough to see a pattern; the total is always given."""

_OWN_KEYS = frozenset({"query_id", "text", "stratum", "relevant_ids", "wing", "as_of", "as_of_seq"})
DEFAULT_STRATUM = "all"


class QueryFileError(SourceFormatError):
    """A query file has faults; `faults` holds every one of them, the message the first ten."""

    def __init__(self, message: str, faults: tuple[str, ...]) -> None:
        super().__init__(message)
        self.faults = faults


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
    """

    query_id: str
    text: str
    stratum: str
    relevant_ids: tuple[str, ...]
    wing: str | None = None
    as_of: datetime | None = None
    as_of_seq: int | None = None
    extras: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)


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
        SourceEmptyError: If it holds no query.
        QueryFileError: If a line is half-written or not an object, a field is missing or of the
            wrong type, a query has no labels, a query id stands twice, or a label is not in the
            corpus. The message lists the first ten faults.
    """
    queries: list[Query] = []
    faults: list[str] = []
    known = None if corpus_ids is None else frozenset(corpus_ids)
    first_line: dict[str, int] = {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            query = _parse(line)
        except ValueError as error:
            faults.append(f"line {number}: {error}")
            continue
        faults.extend(f"line {number}: {fault}" for fault in _clashes(query, first_line, known))
        first_line.setdefault(query.query_id, number)
        queries.append(query)
    if faults:
        raise _error(path, faults)
    if not queries:
        raise SourceEmptyError(f"{path} holds no query; expected one JSON object a line")
    return QuerySet(
        ranked=tuple(q for q in queries if q.relevant_ids),
        unanswerable=tuple(q for q in queries if not q.relevant_ids),
    )


def _lines(path: Path) -> list[str]:
    try:
        # Split on \n only: str.splitlines would also cut at U+2028 inside a JSON string.
        return path.read_bytes().decode("utf-8").split("\n")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise SourceMissingError(f"no query file at {path}; expected a queries.jsonl") from error
    except UnicodeDecodeError as error:
        raise SourceFormatError(f"{path} is not UTF-8 text: {error}") from error


def _error(path: Path, faults: list[str]) -> QueryFileError:
    shown = "\n".join(f"  {fault}" for fault in faults[:FAULTS_SHOWN])
    rest = len(faults) - FAULTS_SHOWN
    more = f"\n  ... and {rest} more" if rest > 0 else ""
    noun = "fault" if len(faults) == 1 else "faults"
    return QueryFileError(f"{path} has {len(faults)} {noun}:\n{shown}{more}", tuple(faults))


def _clashes(
    query: Query, first_line: Mapping[str, int], known: frozenset[str] | None
) -> list[str]:
    """Return the faults that only show against the other lines and the corpus."""
    found: list[str] = []
    if query.query_id in first_line:
        found.append(
            f"duplicate query_id {query.query_id!r} (first on line {first_line[query.query_id]})"
        )
    if known is not None:
        unknown = [label for label in query.relevant_ids if label not in known]
        if unknown:
            found.append(f"query {query.query_id!r} names ids that the corpus lacks: {unknown}")
    return found


def _parse(line: str) -> Query:
    """Turn one line into a query; ValueError says what is wrong with it."""
    try:
        parsed: object = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"half-written or not JSON ({error.msg} at column {error.colno})"
        ) from error
    if not isinstance(parsed, dict):
        raise ValueError(f"expected a JSON object, found {type(parsed).__name__}")  # noqa: TRY004
    row = cast("dict[str, Any]", parsed)
    query_id = _text(row, "query_id")
    return Query(
        query_id=query_id,
        text=_text(row, "text"),
        stratum=_optional_text(row, "stratum") or DEFAULT_STRATUM,
        relevant_ids=_labels(row, query_id),
        wing=_optional_text(row, "wing"),
        as_of=_moment(row),
        as_of_seq=_sequence_number(row),
        extras={key: value for key, value in row.items() if key not in _OWN_KEYS},
    )


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key} must be a non-blank string, found {value!r}")
    return value


def _optional_text(row: Mapping[str, Any], key: str) -> str | None:
    return None if row.get(key) is None else _text(row, key)


def _labels(row: Mapping[str, Any], query_id: str) -> tuple[str, ...]:
    value = row.get("relevant_ids")
    if value is None:
        raise ValueError(
            f"query {query_id!r} has no labels: relevant_ids is missing "
            "(an empty list says that nothing answers it)"
        )
    if not isinstance(value, list):
        raise ValueError(f"query {query_id!r}: relevant_ids must be a list, found {value!r}")  # noqa: TRY004
    labels = cast("list[object]", value)
    bad = [
        label for label in labels if isinstance(label, bool) or not isinstance(label, (int, str))
    ]
    if bad:
        raise ValueError(f"query {query_id!r}: ids must be integers or strings, found {bad}")
    return tuple(dict.fromkeys(str(label) for label in labels))


def _moment(row: Mapping[str, Any]) -> datetime | None:
    text = _optional_text(row, "as_of")
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"as_of must be an ISO 8601 moment, found {text!r}") from error
    # A moment without an offset is read as UTC, as everywhere in the exchange format.
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _sequence_number(row: Mapping[str, Any]) -> int | None:
    value = row.get("as_of_seq")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"as_of_seq must be an integer, found {value!r}")  # noqa: TRY004
    return value
