"""Names and triples from a language model, checked against the text."""

from __future__ import annotations

import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar, cast, get_args

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
    BadAnswerError,
    Endpoint,
    RequestError,
    Sleep,
    ask,
    batch_message,
    clip_text,
    open_endpoint,
    parse_batch,
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
    """Merge the findings of the model into those of the rules, in canonical order.

    Where both found the same at the same place, the finding of the rules stays, kind and span
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
    """Return the items that differ from every item of the base, or are at other places."""
    held: defaultdict[Hashable, list[Span]] = defaultdict(list)
    for item in base:
        if item.start != NO_SPAN:
            held[said(item)].append((item.start, item.end))
    return [
        item
        for item in extra
        if not any(item.start < end and start < item.end for start, end in held[said(item)])
    ]


# A language model's answer about one memory, checked against the text.
#
# A model may invent, or follow instructions in a memory. So nothing is believed without evidence:
# every name must occur in the content, folded, and gets the span of each of its places. The rest is
# dropped and counted.

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
    """A memory's answer as given; kept unchecked, so that stricter checks cost no request."""

    names: tuple[str, ...]
    triples: tuple[Triple, ...]
    malformed: int = 0  # names and triples that were left out


# A memory's answer, or the number of nights on which it got no usable one when asked alone.
Known = RawAnswer | int


class Grounded(NamedTuple):
    """The part of an answer that the text supports."""

    extraction: Extraction  # in canonical order
    # Names and statements that were not kept, by reason: "not_in_text", "not_a_name" (no letter,
    # or function words only), "too_long", "same_name" and "overlapping" (the two names of a
    # statement are one, or occur in one place only).
    dropped: Counter[str]
    unmapped: int  # statements whose relation the graph does not know


def answer_key(content: str, model: str) -> str:
    """Return the key of a memory's answer: its text, the model and the prompt."""
    return hash_text("triples", PROMPT_VERSION, str(MAX_MEMORY_CHARS), model, content)


def encode(known: Known) -> bytes:
    """Encode an answer or a failure count for the content store."""
    fields = {"failed": known} if isinstance(known, int) else known._asdict()
    return json.dumps(fields).encode("ascii")


def decode(raw: bytes | None) -> Known:
    """Decode the output of `encode`; 0 failures if it is missing or damaged."""
    try:
        value: Any = parse_json(raw or b"{}")
        failed = value.get("failed")
        return int(failed) if isinstance(failed, int) else read_answer(value) or 0
    except (ValueError, AttributeError):
        return 0


def read_answer(row: Mapping[str, Any]) -> RawAnswer | None:
    """Return the answer in an item, or None if it lists neither names nor triples."""
    given = [row.get("names"), row.get("triples")]
    if not any(isinstance(value, list) for value in given):
        return None
    raw_names, raw_triples = (
        cast("list[Any]", value) if isinstance(value, list) else [] for value in given
    )
    names = [name for name in raw_names if _is_text(name)][:MAX_NAMES]
    triples = [triple for raw in raw_triples if (triple := _read_triple(raw))][:MAX_TRIPLES]
    lost = len(raw_names) - len(names) + len(raw_triples) - len(triples)
    before = row.get("malformed")
    lost += before if type(before) is int and before > 0 else 0
    return RawAnswer(tuple(names), tuple(triples), lost)


def _read_triple(raw: Any) -> Triple | None:
    if isinstance(raw, dict):
        raw = [raw.get("subject"), raw.get("relation", raw.get("predicate")), raw.get("object")]
    if not isinstance(raw, list) or len(raw) != 3 or not all(map(_is_text, raw)):
        return None
    return raw[0], raw[1], raw[2]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.strip() != "" and len(value) <= MAX_TEXT_CHARS


