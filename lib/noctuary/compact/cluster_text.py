"""A cluster together with what its members say and where they point.

What belongs here: the noun that the summarizers are fed with. What does not: reading it from a
store (streaming), summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import Cluster


class ClusterText(NamedTuple):
    """What a summarizer sees of one cluster.

    Attributes:
        cluster: Its members, user and wing.
        contents: Their texts, chronological, parallel to `cluster.member_ids`.
        vectors: Their document vectors, shape (n, d), in the same order.
    """

    cluster: Cluster
    contents: Sequence[str]
    vectors: NDArray[np.floating[Any]]
