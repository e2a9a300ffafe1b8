"""Whatever a labelled file holds, its reader returns labels or a named error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import FileFaultsError, LineFault
from noctuary.evaluate.labels import read_qrels, read_queries

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
OTHER_KEYS = ("stratum", "relevant_ids", "grades", "wing", "as_of", "as_of_seq")
ROWS = st.fixed_dictionaries(
    {"query_id": st.sampled_from(["q1", "q2"]) | JSON, "text": st.just("Who?") | JSON},
    optional=dict.fromkeys(OTHER_KEYS, JSON),
)
LINES = st.lists(st.binary(max_size=20) | ROWS.map(lambda row: json.dumps(row).encode()))


@pytest.mark.parametrize("read", [read_queries, read_qrels])
@given(lines=LINES)
def test_any_bytes_are_labels_or_faults_with_lines(
    read: Callable[[Path], Any], lines: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any-{read.__name__}"
    content = b"\n".join(lines)
    path.write_bytes(content)
    faults: tuple[LineFault, ...] = ()
    try:
        read(path)
    except FileFaultsError as error:
        faults = error.faults
    last_line = content.count(b"\n") + 1
    assert all(0 <= fault.line <= last_line for fault in faults)
