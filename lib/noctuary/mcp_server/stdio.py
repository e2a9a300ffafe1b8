"""Running the server over standard input and output, as agents start it.

What belongs here: the process. Standard output holds the protocol and nothing else; what is worth
saying goes to standard error.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from contextlib import suppress

from noctuary.errors import NoctuaryError
from noctuary.mcp_server.bounded import THREAD_PREFIX
from noctuary.mcp_server.server import build_server
from noctuary.mcp_server.view import View
from noctuary.usage.log_writer import close_logs

_GOODBYE_S = 0.5
"""How long running calls may take to end once the client has left; agents wait some two seconds
before they kill."""

_FORMAT = "noctuary mcp: %(levelname)s %(message)s"


def run_stdio(view: View, timeout_s: float) -> None:
    """Answer until the client closes its end; with calls that do not end, end the process as well.

    Args:
        view: What the server may see.
        timeout_s: Longest time of one call, > 0.
    """
    # Before the SDK would: its own handler draws boxes, for a terminal that is not there.
    logging.basicConfig(level=logging.WARNING, format=_FORMAT, stream=sys.stderr)
    server = build_server(view, timeout_s)
    threading.Thread(
        target=_warm_up, args=(view,), name=f"{THREAD_PREFIX}warm", daemon=True
    ).start()
    with suppress(KeyboardInterrupt):
        server.run("stdio")
    _leave()


def _leave() -> None:
    """End the process at once where a thread still works for the client that has left.

    An interpreter that ends under such a thread may crash in a library's own threads.
    """
    until = time.monotonic() + _GOODBYE_S
    for thread in threading.enumerate():
        if thread.name.startswith(THREAD_PREFIX):
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                close_logs()
                os._exit(0)


def _warm_up(view: View) -> None:
    """Open snapshot and encoder while the client is still greeting; what fails, a call will say."""
    from noctuary.serve.answer import warm_up

    try:
        store = view.store()
    except (NoctuaryError, OSError):
        return
    for warning in view.store_warnings():
        logging.getLogger(__name__).warning("%s", warning.message)
    warm_up(store)
