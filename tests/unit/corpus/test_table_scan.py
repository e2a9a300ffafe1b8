from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from noctuary.sources.export import PLACES_SHOWN, export_corpus, scan_tables
from noctuary.sources.jsonl import JsonlSource
from noctuary.sources.normalize import find_sensitivity
from noctuary.sources.source import open_source
from tests.support.injections import guard_of, memory, put_in_prompt

MakeStore = Callable[..., Path]
MakeJsonl = Callable[..., Path]

TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def write(directory: Path, name: str, columns: dict[str, object], **options: object) -> None:
    directory.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), directory / name, **options)  # pyright: ignore[reportArgumentType]


def test_an_export_of_clean_rows_is_clean(make_store: MakeStore, tmp_path: Path) -> None:
    with open_source(make_store([{"content": "a"}, {"content": "b", "tags": "wing:x"}])) as source:
        export_corpus(source, tmp_path / "out")
    scan = scan_tables(tmp_path / "out")
    assert scan["texts"] > 8
    assert scan == {
        "tables": 3, "texts": scan["texts"], "found": 0, "reasons": {}, "places": ""
    }  # fmt: skip


def test_every_kind_of_text_column_is_looked_at(tmp_path: Path) -> None:
    texts = ["fine", TOKEN]
    write(
        tmp_path / "out",
        "odd.parquet",
        {
            "number": [1, 2],
            "plain": texts,
            "large": pa.array(texts, pa.large_string()),
            "coded": pa.array(texts).dictionary_encode(),
            "listed": [["fine", "fine"], ["fine", TOKEN]],
            "nullable": [None, TOKEN],
        },
    )
    scan = scan_tables(tmp_path / "out")
    names = ("plain", "large", "coded", "listed", "nullable")
    assert scan["places"] == ", ".join(f"odd.{name} row 1" for name in names)
    assert scan["reasons"] == {"secret:github_token": len(names)}
    assert scan["texts"] == 2 + 2 + 2 + 4 + 1


def test_rows_are_numbered_over_row_groups_and_repeats_are_all_named(tmp_path: Path) -> None:
    rows = ["fine", TOKEN, "fine", "[REDACTED: key]", TOKEN]
    write(tmp_path / "out", "memories.parquet", {"content": rows}, row_group_size=2)
    write(tmp_path / "out", "links.parquet", {"note": ["fine"]})
    write(tmp_path / "out", ".previous.parquet", {"content": [TOKEN]})
    scan = scan_tables(tmp_path / "out")
    assert scan["places"] == ", ".join(f"memories.content row {row}" for row in (1, 3, 4))
    assert scan["reasons"] == {"placeholder": 1, "secret:github_token": 2}
    assert scan["tables"] == 2, "what an export replaced is none of its tables"


def test_the_report_names_places_and_no_text(tmp_path: Path) -> None:
    write(tmp_path / "out", "memories.parquet", {"content": [TOKEN] * (PLACES_SHOWN + 3)})
    report = scan_tables(tmp_path / "out")
    assert report["found"] == PLACES_SHOWN + 3
    assert report["reasons"] == {"secret:github_token": PLACES_SHOWN + 3}
    assert report["places"].count("memories.content row ") == PLACES_SHOWN
    assert TOKEN[:12] not in str(report)


def test_lists_that_read_like_a_secret_once_joined_stay_in_the_store(
    make_jsonl: MakeJsonl, tmp_path: Path
) -> None:
    """Item by item the scan of the row finds nothing; the export joins keywords with a space."""
    dates = {"created_at": "2025-01-01", "updated_at": "2025-01-01"}
    halves = ["-----BEGIN", "PRIVATE " + "KEY-----"]
    path = make_jsonl(
        [
            {"id": 1, "content": "fine", "expanded_keywords": ["one", "two"], **dates},
            {"id": 2, "content": "fine", "expanded_keywords": halves, **dates},
        ]
    )
    with JsonlSource(path) as source:
        assert [find_sensitivity(row) for row in source.rows()] == [None, None]
        report = export_corpus(source, tmp_path / "out", previous_ids={"2"})
    assert dict(report.sensitive) == {"secret:private_key": 1}
    assert (report.exported, report.retracted) == (1, 1)
    assert scan_tables(tmp_path / "out")["found"] == 0


def test_a_content_that_reads_like_a_secret_once_cut_stays_in_the_store(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """What recall had put between the word and the value is cut out."""
    block = put_in_prompt(tmp_path, memory(1, "The spare key hangs in the pantry.")).text
    text = "The pass" + f"word:\n{block}\nZx9kk2Lm-extra7 and nothing else of interest"
    with open_source(make_store([{"content": text}])) as source:
        assert [find_sensitivity(row) for row in source.rows()] == [None]
        report = export_corpus(source, tmp_path / "out", guard=guard_of(tmp_path))
    assert dict(report.sensitive) == {"secret:assigned_password": 1}
    assert report.exported == 0
