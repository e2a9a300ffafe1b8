"""Properties of the partition over generated Markdown."""

from __future__ import annotations

import csv
import os
import pickle
import re
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noctuary.context.documents import (
    HARD,
    MAX_DOCUMENT_BYTES,
    MAX_LEVELS,
    NO_DOCUMENTS,
    REACH_WORDS,
    SOFT,
    VARIANT,
    Authored,
    find_marks,
    load_documents,
    parse_document,
    read_front_matter,
    require_hard_fits,
)
from noctuary.core.errors import (
    AuthoredBudgetError,
    AuthoredError,
    AuthoredFormatError,
    AuthoredMissingError,
    NoctuaryError,
)
from noctuary.text.front_matter import MAX_FRONT_MATTER_CHARS, split_front_matter

FIRST = "# Rules\n\n- Run the tests.\n- Sign commits.\n\nYou must not push.\n"
SECOND = "---\nhop_targets: [none#000001]\n---\n> Be kind.\n\nSome history.\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "AGENTS.md").write_text(FIRST, encoding="utf-8")
    (tmp_path / "sub" / "a.md").write_text(SECOND, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_documents_keep_the_order_they_are_given_in(folder: Path) -> None:
    authored = load_documents(["sub/a.md", Path("AGENTS.md")])
    assert authored.nodes == (
        *parse_document(SECOND, "sub/a.md"),
        *parse_document(FIRST, "AGENTS.md"),
    )
    assert [node.id for node in authored.hard] == [
        "sub/a.md#000000", "AGENTS.md#000001", "AGENTS.md#000002",
    ]  # fmt: skip
    assert [node.id for node in authored.soft] == ["sub/a.md#000001", "AGENTS.md#000003"]
    assert [node.id for node in authored.variants] == ["sub/a.md#000002", "AGENTS.md#000000"]


def test_the_digest_changes_with_texts_names_and_order(folder: Path) -> None:
    both = load_documents(["AGENTS.md", "sub/a.md"])
    assert both == load_documents(["AGENTS.md", "sub/a.md"])
    digests = {
        both.digest,
        load_documents(["sub/a.md", "AGENTS.md"]).digest,
        load_documents(["AGENTS.md"]).digest,
        load_documents([folder / "AGENTS.md"]).digest,
        NO_DOCUMENTS.digest,
    }
    (folder / "AGENTS.md").write_text(FIRST + " ", encoding="utf-8")
    digests.add(load_documents(["AGENTS.md", "sub/a.md"]).digest)
    assert len(digests) == 6
    assert len(both.digest) == 64


def test_one_file_under_two_names_is_read_once(folder: Path) -> None:
    (folder / "CLAUDE.md").symlink_to("AGENTS.md")
    once = load_documents(["AGENTS.md"])
    assert load_documents(["AGENTS.md", "CLAUDE.md", folder / "AGENTS.md"]) == once
    assert load_documents(["CLAUDE.md", "AGENTS.md"]).nodes[0].source == "CLAUDE.md"


def test_hop_targets_that_lead_nowhere_are_known(folder: Path) -> None:
    assert load_documents(["AGENTS.md", "sub/a.md"]).dangling_targets == ("none#000001",)
    (folder / "sub" / "a.md").write_text(
        "---\nhop_targets: [AGENTS.md#000000, AGENTS.md#000001]\n---\nSome history.\n",
        encoding="utf-8",
    )
    # The second is hard: it is in every prompt and no target.
    loaded = load_documents(["AGENTS.md", "sub/a.md"])
    assert loaded.dangling_targets == ("AGENTS.md#000001",)


@pytest.mark.parametrize(
    ("name", "raw", "error", "found"),
    [
        ("gone.md", None, AuthoredMissingError, "there is no document at gone.md"),
        ("AGENTS.md/x", None, AuthoredMissingError, "there is no document at"),
        ("sub", None, AuthoredFormatError, "sub is a folder"),
        ("a\0b", None, AuthoredFormatError, "cannot be read"),
        ("b.md", b"abc\0def", AuthoredFormatError, "b.md is binary: its byte 3 is zero"),
        ("l.md", b"caf\xe9 au lait", AuthoredFormatError, "not UTF-8: byte 0xe9 at byte 3"),
        ("u.md", "\ufeffa".encode("utf-16"), AuthoredFormatError, "is binary"),
        ("f.md", b"---\na: b: c\n---\n", AuthoredFormatError, "front matter of f.md is wrong"),
        ("h.md", b"x" * (MAX_DOCUMENT_BYTES + 1), AuthoredFormatError, "more than 1,000,000 bytes"),
        ("pipe.md", None, AuthoredFormatError, "no regular file"),
        ("loop.md", None, AuthoredFormatError, "cannot be read"),
    ],
)
def test_what_cannot_be_read_says_why(
    folder: Path, name: str, raw: bytes | None, error: type[Exception], found: str
) -> None:
    if raw is not None:
        (folder / name).write_bytes(raw)
    os.mkfifo(folder / "pipe.md")
    (folder / "loop.md").symlink_to("loop.md")
    with pytest.raises(error, match=found) as caught:
        load_documents(["AGENTS.md", name])
    assert isinstance(caught.value, AuthoredError)
    assert isinstance(caught.value, NoctuaryError)
    assert isinstance(caught.value, FileNotFoundError) == (error is AuthoredMissingError)
    assert str(caught.value).endswith(".")


def test_a_name_that_is_not_utf8_gives_ids_that_print(folder: Path) -> None:
    path = os.fsdecode(b"caf\xe9.md")
    Path(path).write_text("text", encoding="utf-8")
    (node,) = load_documents([path]).nodes
    assert node.id == "caf\\xe9.md#000000"
    assert node.id.encode()
    (folder / "large.md").write_bytes(b"x" * MAX_DOCUMENT_BYTES)
    (largest,) = load_documents(["large.md"]).nodes
    assert len(largest.text) == MAX_DOCUMENT_BYTES
    assert load_documents([]) == NO_DOCUMENTS
    assert {n.authority for n in load_documents(["AGENTS.md"], core=False).nodes} == {0.0}


def words(text: str) -> int:
    return len(text.split())


def test_hard_nodes_that_exceed_their_reserve_are_refused_with_the_numbers() -> None:
    nodes = parse_document(
        "- one\n- one two three four\n- one two\n- one two three\n\nrest", "a.md"
    )
    authored = Authored(nodes, "")
    assert require_hard_fits(authored, words, 10) == 10
    with pytest.raises(AuthoredBudgetError) as caught:
        require_hard_fits(authored, words, 9.5)
    error = caught.value
    assert (error.tokens, error.reserve_tokens, error.nodes) == (10, 9.5, 4)
    assert "4 hard nodes" in str(error)
    assert "need 10 tokens" in str(error)
    assert "reserve of 9.5" in str(error)
    assert "a.md#000001 (4), a.md#000003 (3), a.md#000002 (2)." in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == (str(error), vars(error))
    assert require_hard_fits(Authored(parse_document("a\n\n> b", "a.md"), ""), words, 0) == 0
    for reserve in (-1, float("nan")):
        with pytest.raises(ValueError, match="reserve_tokens must be at least 0"):
            require_hard_fits(NO_DOCUMENTS, words, reserve)


@pytest.mark.parametrize(
    ("text", "front", "body"),
    [
        ("---\na: b\n---\nbody", "a: b\n", "body"),
        ("---\na: b\n...\nbody", "a: b\n", "body"),
        ("---\na: b\n---", "a: b\n", ""),
        ("---\n---\nbody", "", "body"),
        ("--- \na: b\n---\t\nbody", "a: b\n", "body"),
        ("---\na: '---'\nb: ---x\n---\nbody\n---\n", "a: '---'\nb: ---x\n", "body\n---\n"),
    ],
)
def test_front_matter_stands_between_two_lines(text: str, front: str, body: str) -> None:
    assert split_front_matter(text) == (front, body)


@pytest.mark.parametrize(
    "text",
    [
        "", "---", "---\na: b\n", "\n---\na: b\n---\n", " ---\na: b\n---\n", "----\na: b\n---\n",
        "text\n---\na: b\n---\n", "--- x\na: b\n---\n", "---\na: b\n ---\n", "---\na: b\n----\n",
    ],
)  # fmt: skip
def test_everything_else_is_markdown(text: str) -> None:
    assert split_front_matter(text) == (None, text)


@pytest.mark.parametrize(
    ("yaml", "targets"),
    [
        ("hop_targets: [a#000001, 'b#000002']", ("a#000001", "b#000002")),
        ("hop_targets: a#000001", ("a#000001",)),
        ("hop_targets:\n- a#000001\n- b#000002", ("a#000001", "b#000002")),
        ("hop_targets:\n  - a#000001 # why\n  - \"b c\"", ("a#000001", "b c")),
        ("hop_targets: [b, a, b, b]", ("b", "a")),
        ("hop_targets: [12, 007, 2026-13-45, yes]", ("12", "007", "2026-13-45", "yes")),
        ("hop_targets: []", ()),
        ("hop_targets:", ()),
        ("hop_targets: [~, '', null, a]", ("a",)),
        ("hop_targets: 'null'", ("null",)),
        ("hop_targets: [a]\nhop_targets: [b]", ("b",)),
        ('hop_targets: "a\\uD800"', ("a?",)),
        ("name: x", ()),
        ("# a comment alone", ()),
        ("? &a [*a]\n: x\nhop_targets: b", ("b",)),
    ],
)  # fmt: skip
def test_hop_targets_in_every_form(yaml: str, targets: tuple[str, ...]) -> None:
    assert read_front_matter(yaml, "a.md").hop_targets == targets


@pytest.mark.parametrize(
    ("yaml", "authority"),
    [
        ("authority: 0.4", 0.4),
        ("authority: 0", 0.0),
        ("authority: 1", 1.0),
        ("authority: .5\nauthored: true", 0.5),
        ("authority:\nauthored: true", 1.0),
        ("authored: true", 1.0),
        ("authored: Yes", 1.0),
        ("authored: false", 0.0),
        ("authored:", 0.0),
        ("name: x", 0.0),
    ],
)
def test_authority_of_a_document_that_is_not_core(yaml: str, authority: float) -> None:
    assert read_front_matter(yaml, "a.md").authority == authority
    text = f"---\n{yaml}\n---\nA paragraph.\n"
    assert [node.authority for node in parse_document(text, "a.md", core=False)] == [authority] * 2
    assert {node.authority for node in parse_document(text, "a.md")} == {1.0}


@pytest.mark.parametrize(
    ("yaml", "found"),
    [
        ("a: b: c", r"no YAML: .* \(line 2\)"),
        ("a: b\nc: [1, 2\n", r"no YAML: .* \(line [34]\)"),
        ("a: \x07", "no YAML: special characters"),
        ("a: '\ud800'", "no YAML: special characters"),
        ('a: "\\UFFFFFFFF"', "no YAML"),
        ("a: " + "[" * 5000, "no YAML"),
        ("- a\n- b", "no mapping"),
        ("just a line", "no mapping"),
        ("hop_targets: {a: b}", "must be an id or a list of ids"),
        ("hop_targets: [[a]]", "must be an id or a list of ids"),
        ("hop_targets: &x [*x]", "must be an id or a list of ids"),
        ("authority: 1.5", "a number from 0 to 1, not '1.5'"),
        ("authority: -0.1", "a number from 0 to 1"),
        ("authority: .nan", "a number from 0 to 1"),
        ("authority: nan", "a number from 0 to 1"),
        ("authority: high", "a number from 0 to 1, not 'high'"),
        ("authority: [1]", "a number from 0 to 1, not a list"),
        ("authored: maybe", "true or false, not 'maybe'"),
        ("authored: [true]", "true or false, not a list"),
        ("a: " + "x" * MAX_FRONT_MATTER_CHARS, "more than 32,768"),
    ],
)
def test_broken_front_matter_says_what_is_wrong_and_what_to_do(yaml: str, found: str) -> None:
    with pytest.raises(AuthoredFormatError, match=found) as caught:
        read_front_matter(yaml, "docs/a.md")
    assert "front matter of docs/a.md is wrong" in str(caught.value)
    assert "Fix it, or put an empty line" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_remedy_is_one() -> None:
    """A document that begins with a thematic break reads, with the empty line that is advised."""
    text = "---\njust a line\n\n---\n"
    with pytest.raises(AuthoredFormatError):
        parse_document(text, "a.md")
    assert [node.kind for node in parse_document(f"\n{text}", "a.md")] == ["paragraph"]


def test_front_matter_is_one_hard_node_and_variants_alone_have_targets() -> None:
    text = (
        "---\r\n\r\nname: x\r\nhop_targets: [b#000000]\r\n---\r\n# H\r\n- item\r\n> q\r\n\r\np\r\n"
    )
    nodes = parse_document(text, "a.md")
    assert nodes[0][3:6] == ("front_matter", HARD, "name: x\nhop_targets: [b#000000]")
    assert [node.kind for node in nodes] == [
        "front_matter",
        "heading",
        "item",
        "quote",
        "paragraph",
    ]
    assert {node.tier for node in nodes if node.hop_targets} == {VARIANT}
    assert [node.hop_targets for node in nodes if node.tier == VARIANT] == [("b#000000",)] * 2


@given(st.text(max_size=60))
def test_any_front_matter_is_read_or_refused(text: str) -> None:
    try:
        front = read_front_matter(text, "a.md")
    except AuthoredFormatError:
        return
    assert 0.0 <= front.authority <= 1.0
    assert front.hop_targets == () or "hop_targets" in text


GOLDEN = Path(__file__).parents[2] / "golden" / "deontic.tsv"


def golden_rows() -> list[dict[str, str]]:
    with GOLDEN.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def marks_of(cell: str) -> set[str]:
    return set() if cell == "none" else set(cell.split())


@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["case"])
def test_an_example_has_its_marks_and_the_tier_that_follows(row: dict[str, str]) -> None:
    marks = marks_of(row["marks"])
    assert find_marks(row["text"]) == marks
    (node,) = parse_document(row["text"], "AGENTS.md")
    assert (node.kind, node.marks) == ("paragraph", marks)
    assert node.tier == (SOFT if marks else VARIANT)


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("You shall answer in English.", "obligation"),
        ("You shall not answer.", "forbidden"),
        ("You are not required to answer.", "obligation"),
        ("you are required not to answer", "forbidden"),
        ("You can not answer.", "forbidden"),
        ("You can answer.", "none"),
        ("You cannot answer.", "forbidden"),
        ("You should not answer.", "obligation"),
        ("You must or may not.", "obligation forbidden"),
        ("You may, and you must.", "permitted obligation"),
        ("YOU MUST", "obligation"),
        ("You one two must", "obligation"),
        ("You one two three must", "none"),
        ("You one two must not", "forbidden"),
        ("Must you?", "none"),
        ("You mustn't push.", "none"),
        ("You can't push.", "none"),
        ("You're required to push.", "obligation"),
        ("You’ll never push.", "forbidden"),
        ("You’re always strictly required to sign.", "obligation"),
        ("Your dog must sleep.", "none"),
        ("Youth must sleep.", "none"),
        ("you_must run", "none"),
        ("You requires", "none"),
        ("you, – (must)", "obligation"),
        ("you必须must", "obligation"),
        ("Вы must", "none"),
        ("", "none"),
        ("you", "none"),
    ],
)
def test_what_counts_as_a_demand(text: str, marks: str) -> None:
    assert find_marks(text) == marks_of(marks)


