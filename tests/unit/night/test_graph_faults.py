"""The checks of the graph's tables, against one row at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from noctuary.graph.tables import FILES, GraphTables, schema_of
from noctuary_assets.graph import _faults  # pyright: ignore[reportPrivateUsage]

_ID = st.sampled_from(["a", "b", "c", ""])
_POSITION = st.integers(-1, 3)


def tables_of(**rows: list[dict[str, Any]]) -> GraphTables:
    """Return tables with some columns filled and all others empty."""
    found: dict[str, Any] = {}
    for name in FILES:
        schema = schema_of(name)
        columns = {field.name: [r.get(field.name) for r in rows.get(name, [])] for field in schema}
        found[name] = pa.table(columns, schema=schema)
    return GraphTables(**found)


@given(
    st.sets(st.sampled_from("abc")),
    st.lists(st.tuples(_ID, _POSITION), max_size=6),
    st.lists(st.tuples(_ID, _ID), max_size=6),
    st.lists(st.tuples(_POSITION, _POSITION), max_size=6),
)
def test_faulty_rows_are_those_that_one_row_at_a_time_gives(
    known: set[str],
    edges: list[tuple[str, int]],
    stated: list[tuple[str, str]],
    chains: list[tuple[int, int]],
) -> None:
    tables = tables_of(
        concepts=[{"concept_id": key} for key in sorted(known)],
        edges=[{"concept_id": key, "evidence_position": at} for key, at in edges],
        concept_edges=[{"src_concept": one, "dst_concept": two} for one, two in stated],
        supersessions=[{"older_position": old, "head_position": head} for old, head in chains],
    )
    older = {old for old, _ in chains}
    assert {name: (rows.to_list(), said) for name, (rows, said) in _faults(tables).items()} == {
        "every_edge_names_its_evidence": (
            [(key != "" and key not in known) or at < 0 for key, at in edges],
            "without_evidence",
        ),
        "every_statement_joins_two_concepts": (
            [one not in known or two not in known for one, two in stated],
            "dangling",
        ),
        "every_successor_chain_ends": ([head in older for _, head in chains], "without_head"),
    }
