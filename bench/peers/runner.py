"""One peer in its own environment: it stores a corpus, or answers questions about what it stored.

`python runner.py {build,ask} PEER GIVEN STORE [DEPTH]` writes JSON lines. It imports nothing but
the standard library and the peer's own packages, and refuses every connection.

GIVEN holds corpus.jsonl (id, content, wing), vectors.f32 (a float32 row per memory, made by
noctuary's encoder), queries.jsonl (query_id, text, wing), encoder/ (noctuary's ONNX files) and
source/ (the set itself).
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import resource
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

K = 10
WARM_UP = 5
BATCH = 1_000
"""Memories handed over at once, where a peer takes several."""

_WORD = re.compile(r"\w+")

Ask = Callable[[str, int, "str | None"], list[str]]
"""Text, k and a wing or None for all, to ids, best first."""


class Peer(NamedTuple):
    """A system under comparison; its docstring says how it is asked.

    Attributes:
        packages: What pip installs, the peer first; empty where this Python has it.
        vectors: Whether it searches by vector.
        open: Stores the corpus if it is given one, and returns what answers.
        python: The oldest Python that it runs on.
    """

    packages: tuple[str, ...]
    vectors: bool
    open: Callable[[Given, Path], Ask]
    python: tuple[int, int]


class Given:
    """What every peer gets: rows to store, none where it is asked, and noctuary's encoder."""

    def __init__(self, folder: Path, building: bool) -> None:
        self.folder = folder
        self.rows = read_lines(folder / "corpus.jsonl") if building else []
        self._known: dict[str, Any] = {}
        self._session: Any = None

    def batches(self) -> Iterator[tuple[list[dict[str, Any]], Any]]:
        """Yield rows with their vectors, shape (n, d)."""
        vectors = self.vectors()
        for at in range(0, len(self.rows), BATCH):
            yield self.rows[at : at + BATCH], vectors[at : at + BATCH]

    def vectors(self) -> Any:
        """Return a vector per row; their texts are not encoded again."""
        numpy: Any = importlib.import_module("numpy")
        if not self.rows:
            return []
        found = numpy.fromfile(self.folder / "vectors.f32", "float32").reshape(len(self.rows), -1)
        self._known = {row["content"]: found[place] for place, row in enumerate(self.rows)}
        return found

    def encode(self, text: str) -> Any:
        """Return a unit vector, shape (d,)."""
        if text in self._known:
            return self._known[text]
        numpy: Any = importlib.import_module("numpy")
        tokens, session = self._session = self._session or self._open_encoder()
        ids = numpy.array([tokens.encode(text).ids], dtype="int64")
        return session.run(["vector"], {"ids": ids})[0][0]

    def _open_encoder(self) -> tuple[Any, Any]:
        tokenizers: Any = importlib.import_module("tokenizers")
        runtime: Any = importlib.import_module("onnxruntime")
        folder = self.folder / "encoder"
        header = json.loads((folder / "onnx.json").read_text(encoding="utf-8"))
        tokens = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokens.enable_truncation(max_length=header["fingerprint"]["max_tokens"])
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        graph = str(folder / "model.onnx")
        return tokens, runtime.InferenceSession(graph, options, ["CPUExecutionProvider"])


PEERS: dict[str, Peer] = {}


def peer(
    *packages: str, python: tuple[int, int] = (3, 11)
) -> Callable[[Callable[[Given, Path], Ask]], Callable[[Given, Path], Ask]]:
    """Put a function into `PEERS`; with packages it also gets what the encoder needs."""
    # The versions of noctuary's own night, so that vectors are the same for all.
    encoder = ("onnxruntime==1.31.1", "tokenizers==0.23.3", "numpy==2.4.6") if packages else ()

    def register(opened: Callable[[Given, Path], Ask]) -> Callable[[Given, Path], Ask]:
        vectors = not opened.__name__.startswith(("fts5", "bm25s"))
        PEERS[opened.__name__] = Peer((*packages, *encoder), vectors, opened, python)
        return opened

    return register