@pytest.mark.parametrize(
    ("markdown", "marks"),
    [
        ("You **must** run it.", "obligation"),
        ("You\n**may** run it.", "permitted"),
        ("You\\\nmay run it.", "permitted"),
        ("You `must` run it.", "obligation"),
        ("You<br>must run it.", "obligation"),
        ("You [a](https://one.example/two/three/four) must run it.", "obligation"),
        ("You see [it](https://must.example).", "none"),
        ("Do <!-- you must --> it.", "none"),
        ("You&nbsp;must run it.", "obligation"),
        ("y**o**u must, and you may", "permitted obligation"),
    ],
)
def test_what_a_reader_does_not_see_is_no_word(markdown: str, marks: str) -> None:
    (node,) = parse_document(markdown, "AGENTS.md")
    assert node.marks == marks_of(marks)
    long = parse_document("x " * 20_000 + "and you **must** run it", "AGENTS.md")
    assert [node.marks for node in long] == [{"obligation"}]


@pytest.mark.parametrize("block", ["- {}", "1. {}", "> {}", "# {}", "    {}", "<p>{}</p>"])
def test_only_paragraphs_have_marks(block: str) -> None:
    (node,) = parse_document(block.format("You must run it."), "AGENTS.md")
    assert node.marks == frozenset()


