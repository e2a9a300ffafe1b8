"""The record of what was handed to an agent, so that no night takes it for something new.

What belongs here: noting the whole texts of an answer. What does not: the record itself
(noctuary.injection). An agent's transcript holds what its tools returned; read as a memory store,
it would bring every recalled memory back as a new one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from noctuary.errors import StoreError
from noctuary.injection.injecting import wordings_of
from noctuary.injection.record import append_injection
from noctuary.mcp_server.view import View

_logger = logging.getLogger(__name__)


def note_handed_out(view: View, memories: Sequence[Mapping[str, Any]], query: str = "") -> None:
    """Put hashes of some memories, and of the question, on the store's record; never raises.

    Args:
        view: Of the server that handed them out.
        memories: With id, content, created_at, session_id and user, as plain values.
        query: What was asked, or nothing.
    """
    if not memories:
        return
    try:
        from noctuary.snapshot.layout import StorePaths

        path = StorePaths(view.store()).injections
    except StoreError:
        return
    fault = append_injection(path, wordings_of(memories, query), now_us=time.time_ns() // 1000)
    if fault is not None:
        _logger.warning("%s", fault)
