"""What all memories hold together: names, concepts, mentions, concept edges.

Belongs here: sums over `holding` under canonical names, as SQL. Does not belong here: edges between
memories (`steps`), which names are one (`noctuary.graph.canonical`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from noctuary.graph.arrays import ROLES
from noctuary.graph.canonical.stats import NameStats
from noctuary.graph.dictionary import REFUSALS
from noctuary.graph.extraction import KINDS
from noctuary.graph.fold import CONCEPT_ID_HEX
from noctuary.graph.state.rows import FIRST_REFUSAL
from noctuary.graph.tables import ArrowTable

if TYPE_CHECKING:
    import duckdb

_ROLE_NAMES = f"{list(ROLES)!r}"
_KIND_NAMES = f"{list(KINDS)!r}"

_NAMES = """
WITH stood AS (
    SELECT name, position, min(kind) AS kind, min(surface) AS first, max(surface) AS last
    FROM holding GROUP BY name, position)
SELECT name, min(kind)::INTEGER, count(*), min(first), max(last)
FROM stood GROUP BY name ORDER BY name
"""
_CONCEPT_OF = f"""
CREATE OR REPLACE TEMP TABLE concept_of AS
WITH named AS (
    SELECT name, coalesce(canonical, name) AS canonical
    FROM (SELECT DISTINCT name FROM holding) LEFT JOIN canonical_of USING (name)
), numbered AS (
    SELECT canonical, concept_id,
        (row_number() OVER (ORDER BY concept_id) - 1)::INTEGER AS concept
    FROM (SELECT DISTINCT canonical, left(sha256(canonical), {CONCEPT_ID_HEX}) AS concept_id
        FROM named))
SELECT name, concept, concept_id, name = canonical AS is_canonical
FROM named JOIN numbered USING (canonical)
"""
_HELD = """
CREATE OR REPLACE TEMP TABLE held AS
SELECT holding.* EXCLUDE (name), concept, is_canonical FROM holding JOIN concept_of USING (name)
"""
# The name by which people call it most: among the spellings of the canonical name, where any.
_CONCEPTS = f"""
WITH spelling AS (
    SELECT concept, surface, count(*) AS uses, bool_or(is_canonical) AS is_canonical
    FROM held GROUP BY concept, surface
), spelt AS (
    SELECT concept, list(surface ORDER BY is_canonical DESC, uses DESC, surface) AS surfaces
    FROM spelling GROUP BY concept
), summed AS (
    SELECT concept, {_KIND_NAMES}[min(kind) + 1] AS kind, count(DISTINCT position) AS df
    FROM held GROUP BY concept)
SELECT concept_id, surfaces[1] AS canonical_name, kind,
    list_sort(surfaces[2:]) AS aliases, df
FROM summed JOIN spelt USING (concept)
JOIN (SELECT DISTINCT concept, concept_id FROM concept_of) USING (concept)
ORDER BY concept
"""
_MENTIONS = f"""
SELECT position::BIGINT AS position, concept, {_ROLE_NAMES}[role + 1] AS role,
    start::BIGINT AS start, stop::BIGINT AS "end", surface
FROM (SELECT DISTINCT position, concept, role, start, stop, surface FROM held)
ORDER BY position, start, "end", role, concept, surface
"""
_CONCEPT_EDGES = """
WITH told AS (
    SELECT DISTINCT s.concept AS src, relation, o.concept AS dst, position, start, stop,
        created_at_us, updated_at_us
    FROM stated JOIN place USING (mid)
    JOIN concept_of s ON s.name = subject JOIN concept_of o ON o.name = object
    WHERE s.concept <> o.concept)
SELECT src, dst, relation, 1.0::DOUBLE - 1.0::DOUBLE / (1 + count(DISTINCT position)) AS weight,
    list({'position': position::BIGINT, 'start': start::BIGINT, 'end': stop::BIGINT}
        ORDER BY position, start, stop) AS evidence,
    min(created_at_us) AS valid_from_us, NULL::BIGINT AS valid_to_us,
    arg_min(updated_at_us, (created_at_us, position)) AS recorded_at_us,
    NULL::BIGINT AS retracted_at_us