WORDS = st.sampled_from(
    ["you", "You", "must", "shall", "required", "should", "may", "can", "cannot", "never", "not",
     "NOT", "dog", "x_1"]
)  # fmt: skip


def naive_marks(words: list[str]) -> set[str]:
    """The rules one by one, as patterns over words between single spaces."""
    text = " ".join(words).lower()
    near = rf"(?<!\S)you(?: \S+){{0,{REACH_WORDS - 1}}} "
    patterns = {
        "obligation": [r"(?:must|shall|required)(?!\S)(?! not(?!\S))", r"should(?!\S)"],
        "permitted": [r"may(?!\S)(?! not(?!\S))"],
        "forbidden": [r"(?:must|shall|required|may|can) not(?!\S)", r"(?:never|cannot)(?!\S)"],
    }
    return {m for m, rules in patterns.items() for rule in rules if re.search(near + rule, text)}


@given(st.lists(WORDS, max_size=14))
def test_the_rules_as_patterns_find_the_same(words: list[str]) -> None:
    assert find_marks(" ".join(words)) == naive_marks(words)


@given(st.text(max_size=80))
def test_any_text_has_marks_or_none(text: str) -> None:
    assert find_marks(text) <= {"obligation", "permitted", "forbidden"}
    assert find_marks(text.replace("you", "they").replace("You", "They").lower()) <= find_marks(
        text.lower()
    )