@peer()
def noctuary(given: Given, store: Path) -> Ask:
    """`recall` with the default profile, after a night."""
    place = store / "noctuary"
    if given.rows:
        night: Any = importlib.import_module("bench.suite.night")
        night.build_store((given.folder / "source").resolve(), place, store / "night.log")
    recall: Any = importlib.import_module("noctuary").recall

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        found = recall(text, k, wing=wing, store=place, dry_run=True)
        if found.warnings:
            raise RuntimeError(f"recall warned: {[warning.code for warning in found.warnings]}")
        return [str(memory.id) for memory in found.memories]

    return ask


@peer()
def fts5_unicode61(given: Given, store: Path) -> Ask:
    """SQLite FTS5, bm25, any distinct word of the question."""
    return _fts5(given, store, "unicode61", _WORD.findall)


@peer()
def fts5_trigram(given: Given, store: Path) -> Ask:
    """SQLite FTS5, bm25, any three neighbouring characters of the question's words."""

    def trigrams(text: str) -> list[str]:
        return [word[at : at + 3] for word in _WORD.findall(text) for at in range(len(word) - 2)]

    return _fts5(given, store, "trigram", trigrams)


def _fts5(given: Given, store: Path, tokenizer: str, split: Callable[[str], list[str]]) -> Ask:
    db = sqlite3.connect(store / "fts5.db")
    if given.rows:
        columns = f"content, id UNINDEXED, wing UNINDEXED, tokenize='{tokenizer}'"
        db.execute(f"CREATE VIRTUAL TABLE memories USING fts5({columns})")
        db.executemany("INSERT INTO memories VALUES (:content, :id, :wing)", given.rows)
        db.commit()
    found = "SELECT id FROM memories WHERE memories MATCH ? AND wing = coalesce(?, wing)"

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        terms = " OR ".join(f'"{term}"' for term in dict.fromkeys(split(text.lower())))
        rows = db.execute(f"{found} ORDER BY rank, rowid LIMIT ?", (terms or '""', wing, k))
        return [row[0] for row in rows]

    return ask


@peer("lancedb==0.40.0")
def lancedb_hybrid(given: Given, store: Path) -> Ask:
    """LanceDB's hybrid search: exact vectors and its full-text index, fused by `RRFReranker`."""
    db: Any = importlib.import_module("lancedb").connect(str(store))
    if given.rows:
        pairs = zip(given.rows, given.vectors(), strict=True)
        written = db.create_table("memories", [{**row, "vector": vector} for row, vector in pairs])
        written.create_index("content", config=importlib.import_module("lancedb.index").FTS())
    fusion = importlib.import_module("lancedb.rerankers").RRFReranker()
    table: Any = db.open_table("memories")

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        plan = table.search(query_type="hybrid").vector(given.encode(text)).text(text)
        plan = plan.where(f"wing = '{wing}'", prefilter=True) if wing else plan
        return [row["id"] for row in plan.rerank(fusion).limit(k).to_list()]

    return ask


@peer("chromadb==1.5.9")
def chroma(given: Given, store: Path) -> Ask:
    """Chroma's vector search with its default settings (HNSW)."""
    client: Any = importlib.import_module("chromadb").PersistentClient(str(store))
    memories = client.get_or_create_collection("memories")
    for rows, vectors in given.batches():
        memories.add(
            ids=[row["id"] for row in rows],
            documents=[row["content"] for row in rows],
            metadatas=[{"wing": row["wing"]} for row in rows],
            embeddings=vectors,
        )

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        where = {"wing": wing} if wing else None
        found = memories.query(query_embeddings=[given.encode(text)], n_results=k, where=where)
        return found["ids"][0]

    return ask


_MEMPALACE = ("mempalace==3.11.0", "chromadb==1.5.9")


@peer(*_MEMPALACE)
def mempalace_raw(given: Given, store: Path) -> Ask:
    """MemPalace's drawers by vector alone, as the raw mode of its own benchmarks."""
    drawers = _open_palace(given, store)

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        where = {"wing": wing} if wing else None
        # A long memory is several drawers and stands where its best one does.
        found = drawers.query(query_texts=[text], n_results=2 * k, where=where)
        return _distinct((meta["source_file"] for meta in found["metadatas"][0]), k)

    return ask


@peer(*_MEMPALACE)
def mempalace_hybrid(given: Given, store: Path) -> Ask:
    """MemPalace's `search_memories`: candidates by vector, ranked by .6 vector and .4 BM25."""
    return _search_palace(given, store, "vector")


