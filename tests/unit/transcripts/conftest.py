from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.transcripts import ClaudeSession, Folder, said_session


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def session() -> ClaudeSession:
    return said_session()