def shapes(text: str) -> list[tuple[str, int, str]]:
    return [(node.kind, node.tier, node.text) for node in parse_document(text, "AGENTS.md")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b", [("item", HARD, "a"), ("item", HARD, "b")]),
        ("1. a\n2) b", [("item", HARD, "a"), ("item", HARD, "b")]),
        ("- a\n\n* b", [("item", HARD, "a"), ("item", HARD, "b")]),
        ("- [ ] a\n  lazy\nlazier", [("item", HARD, "[ ] a lazy lazier")]),
        ("- a\n-\n- b", [("item", HARD, "a"), ("item", HARD, "b")]),
        ("> a\n> - b\n>\n> c", [("quote", SOFT, "a\n- b\nc")]),
        ("> a\nlazy", [("quote", SOFT, "a lazy")]),
        ("A  line\n\tand more.", [("paragraph", VARIANT, "A line and more.")]),
        ("You must.\n", [("paragraph", SOFT, "You must.")]),
        ("# One #\n\nTwo\n===\n", [("heading", VARIANT, "One"), ("heading", VARIANT, "Two")]),
        ("```py\n\n  x  = 1\n\n```", [("code", VARIANT, "  x  = 1")]),
        ("```\nnever closed", [("code", VARIANT, "never closed")]),
        ("    x\n\n      y", [("code", VARIANT, "x\n\n  y")]),
        ("\tx = 1", [("code", VARIANT, "x = 1")]),
        ("<div>\n a  b\n</div>", [("html", VARIANT, "<div>\n a  b\n</div>")]),
        ("<!-- a\n\n- b -->\nc", [("html", VARIANT, "<!-- a\n\n- b -->"), ("paragraph", 0, "c")]),
        ("[a]: docs/a.md\n[b]: b.md", [("paragraph", VARIANT, "[a]: docs/a.md [b]: b.md")]),
        ("- see [a]\n\n[a]: a.md", [("item", HARD, "see [a]"), ("paragraph", 0, "[a]: a.md")]),
        ("**bold** [x](y.md) &amp; \\*", [("paragraph", VARIANT, "**bold** [x](y.md) &amp; \\*")]),
        ("***\n---\n___", []),
        ("```\n```\n#\n>\n-\n", []),
        ("---\n---\n", []),
        ("---\n \t\n---\n", []),
        ("- - a\n  - b\n- 1. c", [("item", HARD, "- a\n  - b"), ("item", HARD, "1. c")]),
        ("- ```\n  ```\n- - ", []),
        ("\u00a0\n", []),
        ("", []),
        (" \n\t\n", []),
        ("a\u2028b\u0085c", [("paragraph", VARIANT, "a b c")]),
        ("a\0b", [("paragraph", VARIANT, "a\ufffdb")]),
    ],
)
def test_blocks_and_their_tiers(text: str, expected: list[tuple[str, int, str]]) -> None:
    assert shapes(text) == expected


