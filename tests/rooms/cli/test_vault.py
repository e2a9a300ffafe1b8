"""`noctuary export --markdown`: every memory comes back, nothing leaves the folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from noctuary.cli.exchange import export_vault
from noctuary.cli.vault import MARKER, name_file
from noctuary.core.errors import StoreError
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.open import open_source
from noctuary.text.front_matter import read_yaml, split_front_matter
from tests.support.store import day_us, memory, new_store, renumber

HOSTILE = (
    "../../etc/passwd", "/etc/passwd", "..", ".", ".hidden", "", "  ", "a/b\\c", "con", "NUL.txt",
    "x" * 500, "\u4f60\u597d" * 200, "a\nb", "\u202ed\u0000m"[:2], "C:\\x", "[[x]]#^|", "~", "- a",
    "~root", "{{x}}", "%%", "a.md", "- [ ] x",
)  # fmt: skip
MEMORIES = [
    memory("Nina works at Globex.", wing="work", tags="people,room:desk", room="desk"),
    memory("Nina leads Atlas.\n\n---\nid: 7\n---\n# Heading\n[[Atlas]]", wing="work"),
    memory("\n  verbatim \r\n\t\n", wing="Work", importance=0.123456789),
    memory("No wing, no date.", created_at_us=UNDATED_US, updated_at_us=UNDATED_US, category=""),
    memory("User: hi", category="turn", session_id="s 1", user="ana", is_turn=True),
    memory("\u4f60\u597d \U0001f600 \u2028 \x85 \ufeff end", tags=" a, b ,,c\u2029", wing=" no: "),
    memory("---\nnoctuary: concept\n---\nlike a note", expanded_keywords='quote " \\ \x7f'),
    *(memory(f"Hostile {n}", wing=name or None) for n, name in enumerate(HOSTILE)),
]
# Notes are from files.
_OTHERS = ("position", "content_hash", "origin")
FIELDS = [name for name in MemoryRecord._fields if name not in _OTHERS]


def publish(root: Path, records: Sequence[MemoryRecord], id_kind: str = "int") -> Any:
    store = new_store(root)
    store.publish(renumber(records), id_kind=id_kind)
    return store.paths


def read_back(vault: Path, out: Path) -> Mapping[str, MemoryRecord]:
    with open_source(vault) as source:
        report = export_corpus(source, out)
    assert (report.quarantined, report.sensitive) == ({}, {})
    return {record.memory_id: record for record in read_records(out)}


def as_dict(record: MemoryRecord) -> dict[str, Any]:
    # A source strips what stands around a scope.
    found = {name: getattr(record, name) for name in FIELDS}
    return {k: v.strip() or None if k == "wing" and v else v for k, v in found.items()}


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_every_memory_comes_back_and_no_name_leads_out(tmp_path: Path) -> None:
    paths, vault = publish(tmp_path / "store", MEMORIES), tmp_path / "a" / "vault"
    made = export_vault(paths, vault)
    assert (made.removed, made.kept) == (0, 0)
    assert made.written == made.notes > len(MEMORIES)
    assert {p.name for p in tmp_path.iterdir()} == {"store", "a"}
    assert {p.name for p in vault.iterdir()} == {MARKER, "memories", "concepts"}
    folders = [path for path in vault.rglob("*") if path.is_dir()]
    assert {path.parent for path in folders} <= {vault, vault / "memories"}
    assert not [path for path in vault.glob("*/**/.*")]
    assert vault.stat().st_mode & 0o077 == 0
    found = read_back(vault, tmp_path / "out")
    assert {k: as_dict(r) for k, r in found.items()} == {
        r.memory_id: as_dict(r) for r in renumber(MEMORIES)
    }


def test_concepts_are_linked_notes(tmp_path: Path) -> None:
    paths, vault = publish(tmp_path / "store", MEMORIES[:2]), tmp_path / "vault"
    export_vault(paths, vault)
    names = {path.stem for path in (vault / "concepts").iterdir()}
    assert {"Nina", "Globex"} <= names
    note = next((vault / "memories" / "work").glob("Nina works*.md")).read_text()
    front, body = split_front_matter(note)
    assert body == "Nina works at Globex."
    said = read_yaml(front or "")
    assert {"[[Nina]]", "[[Globex]]"} <= set(said["concepts"])
    linked = {link.strip("[]").partition("|")[0] for link in said["concepts"]}
    assert linked <= names
    assert "- works at [[Globex]] since 2026-01-01" in (vault / "concepts/Nina.md").read_text()


def test_again_changes_nothing_or_what_changed_and_keeps_edits(tmp_path: Path) -> None:
    store, vault = new_store(tmp_path / "store"), tmp_path / "vault"
    store.publish(renumber(MEMORIES))
    export_vault(store.paths, vault)
    before = tree(vault)
    assert export_vault(store.paths, vault)[1:] == (0, 0, 0)
    assert tree(vault) == before
    (vault / ".obsidian").mkdir()
    (vault / ".obsidian" / "app.json").write_text("{}")
    (vault / "mine.md").write_text("mine")
    edited = next(vault.glob("memories/work/Nina works*.md"))
    edited.write_text("edited")
    changed = [MEMORIES[0], MEMORIES[2]._replace(content="changed")]
    store.publish(renumber(changed, first_id=101))
    made = export_vault(store.paths, vault)
    assert made.kept == 1
    assert made.removed > len(HOSTILE)
    assert (vault / "mine.md").read_text() == "mine"
    assert edited.read_text() == "edited"
    texts = [path.read_text() for path in vault.glob("memories/*/*.md")]
    assert len(texts) == 2
    assert any(text.endswith("\nchanged") for text in texts)


@pytest.mark.parametrize(
    "files", [{"notes.md": "mine"}, {MARKER: "{}"}, {MARKER: "[1]"}, {MARKER: '{"files": 7}'}]
)
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, files: Mapping[str, str]) -> None:
    paths, vault = publish(tmp_path / "store", MEMORIES[:1]), tmp_path / "vault"
    vault.mkdir()
    for name, text in files.items():
        (vault / name).write_text(text)
    before = tree(vault)
    with pytest.raises(StoreError, match=r"not a vault that noctuary wrote: name another place"):
        export_vault(paths, vault)
    assert tree(vault) == before


def test_a_forged_vault_removes_and_overwrites_nothing_outside(tmp_path: Path) -> None:
    paths, vault = publish(tmp_path / "store", MEMORIES[:2]), tmp_path / "vault"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_text("a")
    digest = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    names = [
        "../outside/a.md",
        "memories/../../outside/a.md",
        "memories/../a.md",
        "/a.md",
        "mine.md",
    ]
    vault.mkdir()
    (vault / "mine.md").write_text("a")
    marker = {"format": "noctuary-vault", "files": dict.fromkeys(names, digest)}
    (vault / MARKER).write_text(json.dumps(marker))
    export_vault(paths, vault)
    assert (outside / "a.md").read_text() == (vault / "mine.md").read_text() == "a"
    note = next(vault.glob("memories/work/*.md"))
    note.unlink()
    note.symlink_to(outside / "a.md")
    assert export_vault(paths, vault).kept == 1
    assert (outside / "a.md").read_text() == "a"
    (vault / "memories").rename(tmp_path / "moved")
    (vault / "memories").symlink_to(outside)
    with pytest.raises(StoreError, match="is a link: noctuary writes only inside"):
        export_vault(paths, vault)
    assert [path.name for path in outside.iterdir()] == ["a.md"]


def test_the_command_says_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_json: Any, run: Any
) -> None:
    publish(tmp_path / "store", MEMORIES[:2])
    vault = tmp_path / "vault"
    where = ("--store", str(tmp_path / "store"))
    told = run_json("export", "--markdown", str(vault), *where)
    assert told["written"] == told["notes"] > 2
    again = run("export", "--markdown", str(vault), *where)
    assert re.search(r"notes in .*vault \(0 written, 0 removed, 0 kept as edited\)", again.output)
    assert run("export", "--markdown", str(tmp_path), *where).exit_code == 1


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
    st.lists(TEXT.map(lambda tag: tag.replace(",", " ").replace(":", " ")), max_size=3),
    TEXT,
    TEXT.filter(lambda key: bool(key.strip())),
    st.floats(0, 1),
    st.integers(day_us(-10_000), day_us(10_000)),
)
@hypothesis_settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_memory_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    content: str,
    tags: list[str],
    wing: str,
    keywords: str,
    importance: float,
    at_us: int,
) -> None:
    if not any(c.isprintable() and not c.isspace() for c in content):
        content += "x"
    record = memory(
        content,
        tags=",".join(tags),
        wing=wing.strip() or None,
        expanded_keywords=keywords,
        importance=importance,
        created_at_us=at_us,
    )
    root = tmp_path_factory.mktemp("any")
    export_vault(publish(root / "store", [record]), root / "vault")
    (found,) = read_back(root / "vault", root / "out").values()
    assert as_dict(found) == as_dict(renumber([record])[0])


@pytest.mark.parametrize("text", HOSTILE)
def test_a_name_is_one_that_every_file_system_takes(text: str) -> None:
    name = name_file(text)
    assert re.fullmatch(r'[^\\/:*?"<>|#^\[\]%\x00-\x1f.\s][^\\/:*?"<>|#^\[\]%\x00-\x1f]*', name)
    assert len(name.encode()) <= 200
    assert not name.endswith((".", " "))