def ground(content: str, answer: RawAnswer) -> Grounded:
    """Keep the names and statements that occur in the content, at every place of them."""
    ends = [end for triple in answer.triples for end in (triple[0], triple[2])]
    names = dict.fromkeys([*answer.names, *ends])
    faults = {name: fault for name in names if (fault := _find_fault(name))}
    places = _find_names(content, [name for name in names if name not in faults])
    dropped, unmapped, stated = Counter[str](faults.values()), 0, set[Stated]()
    dropped.update({"not_in_text": sum(not spans for spans in places.values())})
    for subject, words_given, thing in answer.triples:
        mapped = map_relation(words_given)
        if mapped is None:
            unmapped += 1
            continue
        relation, swapped = mapped
        pair = (thing, subject) if swapped else (subject, thing)
        statement = next((faults[n] for n in pair if n in faults), None) or _ground_statement(
            content, places, relation, pair
        )
        if isinstance(statement, str):
            dropped[statement] += 1
        else:
            stated.add(statement)
    found = {
        Found("mentions", "name", fold_name(content[start:end]), start, end, content[start:end])
        for spans in places.values()
        for start, end in spans
    }
    kept = Extraction(tuple(sorted(found, key=found_order)), sort_stated(stated))
    return Grounded(kept, +dropped, unmapped)


def _find_fault(surface: str) -> str | None:
    """Return why a text is no name, or None."""
    folded = fold_name(surface)
    parts = folded.split()
    if not any(character.isalpha() for character in folded) or all(map(is_stop_word, parts)):
        return "not_a_name"
    return "too_long" if len(parts) > MAX_NAME_WORDS else None


def _find_names(content: str, names: Iterable[str]) -> dict[str, list[Span]]:
    """Return the places of each name in a text, whatever case and spelling."""
    parts: list[tuple[str, int, int]] = []
    starts: defaultdict[str, list[int]] = defaultdict(list)
    for word in words(content):
        # No name begins or ends inside of a word that folds to several: -1 is no offset.
        first, *rest = word.folded.split(" ")
        starts[first].append(len(parts))
        parts.append((first, word.start, -1 if rest else word.end))
        parts += [(part, -1, -1) for part in rest[:-1]]
        parts += [(part, -1, word.end) for part in rest[-1:]]
    places: dict[str, list[Span]] = {}
    for name in names:
        folded = [word.folded for word in words(name)]
        if any(map(unsegmented_script, folded)):
            # A script without spaces has no word boundaries.
            spans = [match.span() for match in re.finditer(re.escape(name.strip()), content)]
        else:
            wanted = " ".join(folded).split()
            runs = (parts[at : at + len(wanted)] for at in starts.get(wanted[0], ()))
            spans = [
                (run[0][1], run[-1][2])
                for run in runs
                if run[-1][2] >= 0 and [part for part, _, _ in run] == wanted
            ]
        places[name] = spans[:MAX_PLACES]
    return places


def _ground_statement(
    content: str,
    places: Mapping[str, Sequence[Span]],
    relation: StatedRelation,
    surfaces: tuple[str, str],
) -> Stated | str:
    """Return the statement with its evidence, or why there is none."""
    subjects, objects = (places[surface] for surface in surfaces)
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


# Asking the model, and merging its findings with those of the rules; off by default.
#
# **Texts leave the machine**: the content of every memory that may be shown, cut to a bound, and
# nothing else of it. Contents that read like a secret are not sent.

# Kind of the answers in the content store; another name would ask all of it again.
TRIPLES_KIND = "graph_plugin:1"
# Requests under way at once. More are faster if an endpoint serves them side by side; one that
# does not lets the later ones wait into their time limit, and more are lost with a kill.
PARALLEL_REQUESTS = 2
# Unusable answers in a row about single memories after which the endpoint is given up: a model
# that never writes JSON would otherwise cost a request per memory.
MAX_USELESS_ALONE = 8
# Nights on which a memory without a usable answer is asked about. More give an unlucky model its
# chance; fewer save a request per night and memory.
MAX_FAILED_NIGHTS = 3
ENDPOINT_DOWN = "graph_endpoint_down"  # code of the warning that the endpoint was given up
# Code of the warning that some memories got no usable answer from an endpoint that works.
UNANSWERED = "graph_memories_unanswered"


