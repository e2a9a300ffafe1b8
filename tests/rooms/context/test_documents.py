"""Documents as nodes: what is read, in which order, and which tier each block has."""

from __future__ import annotations

import csv
import os
import re
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noctuary.context.documents import (
    HARD,
    MAX_DOCUMENT_BYTES,
    MAX_LEVELS,
    SOFT,
    VARIANT,
    demands,
    load_documents,
    parse_document,
    read_hop_targets,
)
from noctuary.core.errors import AuthoredError, AuthoredFormatError, AuthoredMissingError
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
    nodes = load_documents(["sub/a.md", Path("AGENTS.md")])
    assert nodes == (*parse_document(SECOND, "sub/a.md"), *parse_document(FIRST, "AGENTS.md"))
    assert [(node.id, node.tier) for node in nodes] == [
        ("sub/a.md#000000", HARD),
        ("sub/a.md#000001", SOFT),
        ("sub/a.md#000002", VARIANT),
        ("AGENTS.md#000000", VARIANT),
        ("AGENTS.md#000001", HARD),
        ("AGENTS.md#000002", HARD),
        ("AGENTS.md#000003", SOFT),
    ]
    assert load_documents([]) == ()


def test_one_file_under_two_names_is_read_once(folder: Path) -> None:
    (folder / "CLAUDE.md").symlink_to("AGENTS.md")
    once = load_documents(["AGENTS.md"])
    assert load_documents(["AGENTS.md", "CLAUDE.md", folder / "AGENTS.md"]) == once
    assert load_documents(["CLAUDE.md", "AGENTS.md"])[0].id == "CLAUDE.md#000000"


@pytest.mark.parametrize(
    ("name", "raw", "error", "found"),
    [
        ("gone.md", None, AuthoredMissingError, "there is no document at gone.md"),
        ("AGENTS.md/x", None, AuthoredMissingError, "there is no document at"),
        ("sub", None, AuthoredFormatError, "sub is no regular file"),
        ("a\0b", None, AuthoredFormatError, "cannot be read"),
        ("l.md", b"caf\xe9 au lait", AuthoredFormatError, "byte 0xe9 in position 3"),
        ("u.md", "\ufeffa".encode("utf-16"), AuthoredFormatError, "Expected Markdown in UTF-8"),
        ("f.md", b"---\na: b: c\n---\n", AuthoredFormatError, "front matter of f.md is wrong"),
        ("h.md", b"x" * (MAX_DOCUMENT_BYTES + 1), AuthoredFormatError, "more than 1,000,000 bytes"),
        ("pipe.md", None, AuthoredFormatError, "no regular file"),
        ("loop.md", None, AuthoredFormatError, "cannot be read"),
    ],
    ids=lambda value: (
        value.strip("\0").replace("\0", "0").replace(" ", "-") if isinstance(value, str) else ""
    ),
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
    assert isinstance(caught.value, FileNotFoundError) == (error is AuthoredMissingError)


def test_a_name_that_is_not_utf8_gives_ids_that_print(folder: Path) -> None:
    path = os.fsdecode(b"caf\xe9.md")
    Path(path).write_text("text", encoding="utf-8")
    (node,) = load_documents([path])
    assert node.id == "caf\\xe9.md#000000"


@pytest.mark.parametrize(
    ("text", "front", "body"),
    [
        ("---\na: b\n---\nbody", "a: b\n", "body"),
        ("---\na: b\n...\nbody", "a: b\n", "body"),
        ("---\na: b\n---", "a: b\n", ""),
        ("---\n---\nbody", "", "body"),
        ("--- \na: b\n---\t\nbody", "a: b\n", "body"),
        ("---\na: '---'\nb: ---x\n---\nbody\n---\n", "a: '---'\nb: ---x\n", "body\n---\n"),
        *(
            (text, None, text)
            for text in (
                "", "---", "---\na: b\n", "\n---\na: b\n---\n", " ---\na: b\n---\n",
                "----\na: b\n---\n", "text\n---\na: b\n---\n", "--- x\na: b\n---\n",
                "---\na: b\n ---\n", "---\na: b\n----\n",
            )
        ),
    ],
    ids=count(),
)  # fmt: skip
def test_front_matter_stands_between_two_lines(text: str, front: str | None, body: str) -> None:
    assert split_front_matter(text) == (front, body)


@pytest.mark.parametrize(
    ("yaml", "targets"),
    [
        ("hop_targets: [a#000001, 'b#000002']", ("a#000001", "b#000002")),
        ("hop_targets: a#000001", ("a#000001",)),
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
    ids=count(),
)  # fmt: skip
def test_hop_targets_in_every_form(yaml: str, targets: tuple[str, ...]) -> None:
    assert read_hop_targets(yaml, "a.md") == targets


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
        ("a: " + "x" * MAX_FRONT_MATTER_CHARS, "more than 32,768"),
    ],
    ids=count(),
)
def test_broken_front_matter_says_what_is_wrong_and_what_to_do(yaml: str, found: str) -> None:
    with pytest.raises(AuthoredFormatError, match=found) as caught:
        read_hop_targets(yaml, "docs/a.md")
    assert "front matter of docs/a.md is wrong" in str(caught.value)
    assert "Fix it, or put an empty line" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_front_matter_is_one_hard_node_and_variants_alone_have_targets() -> None:
    text = "---\r\nname: x\r\nhop_targets: [b#000000]\r\n---\r\n# H\r\n- item\r\n> q\r\n\r\np\r\n"
    nodes = parse_document(text, "a.md")
    assert [(node.tier, node.text) for node in nodes] == [
        (HARD, "---\nname: x\nhop_targets: [b#000000]\n---"),
        (VARIANT, "# H"),
        (HARD, "- item"),
        (SOFT, "> q"),
        (VARIANT, "p"),
    ]
    assert [node.hop_targets for node in nodes if node.tier == VARIANT] == [("b#000000",)] * 2
    assert {node.tier for node in nodes if node.hop_targets} == {VARIANT}
    # The remedy for a document that begins with a thematic break.
    broken = "---\njust a line\n\n---\n"
    with pytest.raises(AuthoredFormatError):
        parse_document(broken, "a.md")
    assert [node.text for node in parse_document(f"\n{broken}", "a.md")] == ["just a line"]