@peer(*_MEMPALACE)
def mempalace_union(given: Given, store: Path) -> Ask:
    """The same with `candidate_strategy="union"`: candidates by words as well."""
    return _search_palace(given, store, "union")


def _search_palace(given: Given, store: Path, strategy: str) -> Ask:
    _open_palace(given, store)
    search: Any = importlib.import_module("mempalace.searcher").search_memories

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        found = search(text, str(store), wing=wing, n_results=2 * k, candidate_strategy=strategy)
        if "error" in found:
            raise RuntimeError(str(found))
        return _distinct((hit["source_path"] for hit in found["results"]), k)

    return ask


def _open_palace(given: Given, store: Path) -> Any:
    """File every row as MemPalace's tool does: one drawer, or several of its chunk size."""

    def forward(model: Any, documents: list[str], batch_size: int = 32) -> Any:
        del model, batch_size
        return importlib.import_module("numpy").stack([given.encode(text) for text in documents])

    # It takes no encoder from outside; its own copy of this model would be downloaded first.
    model: Any = importlib.import_module("chromadb.utils.embedding_functions").ONNXMiniLM_L6_V2
    model._download_model_if_not_exists, model._forward = lambda *_: None, forward  # pyright: ignore[reportUnknownLambdaType]
    palace: Any = importlib.import_module("mempalace.palace")
    drawers = palace.get_collection(str(store), create=bool(given.rows))
    size = importlib.import_module("mempalace.config").MempalaceConfig().chunk_size
    for rows, _ in given.batches():
        parts = [(row, at) for row in rows for at in range(0, len(row["content"]), size)]
        drawers.upsert(
            ids=[f"drawer_{row['id']}_{at}" for row, at in parts],
            documents=[row["content"][at : at + size] for row, at in parts],
            metadatas=[
                {
                    "wing": row["wing"] or "none",
                    "room": "general",
                    "source_file": row["id"],
                    "chunk_index": at // size,
                    "parent_drawer_id": f"drawer_{row['id']}",
                    "filed_at": "2026-01-01T00:00:00",
                }
                for row, at in parts
            ],
        )
    return drawers


@peer("mem0ai==2.2.1", "qdrant-client==1.20.0", "fastembed==0.9.1")
def mem0(given: Given, store: Path) -> Ask:
    """mem0's vector store path: `add(infer=False)` and `search` over local Qdrant."""
    places = {"MEM0_DIR": store, "FASTEMBED_CACHE_PATH": store / "fastembed"}
    os.environ.update({name: str(path) for name, path in places.items()}, OPENAI_API_KEY="unused")
    qdrant = {"path": str(store / "qdrant"), "on_disk": True, "embedding_model_dims": 384}
    options = {"vector_store": {"provider": "qdrant", "config": qdrant}}
    options |= {"history_db_path": str(store / "history.db")}
    memory: Any = importlib.import_module("mem0").Memory.from_config(options)
    # Its own providers load a model by name.
    memory.embedding_model.embed = lambda text, *_, **__: given.encode(text).tolist()  # pyright: ignore[reportUnknownLambdaType]
    given.vectors()
    for row in given.rows:
        scope = {"user_id": "all", "run_id": row["wing"] or "none"}
        memory.add(row["content"], infer=False, metadata={"key": row["id"]}, **scope)

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        filters = {"user_id": "all", **({"run_id": wing} if wing else {})}
        found = memory.search(text, top_k=k, filters=filters)
        return [hit["metadata"]["key"] for hit in found["results"]]

    return ask


@peer("bm25s==0.3.16")
def bm25s(given: Given, store: Path) -> Ask:
    """bm25s with its defaults: Lucene's BM25, English stop words, no stemming, no vectors."""
    index, numpy = importlib.import_module("bm25s"), importlib.import_module("numpy")
    if given.rows:
        built: Any = index.BM25()
        texts = [row["content"] for row in given.rows]
        built.index(index.tokenize(texts, show_progress=False), show_progress=False)
        corpus = [{"id": row["id"], "wing": row["wing"]} for row in given.rows]
        built.save(str(store), corpus=corpus)
    found: Any = index.BM25.load(str(store), load_corpus=True)
    rows: list[dict[str, str]] = list(found.corpus)

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        mask = numpy.array([wing in (None, row["wing"]) for row in rows], "float32")
        options = {"k": min(k, len(rows)), "weight_mask": mask, "show_progress": False}
        best, scores = found.retrieve(index.tokenize(text, show_progress=False), **options)
        # It fills up with memories that are masked or share no word; their score is zero.
        pairs = zip(best[0], scores[0], strict=True)
        return [row["id"] for row, score in pairs if score > 0]

    return ask


