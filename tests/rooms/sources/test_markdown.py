"""Folders of Markdown: notes by headings, links as evidence, hostile files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from noctuary.core.errors import SourceError, SourceFormatError, SourceMissingError
from noctuary.core.settings import Settings
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.sources import markdown
from noctuary.sources.evidence import read_evidence
from noctuary.sources.export import ExportReport
from noctuary.sources.open import open_source, read_marker
from noctuary.sources.source import KnownConcept, KnownEdge, KnownMention, MemoryLink
from noctuary.sources.turns import hash_bytes
from tests.support.transcripts import ClaudeSession, write_session

Vault = Callable[..., Path]
Exported = Callable[[Path], tuple[ExportReport, Mapping[str, MemoryRecord]]]

# As basic-memory's NOTE-FORMAT.md has it.
METHODS = """---
title: Coffee Brewing Methods
type: note
tags: [coffee, brewing]
permalink: coffee-brewing-methods
---
# Coffee Brewing Methods
## Observations
- [method] Pour over provides more flavor clarity than French press
- [technique] Water at 205 degrees extracts optimal compounds #brewing #hot/water
## Relations
- relates_to [[Coffee Bean Origins]]
- requires [[Proper Grinding Technique]]
"""
ORIGINS = "---\ntitle: Coffee Bean Origins\naliases: [Beans]\n---\nBeans come from Ethiopia.\n"
DATED = """---
created: 2026-03-01T09:00:00+01:00
updated: 2026-03-02
importance: 0.9
tags: "#home, kitchen"
wing: house
room: pantry
---
# Key
It hangs there.
"""
# As Claude Code writes its auto memory.
FEEDBACK = """---
name: use pnpm
description: Always pnpm in this repository, never npm
type: feedback
---
The lock file is pnpm's. See [the build](build.md).
"""
DAILY = "Called the plumber about [[Boiler]].\r\n\r\n## Evening\r\nAbout [[origins|beans]].\r\n"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """Write notes by their path below a folder; bytes as they are."""

    def make(notes: Mapping[str, str | bytes], name: str = "vault") -> Path:
        for path, text in notes.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / name

    return make


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "coffee/methods.md",
            METHODS,
            {
                "coffee/methods.md#observations": {
                    "content": "Coffee Brewing Methods\nObservations\n- [method] Pour over "
                    "provides more flavor clarity than French press\n- [technique] Water at 205 "
                    "degrees extracts optimal compounds #brewing #hot/water",
                    "tags": "coffee,brewing,hot/water",
                    "category": "note",
                    "wing": "coffee",
                    "expanded_keywords": "methods",
                },
                "coffee/methods.md#relations": {"tags": "coffee,brewing"},
            },
        ),
        (
            "2026-03-01.md",
            DAILY,
            {
                "2026-03-01.md": {
                    "content": "2026-03-01\nCalled the plumber about [[Boiler]].",
                    "wing": "vault",
                    "created_at_us": 1_772_323_200_000_000,
                },
                "2026-03-01.md#evening": {
                    "content": "2026-03-01\nEvening\nAbout [[origins|beans]]."
                },
            },
        ),
        (
            "dated.md",
            DATED,
            {
                "dated.md#key": {
                    "content": "Key\nIt hangs there.",
                    "created_at_us": 1_772_352_000_000_000,
                    "updated_at_us": 1_772_409_600_000_000,
                    "importance": 0.9,
                    "tags": "home,kitchen",
                    "wing": "house",
                    "room": "pantry",
                }
            },
        ),
        (
            # A date that says nothing is none; a key that means something else is no user.
            "soon.md",
            "---\ndate: soon\nimportance: high\nuser: bob\ntags: {a: b}\n---\nLater.\n",
            {"soon.md": {"created_at_us": UNDATED_US, "importance": 0.5, "user": None, "tags": ""}},
        ),
        (
            "code.md",
            "a\n```sh\n# no heading [[ -f x ]]\n```\n## Same\nb\n## Same\nc\n# Same 1\nd\n## Z\n",
            {
                "code.md": {"content": "code\na\n```sh\n# no heading [[ -f x ]]\n```"},
                "code.md#same": {"content": "code\nSame\nb"},
                "code.md#same-1": {"content": "code\nSame\nc"},
                "code.md#same-1-1": {"content": "code\nSame 1\nd"},
            },
        ),
        (
            "broken.md",
            "---\ntags: [a\n---\nText.\n",
            {"broken.md": {"content": "broken\n---\ntags: [a\n---\nText.", "tags": ""}},
        ),
        ("bom.md", b"\xef\xbb\xbf---\ntags: [a]\n---\nText.", {"bom.md": {"tags": "a"}}),
        ("blank.md", "---\ntags: [a]\n---\n# Only a heading\n", {}),
    ],
)
def test_a_section_is_a_memory_with_what_its_note_says(
    vault: Vault, exported: Exported, path: str, text: str, expected: Mapping[str, dict[str, Any]]
) -> None:
    report, found = exported(vault({path: text}))
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert {name: getattr(found[key], name) for name in values} == values
    assert report.identity.kind == "markdown"
    assert report.source_rows == len(expected)


DAY_US = 1_795_824_000_000_000  # 2026-11-28


@pytest.mark.parametrize(
    ("front", "created_us", "updated_us", "warnings"),
    [
        ("date: 28.11.2026", DAY_US, None, {}),
        ("created: 2026/11/28", DAY_US, None, {}),
        ("date: Nov 28, 2026", DAY_US, None, {}),
        ("created: 1795824000", DAY_US, None, {}),
        ("created: 1795824000000", DAY_US, None, {}),
        ("creation_date: 2026-11-28", DAY_US, None, {}),
        ("Created time: 2026-11-28T00:00:00.000Z", DAY_US, None, {}),
        ("Date Created: [2026-11-28]", DAY_US, None, {}),
        ("date-created: '[[2026-11-28]]'", DAY_US, None, {}),
        ("createdAt: 20261128", DAY_US, None, {}),
        ("modified: 28 November 2026", None, DAY_US, {}),
        ("last_modified: 2026-11-28", None, DAY_US, {}),
        ("Last edited time: November 28, 2026", None, DAY_US, {}),
        ("created: soon\ndate: 2026-11-28", DAY_US, None, {}),
        ("date:", None, None, {}),
        ("date: soon", None, None, {"bad_date": 1}),
        ("created: 03/04/2026", None, None, {"bad_date": 1}),
        ("created: {a: b}", None, None, {"bad_date": 1}),
        ("updated: 03/04/2026", None, None, {"updated_at_unusable": 1}),
        ("metadata:\n  node_type: memory\n  modified: 2026-11-28", None, DAY_US, {}),
    ],
)
def test_a_note_is_dated_by_what_has_one_meaning_else_counted(
    vault: Vault,
    exported: Exported,
    front: str,
    created_us: int | None,
    updated_us: int | None,
    warnings: Mapping[str, int],
) -> None:
    report, found = exported(vault({"gauge.md": f"---\n{front}\n---\nRead by crew B.\n"}))
    record = found["gauge.md"]
    assert record.created_at_us == (UNDATED_US if created_us is None else created_us)
    assert record.updated_at_us == (UNDATED_US if updated_us is None else updated_us)
    assert report.warnings == warnings


# As basic-memory leaves a note that had a front matter of its own.
TWO_FRONTS = """---
permalink: quay/capstan
type: note
---

