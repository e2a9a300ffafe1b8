"""Names and triples from a language model, checked against the text."""

from __future__ import annotations

import json
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar, cast, get_args

from noctuary.core.errors import ConfigError
from noctuary.core.files import hash_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.settings import GraphSettings
from noctuary.core.types import SILENT, MemoryRecord, Progress
from noctuary.graph.extract import Extraction, Found, Stated, found_order, sort_stated
from noctuary.graph.fold import fold_name, unsegmented_script, words
from noctuary.graph.tables import ID_MARK, NO_SPAN, StatedRelation
from noctuary.graph.word_lists import WORD_LISTS
from noctuary.sources.source import (
    PART_OF,
    RESOLVED_BY,
    SEE_ALSO,
    SUPERSEDES,
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
)
from noctuary.text.secrets import find_text_sensitivity
from noctuary.text.tokens import is_stop_word
from noctuary.work.content import ContentStore
from noctuary.work.http import (
    DATA_RULE,
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

# A model's words for a relation, mapped onto those of the graph. One table, no guessing.

# All but the one for relations that have no word: a model is asked for the others.
RELATION_NAMES: tuple[StatedRelation, ...] = tuple(
    name
    for name in cast("tuple[StatedRelation, ...]", get_args(StatedRelation))
    if name != "related_to"
)


def _pairs(name: str) -> dict[str, StatedRelation]:
    found = iter(WORD_LISTS[name])
    return cast("dict[str, StatedRelation]", dict(zip(found, found, strict=True)))


_SAME, _SWAPPED = map(_pairs, ("relation_words", "swapped_relation_words"))
_NO_LETTERS = re.compile(r"[^a-z]+")
_AUXILIARY = re.compile(r"^(?:is|was|are|were|has_been|been)_")


def map_relation(text: str) -> tuple[StatedRelation, bool] | None:
    """Return the relation that is meant and whether its ends are swapped; None for any other."""
    name = _NO_LETTERS.sub("_", text.casefold()).strip("_")
    for candidate in (name, _AUXILIARY.sub("", name)):
        if candidate in _SWAPPED:
            return _SWAPPED[candidate], True
        if (found := _SAME.get(candidate)) is not None:
            return found, False
    return None


# The union of two findings of one memory. No checking happens here.

Item = TypeVar("Item", Found, Stated)
Span = tuple[int, int]


def merge_extractions(base: Extraction, extra: Extraction) -> Extraction:
    """Return both findings in canonical order, nothing of the rules changed.

    What the second found at a place where the rules found the same stays theirs, kind and span
    included. A name that the memory is about, or that speaks, is not also mentioned by it.
    """
    own = {item.name for item in base.found if item.role in ("about", "speaker")}
    new = [item for item in extra.found if item.role == "about" or item.name not in own]
    found = [*base.found, *_not_held(new, base.found, itemgetter(2))]  # by name
    said = itemgetter(slice(3))  # by subject, relation and object
    stated = [*base.stated, *_not_held(extra.stated, base.stated, said)]
    aliases = tuple(sorted({*base.aliases, *extra.aliases}))
    return Extraction(tuple(sorted(set(found), key=found_order)), sort_stated(stated), aliases)


def _not_held(
    extra: Iterable[Item], base: Sequence[Item], said: Callable[[Item], Hashable]
) -> list[Item]:
    """Return the items that say something else, or elsewhere, than every item of the base."""
    held: defaultdict[Hashable, list[Span]] = defaultdict(list)
    for item in base:
        if item.start != NO_SPAN:
            held[said(item)].append((item.start, item.end))
    return [
        item
        for item in extra
        if not any(item.start < end and start < item.end for start, end in held[said(item)])
    ]


# What a language model says about one memory, and what of it stands in the text.
#
# A model may invent, or be told by a memory what to say. So nothing is believed that cannot be
# pointed at: every name must stand in the content, folded, and gets the span of every place where
# it does. The rest is dropped and counted.

# Part of every key under which an answer is kept: raise it with any change of wording.
PROMPT_VERSION = "1"
READING_VERSION = "1"  # raised whenever the same answer may give other findings
TAG_HEX = 8  # letters of an item's id. Longer ones cost tokens and are copied wrong more often
MAX_NAMES = 40  # of one memory; a model that repeats itself fills any answer
MAX_TRIPLES = 40
# Of a name or a relation: longer ones are sentences, which the check would drop anyway.
MAX_TEXT_CHARS = 200
# Of a name; longer ones are sentences. Higher lets through descriptions that occur once.
MAX_NAME_WORDS = 8
# Places of one name in one memory that are kept: more evidence of the same adds nothing.
MAX_PLACES = 16
SYSTEM = (
    "You index a personal memory store. For each item list what its memory names (people, "
    "organisations, places, projects, products, files, events) under names, and what it states "
    "between two of them under triples, each a list of subject, relation and object. Copy names "
    "letter by letter as they stand in that memory; never translate, expand or complete them, "
    "and never name what does not stand there. Resolve pronouns to the name they stand for; "
    f"leave the triple out if you cannot. Use one of these relations: {', '.join(RELATION_NAMES)}; "
    "where none fits, use a verb of your own. Answer with empty lists where there is nothing. "
    + DATA_RULE
    + '{"items": [{"id": "...", "names": ["..."], "triples": [["...", "...", "..."]]}]}'
)

Triple = tuple[str, str, str]


class RawAnswer(NamedTuple):
    """A memory's answer as given; kept as it is, so that stricter checks ask nothing anew."""

    names: tuple[str, ...]
    triples: tuple[Triple, ...]
    malformed: int = 0


# What is known of a memory: its answer, or how many nights it got none of any use, asked alone.
Known = RawAnswer | int


class Grounded(NamedTuple):
    """What is left of an answer."""

    extraction: Extraction  # the findings that stand in the text, in canonical order
    # how many names and statements were not kept, by reason: "not_in_text", "not_a_name" (no
    # letter, or function words only), "too_long", "same_name" and "overlapping" (the two names of a
    # statement are one, or stand in one place only)
    dropped: Counter[str]
    unmapped: int


def answer_key(content: str, model: str) -> str:
    """Return what a memory's answer is kept under: its text, the model and the prompt."""
    return hash_text("triples", PROMPT_VERSION, str(MAX_MEMORY_CHARS), model, content)


def item_ids(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of a batch, made from its keys.

    They cannot be known to whoever wrote one of the memories, so that its text cannot answer for
    another by number, and a model that skips an item and counts on answers for nobody.
    """
    for length in (TAG_HEX, len(keys[0])):
        tags = tuple(f"m{key[:length]}" for key in keys)
        if len(set(tags)) == len(keys):
            return tags
    raise ValueError("two items of a batch have the same key, expected distinct texts")


def encode(known: Known) -> bytes:
    """Return what is kept of a memory."""
    fields = {"failed": known} if isinstance(known, int) else known._asdict()
    return json.dumps(fields).encode("ascii")


def decode(raw: bytes | None) -> Known:
    """Return what is kept of a memory; 0, no failures, where there is nothing, or damage."""
    try:
        value: Any = parse_json(raw or b"{}")
        failed = value.get("failed")
        return int(failed) if isinstance(failed, int) else read_answer(value) or 0
    except (ValueError, AttributeError):
        return 0


def read_answer(row: Mapping[str, Any]) -> RawAnswer | None:
    """Return an item's answer; None unless it holds a list of names or of triples."""
    given = [row.get("names"), row.get("triples")]
    raw_names, raw_triples = (
        cast("list[Any]", value) if isinstance(value, list) else [] for value in given
    )
    if not any(isinstance(value, list) for value in given):
        return None
    names = [name for name in raw_names if _is_text(name)][:MAX_NAMES]
    triples = [triple for raw in raw_triples if (triple := _read_triple(raw))][:MAX_TRIPLES]
    lost = len(raw_names) - len(names) + len(raw_triples) - len(triples)
    before = row.get("malformed", 0)
    lost += max(before, 0) if type(before) is int else 0
    return RawAnswer(tuple(names), tuple(triples), lost)


def ground(content: str, answer: RawAnswer) -> Grounded:
    """Keep what stands in the content, at every place where it stands."""
    places, dropped, unmapped = _Places(content), Counter[str](), 0
    found, stated = set[Found](), set[Stated]()
    ends = [end for triple in answer.triples for end in (triple[0], triple[2])]
    for name in dict.fromkeys([*answer.names, *ends]):
        fault = _fault(name)
        spans = [] if fault else places.find(name)
        if not spans:
            dropped[fault or "not_in_text"] += 1
        for start, end in spans:
            surface = content[start:end]
            found.add(Found("mentions", "name", fold_name(surface), start, end, surface))
    for subject, words_given, thing in answer.triples:
        mapped = map_relation(words_given)
        if mapped is None:
            unmapped += 1
            continue
        relation, swapped = mapped
        pair = (thing, subject) if swapped else (subject, thing)
        statement = _ground_statement(content, places, relation, pair)
        if isinstance(statement, str):
            dropped[statement] += 1
        else:
            stated.add(statement)
    kept = Extraction(tuple(sorted(found, key=found_order)), sort_stated(stated))
    return Grounded(kept, dropped, unmapped)


class _Places:
    """The words of a text, to look names up in, whatever their case and spelling."""

    def __init__(self, content: str) -> None:
        self._content = content
        self._parts: list[tuple[str, int, int]] = []
        self._starts: defaultdict[str, list[int]] = defaultdict(list)
        for word in words(content):
            parts = word.folded.split(" ")
            for number, part in enumerate(parts):
                # Inside of a word that folds to several, no name begins or ends: -1 is no offset.
                first = word.start if number == 0 else -1
                last = word.end if number == len(parts) - 1 else -1
                if first >= 0:
                    self._starts[part].append(len(self._parts))
                self._parts.append((part, first, last))

    def find(self, surface: str) -> list[Span]:
        folded = [word.folded for word in words(surface)]
        if any(unsegmented_script(word) for word in folded):
            # Words of a script without spaces cannot be told apart.
            found = re.finditer(re.escape(surface.strip()), self._content)
            return [match.span() for match in islice(found, MAX_PLACES)]
        wanted = " ".join(folded).split()
        places = self._starts.get(wanted[0], ()) if wanted else ()
        runs = (self._parts[at : at + len(wanted)] for at in places)
        return [
            (run[0][1], run[-1][2])
            for run in runs
            if run[-1][2] >= 0 and [part for part, _, _ in run] == wanted
        ][:MAX_PLACES]


def _ground_statement(
    content: str, places: _Places, relation: StatedRelation, surfaces: tuple[str, str]
) -> Stated | str:
    """Return the statement with its evidence, or why there is none."""
    if fault := _fault(surfaces[0]) or _fault(surfaces[1]):
        return fault
    subjects, objects = map(places.find, surfaces)
    if not subjects or not objects:
        return "not_in_text"
    if fold_name(surfaces[0]) == fold_name(surfaces[1]):
        return "same_name"
    pairs = [(a, b) for a in subjects for b in objects if a[1] <= b[0] or b[1] <= a[0]]
    if not pairs:
        return "overlapping"
    # The nearest two: the least text around them.
    around = [(min(a[0], b[0]), max(a[1], b[1]), (a, b)) for a, b in pairs]
    start, end, pair = min(around, key=lambda found: (found[1] - found[0], found[2]))
    subject, thing = (content[slice(*span)] for span in pair)
    return Stated(fold_name(subject), relation, fold_name(thing), start, end, subject, thing)


def _fault(surface: str) -> str | None:
    """Return why a text is no name, or None."""
    folded = fold_name(surface)
    parts = folded.split()
    if not any(character.isalpha() for character in folded) or all(map(is_stop_word, parts)):
        return "not_a_name"
    return "too_long" if len(parts) > MAX_NAME_WORDS else None


def _read_triple(raw: Any) -> Triple | None:
    if isinstance(raw, dict):
        raw = [raw.get("subject"), raw.get("relation", raw.get("predicate")), raw.get("object")]
    if not isinstance(raw, list) or len(raw) != 3 or not all(map(_is_text, raw)):
        return None
    return raw[0], raw[1], raw[2]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.strip() != "" and len(value) <= MAX_TEXT_CHARS


# Asking the model, and adding what it says to what the rules found; off by default.
#
# **Texts leave the machine**: the content of every memory that may be shown, cut to a bound, and
# nothing else of it. Contents that read like a secret are not sent.

# Kind of the answers. Its name is older than this room: another one would ask all of it again.
TRIPLES_KIND = "graph_plugin:1"
# Requests under way at once. More are faster where an endpoint serves them side by side; one that
# does not lets the later ones wait into their time limit, and more are lost with a kill.
PARALLEL_REQUESTS = 2
# Answers in a row about single memories without any use after which the endpoint is left alone: a
# model that never writes JSON would otherwise cost a request per memory.
MAX_USELESS_ALONE = 8
# Nights on which a memory that gets no usable answer is asked about again. More give a model that
# is merely unlucky its chance; fewer save a request per night and memory.
MAX_FAILED_NIGHTS = 3
ENDPOINT_DOWN = "graph_endpoint_down"  # code of the warning that the endpoint was given up
# Code of the warning that memories got no usable answer though the endpoint gives some.
UNANSWERED = "graph_memories_unanswered"


class Extended(NamedTuple):
    """Extractions with what the model added."""

    extractions: list[Extraction]  # one per memory, in the order given
    # for the stage's facts: what is known of these memories, and "warnings", a list of {"code",
    # "message"} that is only there when something went wrong
    facts: dict[str, Any]
    notes: dict[str, int]


@dataclass(slots=True)
class TripleReader:
    """One model, what it said of some texts, and what is still to be asked."""

    endpoint: Endpoint
    batch_memories: int
    # where answers are kept, batch by batch. A kill loses what is under way, at most
    # PARALLEL_REQUESTS batches
    store: ContentStore
    progress: Progress
    sleep: Sleep = time.sleep
    # by `answer_key`, what is known
    kept: dict[str, Known] = field(default_factory=dict[str, Known])
    # requests, answers remembered and faults of answers, by name
    tonight: Counter[str] = field(default_factory=Counter[str])
    given_up: str | None = None  # why the endpoint was left alone, or None
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
        failed = {key: v for key, v in self.kept.items() if isinstance(v, int)}
        self.tonight.update(requests=0, remembered=len(texts) - len(failed))
        again = [key for key, nights in failed.items() if nights < MAX_FAILED_NIGHTS]
        again.sort(key=lambda key: (failed[key], key))
        waiting = iter(again)
        while batch := list(islice(waiting, self.batch_memories)):
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
        fresh: dict[str, Known] = dict(answers)
        # A model that never gave any use is set up wrongly; its failures say nothing of memories.
        if any(isinstance(value, RawAnswer) for value in self.kept.values()):
            for key in failed:
                before = self.kept[key]
                fresh[key] = before + 1 if isinstance(before, int) else 1
        self.store.put(list(map(bytes.fromhex, fresh)), list(map(encode, fresh.values())))
        self.kept.update(fresh)

    def _give_up(self, reason: str) -> None:
        self.given_up = reason
        self._queue.clear()

    def warnings(self) -> list[dict[str, str]]:
        """Return what went wrong as a whole, as {"code", "message"}."""
        unanswered = sum(isinstance(value, int) for value in self.kept.values())
        model = f"the model of the graph ({self.endpoint.model})"
        waiting = f"{unanswered} memories have only what the rules found in them"
        if self.given_up is not None:
            message = (
                f"{model} was given up for tonight: {self.given_up}; {waiting}; they are asked "
                "about the next night (graph.llm_url)"
            )
            return [{"code": ENDPOINT_DOWN, "message": message}]
        message = (
            f"{model} gave no usable answer to some memories: {waiting}; each is asked about on "
            f"{MAX_FAILED_NIGHTS} nights"
        )
        return [{"code": UNANSWERED, "message": message}] if unanswered else []


def extend_extractions(
    settings: GraphSettings,
    store: ContentStore,
    records: Sequence[MemoryRecord],
    extractions: Sequence[Extraction],
    progress: Progress = SILENT,
) -> Extended:
    """Add what the model finds to what the rules found; for settings with `llm_inputs`."""
    endpoint = _endpoint(settings)
    visible = {record.position for record in _shown(settings, records)}
    contents = {r.content for r in records if r.position in visible}
    sent = {content for content in contents if find_text_sensitivity(content) is None}
    reader = TripleReader(endpoint, settings.llm_batch_memories, store, progress)
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


def llm_inputs(settings: GraphSettings) -> dict[str, str]:
    """Return what the graph's stage depends on besides the rules; empty where no model is asked."""
    if settings.extractor != "llm":
        return {}
    return {
        "llm": _fingerprint(_endpoint(settings).model),
        "named_users": str(settings.include_named_users),
    }


def live_triples(settings: GraphSettings, records: Sequence[MemoryRecord]) -> list[bytes]:
    """Return the keys of TRIPLES_KIND that are still in use; all others are to be deleted."""
    if settings.extractor != "llm":
        return []
    model = _endpoint(settings).model
    shown = _shown(settings, records)
    return [bytes.fromhex(answer_key(record.content, model)) for record in shown]


def _fingerprint(model: str) -> str:
    """Return model, prompt and reading; not the address, which may move with its model."""
    return f"llm:{READING_VERSION}:{PROMPT_VERSION}:{MAX_MEMORY_CHARS}:{model}"


def _endpoint(settings: GraphSettings) -> Endpoint:
    key = read_api_key(settings.api_key_variable, "graph.api_key_variable")
    try:
        return Endpoint(settings.llm_url, settings.llm_model, key)
    except ValueError as error:
        raise ConfigError(f"graph.llm_*: {error}") from error


def _shown(settings: GraphSettings, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """Return the memories that may be sent: nobody's own, unless these are switched on."""
    include = settings.include_named_users
    return [record for record in records if record.user is None or include]


# What a store says about its memories, as findings of the memories that stand behind it.
#
# Everything told here stands at no place of a text: NO_SPAN. What a text states has one, so that
# the two can be told apart everywhere. It is evidence and not truth (research/peers.md
# 2.2: a server's concepts were found by a model), which is why what a store tells of concepts
# supersedes no memory; only its links between memories do.

# Raised when the same tables may give other findings; part of the stage's inputs.
TOLD_VERSION = "1"
# What a link states, by its type. `has` between memories is a plain link, as in a text.
LINK_RELATIONS: Mapping[str, StatedRelation] = {
    SUPERSEDES: "supersedes", PART_OF: "part_of", SEE_ALSO: "has", RESOLVED_BY: "resolved_by",
}  # fmt: skip
ALIAS_DETAIL = "the store's own alias"


def findings_told(
    links: Iterable[MemoryLink],
    concepts: Iterable[KnownConcept],
    mentions: Iterable[KnownMention],
    edges: Iterable[KnownEdge],
) -> dict[str, Extraction]:
    """Return what is told, by the id of the memory that stands behind it.

    A link is a statement of the memory that points, an edge one of each memory that is evidence of
    it; a mention makes the concept's name and aliases tags of its memory. Names that fold to
    nothing, and edges whose ends are one name, say nothing.
    """
    known = {concept.name: concept for concept in concepts}
    found: defaultdict[str, set[Found]] = defaultdict(set)
    stated: defaultdict[str, set[Stated]] = defaultdict(set)
    named: defaultdict[str, set[str]] = defaultdict(set)
    for link in links:
        target, relation = f"{ID_MARK}{link.to_id}", LINK_RELATIONS[link.link_type]
        stated[link.from_id].add(Stated("", relation, target, NO_SPAN, NO_SPAN, "", target))
    for mention in mentions:
        concept = known.get(mention.concept)
        # An alias is a name by which other texts may mean it: it is looked for as well.
        for name in (mention.concept, *(concept.aliases if concept is not None else ())):
            if folded := fold_name(name):
                tag = Found("author", "tag", folded, NO_SPAN, NO_SPAN, name)
                found[mention.memory_id].add(tag)
        named[mention.memory_id].add(mention.concept)
    for edge in edges:
        if (statement := _edge(edge)) is not None:
            for memory_id in edge.evidence:
                stated[memory_id].add(statement)
                named[memory_id] |= {edge.source, edge.target}
    return {
        memory_id: Extraction(
            tuple(sorted(found.get(memory_id, ()), key=found_order)),
            sort_stated(stated.get(memory_id, ())),
            _aliases(known[n] for n in named.get(memory_id, ()) if n in known),
        )
        for memory_id in sorted(found.keys() | stated.keys())
    }


def _edge(edge: KnownEdge) -> Stated | None:
    relation, is_swapped = map_relation(edge.relation) or ("related_to", False)
    ends = (edge.target, edge.source) if is_swapped else (edge.source, edge.target)
    subject, thing = map(fold_name, ends)
    if not subject or not thing or subject == thing:
        return None
    return Stated(subject, relation, thing, NO_SPAN, NO_SPAN, *ends)


def _aliases(concepts: Iterable[KnownConcept]) -> tuple[tuple[str, str, str], ...]:
    folded = {
        (fold_name(alias), fold_name(concept.name))
        for concept in concepts
        for alias in concept.aliases
    }
    said = {
        (alias, name, ALIAS_DETAIL) for alias, name in folded if alias and name != alias and name
    }
    return tuple(sorted(said))
