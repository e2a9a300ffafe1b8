"""Which names are one concept: exact fold -> aliases and spelling -> MinHash -> embeddings.

`canonicalise` is the way in, `rules` reads what people forced or forbade, `guards` says what must
never merge, `nested` decides which plain runs of words are concepts. Build side only; numpy.

Nothing here compares all names with all names except `nearest`, which sees only the names that
carry a vector and is incremental. Spelling and MinHash candidates come out of buckets: linear.
"""

from __future__ import annotations

from noctuary.graph.canonical.canonicalise import Canonical, Memo, canonicalise
from noctuary.graph.canonical.nested import c_values, keep_runs
from noctuary.graph.canonical.rules import MergeRules
from noctuary.graph.canonical.stats import NameStats

__all__ = [
    "Canonical",
    "Memo",
    "MergeRules",
    "NameStats",
    "c_values",
    "canonicalise",
    "keep_runs",
]