@peer("engram-search==0.1.7")
def engram_search(given: Given, store: Path) -> Ask:
    """Engram's `RetrievalPipeline` without its reranker: vectors, BM25 and names by RRF."""
    make: Any = importlib.import_module("engram.backends.base").Document
    backend: Any = importlib.import_module("engram.backends.faiss_backend").FaissBackend
    memories = backend(store, dimension=384)
    if given.rows:
        pairs = zip(given.rows, given.vectors(), strict=True)
        parts = (make(r["id"], r["content"], v, {"wing": r["wing"]}) for r, v in pairs)
        memories.add(list(parts))
    # Its pipeline ranks the documents it is handed; these are all, with the vectors of its index.
    found = {one.id: one for one in memories.query([0.0] * 384, memories.count())}
    for row, name in enumerate(memories._id_map):
        found[name].embedding = memories._index.reconstruct(row)
    every = [found[name] for name in memories._id_map]
    pipeline: Any = importlib.import_module("engram.retrieval.pipeline").RetrievalPipeline
    encoder = SimpleNamespace(encode_query=given.encode)
    search = pipeline(embedder=encoder, use_reranker=False).search

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        among = [one for one in every if wing in (None, one.metadata["wing"])]
        return [one.id for one in search(text, among, top_k=k)]

    return ask


@peer("yantrikdb==0.23.2")
def yantrikdb(given: Given, store: Path) -> Ask:
    """YantrikDB's `recall` by text and vector, wings as namespaces, without reinforcement."""
    module: Any = importlib.import_module("yantrikdb")
    db = module.YantrikDB(str(store / "memory.db"), 384)

    def record(row: dict[str, Any], vector: Any) -> None:
        scope = {"namespace": row["wing"] or "none", "metadata": {"key": row["id"]}}
        while True:
            try:
                db.record(row["content"], embedding=vector.tolist(), **scope)
            except module.Backpressure:
                # It takes 256 at once and refuses more until its own threads have caught up.
                time.sleep(0.05)
            else:
                return

    for row, vector in zip(given.rows, given.vectors(), strict=True):
        record(row, vector)

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        asked = {"query": text, "query_embedding": given.encode(text).tolist()}
        found = db.recall(**asked, top_k=k, namespace=wing, skip_reinforce=True)
        return [hit["metadata"]["key"] for hit in found]

    return ask


@peer("txtai==9.14.0")
def txtai(given: Given, store: Path) -> Ask:
    """`Embeddings(hybrid=True, content=True)`: vectors and BM25, wings by its SQL."""
    numpy: Any = importlib.import_module("numpy")

    def transform(texts: Iterable[str]) -> Any:
        return numpy.stack([given.encode(text) for text in texts])

    options = {"method": "external", "transform": transform, "hybrid": True, "content": True}
    memories: Any = importlib.import_module("txtai").Embeddings(**options)
    if given.rows:
        given.vectors()
        parts = ((r["id"], {"text": r["content"], "wing": r["wing"]}) for r in given.rows)
        memories.index(parts)
        memories.save(str(store / "index"))
    memories.load(str(store / "index"), config=options)

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        plan = "SELECT id FROM txtai WHERE similar(:text)" + (" AND wing = :wing" if wing else "")
        found = memories.search(plan, k, parameters={"text": text, "wing": wing})
        return [hit["id"] for hit in found]

    return ask


@peer("dory-memory==1.2.1")
def dory_memory(given: Given, store: Path) -> Ask:
    """Dory's `query`."""
    raise NotImplementedError(
        "it takes no vectors but those of Ollama's nomic-embed-text (768 numbers); by words alone, "
        "each observe() writes all nodes again and a query walks all links: not run on thousands"
    )


_BASIC_MEMORY = ("basic-memory==0.24.1", "pysqlite3-binary==0.5.4.post2")


