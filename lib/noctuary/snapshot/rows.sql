CREATE TABLE memories (
    position INTEGER PRIMARY KEY, memory_id TEXT NOT NULL UNIQUE, content TEXT NOT NULL, category
    TEXT NOT NULL, tags TEXT NOT NULL, expanded_keywords TEXT NOT NULL, importance REAL NOT NULL,
    created_at_us INTEGER NOT NULL, updated_at_us INTEGER NOT NULL, session_id TEXT, wing TEXT, room
    TEXT, user TEXT, is_turn INTEGER NOT NULL, content_hash TEXT NOT NULL,
    origin TEXT NOT NULL, valid_until_us INTEGER);
CREATE INDEX memory_ends ON memories (valid_until_us) WHERE valid_until_us IS NOT NULL;
CREATE TABLE terms (term TEXT PRIMARY KEY, start INTEGER NOT NULL, stop INTEGER NOT NULL) WITHOUT
ROWID;
CREATE TABLE near_words (term TEXT PRIMARY KEY, near TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE concepts (
    ordinal INTEGER PRIMARY KEY, concept_id TEXT NOT NULL UNIQUE, canonical_name TEXT NOT NULL, kind
    TEXT NOT NULL, aliases TEXT NOT NULL, df INTEGER NOT NULL);
CREATE TABLE concept_names (
    name TEXT NOT NULL, ordinal INTEGER NOT NULL, PRIMARY KEY (name, ordinal)) WITHOUT ROWID;
CREATE TABLE concept_edges (
    src INTEGER NOT NULL, dst INTEGER NOT NULL, relation TEXT NOT NULL, weight REAL NOT NULL,
    evidence TEXT NOT NULL, valid_from_us INTEGER NOT NULL, valid_to_us INTEGER, recorded_at_us
    INTEGER NOT NULL, retracted_at_us INTEGER);
CREATE INDEX concept_edges_by_src ON concept_edges (src);
CREATE INDEX concept_edges_by_dst ON concept_edges (dst);
CREATE TABLE supersessions (
    older INTEGER NOT NULL, newer INTEGER NOT NULL, head INTEGER NOT NULL, reason TEXT NOT NULL,
    confidence INTEGER NOT NULL, similarity REAL, age_gap_days INTEGER NOT NULL, concept INTEGER,
    evidence_position INTEGER NOT NULL, evidence_start INTEGER NOT NULL, evidence_end INTEGER NOT
    NULL, valid_to_us INTEGER NOT NULL, recorded_at_us INTEGER NOT NULL, PRIMARY KEY (older, newer))
    WITHOUT ROWID;
CREATE TABLE links (
    name TEXT PRIMARY KEY, ordinal INTEGER NOT NULL, weight REAL NOT NULL, cased INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE link_starts (word TEXT PRIMARY KEY, words INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE merges (
    name TEXT PRIMARY KEY, canonical TEXT NOT NULL, reason TEXT NOT NULL, score REAL NOT NULL,
    detail TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE clusters (
    cluster_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, ordinal INTEGER NOT NULL, first_us
    INTEGER NOT NULL, last_us INTEGER NOT NULL, trivial INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