def test_an_item_with_blocks_inside_is_one_node_that_keeps_their_marks() -> None:
    text = (
        "- Before a  release:\n"
        "  1. test\n"
        "  2. tag\n\n"
        "     and sign\n"
        "     - twice\n\n"
        "  > quoted\n"
        "  > > more\n\n"
        "  ## Why\n\n"
        "  ```sh\n"
        "  make  all\n\n"
        "    done\n"
        "  ```\n\n"
        "      indented\n\n"
        "  <b>\n"
        "  ***\n"
        "- next\n"
    )
    lines = [
        "Before a release:",
        "  1. test",
        "  2. tag",
        "     and sign",
        "     - twice",
        "  > quoted",
        "  > > more",
        "  ## Why",
        "  ```sh",
        "  make  all",
        "",
        "    done",
        "  ```",
        "      indented",
        "  <b>",
        "  ***",
    ]
    assert shapes(text) == [("item", HARD, "\n".join(lines)), ("item", HARD, "next")]


def test_a_table_keeps_its_lines() -> None:
    table = "| a  | b |\n|:---|--:|\n| 1 | 2 | 3 |"
    kept = "| a | b |\n|:---|--:|\n| 1 | 2 | 3 |"
    assert shapes(table) == [("paragraph", VARIANT, kept)]
    assert shapes("a | b\n--- | ---\n1 | 2") == [("paragraph", 0, "a | b\n--- | ---\n1 | 2")]
    assert shapes(f"See:\n{table}") == [("paragraph", VARIANT, f"See:\n{kept}")]
    indented = table.replace("\n", "\n  ")
    assert shapes(f"- {indented}") == [("item", HARD, kept.replace("\n", "\n  "))]
    assert shapes("a\n|-|\nb") == [("paragraph", VARIANT, "a\n|-|\nb")]
    assert shapes("| - |\nz") == [("paragraph", VARIANT, "| - | z")]
    assert shapes("x | y\nz") == [("paragraph", VARIANT, "x | y z")]
    assert shapes("| a |\nyou must |") == [("paragraph", SOFT, "| a | you must |")]


