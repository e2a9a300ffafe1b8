"""Working on shards: what a worker does, whoever started it.

What belongs here: the task's function, opened once, and what becomes of an error. What does not:
processes and clusters (the runners).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from noctuary.errors import NoctuaryError, ShardError
from noctuary.shards.files import count_rows, fragment_path, read_batches, write_table
from noctuary.shards.task import BatchFunction, BatchTask, Fragment, Shard


@dataclass(slots=True)
class ShardWorker:
    """Works on shards of one task, one after the other.

    Attributes:
        task: Opened at the first shard.
        directory: Where fragments go.
        threads: That the task may use.
    """

    task: BatchTask
    directory: Path
    threads: int = 1
    _function: BatchFunction | None = None

    def work(self, shard: Shard) -> Fragment:
        """Put the fragment of a shard in place and return it; one that is there is taken.

        Raises:
            ShardError: The task failed, in the words of its own error.
            NoctuaryError: That the task raised.
        """
        try:
            self._function = self._function or self.task.open(self.threads)
            return write_fragment(self._function, shard, self.directory)
        except NoctuaryError:
            raise
        except Exception as error:
            raise ShardError(
                f"{self.task.name}: {shard.rows} rows ({shard.path.name}) failed: "
                f"{type(error).__name__}: {error}. What the other shards became is kept; remove "
                "the cause and run again."
            ) from error


def write_fragment(function: BatchFunction, shard: Shard, directory: Path) -> Fragment:
    """Work on a shard and put its fragment in place; one that is there and whole is taken."""
    path = fragment_path(directory, shard.key)
    held = count_rows(path)
    if held is None:
        made = [function(batch) for batch in read_batches(shard.path)]
        held = write_table(path, made)
    return Fragment(shard.key, path, held)
