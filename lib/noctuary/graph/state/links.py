"""How specific concepts are, and the names by which a query may link to one, as SQL.

Belongs here: what a name is worth as a link. Does not belong here: edges between memories
(`steps`), looking names up (`noctuary.graph.linking`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noctuary.graph.arrays import ROLES
from noctuary.graph.extraction import KINDS
from noctuary.graph.hubs import Hubs
from noctuary.graph.tables import ArrowTable

if TYPE_CHECKING:
    import duckdb

LOWER_CASE_WORTH = 0.4
"""Worth of a title or key that other texts only ever write in lower case: a common noun ("obesity")
names its memory far less surely than a proper one. Lower silences notes titled by common nouns."""

LEADING_WORTH = 0.6
"""Worth of a subject that only the first words of short memories gave: some of them begin a
sentence and name nothing. Higher trusts chance starts as much as titles."""

LONG_LEADING_WORTH = 0.2
"""The same where every such memory is long: the first words of an abstract say little about the
rest. Higher lets abstracts link to each other by chance (scifact, cisi)."""

LEADING_SHORT_CHARS = 400
"""Up to this many characters, some three sentences, the first words say what a memory is about."""

DF_POWER = 0.25
"""(1 + number of memories that mention a concept) to this power divides what a query that names it
gives; higher distrusts much-named concepts more."""

_ABOUT, _AUTHOR, _SPEAKER = (ROLES.index(role) for role in ("about", "author", "speaker"))
_TITLE, _KEY, _LEADING = (KINDS.index(kind) for kind in ("title", "key", "leading"))

# Small words between capitals ("Bank of England") tell nothing about case, nor does what a title
# adds in parentheses.
_SMALL = (
    "a", "al", "an", "and", "at", "by", "da", "de", "del", "der", "di", "du", "el", "en", "et",
    "for", "in", "la", "le", "of", "on", "the", "to", "van", "von", "y",
)  # fmt: skip
_RATED = rf"""
CREATE OR REPLACE TEMP TABLE rated AS
WITH spelt AS (
    SELECT concept, regexp_extract_all(regexp_replace(surface, '[(（][^()（）]*[)）]?', ' ', 'g'),
        '[\p{{L}}\p{{N}}\p{{M}}''’]+') AS words
    FROM held WHERE by_match
), shown AS (
    SELECT concept, avg(CASE WHEN len(list_filter(words, lambda word:
            regexp_matches(word, '^\p{{Ll}}') AND word NOT IN {_SMALL!r})) > 0
        THEN 0.0::DOUBLE ELSE 1.0::DOUBLE END) AS capitals
    FROM spelt GROUP BY concept
), known AS (
    SELECT concept, min(kind) AS kind, min(CASE WHEN kind = {_LEADING} THEN chars END) AS chars
    FROM held JOIN place USING (position) GROUP BY concept)
SELECT concept, CASE WHEN kind <> {_LEADING} THEN 1.0::DOUBLE
        WHEN chars <= {LEADING_SHORT_CHARS} THEN {LEADING_WORTH}::DOUBLE
        ELSE {LONG_LEADING_WORTH}::DOUBLE END
    * CASE WHEN kind IN ({_TITLE}, {_KEY}, {_LEADING})
        THEN {LOWER_CASE_WORTH}::DOUBLE + (1 - {LOWER_CASE_WORTH}::DOUBLE) * coalesce(capitals, 1.0)
        ELSE 1.0::DOUBLE END AS worth
FROM known LEFT JOIN shown USING (concept)
"""
# A speaker needs no capital: questions about people are typed in lower case.
_LINKS = f"""
WITH subject AS (
    SELECT concept, count(DISTINCT position) AS targets FROM held WHERE role = {_ABOUT}
    GROUP BY concept HAVING count(DISTINCT position) <= $hub_subjects
), mention AS (
    SELECT concept, count(DISTINCT position) AS df FROM held WHERE by_match GROUP BY concept
), speaker AS (SELECT DISTINCT concept FROM held WHERE role = {_SPEAKER}),
linked AS (
    SELECT name, concept, cased AND speaker.concept IS NULL AS cased,
        CASE WHEN coalesce(df, 0) > $hub_mentions THEN 0.0::DOUBLE
            ELSE coalesce(worth / targets / pow(1 + coalesce(df, 0), {DF_POWER}), 0.0)
        END AS weight,
        speaker.concept IS NOT NULL AS speaks
    FROM concept_of JOIN rated USING (concept)
    LEFT JOIN dictionary USING (name) LEFT JOIN subject USING (concept)
    LEFT JOIN mention USING (concept) LEFT JOIN speaker USING (concept)
    WHERE (dictionary.name IS NOT NULL AND subject.concept IS NOT NULL)
        OR speaker.concept IS NOT NULL)
SELECT name, concept, weight, coalesce(cased, false) AS cased
FROM linked WHERE weight > 0 OR speaks ORDER BY name
"""


def rate_concepts(connection: duckdb.DuckDBPyConnection) -> None:
    """Fill the temporary table `rated`: the worth of every concept as a link, in (0, 1]."""
    connection.execute(_RATED)


def sum_links(connection: duckdb.DuckDBPyConnection, hubs: Hubs) -> ArrowTable:
    """Return the names that a query may link to, with the concept's ordinal as `concept`.

    Needs `rate_concepts`. A name of a concept that only speaks has weight 0.

    Args:
        connection: The state.
        hubs: Limits of concepts that lead anywhere.
    """
    limits = {"hub_mentions": hubs.mentions, "hub_subjects": hubs.subjects}
    return connection.sql(_LINKS, params=limits).to_arrow_table()
