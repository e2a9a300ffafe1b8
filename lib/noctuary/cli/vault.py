"""`noctuary export --markdown`: a snapshot as a folder of notes that Obsidian opens."""

from __future__ import annotations

import json
import re
import stat
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.cli.sql import SnapshotView, read_rows
from noctuary.core import errors, files
from noctuary.core.foreign_json import parse_json
from noctuary.sources.markdown import CONCEPT_NOTE, MEMORY_NOTE, SUFFIX

# Names of files and folders: text of memories, without parts that could lead out of the vault.

MARKER = ".noctuary-vault.json"  # what was written, by name: a vault is written again in place
_WRITING = ".noctuary-writing"
MAX_LINKS = 500  # concepts that a note links to, those that it is about first
_MOST_NAME_CHARS = 50  # up to four bytes each: file systems end at 255
_FORBIDDEN = re.compile(r'[\\/:*?"<>|#^\[\]%]+')
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)
_OURS = re.compile(r"(?:memories/[^./\\][^/\\]*|concepts)/[^./\\][^/\\]*\.md")
# Characters that YAML forbids in quotes or takes for a line break.
_UNQUOTED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")


def name_file(text: str) -> str:
    """Return a text as the name of a file or folder, never hidden and never empty."""
    plain = unicodedata.normalize("NFC", text)
    plain = "".join(c if c.isprintable() else " " for c in _FORBIDDEN.sub(" ", plain))
    plain = " ".join(plain.split()).strip(". ")[:_MOST_NAME_CHARS].rstrip(". ")
    return f"_{plain}" if not plain or _RESERVED.fullmatch(plain) else plain


def _name_note(row: Mapping[str, Any], id_kind: str) -> str:
    key = row["memory_id"]
    # Text ids may differ in what no file name can hold.
    mark = key if id_kind == "int" else files.hash_text(key)[:10]
    first = row["content"].strip().partition("\n")[0]
    folder = "no wing" if row["wing"] is None else name_file(row["wing"])
    return f"memories/{folder}/{name_file(first)} {mark}{SUFFIX}"


# The notes.


def _notes(view: SnapshotView) -> Iterator[tuple[str, str]]:
    """Yield name and text of every note."""
    names = _name_concepts(view)
    links: defaultdict[str, dict[str, None]] = defaultdict(dict)
    mentions = sorted(read_rows(view, "mentions"), key=lambda row: row["role"])  # "about" is first
    for row in mentions:
        if row["concept_id"] in names:
            links[row["memory_id"]][row["concept_id"]] = None
    for row in read_rows(view, "memories"):
        linked = [_link(*names[key]) for key in list(links[row["memory_id"]])[:MAX_LINKS]]
        yield _name_note(row, view.manifest.id_kind), _memory_note(row, linked)
    said: defaultdict[str, list[str]] = defaultdict(list)
    for row in read_rows(view, "concept_edges"):
        target = names.get(row["target_concept_id"])
        thing = _one_line(row["target_name"]) if target is None else _link(*target)
        dates = {"since": row["valid_from"], "until": row["valid_to"]}
        when = "".join(f" {word} {at.date().isoformat()}" for word, at in dates.items() if at)
        said[row["source_concept_id"]].append(
            f"- {row['relation'].replace('_', ' ')} {thing}{when}"
        )
    for row in read_rows(view, "concepts"):
        if row["concept_id"] in names:
            stem, name = names[row["concept_id"]]
            front = {"noctuary": CONCEPT_NOTE, "kind": row["kind"], "name": name}
            text = "\n".join(sorted(said[row["concept_id"]]))
            body = f"{text}\n" if text else ""
            yield f"concepts/{stem}{SUFFIX}", _front({**front, "aliases": row["aliases"]}) + body


def _name_concepts(view: SnapshotView) -> dict[str, tuple[str, str]]:
    """Return file name and name of each concept that two memories share or a statement is about."""
    stated = {
        row[end]
        for row in read_rows(view, "concept_edges")
        for end in ("source_concept_id", "target_concept_id")
    }
    found: dict[str, tuple[str, str]] = {}
    taken: set[str] = set()
    for row in read_rows(view, "concepts"):
        if row["memories"] < 2 and row["concept_id"] not in stated:
            continue
        stem = name_file(row["name"])
        if stem.casefold() in taken:  # many file systems tell no case
            stem = f"{stem} {row['concept_id'][:10]}"
        taken.add(stem.casefold())
        found[row["concept_id"]] = (stem, row["name"])
    return found


