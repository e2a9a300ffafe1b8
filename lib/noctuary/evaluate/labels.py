"""Labelled sets: queries, judgements and the folder that holds them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeGuard, cast

from noctuary.core.errors import (
    FAULTS_SHOWN,
    CorpusFileError,
    DuplicateQueryError,
    EmptyQuerySetError,
    FileFaultsError,
    LineFault,
    QrelsFileError,
    QueryFileError,
    SourceFormatError,
    SourceMissingError,
    UnknownLabelError,
    UnlabelledQueryError,
)
from noctuary.core.foreign_json import parse_json

# Kinds of faults in labelled files, and the named error for a list of them.
#
# Who finds a fault is the reader of the file's format.


class FaultKind(StrEnum):
    """What can be wrong with a line; the value is `LineFault.kind`."""

    NOT_UTF8 = "not_utf8"
    HALF_WRITTEN_LINE = "half_written_line"
    WRONG_TYPE = "wrong_type"
    MISSING_FIELD = "missing_field"
    BAD_UNICODE = "bad_unicode"
    UNLABELLED_QUERY = "unlabelled_query"
    LABELLED_ADVERSARIAL = "labelled_adversarial"
    UNKNOWN_LABEL = "unknown_label"
    UNKNOWN_QUERY = "unknown_query"
    BAD_GRADE = "bad_grade"
    DUPLICATE_QUERY_ID = "duplicate_query_id"
    DUPLICATE_JUDGEMENT = "duplicate_judgement"
    DUPLICATE_MEMORY_ID = "duplicate_memory_id"
    EMPTY_FILE = "empty_file"
    DAMAGED_ARCHIVE = "damaged_archive"


class LineError(Exception):
    """A line cannot be read; whoever reads the file turns it into a `LineFault`."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def at(self, line: int) -> LineFault:
        """Return the fault, placed on its line."""
        return LineFault(line, self.kind, str(self))


_QUERY_ERRORS: dict[str, type[QueryFileError]] = {
    FaultKind.UNLABELLED_QUERY: UnlabelledQueryError,
    FaultKind.UNKNOWN_LABEL: UnknownLabelError,
    FaultKind.DUPLICATE_QUERY_ID: DuplicateQueryError,
}


def query_file_error(path: Path, faults: Sequence[LineFault]) -> QueryFileError:
    """Return the error for the faults of a query file: the named one where all are of one kind.

    Args:
        path: The file.
        faults: At least one.
    """
    kinds = {fault.kind for fault in faults}
    named = _QUERY_ERRORS.get(kinds.pop()) if len(kinds) == 1 else None
    return (named or QueryFileError)(path, faults)


# JSON lines and the typed fields of one line.
#
# No format of its own: which fields there are is known to queries, qrels and dataset.


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(path: Path, kind: str, error: type[FileFaultsError]) -> Iterator[tuple[int, bytes]]:
    r"""Yield the non-blank lines of a file with their numbers, from 1.

    Lines end at \n only: U+2028 inside a JSON string is text. A byte order mark is skipped.

    Args:
        path: Plain, or gzip where the name ends in .gz.
        kind: What the file is, for messages: "query file".
        error: The class for an archive that is cut off or damaged.

    Raises:
        SourceMissingError: If there is no such file.
        FileFaultsError: If the archive is damaged; the fault names the first line that is lost.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as handle:
            for number, line in enumerate(handle, start=1):
                text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                if text.strip():
                    yield number, text
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as missing:
        raise SourceMissingError(f"no {kind} at {path}") from missing
    except (EOFError, gzip.BadGzipFile, zlib.error) as damage:
        message = f"the archive is cut off or damaged from here on ({damage})"
        fault = LineFault(number + 1, FaultKind.DAMAGED_ARCHIVE, message)
        raise error(path, [fault]) from damage


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of one line.

    Raises:
        LineError: If the line is not UTF-8, not JSON or not an object.
    """
    try:
        parsed: object = parse_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise LineError(FaultKind.NOT_UTF8, f"not UTF-8 text ({error.reason})") from error
    except json.JSONDecodeError as error:
        message = f"half-written or not JSON ({error.msg} at column {error.colno})"
        raise LineError(FaultKind.HALF_WRITTEN_LINE, message) from error
    except ValueError as error:
        # Python's own limits: numbers of thousands of digits, nesting of thousands of levels.
        message = f"JSON that cannot be read: {error}"
        raise LineError(FaultKind.WRONG_TYPE, message) from error
    if not isinstance(parsed, dict):
        found = type(parsed).__name__
        raise LineError(FaultKind.WRONG_TYPE, f"expected a JSON object, found {found}")
    return cast("dict[str, Any]", parsed)


