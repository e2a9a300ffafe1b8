"""Group graph: concepts, where memories hold them, what joins them, and what is out of date."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, overload

import dagster as dg
import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import ConfigError, EncoderError, StoreError
from noctuary.core.files import (
    hash_file,
    hash_text,
    read_array,
    remove_tree,
    replace_with,
)
from noctuary.core.types import MemoryRecord, Progress
from noctuary.embed.documents import text_key, vector_kind
from noctuary.graph.build import Built, build_graph, sample_merges, top_concepts
from noctuary.graph.canonical import Memo as MergeMemo
from noctuary.graph.canonical import MergeRules
from noctuary.graph.contributions import STATE_VERSION
from noctuary.graph.extract import (
    EXTRACTION_COLUMNS,
    EXTRACTION_KIND,
    EXTRACTOR_VERSION,
    Extraction,
    ExtractMemories,
    add_keys,
    decode_extraction,
    encode_extraction,
)
from noctuary.graph.guards import NameStats, family, ranked
from noctuary.graph.likeness import Neighbour
from noctuary.graph.llm import (
    PROMPT_VERSION,
    READING_VERSION,
    SYSTEM,
    Failures,
    RawAnswer,
    answer_key,
    decode,
    ground,
    item_ids,
    merge_extractions,
    read_answer,
)
from noctuary.graph.state import GraphState, SearchTexts, SyncReport, search_here, write_dictionary
from noctuary.graph.tables import FILES, GraphTables, read_tables, write_tables
from noctuary.sources.corpus import RecordFile, column_batches, take_columns
from noctuary.text.secrets import find_text_sensitivity
from noctuary.work.content import KEY, WAVE_SHARDS, ContentStore, Filled, as_rows, fill
from noctuary.work.http import (
    MAX_MEMORY_CHARS,
    Answers,
    BadAnswerError,
    Endpoint,
    EndpointDownError,
    Sleep,
    batch_message,
    clip_text,
    complete,
    parse_batch,
    read_api_key,
)
from noctuary.work.shards import SHARD_ROWS, RecordBatch, arrow_compute, list_shards, read_batches
from noctuary.work.stage import Stage, StageResult, load_result
from noctuary_assets import index, ingest
from noctuary_assets.index import MEMORY_VECTORS
from noctuary_assets.ingest import CORPUS, read_told, told_inputs
from noctuary_assets.night import (
    GRAPH,
    GRAPH_STATE,
    MEMORIES,
    VECTORS,
    Face,
    Night,
    embed,
    face_of,
)
from noctuary_assets.reporting import judge, report_stage
from noctuary_assets.workers import Workers

# Texts searched for dictionary names by tonight's runner, where there are enough of them.


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


# Names and triples from a language model, added to what the rules found; off by default.
#
# **Texts leave the machine**: the content of every memory that may be shown, cut to a bound, and
# nothing else of it. Contents that read like a secret are not sent.


TRIPLES_KIND = "graph_plugin:1"
"""Kind of the answers. Its name is older than this file: another one would ask all of it again."""

PARALLEL_REQUESTS = 2
"""Requests under way at once. More are faster where an endpoint serves them side by side; one that
does not lets the later ones wait into their time limit, and more are lost with a kill."""

MAX_USELESS_ALONE = 8
"""Answers in a row about single memories without any use after which the endpoint is left alone: a
model that never writes JSON would otherwise cost a request per memory."""

MAX_FAILED_NIGHTS = 3
"""Nights on which a memory that gets no usable answer is asked about again. More give a model that
is merely unlucky its chance; fewer save a request per night and memory."""

ENDPOINT_DOWN = "graph_endpoint_down"
"""Code of the warning that the endpoint was given up."""
UNANSWERED = "graph_memories_unanswered"
"""Code of the warning that memories got no usable answer though the endpoint gives some."""


class Extended(NamedTuple):
    """Extractions with what the model added.

    Attributes:
        extractions: One per memory, in the order given.
        facts: For the stage's facts: what is known of these memories, and "warnings", a list of
            {"code", "message"} that is only there when something went wrong.
        notes: For the stage's notes: what only tonight did.
    """

    extractions: list[Extraction]
    facts: dict[str, Any]
    notes: dict[str, int]


@dataclass(slots=True)
class TripleReader:
    """One model, what it said of some texts, and what is still to be asked.

    Attributes:
        endpoint: The model.
        batch_memories: Texts per request, at least 1.
        store: Where answers are kept, batch by batch. A kill loses what is under way, at most
            PARALLEL_REQUESTS batches.
        progress: Told after every batch.
        sleep: Waits between tries.
        kept: By `answer_key`, what is known.
        tonight: Requests, answers remembered and faults of answers, by name.
        given_up: Why the endpoint was left alone, or None.
    """

    endpoint: Endpoint
    batch_memories: int
    store: ContentStore
    progress: Progress
    sleep: Sleep = time.sleep
    kept: dict[str, RawAnswer | Failures] = field(default_factory=dict[str, RawAnswer | Failures])
    tonight: Counter[str] = field(default_factory=Counter[str])
    given_up: str | None = None
    _queue: deque[dict[str, str]] = field(default_factory=deque[dict[str, str]])
    _useless: int = 0

    def read(self, contents: Iterable[str]) -> dict[str, RawAnswer]:
        """Ask about what is new and return what is known by now, by content.

        In batches, then alone where a batch gave nothing for a text; by the order of their keys,
        those that failed before last. Nothing that an endpoint does raises.
        """
        texts = {answer_key(content, self.endpoint.model): content for content in contents}
        stored = self.store.get(map(bytes.fromhex, texts))
        self.kept = {key: decode(stored.get(bytes.fromhex(key))) for key in sorted(texts)}
        failed = {key: v.nights for key, v in self.kept.items() if isinstance(v, Failures)}
        self.tonight.update(requests=0, remembered=len(texts) - len(failed))
        again = [key for key, nights in failed.items() if nights < MAX_FAILED_NIGHTS]
        again.sort(key=lambda key: (failed[key], key))
        for start in range(0, len(again), self.batch_memories):
            batch = again[start : start + self.batch_memories]
            self._queue.append({key: texts[key] for key in batch})
        self._ask_all(len(again))
        return {texts[k]: v for k, v in self.kept.items() if isinstance(v, RawAnswer)}

    def _ask_all(self, wanted: int) -> None:
        left, running = wanted, dict[Future[Answers[RawAnswer]], dict[str, str]]()
        with ThreadPoolExecutor(PARALLEL_REQUESTS, "graph-llm") as pool:
            while self._queue or running:
                while self._queue and len(running) < PARALLEL_REQUESTS:
                    batch = self._queue.popleft()
                    running[pool.submit(self._request, batch)] = batch
                    self.tonight["requests"] += 1
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    left -= self._take(running.pop(future), future)
                self.progress.update("graph: llm", wanted - left, wanted)

    def _request(self, batch: Mapping[str, str]) -> Answers[RawAnswer]:
        """Run in a thread of the pool: one conversation, nothing shared."""
        ids = item_ids(list(batch))
        message = batch_message([{"memory": clip_text(text)} for text in batch.values()], ids)
        try:
            content = complete(self.endpoint, SYSTEM, message, self.sleep)
        except BadAnswerError as error:
            return Answers({}, Counter({error.fault: 1}))
        return parse_batch(content, ids, read_answer)

    def _take(self, batch: dict[str, str], future: Future[Answers[RawAnswer]]) -> int:
        """Keep what came, ask again for what did not, and return how many are done with."""
        try:
            answers = future.result()
        except EndpointDownError as error:
            self._give_up(str(error))
            return 0
        self.tonight.update({f"fault: {fault}": n for fault, n in answers.faults.items() if n})
        keys, alone = list(batch), len(batch) == 1
        found = {keys[place]: value for place, value in answers.values.items()}
        missing = [key for key in keys if key not in found]
        self._keep(found, missing if alone else [])
        if found:
            self._useless = 0
        elif alone:
            self._useless += 1
            if self._useless == MAX_USELESS_ALONE:
                self._give_up(f"{MAX_USELESS_ALONE} answers in a row were of no use")
        if not alone and self.given_up is None:
            self._queue.extendleft({key: batch[key]} for key in reversed(missing))
            return len(found)
        return len(batch)

    def _keep(self, answers: Mapping[str, RawAnswer], failed: Sequence[str]) -> None:
        fresh: dict[str, RawAnswer | Failures] = dict(answers)
        # A model that never gave any use is set up wrongly; its failures say nothing of memories.
        if any(isinstance(value, RawAnswer) for value in self.kept.values()):
            for key in failed:
                before = self.kept[key]
                fresh[key] = Failures(before.nights + 1 if isinstance(before, Failures) else 1)
        values = [value.to_bytes() for value in fresh.values()]
        self.store.put(list(map(bytes.fromhex, fresh)), values)
        self.kept.update(fresh)

    def _give_up(self, reason: str) -> None:
        self.given_up = reason
        self._queue.clear()

    def warnings(self) -> list[dict[str, str]]:
        """Return what went wrong as a whole, as {"code", "message"}."""
        unanswered = sum(isinstance(value, Failures) for value in self.kept.values())
        waiting = f"{unanswered} memories have only what the rules found in them"
        model = f"the model of the graph ({self.endpoint.model})"
        if self.given_up is not None:
            message = (
                f"{model} was given up for tonight: {self.given_up}; {waiting}; they are asked "
                "about the next night (graph.llm_url)"
            )
            return [{"code": ENDPOINT_DOWN, "message": message}]
        if unanswered:
            message = (
                f"{model} gave no usable answer to some memories: {waiting}; each is asked about "
                f"on {MAX_FAILED_NIGHTS} nights"
            )
            return [{"code": UNANSWERED, "message": message}]
        return []


def extend_extractions(
    night: Night, records: Sequence[MemoryRecord], extractions: Sequence[Extraction]
) -> Extended:
    """Add what the model finds to what the rules found; for nights with `llm_inputs`.

    An endpoint that is down leaves the extractions as they are, and a warning in the facts.

    Args:
        night: Settings and what earlier nights were answered.
        records: Tonight's memories.
        extractions: What the rules found in them, one each.

    Raises:
        ConfigError: If the endpoint is set up wrongly: an address that is none, no API key.
    """
    endpoint = _endpoint(night)
    visible = {record.position for record in _shown(night, records)}
    contents = {r.content for r in records if r.position in visible}
    sent = {content for content in contents if find_text_sensitivity(content) is None}
    batch = night.settings.graph.llm_batch_memories
    reader = TripleReader(endpoint, batch, night.content(TRIPLES_KIND), night.progress)
    answers = reader.read(sent)
    grounded = {content: ground(content, answer) for content, answer in answers.items()}
    merged: list[Extraction] = []
    added, dropped = Counter[str](found=0, stated=0), Counter[str]()
    for record, base in zip(records, extractions, strict=True):
        # A memory that was not shown stays as it is, even where another one has the same text.
        extra = grounded.get(record.content) if record.position in visible else None
        both = base if extra is None else merge_extractions(base, extra.extraction)
        dropped.update({} if extra is None else extra.dropped)
        added["found"] += len(both.found) - len(base.found)
        added["stated"] += len(both.stated) - len(base.stated)
        merged.append(both)
    warnings = reader.warnings()
    facts = {
        "extractor": "llm",
        "fingerprint": _fingerprint(endpoint.model),
        "added": dict(added),
        "dropped": dict(sorted(dropped.items())),
        "left_out_named_users": len(records) - len(visible),
        "answered": len(answers),
        "clipped": sum(len(content) > MAX_MEMORY_CHARS for content in sent),
        "left_out_secret": len(contents) - len(sent),
        "malformed": sum(answer.malformed for answer in answers.values()),
        "unanswered": len(sent) - len(answers),
        "unmapped_relations": sum(found.unmapped for found in grounded.values()),
        **({"warnings": warnings} if warnings else {}),
    }
    return Extended(merged, facts, dict(sorted(reader.tonight.items())))


def llm_inputs(night: Night) -> dict[str, str]:
    """Return what the graph's stage depends on besides the rules; empty where no model is asked."""
    graph = night.settings.graph
    if graph.extractor != "llm":
        return {}
    return {
        "llm": _fingerprint(_endpoint(night).model),
        "named_users": str(graph.include_named_users),
    }


