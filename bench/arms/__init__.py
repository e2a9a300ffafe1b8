"""The systems under comparison: FTS5 baselines, the reference's hybrid, noctuary and its ablations.

No metric, no file, no table. `base` has the types, `catalogue` the list; every other module is
one kind of system or a part of one.
"""

from bench.arms.base import Arm, ArmRetriever, Hits, SearchScope, SetContext
from bench.arms.catalogue import list_arms

__all__ = ["Arm", "ArmRetriever", "Hits", "SearchScope", "SetContext", "list_arms"]