class Extended(NamedTuple):
    """Extractions with the additions of the model."""

    extractions: list[Extraction]  # one per memory, in the order given
    # for the stage: the answers for these memories, and if something went wrong "warnings", a
    # list of {"code", "message"}
    facts: dict[str, Any]
    notes: dict[str, int]


@dataclass(slots=True)
class TripleReader:
    """One model and its answers about some texts."""

    endpoint: Endpoint
    batch_memories: int
    store: ContentStore  # of the answers, kept batch by batch
    progress: Progress
    sleep: Sleep = time.sleep
    known: dict[str, Known] = field(default_factory=dict[str, Known])  # by `answer_key`
    # requests, remembered answers and faults of answers, by name
    tonight: Counter[str] = field(default_factory=Counter[str])
    given_up: str = ""  # why the endpoint is no longer asked, or empty
    _useless: int = 0

    def read(self, contents: Iterable[str]) -> dict[str, RawAnswer]:
        """Ask about new texts and return all answers by content; an endpoint raises nothing.

        In batches, then alone if a batch gave nothing for a text; in the order of their keys,
        those that failed before last.
        """
        texts = {answer_key(content, self.endpoint.model): content for content in contents}
        stored = self.store.get(map(bytes.fromhex, texts))
        self.known = {key: decode(stored.get(bytes.fromhex(key))) for key in sorted(texts)}
        failed = {key: v for key, v in self.known.items() if isinstance(v, int)}
        self.tonight.update(requests=0, remembered=len(texts) - len(failed))
        again = [key for key, nights in failed.items() if nights < MAX_FAILED_NIGHTS]
        again.sort(key=lambda key: (failed[key], key))
        size, window = self.batch_memories, self.batch_memories * PARALLEL_REQUESTS
        with ThreadPoolExecutor(PARALLEL_REQUESTS, "graph-llm") as pool:
            for start in range(0, len(again), window):
                keys = again[start : start + window]
                batches = [keys[at : at + size] for at in range(0, len(keys), size)]
                self._ask(pool, [{key: texts[key] for key in batch} for batch in batches])
                several = [key for batch in batches if len(batch) > 1 for key in batch]
                left = [key for key in several if not isinstance(self.known[key], RawAnswer)]
                self._ask(pool, [{key: texts[key]} for key in left])
                self.progress.update("graph: llm", start + len(keys), len(again))
        return {texts[k]: v for k, v in self.known.items() if isinstance(v, RawAnswer)}

    def _ask(self, pool: ThreadPoolExecutor, batches: Sequence[Mapping[str, str]]) -> None:
        for batch, answer in zip(batches, pool.map(self._request, batches), strict=True):
            if answer is not None:
                self.tonight["requests"] += 1
                self._keep(batch, *answer)

    def _request(
        self, batch: Mapping[str, str]
    ) -> tuple[dict[str, RawAnswer], Counter[str]] | None:
        """Run in a thread of the pool; None once the endpoint is given up."""
        if self.given_up:
            return None
        # Ids made of keys cannot be known to the author of a memory, so that its text cannot
        # answer for another one; long ones cost tokens and are copied wrong more often.
        ids = {f"m{key[:TAG_HEX]}": key for key in batch}
        message = batch_message({name: {"memory": clip_text(batch[ids[name]])} for name in ids})
        try:
            content = ask(self.endpoint, SYSTEM, message, self.sleep).content
        except BadAnswerError as error:
            return {}, Counter([str(error)])
        except RequestError as error:
            self.given_up = str(error)
            return None
        values, faults = parse_batch(content, list(ids), read_answer)
        return {ids[name]: value for name, value in values.items()}, faults

    def _keep(
        self, batch: Mapping[str, str], answers: Mapping[str, RawAnswer], faults: Counter[str]
    ) -> None:
        self.tonight.update({f"fault: {fault}": n for fault, n in faults.items()})
        fresh: dict[str, Known] = dict(answers)
        if answers:
            self._useless = 0
        elif len(batch) == 1:
            self._useless += 1
            # A model that never gave a usable answer is set up wrongly; no memory is to blame.
            if any(isinstance(value, RawAnswer) for value in self.known.values()):
                fresh = {key: self._nights(key) + 1 for key in batch}
        if self._useless == MAX_USELESS_ALONE:
            self.given_up = f"{MAX_USELESS_ALONE} answers in a row were of no use"
        self.store.put(list(map(bytes.fromhex, fresh)), list(map(encode, fresh.values())))
        self.known.update(fresh)

    def _nights(self, key: str) -> int:
        known = self.known[key]
        return known if isinstance(known, int) else 0

    def warnings(self) -> list[dict[str, str]]:
        """Return the warnings about the endpoint or the memories, as {"code", "message"}."""
        unanswered = sum(isinstance(value, int) for value in self.known.values())
        model = f"the model of the graph ({self.endpoint.model})"
        waiting = f"the graph has only the rules' findings of {unanswered} memories"
        if self.given_up:
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
    """Merge the model's findings into those of the rules; for settings with `llm_inputs`."""
    endpoint = open_endpoint("graph", settings)
    visible = {record.position for record in _select_shown(settings, records)}
    contents = {r.content for r in records if r.position in visible}
    sent = {content for content in contents if find_text_sensitivity(content) is None}
    reader = TripleReader(endpoint, settings.llm_batch_memories, store, progress)
    answers = reader.read(sent)
    grounded = {content: ground(content, answer) for content, answer in answers.items()}
    merged: list[Extraction] = []
    added, dropped = Counter[str](found=0, stated=0), Counter[str]()
    for record, base in zip(records, extractions, strict=True):
        # A memory that was not shown stays as it is, even if another one has the same text.
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
    """Return the stage's inputs besides the rules; empty without a model."""
    if settings.extractor != "llm":
        return {}
    shown = str(settings.include_named_users)
    return {"llm": _fingerprint(settings.llm_model), "named_users": shown}