def read_text(row: Mapping[str, Any], key: str) -> str:
    """Return a field that must be a non-blank text.

    Raises:
        LineError: If it is missing, of another type, blank, or holds half a character.
    """
    if key not in row:
        message = f"{key} must be a non-blank string, found no such field"
        raise LineError(FaultKind.MISSING_FIELD, message)
    value = row[key]
    if not isinstance(value, str) or not value.strip():
        message = f"{key} must be a non-blank string, found {value!r}"
        raise LineError(FaultKind.WRONG_TYPE, message)
    return _require_unicode(value, key)


def read_optional_text(row: Mapping[str, Any], key: str) -> str | None:
    """Return a field that is a non-blank text, null or absent; LineError for anything else."""
    return None if row.get(key) is None else read_text(row, key)


def read_id(value: object) -> str | None:
    """Return an id as text, or None if the value is neither an integer nor a non-blank text."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    return str(value) if str(value).strip() else None


def read_ids(values: object, where: str) -> tuple[str, ...]:
    """Return a list of ids as text, each once, in order.

    Raises:
        LineError: If it is no list, or holds something that is no id.
    """
    if not isinstance(values, list):
        raise LineError(FaultKind.WRONG_TYPE, f"{where} must be a list, found {values!r}")
    ids = [(value, read_id(value)) for value in cast("list[object]", values)]
    bad = [value for value, memory_id in ids if memory_id is None]
    if bad:
        message = f"{where}: ids must be integers or strings, found {shorten(bad)}"
        raise LineError(FaultKind.WRONG_TYPE, message)
    found = dict.fromkeys(memory_id for _, memory_id in ids if memory_id is not None)
    return tuple(_require_unicode(memory_id, where) for memory_id in found)


def read_grades(values: object, lowest: int, where: str) -> dict[str, int]:
    """Return a mapping of ids to grades.

    Args:
        values: What the line holds.
        lowest: The smallest grade allowed.
        where: What carries the grades, for messages.

    Raises:
        LineError: If it is no object, or a grade is no integer of at least `lowest`.
    """
    if not isinstance(values, dict):
        message = f"{where}: grades must be an object of id: grade, found {values!r}"
        raise LineError(FaultKind.WRONG_TYPE, message)
    grades = cast("dict[str, object]", values)
    bad = [
        f"{memory_id}: {grade!r}"
        for memory_id, grade in grades.items()
        if not memory_id.strip() or not _is_int(grade) or grade < lowest
    ]
    if bad:
        message = f"{where}: grades must be integers >= {lowest} of ids, found {shorten(bad)}"
        raise LineError(FaultKind.BAD_GRADE, message)
    return {_require_unicode(i, where): grade for i, grade in grades.items() if _is_int(grade)}


def read_moment(row: Mapping[str, Any], key: str) -> datetime | None:
    """Return a field that is an ISO 8601 moment, as UTC; without an offset it is read as UTC.

    Raises:
        LineError: If it is anything else, null and absent excepted.
    """
    text = read_optional_text(row, key)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        message = f"{key} must be an ISO 8601 moment, found {text!r}"
        raise LineError(FaultKind.WRONG_TYPE, message) from error


def read_optional_int(row: Mapping[str, Any], key: str) -> int | None:
    """Return a field that is an integer, null or absent; LineError for anything else."""
    value = row.get(key)
    if value is not None and not _is_int(value):
        message = f"{key} must be an integer, found {value!r}"
        raise LineError(FaultKind.WRONG_TYPE, message)
    return value


def shorten(values: Iterable[str] | Sequence[object]) -> str:
    """Return a list for a message: the first ten, and how many more there are."""
    items = list(values)
    rest = len(items) - FAULTS_SHOWN
    return f"{items[:FAULTS_SHOWN]}{f' and {rest} more' if rest > 0 else ''}"


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _require_unicode(text: str, where: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        message = f"{where} holds half a character (a lone surrogate): {text!r}"
        raise LineError(FaultKind.BAD_UNICODE, message) from error
    return text


# Labelled queries and their reader (queries.jsonl).
#
# No metric, no retrieval.


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


# Judgements (qrels): which memory was judged for which query, and how it was graded.


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
            query_id, grades = _parse_judgement(line)
        except LineError as error:
            faults.append(error.at(number))
            continue
        known = judged.setdefault(query_id, {})
        found = _clashing_judgements(query_id, grades, known, queries, corpus)
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


def _parse_judgement(line: bytes) -> tuple[str, dict[str, int]]:
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


def _clashing_judgements(
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


# A labelled set: a folder with a corpus, its queries and what else there is to judge by.
#
# | file | holds |
# |---|---|
# | `corpus.jsonl` or `corpus.jsonl.gz` | one memory a line, with its `id` |
# | `queries.jsonl` | one labelled query a line |
# | `adversarial.jsonl` (optional) | queries that the corpus does not answer |
# | `qrels.jsonl` (optional) | further judgements, grades of 0 included |


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
