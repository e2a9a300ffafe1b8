"""What the source told of its memories beside their rows, as the graph's stage uses it.

What belongs here: the tables of `noctuary.corpus.evidence_tables`, read and named as inputs of the
stage. What does not: what they mean (`noctuary.graph.told`).
"""

from __future__ import annotations

from noctuary.corpus.evidence_tables import (
    CONCEPTS_FILE,
    EDGES_FILE,
    LINKS_FILE,
    MENTIONS_FILE,
    read_known,
    read_links,
)
from noctuary.graph.extraction import Extraction
from noctuary.graph.told import TOLD_VERSION, findings_told
from noctuary.night.context import MEMORIES, Night

_FILES = (LINKS_FILE, CONCEPTS_FILE, MENTIONS_FILE, EDGES_FILE)


def read_told(night: Night) -> dict[str, Extraction]:
    """Return what the source tells, by memory id; empty where it says nothing."""
    corpus = night.work(MEMORIES).parent
    known = read_known(corpus)
    return findings_told(read_links(corpus), known.concepts, known.mentions, known.edges)


def told_inputs(night: Night) -> dict[str, str]:
    """Return what the graph's stage depends on besides the corpus; empty where nothing is told.

    The tables themselves are part of the corpus and of its digest.
    """
    corpus = night.work(MEMORIES).parent
    is_told = any((corpus / name).is_file() for name in _FILES)
    return {"told": TOLD_VERSION} if is_told else {}