@given(st.text(max_size=60))
def test_any_front_matter_is_read_or_refused(text: str) -> None:
    try:
        targets = read_hop_targets(text, "a.md")
    except AuthoredFormatError:
        return
    assert targets == () or "hop_targets" in text


GOLDEN = Path(__file__).parents[2] / "golden" / "deontic.tsv"


def golden_rows() -> list[dict[str, str]]:
    with GOLDEN.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["case"].replace(" ", "-"))
def test_an_example_has_the_tier_that_follows_from_its_marks(row: dict[str, str]) -> None:
    (node,) = parse_document(row["text"], "AGENTS.md")
    assert node.tier == (VARIANT if row["marks"] == "none" else SOFT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You shall answer in English.", True),
        ("You are not required to answer.", True),
        ("You can not answer.", True),
        ("You can answer.", False),
        ("You cannot answer.", True),
        ("You may, and you must.", True),
        ("YOU MUST", True),
        ("You one two must", True),
        ("You one two three must", False),
        ("you you you you must", True),
        ("Must you?", False),
        ("You mustn't push.", False),
        ("You're required to push.", True),
        ("You’re always strictly required to sign.", True),
        ("Your dog must sleep.", False),
        ("Youth must sleep.", False),
        ("you_must run", False),
        ("You requires", False),
        ("you, – (must)", True),
        ("Вы must", False),
        ("", False),
        ("you", False),
        ("You **must** run it.", True),
        ("You\n`may` run it.", True),
        ("You<br>must run it.", True),
        ("You [a](https://one.example/two/three/four) must run it.", True),
        ("You see [it](https://must.example).", False),
        ("Do <!-- you must --> it.", False),
        ("x " * 20_000 + "and you **must** run it", True),
    ],
    ids=count(),
)
def test_what_counts_as_a_demand(text: str, expected: bool) -> None:
    assert demands(text) is expected


WORDS = st.sampled_from(
    ["you", "You", "must", "shall", "required", "should", "may", "can", "cannot", "never", "not",
     "NOT", "dog", "x_1"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=14))
def test_the_rules_word_by_word_find_the_same(words: list[str]) -> None:
    lower = [word.lower() for word in words]
    strong = {"must", "shall", "required", "should", "may", "never", "cannot"}
    near = [lower[at + 1 : at + 4] for at, word in enumerate(lower) if word == "you"]
    can_not = [lower[at + 1 : at + 5] for at, word in enumerate(lower) if word == "you"]
    expected = any(strong & set(reached) for reached in near) or any(
        pair == ("can", "not") for reached in can_not for pair in pairwise(reached)
    )
    assert demands(" ".join(words)) is expected


def shapes(text: str) -> list[tuple[int, str]]:
    return [(node.tier, node.text) for node in parse_document(text, "AGENTS.md")]


ITEM = """- Before a  release:
  1. test
  2. tag

     and sign

  > quoted

  ```sh
  make  all

    done
  ```
  ***"""
