"""Which texts a changed dictionary concerns, found by the index of words and not by reading texts.

Belongs here: names that appeared, vanished or changed their case rule, and the memories that hold
all their words. Does not belong here: matching.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noctuary.graph.state.rows import ANY_CASE, NEEDS_CASE, word_code

if TYPE_CHECKING:
    import duckdb

# A text may name X only if it holds every word of X. The rarest word gives the candidates, so that
# the cost follows the rarest and not the most frequent word of a name.
_RAREST = """
CREATE OR REPLACE TEMP TABLE rarest AS
WITH uses AS (
    SELECT word, count(*) AS uses FROM word WHERE word IN (SELECT word FROM part) GROUP BY word)
SELECT name, arg_min(word, (coalesce(uses, 0), word)) AS word, count(*) AS parts
FROM part LEFT JOIN uses USING (word) GROUP BY name
"""
_CONCERNED = """
WITH candidate AS (SELECT word.mid, name, parts FROM word JOIN rarest USING (word))
SELECT DISTINCT mid FROM (
    SELECT candidate.mid FROM candidate JOIN part USING (name)
    JOIN word ON word.mid = candidate.mid AND word.word = part.word
    GROUP BY candidate.mid, name, parts HAVING count(*) = parts)
ORDER BY mid
"""


def update_dictionary(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Bring the dictionary up to date for the names in `touched_name`; return those that changed.

    A name changed if it appeared, vanished, or needs a capital from now on or no longer.
    """
    connection.execute(
        f"""CREATE OR REPLACE TEMP TABLE renewed AS
        SELECT name, bool_and(look = {NEEDS_CASE}) AS cased FROM found
        WHERE look IN ({ANY_CASE}, {NEEDS_CASE}) AND name IN (SELECT name FROM touched_name)
        GROUP BY name"""
    )
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE changed AS
        SELECT t.name, r.cased FROM touched_name t LEFT JOIN renewed r USING (name)
        LEFT JOIN dictionary d USING (name) WHERE r.cased IS DISTINCT FROM d.cased"""
    )
    connection.execute("DELETE FROM dictionary WHERE name IN (SELECT name FROM changed)")
    connection.execute("INSERT INTO dictionary SELECT * FROM changed WHERE cased IS NOT NULL")
    rows = connection.execute("SELECT name FROM changed ORDER BY name").fetchall()
    return [name for (name,) in rows]


def find_concerned(connection: duckdb.DuckDBPyConnection, changed: list[str]) -> list[int]:
    """Return the memories in the index of words that hold every word of a changed name."""
    import pyarrow as pa

    pairs = [(name, code) for name in changed for code in sorted(_codes(name))]
    if not pairs:
        return []
    names, codes = zip(*pairs, strict=True)
    parts = pa.table({"name": pa.array(names, pa.string()), "word": pa.array(codes, pa.uint32())})
    connection.register("parts", parts)
    connection.execute("CREATE OR REPLACE TEMP TABLE part AS SELECT * FROM parts")
    connection.unregister("parts")
    connection.execute(_RAREST)
    return [mid for (mid,) in connection.execute(_CONCERNED).fetchall()]


def load_dictionary(connection: duckdb.DuckDBPyConnection) -> dict[str, bool]:
    """Return the dictionary in force: by folded name, whether a mention must show a capital."""
    columns = connection.sql("SELECT name, cased FROM dictionary ORDER BY name").to_arrow_table()
    names, cased = columns["name"].to_pylist(), columns["cased"].to_pylist()
    return dict(zip(names, cased, strict=True))


def _codes(name: str) -> set[int]:
    return {word_code(part) for part in name.split(" ")}