@peer(*_BASIC_MEMORY, python=(3, 12))
def basic_memory(given: Given, store: Path) -> Ask:
    """Basic Memory's `search_notes` (hybrid) over a note per memory, wings in the front matter."""
    return _search_notes(given, store)


@peer(*_BASIC_MEMORY, python=(3, 12))
def basic_memory_uncut(given: Given, store: Path) -> Ask:
    """The same with `min_similarity=0`: its cut at .55 suits the encoder that it would download."""
    return _search_notes(given, store, min_similarity=0.0)


def _search_notes(given: Given, store: Path, **options: float) -> Ask:
    notes = store / "notes"
    os.environ.update(BASIC_MEMORY_HOME=str(notes), BASIC_MEMORY_CONFIG_DIR=str(store / "index"))
    # Without loadable extensions, as pyenv builds Python, it would search by words alone.
    sys.modules["sqlite3"] = importlib.import_module("pysqlite3")
    encoder: Any = importlib.import_module("basic_memory.repository.fastembed_provider")

    async def embed(_: Any, texts: list[str]) -> list[list[float]]:
        return [given.encode(text).tolist() for text in texts]

    # Settings choose among its own providers; this is the one that runs here.
    encoder.FastEmbedEmbeddingProvider.embed_documents = embed
    if given.rows:
        notes.mkdir()
        for row in given.rows:
            text = f"---\nwing: {json.dumps(row['wing'])}\n---\n{row['content']}\n"
            (notes / f"{row['id']}.md").write_text(text, encoding="utf-8")
        index: Any = importlib.import_module("basic_memory.cli.commands.db")
        index.run_reindex_command(embeddings=True, search=True, full=False, project=None)
    search: Any = importlib.import_module("basic_memory.mcp.tools").search_notes
    loop = asyncio.new_event_loop()

    def ask(text: str, k: int, wing: str | None) -> list[str]:
        scope = {"metadata_filters": {"wing": wing}} if wing else {}
        asked = {"project": "main", "page_size": k, "output_format": "json", **scope, **options}
        found = loop.run_until_complete(search(text, **asked))
        if isinstance(found, str):
            raise TypeError(found)
        return [Path(hit["file_path"]).stem for hit in found["results"]]

    return ask


def _distinct(ids: Iterable[str], k: int) -> list[str]:
    return list(dict.fromkeys(ids))[:k]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON Lines file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def answer(folder: Path, ask: Ask, depth: int) -> Iterator[dict[str, Any]]:
    """Answer every question over all memories and, where it names one, within its wing.

    The answer at K is timed. With a depth, a second one shows the order further down.
    """
    queries = read_lines(folder / "queries.jsonl")
    for query in queries[:WARM_UP]:
        ask(query["text"], K, None)
    for scope in ("all", "wing"):
        for query in queries:
            wing = query["wing"] if scope == "wing" else None
            if scope == "wing" and not wing:
                continue
            started = time.perf_counter_ns()
            ids = ask(query["text"], K, wing)
            ms = (time.perf_counter_ns() - started) / 1e6
            deep = {"deep": ask(query["text"], depth, wing)} if depth else {}
            yield {"scope": scope, "query_id": query["query_id"], "ids": ids, "ms": ms, **deep}


def refuse_connections() -> None:
    """Let no socket leave this machine, and say so where one tries to."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            raise OSError(f"refused: the benchmark is offline, and {address!r} was asked for")
        connect(self, address)

    socket.socket.connect = guarded  # type: ignore[method-assign]


def _peak_bytes() -> int:
    """Return the most memory that this process, or one that it waited for, has held."""
    # The ru_maxrss of a process begins with what its parent held; the kernel's own mark does not.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    own = int(status.partition("VmHWM:")[2].split()[0])
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) * 1024


def main(action: str, name: str, folder: str, store: str, depth: str = "0") -> None:
    """Do one action; what the peer prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    refuse_connections()
    started = time.perf_counter()
    ask = PEERS[name].open(Given(Path(folder), action == "build"), Path(store))
    seconds = time.perf_counter() - started
    for line in answer(Path(folder), ask, int(depth)) if action == "ask" else ():
        out.write(json.dumps(line) + "\n")
    out.write(json.dumps({"seconds": seconds, "peak_bytes": _peak_bytes()}) + "\n")
    out.flush()
    # Some libraries leave threads behind that never end.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
