from __future__ import annotations

from dataclasses import replace

from noctuary.graph.tables import Merge, to_table
from noctuary_assets.graph import NAME_MAX_CHARS, SHOWN_DF_MIN, sample_merges, top_concepts
from tests.support.graphs import graph_tables
from tests.support.store import memory, renumber

LONG = "Extraordinarily Long Station Name"


def test_only_short_names_of_several_memories_are_shown() -> None:
    texts = ["we met Dana Whitfield"] * SHOWN_DF_MIN + ["we met Ann Lee"]
    texts += [f"{LONG}\nA station."] * SHOWN_DF_MIN
    tables = graph_tables(renumber([memory(text) for text in texts]))
    merges = [
        Merge("d whitfield", "dana whitfield", "alias", 1.0, "told by [3]"),
        Merge("a lee", "ann lee", "alias", 1.0, "told by [4]"),
    ]
    tables = replace(tables, merges=to_table("merges", merges))
    assert len(LONG) > NAME_MAX_CHARS
    assert f"| Dana Whitfield | name | {SHOWN_DF_MIN} |" in top_concepts(tables)
    assert "Ann Lee" not in top_concepts(tables)
    assert LONG not in top_concepts(tables)
    assert sample_merges(tables).splitlines()[2:] == [
        "| d whitfield | dana whitfield | alias | 1.00 |"
    ]
