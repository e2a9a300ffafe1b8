"""A past for a store: recalls logged and counted, beside the store and never in it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from noctuary.core.errors import StoreError
from noctuary.core.sqlite import close_logs
from noctuary.core.store import StorePaths
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import Inputs
from noctuary.usage.access_log import append_retrievals
from noctuary.usage.query_log import append_query
from noctuary.usage.reader import LTP_WINDOW_DAYS, UsageReader
from noctuary.usage.statistics import Folded, count_window, fold_access_log, write_usage

_DAY_US = 86_400_000_000


class Past:
    """A directory beside a store that holds what was recalled, and the encoder of the store.

    Attributes:
        paths: The directory, laid out like a store.
    """

    def __init__(self, root: Path, recaller: Recaller) -> None:
        root.mkdir(parents=True)
        self.paths = StorePaths(root)
        self.paths.encoders.symlink_to(recaller.paths.encoders.absolute())
        self._recaller = recaller
        reader = recaller.reader
        self._known: Collection[str] = set(reader.memory_ids(range(reader.count)).values())

    def log(self, recalls: Sequence[Sequence[str]], times: int = 1) -> None:
        """Append recalls to the access log and count it anew.

        Args:
            recalls: Ids that each recall returned, best first; one without any is not logged.
            times: How often each recall happened.

        Raises:
            StoreError: If the log cannot be written.
        """
        for ids in recalls:
            for _ in range(times if ids else 0):
                fault = append_retrievals(
                    self.paths.access_log, snapshot_id=self._recaller.snapshot_id, memory_ids=ids
                )
                if fault is not None:
                    raise StoreError(fault)
        close_logs()
        self._count()

    def log_queries(self, answers: Mapping[str, Sequence[str]], user: str | None) -> None:
        """Append a user's questions and what they found to the query log.

        Raises:
            StoreError: If the log cannot be written or the snapshot has no encoder.
        """
        world, digest = self.world(), self._recaller.reader.manifest.encoder_digest
        if digest is None:
            raise StoreError("the snapshot names no encoder: questions have no vectors")
        for text, ids in answers.items():
            fault = append_query(
                self.paths.queries,
                text=text,
                vector=world.query_vector(text),
                memory_ids=ids,
                encoder_digest=digest,
                asked_us=world.now_us(),
                user=user,
            )
            if fault is not None:
                raise StoreError(fault)

    def world(self) -> Inputs:
        """Return what a recall reads besides its snapshot, with this past."""
        usage = UsageReader(self.paths.usage)
        reader = self._recaller.reader
        return Inputs(self.paths, reader, lambda: usage)

    def _count(self) -> None:
        """Count as a night does."""
        now_us, days = time.time_ns() // 1000, LTP_WINDOW_DAYS
        folded = fold_access_log(Folded(), self.paths.access_log, self._known).folded
        since_us = now_us - days * _DAY_US
        window = count_window(
            self.paths.access_log,
            folded.mark,
            self._known,
            recent_since_us=since_us,
            pairs_since_us=since_us,
        )
        write_usage(
            self.paths.usage, folded, window, self._known, window_days=days, as_of_us=now_us
        )
