CREATE TABLE summaries (
    ordinal INTEGER PRIMARY KEY, summary_id TEXT NOT NULL UNIQUE, cluster_id TEXT NOT NULL,
    session_id TEXT NOT NULL, text TEXT NOT NULL, method TEXT NOT NULL, first_us INTEGER NOT NULL,
    last_us INTEGER NOT NULL, source_tokens INTEGER NOT NULL, summary_tokens INTEGER NOT NULL, align
    REAL, cover REAL, confidence REAL, decay_rate REAL, facts TEXT, plan_id TEXT);
CREATE TABLE summary_sources (
    summary_id TEXT NOT NULL, place INTEGER NOT NULL, position INTEGER NOT NULL, memory_id TEXT NOT
    NULL, PRIMARY KEY (summary_id, place)) WITHOUT ROWID;
CREATE TABLE summary_parents (
    summary_id TEXT NOT NULL, place INTEGER NOT NULL, parent_id TEXT NOT NULL,
    PRIMARY KEY (summary_id, place)) WITHOUT ROWID;
CREATE TABLE summary_terms (
    term TEXT PRIMARY KEY, start INTEGER NOT NULL, stop INTEGER NOT NULL) WITHOUT ROWID;