---
title: Quay capstan
type: reference
tags: [capstan]
created: 2026-11-28
---

# Quay capstan

It turns left.
"""
# As Claude Code writes its notes since 2026.
NESTED = """---
name: quay-radio
description: The channel of the crew
metadata:
  node_type: memory
  type: feedback
---

Channel 12.
"""
CARD = """---
title: Ana Brandt
tags: [people]
Phone: 555 0134
languages: [Dutch, Basque]
address:
  street: Kade 4
related: "[[Quay capstan]]"
created: 2026-11-28
cssclasses: [wide]
---
"""


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        (TWO_FRONTS, "note.md#quay-capstan", {
            "content": "Quay capstan\nIt turns left.", "category": "reference",
            "tags": "capstan", "created_at_us": DAY_US,
        }),
        (TWO_FRONTS.replace("\n", "\r\n"), "note.md#quay-capstan", {"category": "reference"}),
        (NESTED, "note.md", {"category": "feedback", "content": "quay-radio\nChannel 12."}),
        (NESTED.replace("metadata:", "type: user\nmetadata:"), "note.md", {"category": "user"}),
        (CARD, "note.md", {
            "content": "Ana Brandt\nphone: 555 0134\nlanguages: Dutch, Basque\nstreet: Kade 4\n"
            "related: [[Quay capstan]]", "tags": "people", "created_at_us": DAY_US,
        }),
        (f"{CARD}# Ana\n", "note.md", {"tags": "people"}),
        ("---\ndescription: Feeds the cats\n---\n", "note.md", {"content": "note\nFeeds the cats"}),
        # Two rules behind a front matter are the note's own.
        ("---\ntags: [a]\n---\n---\nWho: Ana\n---\nx", "note.md",
         {"content": "note\n---\nWho: Ana\n---\nx"}),
    ],
)  # fmt: skip
def test_front_matter_is_read_as_other_tools_leave_it(
    vault: Vault, exported: Exported, text: str, key: str, expected: Mapping[str, object]
) -> None:
    _, found = exported(vault({"note.md": text}))
    assert found.keys() == {key}
    assert {name: getattr(found[key], name) for name in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "---\nsensitive: true\n---\n---\ntype: note\nsensitive: false\n---\na",
        "---\nmetadata:\n  sensitive: true\n---\na",
        "---\nsensitive: yes\nphone: 555\n---\n",
    ],
)
def test_a_mark_counts_wherever_it_stands(vault: Vault, exported: Exported, text: str) -> None:
    report, found = exported(vault({"note.md": text}))
    assert (report.sensitive, found) == ({"flagged": 1}, {})


@pytest.mark.parametrize(
    ("path", "text", "is_left_out"),
    [
        ("a.md", "---\ndate: {{date}}\n---\nWeather:\n", True),
        ("a.md", '---\ntitle: "Log of {{title}}"\n---\nx\n', True),
        ("a.md", "---\ntitle: {{title}} log\n---\nx\n", True),
        ("a.md", "# {{ title }}\n\nAgenda\n", True),
        ("a.md", "Written {{date:YYYY-MM-DD}} at {{time}}.\n", True),
        ("a.md", "With {{guest}} about {{topic}}.\n", True),
        ("Templates/a.md", "With {{guest}}.\n", True),
        ("meeting-template.md", "With {{guest}}.\n", True),
        ("a.md", "<% tp.date.now() %>\n", True),
        # What speaks of placeholders, or has another meaning, is a note.
        ("a.md", "The form says {{guest}}, and we fill it in by hand.\n", False),
        ("a.md", "Write `{{date}}` and `{{title}}`.\n", False),
        ("a.md", "```\n{{date}} {{title}}\n```\n", False),
        ("a.md", "Ask ${{ secrets.NAME }} and ${{ github.ref }}.\n", False),
        ("a.md", "{{c1::Ghent}} lies in {{c2::Flanders}}.\n", False),
        ("a.md", "---\ndescription: How {{date}} works\n---\n" + "word " * 40, False),
        ("Templates/a.md", "How I use templates.\n", False),
        ("template.md", "None.\n", False),
    ],
)
def test_a_template_is_left_out_and_counted(
    vault: Vault, exported: Exported, path: str, text: str, is_left_out: bool
) -> None:
    report, found = exported(vault({path: text, "other.md": "whole"}))
    assert report.quarantined == ({"template": 1} if is_left_out else {})
    assert len(found) == (1 if is_left_out else 2)


@pytest.mark.parametrize(
    ("line", "relations", "tags"),
    [
        ("- feeds [[Basin]]", {("feeds", "Basin")}, ""),
        ('- "is part of" [[Basin]] (since May (2026))', {("is part of", "Basin")}, ""),
        ("* 'is part of' [[Basin|the basin]]", {("is part of", "Basin")}, ""),
        ("1. gehört_zu [[Basin#Gate]]", {("gehört_zu", "Basin")}, ""),
        ("- is part of [[Basin]]", set[tuple[str, str]](), ""),
        ("- feeds [[Basin]] and [[Lock]]", set[tuple[str, str]](), ""),
        ("- feeds [[Basin]] (main) and (spare)", set[tuple[str, str]](), ""),
        ("- `feeds [[Basin]]`", set[tuple[str, str]](), ""),
        ("- [[Basin]]", set[tuple[str, str]](), ""),
        ("- [x] [[Basin]]", set[tuple[str, str]](), ""),
        ("feeds [[Basin]]", set[tuple[str, str]](), ""),
        ("- [rule] Close it at night #gate#night (by order of #crew)",
         set[tuple[str, str]](), "gate,night"),
        ("- [ ] Paint it #gate (for #crew)", set[tuple[str, str]](), "gate,crew"),
        ("- [1:02] said so (#crew)\n- [rule] #user:eve", set[tuple[str, str]](), "user"),
    ],
)  # fmt: skip
def test_relations_and_observations_are_those_of_basic_memorys_parser(
    vault: Vault,
    exported: Exported,
    tmp_path: Path,
    line: str,
    relations: set[tuple[str, str]],
    tags: str,
) -> None:
    _, found = exported(vault({"sluice.md": f"It is old.\n\n{line}\n"}))
    assert found["sluice.md"].tags == tags
    assert line.partition("\n")[0] in found["sluice.md"].content
    edges = {(e.relation, e.target) for e in read_evidence(tmp_path / "out", KnownEdge)}
    assert edges == relations


def test_links_are_evidence_for_the_graph(vault: Vault, exported: Exported, tmp_path: Path) -> None:
    folder = vault(
        {"coffee/methods.md": METHODS, "coffee/origins.md": ORIGINS, "2026-03-01.md": DAILY}
    )
    exported(folder)
    links = {link[:3] for link in read_evidence(tmp_path / "out", MemoryLink)}
    assert links == {
        ("coffee/methods.md#relations", "coffee/origins.md", "see-also"),
        ("2026-03-01.md#evening", "coffee/origins.md", "see-also"),
    }
    assert {c.name for c in read_evidence(tmp_path / "out", KnownConcept)} == {
        "Boiler", "Coffee Bean Origins", "Proper Grinding Technique", "Coffee Brewing Methods",
    }  # fmt: skip
    mentions = {m[:2] for m in read_evidence(tmp_path / "out", KnownMention)}
    assert ("2026-03-01.md#evening", "Coffee Bean Origins") in mentions
    assert ("coffee/origins.md", "Coffee Bean Origins") in mentions
    assert ("2026-03-01.md", "Boiler") in mentions
    edges = {edge[:3] for edge in read_evidence(tmp_path / "out", KnownEdge)}
    assert ("Coffee Brewing Methods", "Proper Grinding Technique", "requires") in edges


def test_an_agents_auto_memory_belongs_to_its_project(
    vault: Vault, exported: Exported, session: ClaudeSession
) -> None:
    memory = "projects/-home-me-shop/memory"
    folder = vault(
        {f"{memory}/use_pnpm.md": FEEDBACK, f"{memory}/build.md": "Run make."}, ".claude"
    )
    _, found = exported(folder / memory)
    assert {record.wing for record in found.values()} == {"home-me-shop"}
    session.user("hello")
    write_session(folder / "projects/-home-me-shop/one.jsonl", session.lines)
    _, found = exported(folder / memory)
    assert {record.wing for record in found.values()} == {"shop"}
    told = found["use_pnpm.md"]
    assert (told.category, told.content.partition("\n")[0]) == ("feedback", "use pnpm")
    assert told.expanded_keywords == "use_pnpm Always pnpm in this repository, never npm"


def test_what_lies_elsewhere_or_is_for_the_agent_is_left(vault: Vault, exported: Exported) -> None:
    vault({"other.md": "not ours"}, "elsewhere")
    folder = vault(
        {
            "a.md": "ours",
            ".trash/b.md": "gone",
            ".hidden.md": "hidden",
            "c.txt": "no note",
            "CLAUDE.md": "- a rule",
            "sub/AGENTS.md": "- a rule",
        }
    )
    (folder / "link.md").symlink_to(folder.parent / "elsewhere/other.md")
    (folder / "inner.md").symlink_to("a.md")
    (folder / "linked").symlink_to(folder.parent / "elsewhere")
    (folder / "gone.md").symlink_to("nowhere.md")
    os.mkfifo(folder / "pipe.md")
    _, found = exported(folder)
    assert found.keys() == {"a.md"}
    assert read_marker(folder, Settings())
    _, found = exported(folder / "CLAUDE.md")
    assert [(r.content, r.wing) for r in found.values()] == [("CLAUDE\n- a rule", "vault")]


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.mark.parametrize(
    ("text", "quarantined", "sensitive"),
    [
        (b"half \xc3", {"not_utf8": 1}, {}),
        (b"a\0b", {"nul_bytes": 1}, {}),
        (f"half {SECRET} ".encode() + b"\xc3", {}, {"secret:github_token": 1}),
        (f"---\ntoken: {SECRET}\n---\na\n# b\nc", {}, {"secret:github_token": 2}),
        (f"a\n# b\n{SECRET}", {}, {"secret:github_token": 1}),
        ("---\nsensitive: true\n---\na\n# b\nc", {}, {"flagged": 2}),
        ("---\nsensitive: no\n---\na\n# b\nc", {}, {}),
        ("x" * 2_000_000, {"content_too_large": 1}, {}),
        ('---\ntitle: "\\ud800"\naliases: ["\\ud800"]\n---\na [[b]]', {}, {}),
        ('---\ntype: "\\ud800"\n---\na', {"bad_unicode": 1}, {}),
    ],
)
def test_what_must_not_leave_or_is_damaged_is_counted(
    vault: Vault,
    exported: Exported,
    text: str | bytes,
    quarantined: Mapping[str, int],
    sensitive: Mapping[str, int],
) -> None:
    report, _ = exported(vault({"note.md": text, "other.md": "whole"}))
    assert report.quarantined == quarantined
    assert dict.fromkeys(report.sensitive, 0).keys() == dict.fromkeys(sensitive, 0).keys()
    assert sum(report.sensitive.values()) == sum(sensitive.values())
    assert report.source_rows == report.exported + sum((*quarantined.values(), *sensitive.values()))


@pytest.mark.parametrize(
    "text",
    [
        "# same\nx\n" * 60_000,
        f"# {'h' * 100_000}\n" + "## b\nx\n" * 20_000,
        "[[" * 200_000,
        "[[" + "a" * 400_000,
        "- a " * 100_000 + "[[x",
        "](" * 200_000,
        "".join(f"# {i}\n[[note#{i}]] " for i in range(9_000)) + "[[note#8999]]" * 200_000,
        "#" * 400_000,
        "---\n" + "a: &a [" * 5_000,
        "`" * 200_000 + "\n" + "~" * 200_000,
    ],
    ids=range(10),
)
@pytest.mark.timeout(20)
def test_hostile_notes_take_no_more_than_their_length(vault: Vault, text: str) -> None:
    with open_source(vault({"note.md": text, "other.md": "[[note]]"})) as source:
        assert 2 <= source.count() <= markdown.MAX_SECTIONS + 2
        assert sum(len(str(row.fields["content"])) for row in source.rows()) < 10 * len(text)
        said = (source.told(MemoryLink), source.told(KnownMention), source.told(KnownConcept))
        assert sum(len(list(rows)) for rows in said) < len(text)


def test_names_of_any_bytes_are_read(tmp_path: Path, exported: Exported) -> None:
    for name, text in {
        b"\xff\xfe/\xff.md": b"one [[\xed\xa0\x80]]",
        b"\xff.md": b"a\0b",
        b"\xfe.md": b"---\nsensitive: 1\n---\na",
        b"a\nb/" + b"x" * 200 + b"/" + b"y" * 200 + b".md": b"# h\nlong",
        b"id.md": b'---\nnoctuary: memory\nid: "\\ud800"\n---\nown',
    }.items():
        path = tmp_path / "vault" / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    report, found = exported(tmp_path / "vault")
    assert report.quarantined == {"nul_bytes": 1, "not_utf8": 1}
    assert report.sensitive == {"flagged": 1}
    assert {record.content for record in found.values()} == {"h\nlong", "id\nown"}
    assert read_marker(tmp_path / "vault", Settings())
    assert hash_bytes(tmp_path / "vault", tmp_path)


def test_a_folder_or_note_beyond_the_limits_is_refused_or_set_aside(
    vault: Vault, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = vault({"a.md": "a" * 100, "b.md": "b"})
    monkeypatch.setattr(markdown, "MAX_NOTE_BYTES", 50)
    report, _ = exported(folder)
    assert report.quarantined == {"content_too_large": 1}
    monkeypatch.setattr(markdown, "MAX_FOLDER_BYTES", 0)
    with pytest.raises(SourceFormatError, match=r"more than 0 MiB of notes.*one of its folders"):
        open_source(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_note_that_cannot_be_read_stops_the_night(vault: Vault) -> None:
    folder = vault({"a.md": "a", "b/c.md": "c"})
    (folder / "b").chmod(0)
    with pytest.raises(SourceError, match="cannot be read"):
        open_source(folder)


def test_a_folder_without_a_note_is_no_source(vault: Vault) -> None:
    with pytest.raises(SourceMissingError, match=r"holds no memory store.*Markdown"):
        open_source(vault({"a.txt": "a", "CLAUDE.md": "- a"}))


def state_of(folder: Path) -> Mapping[str, object]:
    return {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_reading_changes_nothing_and_every_edit_is_seen(
    vault: Vault, exported: Exported, tmp_path: Path
) -> None:
    folder = vault({"a.md": "one", "sub/b.md": "two"})
    before = state_of(folder)
    exported(folder)
    assert state_of(folder) == before
    seen = {(read_marker(folder, Settings()), hash_bytes(folder, tmp_path))}
    for change in (
        lambda: (folder / "a.md").write_text("ons"),
        lambda: (folder / "sub/c.md").write_text("new"),
        lambda: (folder / "sub/c.md").rename(folder / "sub/d.md"),
        lambda: (folder / "sub/d.md").unlink(),
        lambda: (folder / "sub/b.md").unlink(),
    ):
        change()
        seen.add((read_marker(folder, Settings()), hash_bytes(folder, tmp_path)))
    assert len({marker for marker, _ in seen}) >= 5
    assert len({digest for _, digest in seen}) == 5  # one edit undid another
    assert None not in {digest for _, digest in seen}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), max_size=8))
@hypothesis_settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_word_of_a_note_is_in_a_memory(tmp_path: Path, lines: list[str]) -> None:
    """A property of any text: headings cut it and repeat, nothing is dropped but empty sections."""
    folder = tmp_path / "any"
    folder.mkdir(exist_ok=True)
    (folder / "n.md").write_bytes("\n".join(lines).encode())
    with open_source(folder) as source:
        rows = list(source.rows())
    assert len({row.key for row in rows}) == len(rows)
    together = "\n".join(str(row.fields["content"]) for row in rows)
    said = "\n".join(lines).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    plain = [
        line for line in said.split("\n") if line.strip() and not line.lstrip().startswith("#")
    ]
    if not said.startswith("---"):
        assert all(line.strip() in together for line in plain)
