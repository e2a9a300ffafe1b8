"""The resource that heavy assets ask for: whoever runs their shards is there while they run."""

from __future__ import annotations

from typing import Any

import dagster as dg

Workers = dg.ResourceParam[Any]  # None: the night starts processes of this machine itself