def test_ids_are_the_source_and_the_place() -> None:
    nodes = parse_document("# A\n\n***\n\n- b\n- c\n", "docs/a #1.md")
    assert [node.id for node in nodes] == [f"docs/a #1.md#00000{n}" for n in range(3)]
    assert [node.ordinal for node in nodes] == [0, 1, 2]
    assert {node.source for node in nodes} == {"docs/a #1.md"}
    with pytest.raises(ValueError, match="needs a source"):
        parse_document("a", "")


@pytest.mark.parametrize("mark", ["- ", "> ", "1. ", "> - ", "- > - ", "- > "])
@pytest.mark.parametrize("levels", [MAX_LEVELS // 2 - 1, MAX_LEVELS, 20_000])
def test_what_is_nested_deeply_is_kept_and_swallows_nothing(mark: str, levels: int) -> None:
    nodes = parse_document(f"- before\n\n{mark * levels}deep\n\nafter\n\n# end\n", "a.md")
    assert nodes[-3].text.endswith("deep")
    assert nodes[-3].tier == (SOFT if mark.startswith(">") else HARD)
    assert [(node.kind, node.text) for node in nodes[-2:]] == [
        ("paragraph", "after"),
        ("heading", "end"),
    ]


def test_lists_set_in_line_by_line() -> None:
    levels = 200
    lines = [f"{'  ' * level}- w{level}" for level in range(levels)]
    nodes = parse_document("\n".join([*lines, "- sibling", "", "after"]), "a.md")
    assert [node.kind for node in nodes] == ["item", "item", "paragraph"]
    words = nodes[0].text.replace("-", " ").split()
    assert words == [f"w{level}" for level in range(levels)]


@pytest.mark.parametrize("piece", ["[", "![", "*a_ ", "<a ", "`", "&", "<!--", "](", "||", "- "])
def test_what_makes_parsers_slow_is_read(piece: str) -> None:
    """The pytest timeout is the bound; each of these takes well under a second."""
    nodes = parse_document("you must " + piece * 5_000, "a.md")
    assert [node.tier for node in nodes] == [SOFT]


WORD = re.compile(r"w\d+w")
PIECES = [
    "W", "W", "W", "W W", "\n", "\n", "\n\n", "\n\n", "- ", "* ", "+ ", "1. ", "7) ", "> ", ">",
    "  ", "    ", "\t", "# ", "###### ", "\n```\n", "\n~~~~\n", "`", "***\n", "---\n", "===\n",
    "<div>", "</div>\n", "<!--", "-->", "<br/>", "| ", "|-|\n", "[", "](W)", "]: ", "\\", "&amp;",
    "you ", "must ", "never ", "\r\n", "\r", "\ufeff", "\u00a0", "[ ] ", "- - ", "> - ", "\n...\n",
]  # fmt: skip


@st.composite
def chaos(draw: st.DrawFn) -> str:
    """Marks of Markdown in any order; every word occurs once."""
    number = count()
    pieces = draw(st.lists(st.sampled_from(PIECES), max_size=40))
    repeat = draw(st.sampled_from([1, 1, 1, 1, 30, 70]))
    text = "".join(pieces[:3] * (repeat - 1) + pieces)
    # Front matter is no Markdown; it has tests of its own.
    text = "\n" + re.sub("W", lambda _: f"w{next(number)}w", text)
    # The language of a fence is no text of it. Words behind one would be.
    return re.sub(r"(```|~~~~)(?=[^\n\r])", r"\1\n", text)


@given(chaos())
@example("\n" + "- " * 40 + "w0w\n\nw1w")
@example("\n" + "> " * 70 + "w0w\nw1w\n\nw2w")
def test_every_word_is_in_exactly_one_node_in_order(text: str) -> None:
    nodes = parse_document(text, "a.md")
    found = [word for node in nodes for word in WORD.findall(node.text)]
    assert found == WORD.findall(text)


@given(chaos())
def test_nodes_are_in_order_and_have_one_tier_by_the_rules(text: str) -> None:
    nodes = parse_document(text, "a.md")
    assert nodes == parse_document(text, "a.md")
    assert [node.ordinal for node in nodes] == list(range(len(nodes)))
    assert len({node.id for node in nodes}) == len(nodes)
    for node in nodes:
        assert node.text.strip()
        expected = {"item": HARD, "quote": SOFT}.get(node.kind, SOFT if node.marks else VARIANT)
        assert node.tier == expected
        assert not node.marks or node.kind == "paragraph"


@given(chaos())
def test_crlf_is_a_line_end(text: str) -> None:
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    assert parse_document(plain, "a.md") == parse_document(plain.replace("\n", "\r\n"), "a.md")
    nodes = parse_document(text, "a.md")
    for same in (plain, plain.rstrip("\n"), f"\ufeff{plain}"):
        assert parse_document(same, "a.md") == nodes


def test_a_quote_that_ends_within_html_is_read() -> None:
    # The parser looks one character beyond a text that ends without a line break.
    assert parse_document("\n> - - <!--|-|\n> ", "a.md")


SENTENCE = st.sampled_from(
    ["plain words", "You must not.", "you **may**", "it `is` so", "see [a](b)", "Never do it.",
     "a  b", "You\nshould never"]
)  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[tuple[str, int, str]]]:
    """A document of plain blocks, and the nodes that it was made from: the oracle."""
    blocks: list[str] = []
    expected: list[tuple[str, int, str]] = []
    for place, kind in enumerate(draw(st.lists(st.sampled_from("piqhcrx"), max_size=8))):
        said = draw(SENTENCE)
        flat = " ".join(said.split())
        match kind:
            case "p":
                blocks.append(said)
                expected.append(("paragraph", SOFT if find_marks(flat) else VARIANT, flat))
            case "i":
                inside = draw(st.lists(SENTENCE.map(str.split).map(" ".join), max_size=3))
                # Neighbouring lists of different marks are different lists.
                mark = "-+"[place % 2]
                nested = "".join(f"\n  * {line}" for line in inside)
                blocks.append(f"{mark} {flat}{nested}\n{mark} second {place}")
                text = flat + "".join(f"\n  * {line}" for line in inside)
                expected += [("item", HARD, text), ("item", HARD, f"second {place}")]
            case "q":
                blocks.append("\n".join(f"> {line}" for line in said.split("\n")))
                expected.append(("quote", SOFT, flat))
            case "h":
                blocks.append(f"## {flat}")
                expected.append(("heading", VARIANT, flat))
            case "c":
                blocks.append(f"```\n  {said}\n```")
                expected.append(("code", VARIANT, f"  {said}"))
            case "r":
                blocks.append("***")
            case _:
                blocks.append(f"<!-- {said} -->")
                expected.append(("html", VARIANT, f"<!-- {said} -->"))
    # A comment between blocks keeps quotes and lists apart, whatever stands beside them.
    apart = [piece for block in blocks for piece in (block, "<!-- -->")]
    return "\n\n".join(apart), expected


@given(documents())
def test_a_document_gives_back_the_blocks_it_was_made_of(
    made: tuple[str, list[tuple[str, int, str]]],
) -> None:
    text, expected = made
    nodes = parse_document(text, "a.md")
    shown = [(n.kind, n.tier, n.text) for n in nodes if n.text != "<!-- -->"]
    assert shown == expected
