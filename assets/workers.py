"""The resource that heavy assets ask for: whoever runs their shards is there while they run.

What belongs here: its type as an asset's argument. What does not: which one it is
(pipelines.workers), and handing it work: `night.runner()` finds it.
"""

from __future__ import annotations

from typing import Any

import dagster as dg

Workers = dg.ResourceParam[Any]
"""None where processes of this machine do the work, which the night starts itself."""
