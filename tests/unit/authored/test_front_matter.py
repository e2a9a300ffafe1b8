from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.context.documents import (
    HARD,
    MAX_FRONT_MATTER_CHARS,
    NO_FRONT_MATTER,
    VARIANT,
    parse_document,
    read_front_matter,
    split_front_matter,
)
from noctuary.core.errors import AuthoredFormatError


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


def test_a_list_of_keys_that_holds_itself_is_passed_over() -> None:
    assert read_front_matter("? &a [*a]\n: x\nhop_targets: b", "a.md").hop_targets == ("b",)


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


@pytest.mark.parametrize("text", ["---\n---\n", "---\n \t\n---\n"])
def test_empty_front_matter_is_no_node(text: str) -> None:
    assert parse_document(text, "a.md") == ()


@given(st.text(max_size=60))
def test_any_front_matter_is_read_or_refused(text: str) -> None:
    try:
        front = read_front_matter(text, "a.md")
    except AuthoredFormatError:
        return
    assert 0.0 <= front.authority <= 1.0
    assert front.hop_targets == () or "hop_targets" in text


def test_none_says_nothing() -> None:
    assert read_front_matter("", "a.md") == NO_FRONT_MATTER
