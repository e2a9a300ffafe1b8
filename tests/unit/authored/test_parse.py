from __future__ import annotations

import pytest

from noctuary.context.documents import HARD, MAX_LEVELS, SOFT, VARIANT, parse_document


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


def test_an_item_that_begins_with_another_list() -> None:
    assert shapes("- - a\n  - b\n- 1. c") == [("item", HARD, "- a\n  - b"), ("item", HARD, "1. c")]


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


def test_a_document_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a source"):
        parse_document("a", "")


DOCUMENT = "---\nname: x\n---\n\n# A\n\n- b\n  - c\n\n> d\n\nYou\nmust.\n\n```\ne\n\nf\n```\n"


def test_line_ends_and_a_byte_order_mark_change_nothing() -> None:
    nodes = parse_document(DOCUMENT, "a.md")
    assert len(nodes) == 6
    for variant in (
        DOCUMENT.replace("\n", "\r\n"),
        DOCUMENT.replace("\n", "\r"),
        "\ufeff" + DOCUMENT,
        DOCUMENT.rstrip("\n"),
    ):
        assert parse_document(variant, "a.md") == nodes


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


def test_a_line_without_marks_goes_on_with_a_deep_quote() -> None:
    assert [node.kind for node in parse_document("> " * 70 + "deep\nlazy\n\nafter", "a.md")] == [
        "quote",
        "paragraph",
    ]


def test_lists_set_in_line_by_line() -> None:
    levels = 200
    lines = [f"{'  ' * level}- w{level}" for level in range(levels)]
    nodes = parse_document("\n".join([*lines, "- sibling", "", "after"]), "a.md")
    assert [node.kind for node in nodes] == ["item", "item", "paragraph"]
    words = nodes[0].text.replace("-", " ").split()
    assert words == [f"w{level}" for level in range(levels)]


def test_a_large_document_has_all_its_nodes() -> None:
    nodes = parse_document("".join(f"- item {n}\n\npara {n}\n\n" for n in range(1500)), "a.md")
    assert len(nodes) == 3000
    assert nodes[-1].id == "a.md#002999"
    assert [node.text for node in nodes[:4]] == ["item 0", "para 0", "item 1", "para 1"]


@pytest.mark.parametrize("piece", ["[", "![", "*a_ ", "<a ", "`", "&", "<!--", "](", "||", "- "])
def test_what_makes_parsers_slow_is_read(piece: str) -> None:
    """The pytest timeout is the bound; each of these takes well under a second."""
    nodes = parse_document("you must " + piece * 5_000, "a.md")
    assert [node.tier for node in nodes] == [SOFT]