TABLE = "| a  | b |\n|:---|--:|\n| 1 | 2 | 3 |"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b", [(HARD, "- a"), (HARD, "- b")]),
        ("1. a\n2) b", [(HARD, "1. a"), (HARD, "2) b")]),
        ("- a\n\n* b", [(HARD, "- a"), (HARD, "* b")]),
        ("- [ ] a\n  lazy\nlazier", [(HARD, "- [ ] a\n  lazy\nlazier")]),
        ("- a\n-\n- b", [(HARD, "- a"), (HARD, "- b")]),
        ("> a\n> - b\n>\n> c", [(SOFT, "> a\n> - b\n>\n> c")]),
        ("> a\nlazy", [(SOFT, "> a\nlazy")]),
        ("A  line\n\tand more.", [(VARIANT, "A  line\n\tand more.")]),
        ("You must.\n", [(SOFT, "You must.")]),
        ("# One #\n\nTwo\n===\n", [(VARIANT, "# One #"), (VARIANT, "Two\n===")]),
        ("# You must\n\n- you must", [(VARIANT, "# You must"), (HARD, "- you must")]),
        ("```py\n\n  x  = 1\n\n```", [(VARIANT, "```py\n\n  x  = 1\n\n```")]),
        ("```\nnever closed", [(VARIANT, "```\nnever closed")]),
        ("    x\n\n      y", [(VARIANT, "    x\n\n      y")]),
        ("\tx = 1", [(VARIANT, "\tx = 1")]),
        ("<div>\n a  b\n</div>", [(VARIANT, "<div>\n a  b\n</div>")]),
        ("<!-- a\n\n- b -->\nc", [(VARIANT, "<!-- a\n\n- b -->"), (VARIANT, "c")]),
        ("[a]: docs/a.md\n[b]: b.md", [(VARIANT, "[a]: docs/a.md\n[b]: b.md")]),
        ("- see [a]\n\n[a]: a.md", [(HARD, "- see [a]"), (VARIANT, "[a]: a.md")]),
        (f"{ITEM}\n- next\n", [(HARD, ITEM), (HARD, "- next")]),
        (TABLE, [(VARIANT, TABLE)]),
        ("***\n---\n___", []),
        ("```\n```\n#\n>\n-\n", []),
        ("---\n---\n", []),
        ("---\n \t\n---\n", []),
        ("- ```\n  ```\n- - ", []),
        ("\u00a0\n", []),
        ("", []),
        (" \n\t\n", []),
    ],
    ids=count(),
)
def test_blocks_are_kept_as_written_and_have_a_tier(
    text: str, expected: list[tuple[int, str]]
) -> None:
    assert shapes(text) == expected


@pytest.mark.parametrize("mark", ["- ", "> ", "1. ", "> - ", "- > - ", "- > "], ids=count())
@pytest.mark.parametrize("levels", [MAX_LEVELS // 2 - 1, MAX_LEVELS, 20_000])
def test_what_is_nested_deeply_is_kept_and_swallows_nothing(mark: str, levels: int) -> None:
    nodes = parse_document(f"- before\n\n{mark * levels}deep\n\nafter\n\n# end\n", "a.md")
    assert nodes[-3].text.endswith("deep")
    assert nodes[-3].tier == (SOFT if mark.startswith(">") else HARD)
    assert [node.text for node in nodes[-2:]] == ["after", "# end"]


@pytest.mark.parametrize(
    "piece", ["[", "![", "*a_ ", "<a ", "`", "&", "<!--", "](", "||", "- ", "you '"], ids=count()
)
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
    # The language of a fence is no text of it: a word there may be of a block that says nothing.
    return re.sub(r"(```|~~~~)(?=[^\n\r])", r"\1\n", text)


@given(chaos())
@example("\n" + "- " * 40 + "w0w\n\nw1w")
@example("\n" + "> " * 70 + "w0w\nw1w\n\nw2w")
@example("\n> - - <!--|-|\n> w0w")
def test_every_word_is_in_exactly_one_node_in_order(text: str) -> None:
    nodes = parse_document(text, "a.md")
    found = [word for node in nodes for word in WORD.findall(node.text)]
    assert found == WORD.findall(text)
    assert [node.id for node in nodes] == [f"a.md#{place:06d}" for place in range(len(nodes))]
    assert all(node.text.strip() for node in nodes)


@given(chaos())
def test_crlf_is_a_line_end(text: str) -> None:
    nodes = parse_document(text, "a.md")
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    for same in (plain.replace("\n", "\r\n"), plain, plain.rstrip("\n"), f"\ufeff{plain}"):
        assert parse_document(same, "a.md") == nodes
