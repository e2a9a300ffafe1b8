from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.sources.transcripts import MAX_PROJECT_CHARS, project_of


@pytest.mark.parametrize(
    ("folder", "project"),
    [
        ("/home/me/shop", "shop"),
        ("/home/me/shop/", "shop"),
        ("/home/me/./shop/.", "shop"),
        ("/home/me/My Shop v2.1", "My Shop v2.1"),
        ("C:\\Users\\ana\\shop", "shop"),
        ("C:/Users/ana/shop", "shop"),
        ("\\\\server\\share\\shop", "shop"),
        ("/home/me/back\\slash", "back\\slash"),
        ("/home/me/shop/.claude/worktrees/fix-tax", "shop"),
        ("/home/me/.claude", ".claude"),
        ("/home/me/.codex/worktrees/1f2e/shop", "shop"),
        ("-home-me-shop", "home-me-shop"),
        ("/srv/-dash", "-dash"),
        ("/srv/e\u0301tude", "\u00e9tude"),
        ("/srv/a\nb\x00c", "a b c"),
        ("/", ""),
        ("C:\\", ""),
        ("~", ""),
        ("", ""),
    ],
)
def test_the_last_folder_is_the_project(folder: str, project: str) -> None:
    assert project_of(folder) == project


@given(st.text())
def test_any_text_gives_a_short_printable_name(folder: str) -> None:
    name = project_of(folder)
    assert len(name) <= MAX_PROJECT_CHARS
    assert name == name.strip()
    assert "\n" not in name
    assert "\x00" not in name
    assert "/" not in name
