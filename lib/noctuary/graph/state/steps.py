"""Edges between memories: from a mention to its subject, from turn to turn, by links, as SQL.

Belongs here: which steps there are, with weights and evidence. Does not belong here: closing them
(`noctuary.graph.supersession`), walking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noctuary.graph.arrays import LINK_RELATIONS, RELATIONS, ROLES
from noctuary.graph.extraction import KINDS
from noctuary.graph.hubs import Hubs
from noctuary.graph.model import NO_SPAN
from noctuary.graph.tables import ArrowTable

if TYPE_CHECKING:
    import duckdb

_ABOUT, _AUTHOR, _SPEAKER = (ROLES.index(role) for role in ("about", "author", "speaker"))
_TO_SUBJECT, _TO_TAG = (RELATIONS.index(n) for n in ("mentions_subject", "mentions_tag"))
_NEXT, _PREVIOUS = (RELATIONS.index(n) for n in ("next_turn", "previous_turn"))
_PART_OF, _SEE_ALSO, _RESOLVED_BY = (RELATIONS.index(name) for name in LINK_RELATIONS)

# Of several names that lead from one memory to another, the most specific and earliest counts. A
# memory's own subjects, under whatever name, lead nowhere.
_SUBJECT_STEPS = f"""
WITH target AS (
    SELECT concept, position,
        CASE WHEN bool_or(role = {_ABOUT}) THEN {_TO_SUBJECT} ELSE {_TO_TAG} END AS relation
    FROM held WHERE role = {_ABOUT} OR (role = {_AUTHOR} AND kind = {KINDS.index("tag")})
    GROUP BY concept, position
), few_targets AS (
    SELECT concept, count(*) AS targets FROM target GROUP BY concept
    HAVING count(*) <= $hub_subjects
), own AS (
    SELECT DISTINCT concept, position FROM held WHERE role IN ({_ABOUT}, {_SPEAKER})
), mention AS (
    SELECT DISTINCT concept, position, start, stop FROM held ANTI JOIN own USING (concept, position)
    WHERE by_match
), few_mentions AS (
    SELECT concept FROM mention GROUP BY concept
    HAVING count(DISTINCT position) <= $hub_mentions)
SELECT DISTINCT ON (src, relation, dst) mention.position AS src, relation,
    target.position AS dst, worth / targets AS weight, mention.concept, start, stop
FROM mention JOIN few_mentions USING (concept) JOIN few_targets USING (concept)
JOIN rated USING (concept)
JOIN target USING (concept)
WHERE target.position <> mention.position
ORDER BY src, relation, dst, weight DESC, start, stop, concept
"""
_TURN_STEPS = f"""
WITH turn AS (
    SELECT position AS earlier, session_name, lead(position) OVER (
        PARTITION BY user_name, wing, session_id ORDER BY created_at_us, position) AS later
    FROM place WHERE session_name IS NOT NULL
), pair AS (
    SELECT earlier, later, concept FROM turn JOIN concept_of ON name = session_name
    WHERE later IS NOT NULL)
SELECT earlier AS src, {_NEXT} AS relation, later AS dst, 1.0::DOUBLE AS weight, concept,
    {NO_SPAN} AS start, {NO_SPAN} AS stop FROM pair
UNION ALL SELECT later, {_PREVIOUS}, earlier, 1.0::DOUBLE, concept, {NO_SPAN}, {NO_SPAN} FROM pair
"""
# A link that the store tells of two memories: a statement about the other one's id, at no span.
# To a memory that is not there, or between two users, there is none.
_LINK_STEPS = f"""
WITH link AS (
    SELECT DISTINCT mid, substr(object, 2) AS memory_id, CASE relation
        WHEN 'part_of' THEN {_PART_OF} WHEN 'has' THEN {_SEE_ALSO} ELSE {_RESOLVED_BY} END AS code
    FROM stated WHERE start = {NO_SPAN} AND subject = '' AND length(object) > 1
        AND starts_with(object, '#') AND relation IN ('part_of', 'has', 'resolved_by'))
SELECT s.position AS src, code AS relation, d.position AS dst, 1.0::DOUBLE AS weight,
    NULL::INTEGER AS concept, {NO_SPAN} AS start, {NO_SPAN} AS stop
FROM link JOIN place s USING (mid) JOIN memory USING (memory_id)
JOIN place d ON d.mid = memory.mid
WHERE s.position <> d.position
    AND (s.user_name = d.user_name OR s.user_name = '' OR d.user_name = '')
"""
_DATED = f"""
SELECT src::BIGINT AS src_position, dst::BIGINT AS dst_position,
    {list(RELATIONS)!r}[relation + 1] AS relation, weight, concept,
    src::BIGINT AS evidence_position, start::BIGINT AS evidence_start, stop::BIGINT AS evidence_end,
    greatest(s.created_at_us, d.created_at_us) AS valid_from_us, NULL::BIGINT AS valid_to_us,
    s.updated_at_us AS recorded_at_us, NULL::BIGINT AS retracted_at_us
FROM step JOIN place s ON s.position = src JOIN place d ON d.position = dst
ORDER BY src, step.relation, dst
"""


def sum_edges(connection: duckdb.DuckDBPyConnection, hubs: Hubs) -> ArrowTable:
    """Return the edges in their canonical order, with the concept's ordinal as `concept`.

    The ordinal is null for a link of the store. Needs `place_memories`, `name_concepts` and
    `rate_concepts`.

    Args:
        connection: The state.
        hubs: Limits of concepts that lead anywhere.
    """
    limits = {"hub_mentions": hubs.mentions, "hub_subjects": hubs.subjects}
    connection.execute(f"CREATE OR REPLACE TEMP TABLE step AS {_SUBJECT_STEPS}", limits)
    connection.execute(f"INSERT INTO step {_TURN_STEPS}")
    connection.execute(f"INSERT INTO step {_LINK_STEPS}")
    return connection.sql(_DATED).to_arrow_table()