def _memory_note(row: Mapping[str, Any], linked: list[str]) -> str:
    tags = row["tags"].split(",") if row["tags"] else []
    front = {
        "noctuary": MEMORY_NOTE,
        "id": row["memory_id"],
        **{name: row[name] for name in ("wing", "room", "category", "user", "session_id")},
        "tags": tags,
        "importance": row["importance"],
        "created_at": _moment(row["created_at"]),
        "updated_at": _moment(row["updated_at"]),
        "expanded_keywords": row["expanded_keywords"],
        "concepts": linked,
    }
    return _front(front) + row["content"]


def _front(values: Mapping[str, Any]) -> str:
    """Return front matter; values that say nothing are left out."""
    lines = [
        f"{key}: {_quoted(value)}" for key, value in values.items() if value not in (None, "", [])
    ]
    return "\n".join(["---", *lines, "---", ""])


def _quoted(value: Any) -> str:
    # JSON is YAML, but for a few characters.
    text = json.dumps(value, ensure_ascii=False)
    return _UNQUOTED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _link(stem: str, name: str) -> str:
    shown = _one_line(name)
    return f"[[{stem}]]" if stem == shown else f"[[{stem}|{shown}]]"


def _one_line(name: str) -> str:
    plain = "".join(c if c.isprintable() and c not in "[]|" else " " for c in name)
    return " ".join(plain.split())


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.replace(tzinfo=UTC).isoformat()


# Writing them, also into the vault of an earlier export.


class Vault(NamedTuple):
    """What became of the notes of a vault."""

    notes: int  # That the snapshot has
    written: int  # Of them new or changed
    removed: int  # Of an earlier export
    kept: int  # That somebody edited or put there: left as they are


def write_vault(view: SnapshotView, target: Path) -> Vault:
    """Write a snapshot's notes to a folder that is new, empty or a vault; StoreError for another.

    Equal snapshots change nothing. What somebody edited or added is left.
    """
    known = _read_marker(target)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.write_json(target / MARKER, {"format": "noctuary-vault", "files": known})
    notes, kept, removed, changed = dict[str, str](), 0, 0, list[Path]()
    total = 0
    for name, text in _notes(view):
        total += 1
        data, path = text.encode("utf-8"), target / name
        digest, found = sha256(data).hexdigest(), _digest_at(target, name)
        if found not in (None, digest, known.get(name)):
            kept += 1
            notes |= {name: known[name]} if name in known else {}
            continue
        notes[name] = digest
        if found != digest:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (target / _WRITING).write_bytes(data)
            (target / _WRITING).replace(path)
            changed.append(path)
    for name in known.keys() - notes.keys():
        if _digest_at(target, name) == known[name]:
            (target / name).unlink()
            removed += 1
            with suppress(OSError):  # others are in it
                (target / name).parent.rmdir()
    for path in (*changed, *{path.parent for path in changed}):
        files.fsync_file(path)
    files.write_json(target / MARKER, {"format": "noctuary-vault", "files": notes})
    return Vault(total, len(changed), removed, kept)


def _read_marker(target: Path) -> dict[str, str]:
    """Return the digests of what an earlier export wrote, by name; nothing for a new vault."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return {}
    try:
        raw: Any = parse_json((target / MARKER).read_text(encoding="utf-8"))
        named = {str(name): str(digest) for name, digest in raw["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise errors.StoreError(
            f"{target} exists and is not a vault that noctuary wrote: name another place, or an "
            f"empty folder."
        ) from None
    # Somebody else may have written the marker.
    return {name: digest for name, digest in named.items() if _OURS.fullmatch(name)}


def _digest_at(target: Path, name: str) -> str | None:
    """Return the digest of a note, "" where something else lies there, None where nothing does."""
    path = target / name
    for folder in (path.parent, path.parent.parent):
        if folder != target and folder.is_symlink():
            raise errors.StoreError(
                f"{folder} is a link: noctuary writes only inside {target}. Remove it, or name "
                f"another place."
            )
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return ""
    # An empty one is what a machine that died left of one.
    return sha256(path.read_bytes()).hexdigest() if found.st_size else None
