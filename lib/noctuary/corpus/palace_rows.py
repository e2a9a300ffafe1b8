"""What a drawer of a MemPalace palace is as a memory, and what its marks say about others.

What belongs here: the meaning of metadata keys. What does not: reading them (`palace_source`),
judging the row (`sift`). Facts: research/mempalace.md sections 1 and 4. Decided in
docs/decisions/0055: a consolidated drawer stays a memory (its words are the original ones) that is
part of the summary, which is a memory as well; a superseded drawer stays one that is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import cast

from noctuary.corpus.evidence import PART_OF, SUPERSEDES, MemoryLink
from noctuary.corpus.quarantine import QuarantineReason
from noctuary.corpus.source import RawRow
from noctuary.foreign_json import parse_json
from noctuary.types import UNDATED_US

DOCUMENT_KEY = "chroma:document"
"""Where Chroma keeps a document among the metadata."""

REGISTRY_ROOM = "_registry"
REGISTRY_MODE = "registry"
"""Room and mode of the drawers by which the miner remembers files that held nothing."""

CONSOLIDATED_INTO = "consolidated_into"
SUPERSEDED_BY = ("superseded_by", "synapse_superseded_by")
SUPERSEDED = ("supersedes", "synapse_supersedes")
SOURCE_DRAWERS = "source_drawers"
MARKS = (CONSOLIDATED_INTO, SOURCE_DRAWERS, *SUPERSEDED_BY, *SUPERSEDED)
"""Keys whose values name other drawers."""

# First the kind that the writer chose, then the hall that a file was sorted into.
_CATEGORY_KEYS = ("type", "hall")
_CONSOLIDATION = "consolidated_summary"
_TAG_KEYS = ("topic", "entities", "keywords")
_TAG_SEPARATORS = str.maketrans(";|", ",,")
# Scopes, and a soft deletion: named as `normalize` looks for them.
_KEPT_KEYS = ("wing", "room", "user", "user_id", "session_id", "session", "deleted_at")

Metadata = Mapping[str, object]


def drawer_row(row_id: int, drawer_id: object, metadata: Metadata) -> RawRow:
    """Return a drawer as a row of a source.

    Args:
        row_id: Its number in the file, which says where it is without any text of it.
        drawer_id: Its id, a text unless the file is damaged.
        metadata: Everything that is stored with it, its document among it.
    """
    locator = f"row {row_id}"
    if not isinstance(drawer_id, str) or not drawer_id:
        detail = f"drawer id: {type(drawer_id).__name__}"
        return RawRow(locator, None, {"metadata": metadata}, QuarantineReason.BAD_ID, detail)
    fields = {**_fields(metadata), "id": drawer_id, "metadata": metadata}
    if metadata.get("room") == REGISTRY_ROOM or metadata.get("ingest_mode") == REGISTRY_MODE:
        return RawRow(locator, drawer_id, fields, QuarantineReason.BOOKKEEPING, "a registry drawer")
    return RawRow(locator, drawer_id, fields)


def drawer_links(drawer_id: str, metadata: Metadata) -> Iterator[MemoryLink]:
    """Yield what a drawer's marks say: parts of summaries, and what replaces what.

    Of a link that both of its drawers tell, each gives one; they are equal.
    """
    for whole in _ids(metadata.get(CONSOLIDATED_INTO)):
        yield _link(drawer_id, whole, PART_OF)
    for part in _ids(metadata.get(SOURCE_DRAWERS)):
        yield _link(part, drawer_id, PART_OF)
    for key in SUPERSEDED_BY:
        for newer in _ids(metadata.get(key)):
            yield _link(newer, drawer_id, SUPERSEDES)
    for key in SUPERSEDED:
        for older in _ids(metadata.get(key)):
            yield _link(drawer_id, older, SUPERSEDES)


def _fields(metadata: Metadata) -> dict[str, object]:
    fields: dict[str, object] = {key: metadata[key] for key in _KEPT_KEYS if key in metadata}
    fields["content"] = metadata.get(DOCUMENT_KEY)
    # Without a zone it is the local time of the machine that filed it; read as UTC like every date.
    fields["created_at"] = metadata.get("filed_at")
    fields["category"] = _category(metadata)
    fields["tags"] = ",".join(_tags(metadata))
    fields["expanded_keywords"] = _file_name(metadata.get("source_file"))
    return fields


def _category(metadata: Metadata) -> str:
    if metadata.get("status") == _CONSOLIDATION:
        return _CONSOLIDATION
    found = (metadata.get(key) for key in _CATEGORY_KEYS)
    return next((value for value in found if isinstance(value, str) and value.strip()), "")


def _tags(metadata: Metadata) -> list[str]:
    """Return topic, entities and keywords one by one, in order, without repeats."""
    tags: dict[str, None] = {}
    for key in _TAG_KEYS:
        for text in _texts(metadata.get(key)):
            for tag in text.translate(_TAG_SEPARATORS).split(","):
                # A colon would make a scope of it (`normalize`).
                if tag.strip() and ":" not in tag:
                    tags[tag.strip()] = None
    return list(tags)


def _file_name(value: object) -> str:
    """Return the last part of a path: what people call the file; where it lay names a machine."""
    if not isinstance(value, str):
        return ""
    return PurePosixPath(PureWindowsPath(value).name).name


def _texts(value: object) -> list[str]:
    if isinstance(value, list):
        return [item for item in cast("list[object]", value) if isinstance(item, str)]
    return [value] if isinstance(value, str) else []


def _ids(value: object) -> list[str]:
    """Return the drawer ids of a mark: a list, a JSON list in a text, or one id."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = parse_json(value)
        except ValueError:
            return []
    return list(dict.fromkeys(text.strip() for text in _texts(value) if text.strip()))


def _link(from_id: str, to_id: str, link_type: str) -> MemoryLink:
    return MemoryLink(from_id, to_id, link_type, UNDATED_US, None)
