from __future__ import annotations

from pathlib import Path

from bench.results import write_result
from bench.tables.pages import render


def test_every_kind_of_process_has_its_row(tmp_path: Path) -> None:
    measured = {
        "p50_ms": 106.1, "p95_ms": 122.5, "max_ms": 132.7, "cpu_ms": 97.2, "processes": 100,
        "answered": 95,
    }  # fmt: skip
    document = {
        "kind": "hooks",
        "manifest": {"commit": "0123456789abcdef", "dirty": False},
        "processes": {"prompt, warm server": measured},
    }
    write_result(tmp_path / "hooks.json", document)
    page = render("hooks", tmp_path)
    assert "| prompt, warm server | 106 | 122 | 133 | 97 | 100 | 95 |" in page
    assert "0123456789ab" in page
