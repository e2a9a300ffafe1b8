"""Names of everything on disk: one store's directories and one snapshot's files.

Paths only, no I/O.
"""

from __future__ import annotations

import re
from pathlib import Path

from noctuary.values import dataclass

PACK_FORMAT_VERSION = 3
"""Bumped when a reader of the previous format could not read the new one."""

DIGEST_NAME_CHARS = 16
"""Of a candidate's digest, in its directory name: 64 bits among a handful of candidates."""

MANIFEST_FILE = "manifest.json"
ROWS_FILE = "rows.sqlite"
VECTORS_FILE = "vectors_full.npy"
TIER_VECTORS_FILE = "tier_vectors.npy"
"""This and the other files of the tier are only there where a store is large enough for one."""
TIER_POSITIONS_FILE = "tier_positions.npy"
TIER_STARTS_FILE = "tier_starts.npy"
TIER_CENTROIDS_FILE = "tier_centroids.npy"
TIER_ROTATION_FILE = "tier_rotation.npy"
TIER_EXITS_FILE = "tier_exits.json"
POSTING_POSITIONS_FILE = "posting_positions.npy"
POSTING_SCORES_FILE = "posting_scores.npy"
CREATED_AT_FILE = "created_at_us.npy"
IMPORTANCE_FILE = "importance.npy"
SUMMARY_VECTORS_FILE = "summary_vectors.npy"
SUMMARY_POSTING_POSITIONS_FILE = "summary_posting_positions.npy"
SUMMARY_POSTING_SCORES_FILE = "summary_posting_scores.npy"
RANKING_FILE = "ranking.json"
"""Only there where the evaluation adopted another fusion or graph weight than the settings'."""
ABSTENTION_FILE = "abstention.json"
"""Only there where labelled queries told below which score nothing is an answer."""
SEALED_FILES = (RANKING_FILE, ABSTENTION_FILE)
"""What sealing puts beside a pack's own files; its digest does not count them."""
SHARE_STARTS_FILE = "shares_indptr.npy"
"""This and the next are only there where a user of the store shares a memory with another."""
SHARE_POSITIONS_FILE = "shares_positions.npy"
SHARE_FILES = (SHARE_STARTS_FILE, SHARE_POSITIONS_FILE)
SHARED_WITH = "shared_with"
"""Key of table `meta`, there where the two files are: who memories are shared with, sorted."""
TIER_FILES = {
    "vectors": TIER_VECTORS_FILE,
    "positions": TIER_POSITIONS_FILE,
    "starts": TIER_STARTS_FILE,
    "centroids": TIER_CENTROIDS_FILE,
    "rotation": TIER_ROTATION_FILE,
}
"""By field of noctuary.vectors.cascade.PrefixTier."""
FACETS = ("wing", "room", "category", "user", "session_id")
GRAPH_FIELDS = (
    "indptr",
    "targets",
    "weights",
    "relations",
    "concepts",
    "in_degrees",
    "valid_from_us",
    "valid_to_us",
    "recorded_at_us",
    "retracted_at_us",
    "evidence_starts",
    "evidence_ends",
)
SUMMARY_FIELDS = ("indptr", "sources", "confidences", "plans")
MENTION_FIELDS = ("indptr", "positions", "roles", "starts", "ends")

_SNAPSHOT_ID = re.compile(r"\d{8}T\d{12}-[0-9a-f]{12}")


def is_snapshot_id(name: str) -> bool:
    """Tell a published snapshot's directory name from whatever else lies beside it."""
    return _SNAPSHOT_ID.fullmatch(name) is not None


def facet_file(facet: str) -> str:
    """Return the file of one facet's int32 codes (-1 = none)."""
    return f"facet_{facet}.npy"


def graph_file(field: str) -> str:
    """Return the file of one array of the graph's compressed rows."""
    return f"graph_{field}.npy"


def mention_file(field: str) -> str:
    """Return the file of one array of the concepts' mentions."""
    return f"mentions_{field}.npy"


def summary_file(field: str) -> str:
    """Return the file of one array of the summaries."""
    return f"summary_{field}.npy"


def session_file(field: str) -> str:
    """Return the file of one array of the sessions."""
    return f"sessions_{field}.npy"


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The directories and files of one store."""

    root: Path

    @property
    def work(self) -> Path:
        """Intermediate artifacts of the night and their stamps."""
        return self.root / "work"

    @property
    def memo(self) -> Path:
        """Results memoised by content hash and by what computed them."""
        return self.work / "memo.sqlite"

    @property
    def lance(self) -> Path:
        """LanceDB tables: a rebuildable projection."""
        return self.root / "lance"

    @property
    def encoders(self) -> Path:
        """Lean encoders for the read side and ONNX exports for embedding, by fingerprint."""
        return self.root / "encoders"

    @property
    def rotations(self) -> Path:
        """Frozen rotations of the tiers, one directory per encoder fingerprint."""
        return self.root / "rotations"

    @property
    def candidates(self) -> Path:
        """Snapshot candidates, by digest, waiting for a verdict."""
        return self.root / "candidates"

    @property
    def verdicts(self) -> Path:
        """Gate verdicts, by candidate digest."""
        return self.root / "verdicts"

    @property
    def snapshots(self) -> Path:
        """Published, immutable snapshots."""
        return self.root / "snapshots"

    @property
    def current(self) -> Path:
        """The pointer to the serving snapshot."""
        return self.root / "CURRENT"

    @property
    def profiles(self) -> Path:
        """Named profiles of this store, written by its owner; noctuary only reads it."""
        return self.root / "profiles.toml"

    @property
    def merges(self) -> Path:
        """Names that are, or never are, one concept; the owner writes it, noctuary reads it."""
        return self.root / "merges.toml"

    @property
    def access_log(self) -> Path:
        """What was recalled; the only thing that recall writes."""
        return self.root / "access.sqlite"

    @property
    def queries(self) -> Path:
        """What was asked, for query expansion; only written while a profile switches that on."""
        return self.root / "queries.sqlite"

    @property
    def replays(self) -> Path:
        """What re-runs of recalls need, queries included; written where a profile says so."""
        return self.root / "replays.jsonl"

    @property
    def usage(self) -> Path:
        """What recall may know about use; the night replaces it, recall only reads it."""
        return self.root / "usage.sqlite"

    @property
    def archive(self) -> Path:
        """Which memories are out of default recall, by which plan; replaced whole, never edited."""
        return self.root / "archive.sqlite"

    @property
    def injections(self) -> Path:
        """Hashes of what was put into prompts, so that it is not remembered again; no text."""
        return self.root / "injected.sqlite"

    @property
    def turns(self) -> Path:
        """Turns of agents' transcripts: kept, because agents delete those files."""
        return self.root / "turns.sqlite"

    @property
    def dagster_home(self) -> Path:
        """The Dagster instance of this store."""
        return self.root / "dagster"

    @property
    def last_night(self) -> Path:
        """Touched by every night that went through, published or not: tells staleness."""
        return self.root / "LAST_NIGHT"

    @property
    def source_marker(self) -> Path:
        """Which state of the source the last night began with; read by the sensor."""
        return self.work / "source_marker.json"

    @property
    def purge_pending(self) -> Path:
        """Present while older snapshots hold a row that has turned sensitive."""
        return self.root / "purge.pending"

    @property
    def lock(self) -> Path:
        """Held by the running night."""
        return self.root / "nightly.lock"

    @property
    def reports(self) -> Path:
        """One HTML page per evaluated night."""
        return self.root / "reports"

    @property
    def costs(self) -> Path:
        """What each asset cost in the last night that ran it."""
        return self.work / "costs.json"
