from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.context.documents import (
    HARD,
    MAX_DOCUMENT_BYTES,
    NO_DOCUMENTS,
    SOFT,
    VARIANT,
    Authored,
    load_documents,
    parse_document,
    require_hard_fits,
)
from noctuary.core.errors import (
    AuthoredBudgetError,
    AuthoredError,
    AuthoredFormatError,
    AuthoredMissingError,
    NoctuaryError,
)
from noctuary.text.marks import estimate_tokens

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


def test_the_three_tiers_are_a_partition(folder: Path) -> None:
    authored = load_documents(["AGENTS.md", "sub/a.md"])
    parts = {HARD: authored.hard, SOFT: authored.soft, VARIANT: authored.variants}
    assert sorted(node for part in parts.values() for node in part) == sorted(authored.nodes)
    assert all(node.tier == tier for tier, part in parts.items() for node in part)


def test_core_is_passed_on(folder: Path) -> None:
    assert {node.authority for node in load_documents(["AGENTS.md"]).nodes} == {1.0}
    assert {node.authority for node in load_documents(["AGENTS.md"], core=False).nodes} == {0.0}


def test_no_document_is_none() -> None:
    assert load_documents([]) == NO_DOCUMENTS
    assert NO_DOCUMENTS.nodes == NO_DOCUMENTS.hard == ()


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
    ],
)
def test_what_cannot_be_read_says_why(
    folder: Path, name: str, raw: bytes | None, error: type[Exception], found: str
) -> None:
    if raw is not None:
        (folder / name).write_bytes(raw)
    with pytest.raises(error, match=found) as caught:
        load_documents(["AGENTS.md", name])
    assert isinstance(caught.value, AuthoredError)
    assert isinstance(caught.value, NoctuaryError)
    assert str(caught.value).endswith(".")


def test_a_missing_document_is_a_missing_file(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no document at gone\.md"):
        load_documents(["gone.md"])


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.md")
    with pytest.raises(AuthoredFormatError, match="no regular file"):
        load_documents(["pipe.md"])


def test_a_link_to_itself_is_no_document(folder: Path) -> None:
    (folder / "loop.md").symlink_to("loop.md")
    with pytest.raises(AuthoredFormatError, match="cannot be read"):
        load_documents(["loop.md"])


def test_the_largest_file_is_read(folder: Path) -> None:
    (folder / "large.md").write_bytes(b"x" * MAX_DOCUMENT_BYTES)
    (node,) = load_documents(["large.md"]).nodes
    assert len(node.text) == MAX_DOCUMENT_BYTES


def test_a_name_that_is_not_utf8_gives_ids_that_print(folder: Path) -> None:
    path = os.fsdecode(b"caf\xe9.md")
    Path(path).write_text("text", encoding="utf-8")
    (node,) = load_documents([path]).nodes
    assert node.id == "caf\\xe9.md#000000"
    assert node.id.encode()


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


def test_without_hard_nodes_no_reserve_is_needed() -> None:
    assert require_hard_fits(Authored(parse_document("a\n\n> b", "a.md"), ""), words, 0) == 0


@pytest.mark.parametrize("reserve", [-1, float("nan")])
def test_a_reserve_is_a_number_of_tokens(reserve: float) -> None:
    with pytest.raises(ValueError, match="reserve_tokens must be at least 0"):
        require_hard_fits(NO_DOCUMENTS, words, reserve)


@given(
    st.lists(st.text(alphabet="ab й漢 ", min_size=1, max_size=30), max_size=8),
    st.integers(0, 120),
)
def test_hard_nodes_fit_or_are_refused(items: list[str], reserve: int) -> None:
    nodes = parse_document("\n".join(f"- {item}" for item in items), "a.md")
    needed = sum(estimate_tokens(node.text) for node in nodes)
    authored = Authored(nodes, "")
    if needed <= reserve:
        assert require_hard_fits(authored, estimate_tokens, reserve) == needed
    else:
        with pytest.raises(AuthoredBudgetError) as caught:
            require_hard_fits(authored, estimate_tokens, reserve)
        assert caught.value.tokens == needed
