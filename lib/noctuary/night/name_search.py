"""Texts searched for dictionary names by tonight's runner, where there are enough of them.

What belongs here: shards in, fragments out, nothing of them kept. What does not: the task
(`noctuary.graph.state.text_search`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from noctuary.files import remove_tree
from noctuary.graph.extraction import EXTRACTOR_VERSION
from noctuary.graph.state.text_search import SearchTexts, search_here, write_dictionary
from noctuary.hashing import hash_file
from noctuary.night.context import Night
from noctuary.shards.files import SHARD_ROWS, list_shards, read_batches
from noctuary.shards.filling import WAVE_SHARDS
from noctuary.shards.task import RecordBatch


class NightSearch:
    """A `TextSearch` by the night's runner.

    Args:
        night: The night.
        shard_rows: Texts of a shard; up to as many are searched in this process.
    """

    def __init__(self, night: Night, shard_rows: int = SHARD_ROWS) -> None:
        self._night = night
        self._shard_rows = shard_rows

    def __call__(
        self, names: Mapping[str, bool], texts: Iterator[RecordBatch], count: int, *, words: bool
    ) -> Iterator[RecordBatch]:
        """See `TextSearch`."""
        if count <= self._shard_rows:
            yield from search_here(names, texts, count, words=words)
            return
        place = self._night.shards("search_texts")
        remove_tree(place)
        task = SearchTexts(place / "dictionary.json", words)
        place.mkdir(parents=True)
        write_dictionary(names, task.dictionary)
        try:
            yield from self._search(task, texts)
        finally:
            remove_tree(place)

    def _search(self, task: SearchTexts, texts: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        place, runner = task.dictionary.parent, self._night.runner()
        salt = f"{task.name}:{EXTRACTOR_VERSION}:{task.words}:{hash_file(task.dictionary)}"
        shards = list_shards(texts, place / "texts", salt, self._shard_rows)
        while wave := list(islice(shards, WAVE_SHARDS)):
            for fragment in runner.run(task, wave, place / "found", self._night.progress):
                yield from read_batches(fragment.path)
                fragment.path.unlink()
            for shard in wave:
                shard.path.unlink(missing_ok=True)
