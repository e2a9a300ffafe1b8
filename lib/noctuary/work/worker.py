"""The program of a worker process: `python -m noctuary.work.worker DESCRIPTOR`.

It is told a task and a directory, then shards, and answers each with its fragment or an error. It
ends when the other end of the connection is gone, however that came, and in the middle of a shard
as well.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from noctuary.core.errors import NoctuaryError, ShardError
from noctuary.work.fragments import Fragment
from noctuary.work.runner import ShardWorker


def main() -> None:
    """Work on shards until nobody asks any more."""
    # Ctrl-C reaches the whole terminal; the night that started this process answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    messages: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, messages), daemon=True).start()
    opening, worker = messages.get(), None
    while True:
        message = messages.get()
        try:
            if worker is None:
                worker = ShardWorker(*pickle.loads(opening))
            answer: Fragment | NoctuaryError = worker.work(pickle.loads(message))
        except NoctuaryError as error:
            answer = portable(error)
        except Exception as error:
            answer = ShardError(
                f"a worker could not open its task: {type(error).__name__}: {error}. A task must "
                "be importable by name."
            )
        connection.send(answer)


def _listen(connection: Connection[Any, Any], messages: SimpleQueue[bytes]) -> None:
    """Pass messages on; end the process when the other end is gone."""
    try:
        while True:
            messages.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)


def portable(error: NoctuaryError) -> NoctuaryError:
    """Return an error that the other side can read."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ShardError(str(error))
    return error


if __name__ == "__main__":
    main()