def live_triples(night: Night, records: Sequence[MemoryRecord]) -> list[bytes]:
    """Return the keys of TRIPLES_KIND that are still in use; all others are to be deleted."""
    if night.settings.graph.extractor != "llm":
        return []
    model = _endpoint(night).model
    shown = _shown(night, records)
    return [bytes.fromhex(answer_key(record.content, model)) for record in shown]


def _fingerprint(model: str) -> str:
    """Return model, prompt and reading; not the address, which may move with its model."""
    return f"llm:{READING_VERSION}:{PROMPT_VERSION}:{MAX_MEMORY_CHARS}:{model}"


def _endpoint(night: Night) -> Endpoint:
    graph = night.settings.graph
    key = read_api_key(graph.api_key_variable, "graph.api_key_variable")
    try:
        return Endpoint(graph.llm_url, graph.llm_model, key)
    except ValueError as error:
        raise ConfigError(f"graph.llm_*: {error}") from error


def _shown(night: Night, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """Return the memories that may be sent: nobody's own, unless these are switched on."""
    include = night.settings.graph.include_named_users
    return [record for record in records if record.user is None or include]


# What the extractor found in tonight's memories, from fragments or made anew.


KeyRows = NDArray[np.uint8]
"""Keys, shape (n, 32)."""

_READ_ROWS = 4_096
"""Findings decoded at once: some ten MB of objects."""


def fill_extractions(night: Night, keyed: Iterable[RecordBatch]) -> Filled:
    """Compute what the fragments lack of some memories.

    Args:
        night: The night.
        keyed: As `add_keys` gives them.
    """
    task = ExtractMemories()
    store = night.content(EXTRACTION_KIND)
    return fill(store, keyed, task, night.runner(), night.shards(task.name), night.progress)


def read_extractions(night: Night, records: Sequence[MemoryRecord]) -> list[Extraction]:
    """Return the extractor's findings of some memories; what the fragments lost is found again."""
    fill_extractions(night, map(add_keys, column_batches(records, EXTRACTION_COLUMNS)))
    return list(read_kept(night, _keys_of(records)))


def read_kept(night: Night, keys: KeyRows) -> Iterator[Extraction]:
    """Yield what the fragments hold under some keys, in their order.

    Raises:
        StoreError: They lack one of them.
    """
    store = night.content(EXTRACTION_KIND)
    for start in range(0, len(keys), _READ_ROWS):
        handles = store.find(keys[start : start + _READ_ROWS])
        if (handles < 0).any():
            raise StoreError(
                f"found no findings of {int((handles < 0).sum())} memories in {store.directory}, "
                "which were written just now: something else writes there; run the night again"
            )
        yield from map(decode_extraction, store.take(handles).to_pylist())


class Extractions:
    """Extractions of tonight's memories on demand.

    What the store tells of a memory is added to what its text gave, and is part of its key.

    Attributes:
        keys: By position, as hex digits: equal keys promise equal extractions.
        extracted: How many distinct texts were read so far.
        facts: What a language model told of these memories.
        notes: What it did tonight.
    """

    def __init__(self, night: Night, records: Sequence[MemoryRecord]) -> None:
        self._night = night
        self._records = records
        self._text_keys = _keys_of(records)
        self._told = _told_by_position(night, records)
        changed = {at: encode_extraction(told) for at, told in self._told.items()}
        self.keys: Sequence[str] = _HexKeys(_with_added(self._text_keys, changed))
        self.extracted = 0
        self.facts: Mapping[str, Any] = {}
        self.notes: Mapping[str, Any] = {}

    def load(self, chosen: Sequence[int]) -> Iterable[Extraction]:
        """Yield the extractions of the memories at ascending positions."""
        positions = np.array(chosen, dtype=np.int64)
        rows = take_columns(self._records, positions, EXTRACTION_COLUMNS)
        self.extracted += fill_extractions(self._night, map(add_keys, rows)).computed
        found = read_kept(self._night, self._text_keys[positions])
        for position, extraction in zip(chosen, found, strict=True):
            told = self._told.get(position)
            yield extraction if told is None else merge_extractions(extraction, told)


class ExtendedExtractions(Extractions):
    """Extractions to which a language model adds: an answer that came late changes a memory's key.

    All of them are held: asking a model is for stores where that is affordable.
    """

    def __init__(self, night: Night, records: Sequence[MemoryRecord]) -> None:
        held = list(records)
        super().__init__(night, held)
        found = list(super().load(range(len(held))))
        extended = extend_extractions(night, held, found)
        self.facts, self.notes = extended.facts, extended.notes
        self._merged = extended.extractions
        self.keys = [
            hash_text(key, encode_extraction(merged).decode("utf-8"))
            for key, merged in zip(self.keys, self._merged, strict=True)
        ]

    def load(self, chosen: Sequence[int]) -> Iterable[Extraction]:
        """Return the merged extractions of the memories at some positions."""
        return [self._merged[position] for position in chosen]


def open_extractions(night: Night, records: Sequence[MemoryRecord]) -> Extractions:
    """Return the extractions of tonight's memories, with a model's where one is configured."""
    with_model = night.settings.graph.extractor == "llm"
    return (ExtendedExtractions if with_model else Extractions)(night, records)


class _HexKeys(Sequence[str]):
    """Keys as hex digits, of which only those in use are texts."""

    def __init__(self, keys: KeyRows) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [key.tobytes().hex() for key in self._keys[index]]
        return self._keys[index].tobytes().hex()


def _keys_of(records: Sequence[MemoryRecord]) -> KeyRows:
    keys = [
        as_rows(add_keys(batch).column(KEY).to_pylist())
        for batch in column_batches(records, EXTRACTION_COLUMNS)
    ]
    return np.concatenate([*keys, as_rows([])])


def _told_by_position(night: Night, records: Sequence[MemoryRecord]) -> dict[int, Extraction]:
    told = read_told(night)
    if not told:
        return {}
    rows = (
        row
        for batch in column_batches(records, ("position", "memory_id"))
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    return {position: told[memory_id] for position, memory_id in rows if memory_id in told}


def _with_added(keys: KeyRows, added: Mapping[int, bytes]) -> KeyRows:
    """Return the keys, those of some positions changed by what is added there."""
    changed = keys.copy() if added else keys
    for position, more in added.items():
        key = hash_text(keys[position].tobytes().hex(), more.decode("utf-8"))
        changed[position] = as_rows([bytes.fromhex(key)])
    return changed


# Vectors of the names of concepts: which names get one, and what of them outlives a night.


CONCEPT_VECTORS = f"{GRAPH}/concept_vectors.parquet"
"""The table of concepts that have a vector."""

NAMES_MAX = 4096
"""Most names that are embedded, those in most memories first. More finds more synonyms among rare
names; the first night pays some 2 ms a name, and every new name is compared with all others."""

SHARED_DF = 2
"""Memories from which on any name is embedded: one that stands in a single memory joins nothing."""

AUTHOR_KINDS = frozenset({"title", "heading", "key", "label", "tag"})
"""Kinds that an author gave on purpose: embedded even where one memory has them."""

_MERGING_FAMILIES = frozenset({"words", "speaker"})
_TASK = "concept_vectors"
_FAILURE = "names_not_embedded"


def choose_names(names: Sequence[NameStats]) -> list[str]:
    """Return the names that get a vector, best rank first, at most NAMES_MAX."""
    wanted = [
        item
        for item in names
        if (item.df >= SHARED_DF or item.kind in AUTHOR_KINDS)
        and family(item.kind) in _MERGING_FAMILIES
    ]
    return [item.name for item in ranked(wanted)[:NAMES_MAX]]


@dataclass
class NameVectors:
    """The vectors of one night's names.

    Attributes:
        by_name: Filled by `embed`.
        computed: Names that the encoder saw tonight.
        failure: Why there are none; empty where there is nothing to tell.
    """

    night: Night
    by_name: dict[str, NDArray[np.float32]] = field(default_factory=dict[str, NDArray[np.float32]])
    computed: int = 0
    failure: str = ""

    def embed(self, names: Sequence[NameStats]) -> Mapping[str, NDArray[np.float32]] | None:
        """Return vectors of the chosen names; None without an encoder, whose failure is noted."""
        face = _face(self.night)
        if face is None:
            return None
        chosen = choose_names(names)
        try:
            embedded = embed(self.night, face, chosen, _Named(self.night.progress))
        except (EncoderError, OSError) as error:
            self.failure = f"{type(error).__name__}: {error}"
            return None
        self.computed = embedded.computed
        self.by_name = dict(zip(chosen, embedded.vectors, strict=True))
        return self.by_name

    def to_facts(self) -> dict[str, str]:
        """Return what the stage's facts say; `encoder_failed` reads it back."""
        return {_FAILURE: self.failure} if self.failure else {}

    def read_memo(self) -> MergeMemo:
        """Return what is known of near names."""
        store = self.night.content(near_kind(self.night))
        told = (json.loads(value) for value in store.values())
        near = {
            name: None if it is None else Neighbour(*it)
            for name, took_part, it in told
            if took_part
        }
        return MergeMemo(near)

    def write_memo(self, memo: MergeMemo) -> None:
        """Keep what is known of near names, and which names were embedded."""
        near, names = memo.neighbours, sorted({*self.by_name, *memo.neighbours})
        values = [json.dumps([name, name in near, near.get(name)]).encode() for name in names]
        self.night.content(near_kind(self.night)).replace(list(map(text_key, names)), values)


def near_kind(night: Night) -> str:
    """Return the kind of what is known of names and of the nearest name of each, by encoder."""
    face = _face(night)
    return f"near_names:1:{'' if face is None else vector_kind(night.fingerprint(), face.tag)}"


def encoder_failed(last: StageResult | None) -> bool:
    """Say whether the last graph had to do without vectors that another night may get."""
    return last is not None and _FAILURE in last.facts


def write_concept_vectors(night: Night, vectors: Mapping[str, NDArray[np.float32]]) -> None:
    """Replace the table of concept ids and their unit vectors, sorted; without any, remove it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = night.work(CONCEPT_VECTORS)
    if not vectors:
        path.unlink(missing_ok=True)
        return
    ids = sorted(vectors)
    table = pa.table(
        {
            "concept_id": pa.array(ids, pa.string()),
            "vector": pa.array([vectors[key] for key in ids], pa.list_(pa.float32())),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_with(path, lambda tmp: pq.write_table(table, tmp, compression="zstd"))


class _Named:
    """A progress under the name of this work: embedding reports under that of the memories."""

    def __init__(self, beyond: Progress) -> None:
        self._beyond = beyond

    def update(self, task: str, done: int, total: int) -> None:
        """Pass a report on."""
        del task
        self._beyond.update(_TASK, done, total)


def _face(night: Night) -> Face | None:
    """Return what made the memory vectors; None where no encoder of this project did."""
    facts: Mapping[str, Any] = night.result_of(MEMORY_VECTORS).facts
    return face_of(facts) if "face" in facts else None


# Stage concept_graph.
#
# Findings kept per memory, their sum kept up to date in the state, one graph out of it.


CONCEPT_GRAPH = Stage(
    "concept_graph", "7", (*(f"{GRAPH}/{file}" for file in FILES.values()), CONCEPT_VECTORS)
)


NEAR_KIND = "near_duplicates:1"
"""Kind of what is known of near duplicates, by a key of memory and vector."""


class _Tonight(NamedTuple):
    """What was done for a graph, and what a language model told."""

    built: Built
    synced: SyncReport
    extracted: int
    names: NameVectors
    llm_facts: Mapping[str, Any]
    llm_notes: Mapping[str, Any]


def connect_memories(night: Night) -> StageResult:
    """Extract what each memory is about, names and states, and connect memories and concepts."""
    merges = night.paths.merges
    of_model = llm_inputs(night)
    inputs = {
        "corpus": night.result_of(CORPUS).digest,
        "vectors": night.result_of(MEMORY_VECTORS).digest,
        "extractor": str(EXTRACTOR_VERSION),
        "state": STATE_VERSION,
        "merges": hash_file(merges) if merges.is_file() else "none",
        **of_model,
        **told_inputs(night),
    }
    notes: dict[str, Any] = {"memories_extracted": 0, "memories_touched": 0}

    def body() -> tuple[int, dict[str, Any]]:
        tonight = _build(night)
        write_tables(tonight.built.tables, night.work(GRAPH))
        write_concept_vectors(night, tonight.built.concept_vectors)
        notes.update(
            memories_extracted=tonight.extracted,
            memories_touched=tonight.synced.touched,
            memories_rematched=tonight.synced.rematched,
            names_changed=tonight.synced.changed_names,
            names_embedded=tonight.names.computed,
            **tonight.llm_notes,
        )
        facts = {**_facts(tonight.built), **tonight.names.to_facts(), **tonight.llm_facts}
        return tonight.built.tables.edges.num_rows, facts

    places = (night.work(GRAPH_STATE),)
    # With a model the stage runs every night: its endpoint may be back.
    failed = encoder_failed(load_result(night.paths.work, CONCEPT_GRAPH))
    again = bool(of_model) or failed
    result = night.run(CONCEPT_GRAPH, inputs, body, always=again, places=places)
    return night.finish(result.with_notes(**notes))


def load_tables(night: Night, names: Collection[str] = tuple(FILES)) -> GraphTables:
    """Read the graph that the stage wrote, or some tables of it, see `read_tables`."""
    return read_tables(night.work(GRAPH), names)


def linked_pairs(night: Night) -> list[tuple[int, int]]:
    """Return source and target of every edge of the graph that the stage wrote."""
    edges = load_tables(night, ["edges"]).edges
    return list(
        zip(edges["src_position"].to_pylist(), edges["dst_position"].to_pylist(), strict=True)
    )


def _build(night: Night) -> _Tonight:
    rules = MergeRules.read(night.paths.merges)
    records = RecordFile(night.work(MEMORIES))
    source = open_extractions(night, records)
    name_vectors = NameVectors(night)
    with GraphState.open(night.work(GRAPH_STATE), night.settings.runner.memory_mb) as state:
        synced = state.sync(records, source.keys, source.load, NightSearch(night))
        built = build_graph(
            state,
            records,
            rules=rules,
            vectors=read_array(night.work(VECTORS)),
            embed_names=name_vectors.embed,
            memo=name_vectors.read_memo(),
            near_memo=dict(map(json.loads, night.content(NEAR_KIND).values())),
        )
    name_vectors.write_memo(built.memo)
    near = sorted(built.near_memo.items())
    night.content(NEAR_KIND).replace(
        [text_key(key) for key, _ in near], [json.dumps(item).encode() for item in near]
    )
    return _Tonight(built, synced, source.extracted, name_vectors, source.facts, source.notes)


def _facts(built: Built) -> dict[str, Any]:
    tables = built.tables
    return {
        **{name: getattr(tables, name).num_rows for name in FILES},
        "concepts_by_kind": _counts(tables, "concepts", "kind"),
        "mentions_by_role": _counts(tables, "mentions", "role"),
        "edges_by_relation": _counts(tables, "edges", "relation"),
        "concept_edges_by_relation": _counts(tables, "concept_edges", "relation"),
        "merges_by_reason": _counts(tables, "merges", "reason"),
        "merges_refused": dict(built.unmerged),
        "unknown_names_in_rules": len(built.unknown_names),
        "supersessions_by_reason": _counts(tables, "supersessions", "reason"),
        "supersessions_rejected": dict(built.rejected),
        "closed_edges": _closed(tables, "edges"),
        "closed_concept_edges": _closed(tables, "concept_edges"),
        "skipped_subjects": dict(tables.skipped_subjects),
        "declined_runs": dict(tables.declined_runs),
        "concept_vectors": len(built.concept_vectors),
    }


def _counts(tables: GraphTables, table: str, column: str) -> dict[str, int]:
    counted = Counter[str]()
    for item in getattr(tables, table)[column].value_counts().to_pylist():
        counted[item["values"]] += item["counts"]
    return dict(sorted(counted.items()))


def _closed(tables: GraphTables, table: str) -> int:
    column = getattr(tables, table)["valid_to_us"]
    return int(len(column) - column.null_count)


# By asset: its table, and the columns of the sample, none of which holds text.
_TABLES = {
    "concepts": ("concepts", ("concept_id", "kind", "df")),
    "memory_concepts": ("mentions", ("position", "concept_id", "role", "start", "end")),
    "concept_edges": ("concept_edges", ("src_concept", "relation", "dst_concept", "weight")),
    "edges": (
        "edges",
        ("src_position", "dst_position", "relation", "weight", "evidence_position"),
    ),
    "supersessions": (
        "supersessions",
        ("older_position", "newer_position", "reason", "confidence", "age_gap_days"),
    ),
}
_DESCRIPTIONS = {
    "concepts": "What memories are about or name, many names merged into one concept each.",
    "memory_concepts": "Where a memory holds a concept: role and evidence span.",
    "concept_edges": "What memories state between two concepts, every place counted and dated.",
    "edges": "Typed, directed, dated steps from memory to memory, each with its evidence.",
    "supersessions": "Memories that a newer one replaces, with the reason and the newest of all.",
}


def _spec(key: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        deps=[ingest.memories, index.memory_vectors],
        kinds={"parquet"},
        description=_DESCRIPTIONS[key],
        code_version=CONCEPT_GRAPH.version,
    )


concepts, memory_concepts, concept_edges, edges, supersessions = map(_spec, _TABLES)

_CHECKS = {
    "every_edge_names_its_evidence": (
        "edges",
        "Every edge has a memory that says so and a concept that exists.",
    ),
    "every_statement_joins_two_concepts": (
        "concept_edges",
        "Both ends of every statement are concepts that exist.",
    ),
    "every_successor_chain_ends": (
        "supersessions",
        "The newest memory of every chain is replaced by no other.",
    ),
}


@dg.multi_asset(
    name="concept_graph",
    specs=[concepts, memory_concepts, concept_edges, edges, supersessions],
    check_specs=[
        dg.AssetCheckSpec(name, asset=key, description=said, blocking=True)
        for name, (key, said) in _CHECKS.items()
    ],
)
def concept_graph(night: dg.ResourceParam[Night], workers: Workers) -> Iterator[Any]:
    """Extract and connect, deterministically and without a model."""
    result = connect_memories(night)
    # Mentions, ten million rows at a million memories, are only counted here.
    tables = load_tables(night, set(FILES) - {"mentions"})
    for key, (table, columns) in _TABLES.items():
        yield report_stage(
            night,
            result,
            asset_key=key,
            rows=result.facts[table],
            table=f"{GRAPH}/{FILES[table]}",
            columns=columns,
            more=_at_a_glance(tables) if key == "concepts" else None,
        )
    for name, (faulty, fault) in _faults(tables).items():
        key, wrong = _CHECKS[name][0], int(faulty.sum())
        found = {key: len(faulty), fault: wrong}
        yield judge(night, CONCEPT_GRAPH, wrong == 0, found, asset_key=key, check_name=name)


def _at_a_glance(tables: GraphTables) -> dict[str, Any]:

    pages = {"top_concepts": top_concepts(tables), "merge_decisions": sample_merges(tables)}
    return {name: dg.MetadataValue.md(page) for name, page in pages.items()}


def _faults(tables: GraphTables) -> dict[str, tuple[Any, str]]:
    """Return by check which rows break it, and what to call them."""
    edges, stated, chains = tables.edges, tables.concept_edges, tables.supersessions
    without = _unknown(tables, edges["concept_id"]) | (edges["evidence_position"].to_numpy() < 0)
    ends = _unknown(tables, stated["src_concept"]) | _unknown(tables, stated["dst_concept"])
    older = set(chains["older_position"].to_pylist())
    open_ended = np.isin(chains["head_position"].to_numpy(), sorted(older))
    return {
        "every_edge_names_its_evidence": (without, "without_evidence"),
        "every_statement_joins_two_concepts": (ends, "dangling"),
        "every_successor_chain_ends": (open_ended, "without_head"),
    }


def _unknown(tables: GraphTables, ids: Any) -> Any:
    """Say of every id whether no concept has it."""
    known = tables.concepts["concept_id"].combine_chunks()
    return arrow_compute().index_in(ids, value_set=known).is_null().to_numpy()
