"""Labelled sets: queries, and the folder that holds them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from noctuary.core import errors
from noctuary.core.errors import LineFault
from noctuary.core.files import hash_text
from noctuary.core.foreign_json import parse_json
from noctuary.text.secrets import find_text_sensitivity

# Lines of labelled files, and the typed fields of one line.


class _LineError(Exception):
    """A line cannot be read; `_read` turns it into a `LineFault`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


T = TypeVar("T")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _read(
    path: Path,
    kind: str,
    parse: Callable[[bytes], T],
    faults: list[LineFault],
    error: type[errors.FileFaultsError],
    empty: str,
) -> Iterator[tuple[int, T]]:
    """Yield the parsed non-blank lines of a file, with their numbers, from 1."""
    # Lines end at \n only: U+2028 inside a JSON string is text. Errors of `parse` join the
    # caller's faults, which are raised at the end; a damaged archive (.gz) ends it at once.
    number, is_empty = 0, True
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as handle:
            for number, line in enumerate(handle, start=1):
                text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                if not text.strip():
                    continue
                is_empty = False
                try:
                    found = parse(text)
                except _LineError as fault:
                    faults.append(LineFault(number, fault.kind, str(fault)))
                else:
                    yield number, found
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as missing:
        raise errors.SourceMissingError(f"no {kind} at {path}") from missing
    except (EOFError, gzip.BadGzipFile, zlib.error) as damage:
        message = f"the archive is cut off or damaged from here on ({damage})"
        raise error(path, [LineFault(number + 1, "damaged_archive", message)]) from damage
    if is_empty:
        faults.append(LineFault(0, "empty_file", empty))
    if faults:
        raise error(path, faults)


def _require(is_right: bool, message: str, kind: str = "wrong_type") -> None:
    if not is_right:
        raise _LineError(kind, message)