FROM told GROUP BY src, relation, dst ORDER BY src, relation, dst
"""


def name_stats(connection: duckdb.DuckDBPyConnection) -> Iterator[NameStats]:
    """Yield every name that is held, in code-point order; needs `place_memories`."""
    table = connection.sql(_NAMES).to_arrow_table()
    names, kinds, df, first, last = (
        column.to_numpy(zero_copy_only=False).tolist() for column in table.columns
    )
    # Nine names in ten are spelt one way: only the others need a list.
    several = [name for name, a, b in zip(names, first, last, strict=True) if a != b]
    surfaces: dict[str, tuple[str, ...]] = {
        name: (surface,) for name, surface in zip(names, first, strict=True)
    }
    surfaces.update(_all_surfaces(connection, several))
    yield from map(NameStats, names, map(KINDS.__getitem__, kinds), surfaces.values(), df)


def _all_surfaces(
    connection: duckdb.DuckDBPyConnection, names: list[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    import pyarrow as pa

    connection.register("several", pa.table({"name": pa.array(names, pa.string())}))
    rows = connection.execute(
        """SELECT name, list_sort(list(DISTINCT surface)) FROM holding
        WHERE name IN (SELECT name FROM several) GROUP BY name"""
    ).fetchall()
    connection.unregister("several")
    return ((name, tuple(found)) for name, found in rows)


def name_concepts(connection: duckdb.DuckDBPyConnection, canonical_of: Mapping[str, str]) -> None:
    """Fill the temporary tables `concept_of` (a row per name) and `held` (a row per finding).

    `held` takes the place of `holding`: both are as large as all findings together.
    """
    import pyarrow as pa

    moved = pa.table(
        {
            "name": pa.array(list(canonical_of), pa.string()),
            "canonical": pa.array(list(canonical_of.values()), pa.string()),
        }
    )
    connection.register("moved", moved)
    connection.execute("CREATE OR REPLACE TEMP TABLE canonical_of AS SELECT * FROM moved")
    connection.unregister("moved")
    connection.execute(_CONCEPT_OF)
    connection.execute(_HELD)
    connection.execute("DROP TABLE holding")


def drop_sums(connection: duckdb.DuckDBPyConnection) -> None:
    """Let go of the temporary tables that only `fold` reads."""
    for table in ("held", "rated", "step"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def sum_concepts(connection: duckdb.DuckDBPyConnection) -> ArrowTable:
    """Return the concepts, sorted by concept_id; the row is the ordinal."""
    return connection.sql(_CONCEPTS).to_arrow_table()


def sum_mentions(connection: duckdb.DuckDBPyConnection) -> ArrowTable:
    """Return the mentions in their canonical order, with the concept's ordinal as `concept`."""
    return connection.sql(_MENTIONS).to_arrow_table()


def sum_concept_edges(connection: duckdb.DuckDBPyConnection) -> ArrowTable:
    """Return what is stated between concepts, with ordinals as `src` and `dst`."""
    return connection.sql(_CONCEPT_EDGES).to_arrow_table()


def count_skipped(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Return the number of subjects that are not looked for, by reason."""
    rows = connection.execute(
        """SELECT look, count(DISTINCT name) FROM found WHERE look >= ? GROUP BY look""",
        [FIRST_REFUSAL],
    ).fetchall()
    return dict(sorted((REFUSALS[look - FIRST_REFUSAL], names) for look, names in rows))


def count_declined(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Return the number of runs of text that were not segmented, by script."""
    rows = connection.execute(
        "SELECT script, sum(runs)::BIGINT FROM declined GROUP BY script ORDER BY script"
    ).fetchall()
    return dict(rows)