def live_triples(settings: GraphSettings, records: Sequence[MemoryRecord]) -> list[bytes]:
    """Return the keys of TRIPLES_KIND that are still in use; all others are to be deleted."""
    if settings.extractor != "llm":
        return []
    shown = _select_shown(settings, records)
    return [bytes.fromhex(answer_key(record.content, settings.llm_model)) for record in shown]


def _fingerprint(model: str) -> str:
    """Return model, prompt and reading; not the address, which may move with its model."""
    return f"llm:{READING_VERSION}:{PROMPT_VERSION}:{MAX_MEMORY_CHARS}:{model}"


def _select_shown(settings: GraphSettings, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """Return the memories that may be sent: of named users only if the settings allow it."""
    include = settings.include_named_users
    return [record for record in records if record.user is None or include]


# Facts that a store has about its memories, as findings of the memories they come from.
#
# They have NO_SPAN, which distinguishes them from findings of a text. They are
# evidence and not truth (research/peers.md 2.2: a server's concepts were found by a model), so that
# a store's concepts supersede no memory; only its links between memories do.

# Raised when the same tables may give other findings; part of the stage's inputs.
TOLD_VERSION = "1"
# Relation of each link type. `has` between memories is a plain link, as in a text.
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
    """Return the store's facts as findings, by the id of the memory they come from.

    A link is a statement of the memory that points, an edge one of each memory that is evidence of
    it; a mention makes the concept's name and aliases tags of its memory. Names that fold to
    nothing, and edges whose ends are one name, are dropped.
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