def _decode(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _LineError("not_utf8", f"not UTF-8 text ({error.reason})") from error


def _parse_object(line: bytes) -> dict[str, Any]:
    try:
        parsed: object = parse_json(_decode(line))
    except json.JSONDecodeError as error:
        message = f"half-written or not JSON ({error.msg} at column {error.colno})"
        raise _LineError("half_written_line", message) from error
    except ValueError as error:
        # Python's own limits: numbers of thousands of digits, nesting of thousands of levels.
        raise _LineError("wrong_type", f"JSON that cannot be read: {error}") from error
    _require(isinstance(parsed, dict), f"expected a JSON object, found {type(parsed).__name__}")
    return cast("dict[str, Any]", parsed)


def _read_text(row: Mapping[str, Any], key: str) -> str:
    """Return a field that must be a non-blank text without half a character."""
    value = row.get(key)
    kind = "wrong_type" if key in row else "missing_field"
    found = repr(value) if key in row else "no such field"
    message = f"{key} must be a non-blank string, found {found}"
    _require(isinstance(value, str) and bool(value.strip()), message, kind)
    return _require_unicode(cast("str", value), key)


def _read_optional_text(row: Mapping[str, Any], key: str) -> str | None:
    return None if row.get(key) is None else _read_text(row, key)


def _require_unicode(text: str, where: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        message = f"{where} holds half a character (a lone surrogate): {text!r}"
        raise _LineError("bad_unicode", message) from error
    return text


def _is_id(value: object) -> bool:
    return type(value) is int or (isinstance(value, str) and bool(value.strip()))


def _read_ids(values: Any, where: str) -> tuple[str, ...]:
    """Return a list of ids as text, each once, in order."""
    _require(isinstance(values, list), f"{where} must be a list, found {values!r}")
    bad = [value for value in values if not _is_id(value)]
    _require(not bad, f"{where}: ids must be integers or strings, found {_shorten(bad)}")
    return tuple(_require_unicode(i, where) for i in dict.fromkeys(map(str, values)))


def _read_grades(values: Any, where: str) -> dict[str, int]:
    message = f"{where}: grades must be an object of id: grade, found {values!r}"
    _require(isinstance(values, dict), message)
    grades = cast("dict[str, Any]", values)
    bad = [
        f"{memory_id}: {grade!r}"
        for memory_id, grade in grades.items()
        if not memory_id.strip() or type(grade) is not int or grade < UNGRADED
    ]
    message = f"{where}: grades must be integers >= {UNGRADED} of ids, found {_shorten(bad)}"
    _require(not bad, message, "bad_grade")
    return {_require_unicode(i, where): grade for i, grade in grades.items()}


def _read_moment(row: Mapping[str, Any], key: str) -> datetime | None:
    """Return a field that is an ISO 8601 moment, as UTC; without an offset it is read as UTC."""
    if (text := _read_optional_text(row, key)) is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        message = f"{key} must be an ISO 8601 moment, found {text!r}"
        raise _LineError("wrong_type", message) from error


def _shorten(values: Sequence[object]) -> str:
    rest = len(values) - errors.FAULTS_SHOWN
    return f"{values[: errors.FAULTS_SHOWN]}{f' and {rest} more' if rest > 0 else ''}"


# Labelled queries and their reader (queries.jsonl).

DEFAULT_STRATUM = "all"
UNGRADED = 1  # grade of a relevant id that has none of its own
USER_KEY = "user"  # extra key of a query: the user who asks


@dataclass(frozen=True, slots=True)
class Query:
    """One labelled question."""

    query_id: str  # unique within its file; never to be used in a ranking
    text: str  # not blank
    stratum: str  # the kind of question; macro averages are taken within it
    relevant_ids: tuple[str, ...]  # each once; empty for an unanswerable question
    wing: str | None = None  # the wing to search
    as_of: datetime | None = None  # the moment of the query (UTC)
    # Every other key of the line; and the grade (from 1) of every relevant id, none for all 1.
    extras: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    grades: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)

    @property
    def gains(self) -> Mapping[str, int]:
        """The grade of every relevant id."""
        return self.grades or dict.fromkeys(self.relevant_ids, UNGRADED)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; of the extra keys only that of the user."""
        kept = {key: value for key, value in self.extras.items() if key == USER_KEY}
        row = asdict(replace(self, extras=kept))
        return {**row, "as_of": self.as_of.isoformat() if self.as_of else None}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """Parse the output of `to_json`."""
        found: dict[str, Any] = {**row, "relevant_ids": tuple(row["relevant_ids"])}
        found["as_of"] = datetime.fromisoformat(row["as_of"]) if row["as_of"] else None
        return cls(**found)


_OWN_KEYS = frozenset(Query.__slots__) - {"extras"}


@dataclass(frozen=True, slots=True)
class QuerySet:
    """The queries of a file, in file order."""

    ranked: tuple[Query, ...]  # with at least one label: the metrics average over these
    unanswerable: tuple[Query, ...]  # by nothing in the corpus; never averaged with the others


def read_queries(
    path: Path,
    corpus_ids: Collection[str] | None = None,
    *,
    labelled_ids: Collection[str] | None = None,
) -> QuerySet:
    """Read a query file, one JSON object a line; a QueryFileError lists its first ten faults."""
    # Given every id of the corpus, labels outside it are faults. Given the ids of `QUERIES_FILE`,
    # this is the file of unanswerable queries: labels are faults, and so are these ids.
    known = None if corpus_ids is None else frozenset(corpus_ids)
    queries: list[Query] = []
    faults: list[LineFault] = []
    first_line: dict[str, int] = {}
    empty = "it holds no query; expected one JSON object a line"
    for number, query in _read(
        path, "query file", _parse_query, faults, errors.QueryFileError, empty
    ):
        name, labels = query.query_id, query.relevant_ids
        found: list[tuple[str, str]] = []
        if name in first_line:
            message = f"duplicate query_id {name!r} (first on line {first_line[name]})"
            found.append(("duplicate_query_id", message))
        if unknown := [i for i in labels if known is not None and i not in known]:
            message = f"query {name!r} names ids that the corpus lacks: {_shorten(unknown)}"
            found.append(("unknown_label", message))
        if labelled_ids is not None and name in labelled_ids:
            message = f"query_id {name!r} is one of {QUERIES_FILE} as well"
            found.append(("duplicate_query_id", message))
        if labelled_ids is not None and labels:
            message = f"query {name!r} has labels, but queries of this file must have none"
            found.append(("labelled_adversarial", message))
        faults += [LineFault(number, kind, message) for kind, message in found]
        first_line.setdefault(name, number)
        queries.append(query)
    ranked = tuple(query for query in queries if query.relevant_ids)
    return QuerySet(ranked, tuple(query for query in queries if not query.relevant_ids))


def _parse_query(line: bytes) -> Query:
    row = _parse_object(line)
    query_id = _read_text(row, "query_id")
    relevant_ids, grades = _read_labels(row, f"query {query_id!r}")
    return Query(
        query_id=query_id,
        text=_read_text(row, "text"),
        stratum=_read_optional_text(row, "stratum") or DEFAULT_STRATUM,
        relevant_ids=relevant_ids,
        wing=_read_optional_text(row, "wing"),
        as_of=_read_moment(row, "as_of"),
        extras={key: value for key, value in row.items() if key not in _OWN_KEYS},
        grades=grades,
    )


def _read_labels(row: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the relevant ids and, where the line has grades, the grade of each."""
    given, listed = row.get("grades"), row.get("relevant_ids")
    grades = {} if given is None else _read_grades(given, where)
    message = f"{where} has no labels: relevant_ids is missing "
    message += "(an empty list says that nothing answers it)"
    _require(given is not None or listed is not None, message, "unlabelled_query")
    if listed is None:
        return tuple(grades), grades
    relevant_ids = _read_ids(listed, f"{where}: relevant_ids")
    astray = [memory_id for memory_id in grades if memory_id not in set(relevant_ids)]
    message = f"{where}: grades of ids that are not in relevant_ids: {_shorten(astray)}"
    _require(not astray, message, "bad_grade")
    return relevant_ids, {i: grades.get(i, UNGRADED) for i in relevant_ids} if grades else {}


# The labels of another home, in a merge. Questions are equal by text, scope and moment, since ids
# of queries are names that every home gives anew.


def join_labels(
    mine: Path, theirs: Path, translate: Callable[[str], str | None]
) -> tuple[int, dict[Path, str]]:
    """Return how many queries of another folder are new or have new answers, and the new files.

    `translate` returns the id of a memory here, None where there is none. Lines that stay keep
    their bytes. QueryFileError for a file that cannot be read.
    """
    count, texts = 0, dict[Path, str]()
    read = {name: _read_numbered(mine / name) for name in (QUERIES_FILE, ADVERSARIAL_FILE)}
    taken = {query.query_id for found in read.values() for _, query in found}
    for name, found in read.items():
        path, known = mine / name, {_question(query): (n, query) for n, query in found}
        lines = path.read_bytes().decode("utf-8").rstrip("\n").split("\n") if found else []
        before = count
        for _, query in _read_numbered(theirs / name):
            answers = {new: g for old, g in query.gains.items() if (new := translate(old))}
            number, had = known.get(_question(query), (0, None))
            gains = dict(had.gains) if had else {}
            for memory_id, grade in answers.items():
                gains[memory_id] = max(grade, gains.get(memory_id, grade))
            if (query.relevant_ids and not answers) or (had and gains == had.gains):
                continue
            made = had or query
            if had is None and made.query_id in taken:
                made = replace(made, query_id=f"{made.query_id}~{hash_text(made.text)[:6]}")
            graded = gains if set(gains.values()) - {UNGRADED} else {}
            made = replace(made, relevant_ids=tuple(gains), grades=graded)
            row = {
                k: v for k, v in {**made.to_json(), **made.extras}.items() if v and k != "extras"
            }
            line = json.dumps({**row, "relevant_ids": list(gains)}, ensure_ascii=False)
            if find_text_sensitivity(line) is None:
                number = number or len(lines) + 1
                lines[number - 1 : number] = [line]
                known[_question(made)] = number, made
                taken.add(made.query_id)
                count += 1
        if count > before:
            texts[path] = "\n".join(lines) + "\n"
    return count, texts


def _read_numbered(path: Path) -> list[tuple[int, Query]]:
    if not path.is_file():
        return []
    faults = list[LineFault]()
    return list(
        _read(path, "query file", _parse_query, faults, errors.QueryFileError, "it is empty")
    )


def _question(query: Query) -> tuple[object, ...]:
    return query.text, query.wing, query.as_of, query.extras.get(USER_KEY)


# A labelled set: a folder with a corpus and its queries (docs/evaluation.md).

CORPUS_FILES = ("corpus.jsonl.gz", "corpus.jsonl")
QUERIES_FILE, ADVERSARIAL_FILE = "queries.jsonl", "adversarial.jsonl"


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """A set whose every label is an id of its corpus; each attribute is one of the files above."""

    name: str
    corpus_ids: frozenset[str]
    queries: QuerySet
    adversarial: tuple[Query, ...] = ()

    @property
    def unanswerable(self) -> tuple[Query, ...]:
        """Every query without an answer, of both files."""
        return (*self.queries.unanswerable, *self.adversarial)


def load_labelled_set(directory: Path) -> LabelledSet:
    """Load a set and check that its files agree; raises as their readers do."""
    corpus_ids = frozenset(str(row["id"]) for row in read_corpus_rows(directory))
    queries = read_queries(directory / QUERIES_FILE, corpus_ids)
    query_ids = {q.query_id for q in (*queries.ranked, *queries.unanswerable)}
    adversarial: tuple[Query, ...] = ()
    if (apart := directory / ADVERSARIAL_FILE).is_file():
        adversarial = read_queries(apart, corpus_ids, labelled_ids=query_ids).unanswerable
    return LabelledSet(directory.absolute().name, corpus_ids, queries, adversarial)


def find_corpus(directory: Path) -> Path:
    """Return the corpus file of a set's folder; an error if there is none, or both forms."""
    if not directory.is_dir():
        raise errors.SourceMissingError(f"{directory} is not a folder; a labelled set is a folder")
    found = [path for name in CORPUS_FILES if (path := directory / name).is_file()]
    if not found:
        raise errors.SourceMissingError(
            f"{directory} is not a labelled set: it lacks {CORPUS_FILES[0]}"
        )
    if len(found) > 1:
        raise errors.SourceFormatError(
            f"{directory} holds {' and '.join(CORPUS_FILES)}; keep one of them"
        )
    return found[0]


def read_corpus_rows(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the memories of a set in order; CorpusFileError, at the end, if lines are wrong."""
    path = find_corpus(directory)
    faults: list[LineFault] = []
    first_line: dict[str, int] = {}
    empty = "it holds no memory; expected one JSON object a line"
    for number, row in _read(path, "corpus", _parse_memory, faults, errors.CorpusFileError, empty):
        memory_id = str(row["id"])
        if memory_id in first_line:
            message = f"duplicate id {memory_id!r} (first on line {first_line[memory_id]})"
            faults.append(LineFault(number, "duplicate_memory_id", message))
            continue
        first_line[memory_id] = number
        yield row


def _parse_memory(line: bytes) -> dict[str, Any]:
    row = _parse_object(line)
    _require("id" in row, "a memory needs an id, found none", "missing_field")
    _require(_is_id(row["id"]), f"id must be an integer or a text, found {row['id']!r}")
    content, where = row.get("content"), f"memory {str(row['id'])!r}"
    _require(isinstance(content, str), f"{where}: content must be a text, found {content!r}")
    return row
