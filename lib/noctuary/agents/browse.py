"""A page to look at one store, and to change the memories that it shows.

It is served over HTTP on loopback, where other users of the machine and other pages in the browser
reach it too: whoever asks has to know a secret that is part of every address.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.message import Message
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib import resources
from io import BufferedIOBase
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from numpy.typing import NDArray

from noctuary.agents.mcp_view import (
    MAX_MEMORIES,
    AskedWronglyError,
    Fields,
    Seen,
    UnknownItemError,
    View,
    cut_content,
    explain_in_view,
    forget_in_view,
    list_aged,
    live_fields,
    memory_fields,
    own_prefix,
    own_row,
    plain,
    read_cluster,
    read_item,
    read_state,
    recall_in_view,
    relate,
    remember_in_view,
)
from noctuary.agents.state import read_spending
from noctuary.core.errors import NoctuaryError
from noctuary.core.foreign_json import parse_json
from noctuary.core.store import OWN_FILE, find_home
from noctuary.core.types import MemoryRecord, Origin
from noctuary.curate import reviews
from noctuary.graph.view import top_concepts
from noctuary.recall.query import Scope, build_mask
from noctuary.sources.normalize import read_end_us
from noctuary.sources.own_store import WAIT_S
from noctuary.text.marks import visible
from noctuary.text.reach import TAGS

# What the page asks for: the shapes of the MCP server where it has one, inside the same view.

MAX_CHARS = 1_000  # of a question, an id or a name; an address beyond some 8,000 bytes is refused

_SHOWN = 20  # memories and neighbours, where the page does not say how many
_CONCEPTS = 200
_LISTED_CHARS = 600  # of a memory in a list; opening it shows all of it
_MINUTE_US = 60_000_000
_CHATTER = 0.2 + 1e-6  # importance of turns that only call tools
_TIMEOUT_S = 5.0  # of a recall while the user types

Asked = Mapping[str, str]


def _recall(view: View, asked: Asked) -> Fields:
    """Recall for a question without logging it, so that browsing never changes the ranking."""
    found = recall_in_view(
        view, asked.get("q", ""), _count(asked), wing=asked.get("wing"), explain=True,
        dry_run=True, timeout_s=_TIMEOUT_S,
    )  # fmt: skip
    # Of equal scores people's words come first.
    found["memories"].sort(key=_by_score)
    for warning in found["warnings"]:
        warning["message"] = warning["message"].replace("`noctuary mcp ", "`noctuary browse ")
    return found


def _by_score(memory: Fields) -> tuple[float, bool]:
    return -float(memory["final_score"]), float(memory["importance"]) <= _CHATTER


def _why(view: View, asked: Asked) -> Fields:
    """Say why a recall returns or does not return one memory."""
    query, memory_id = asked.get("q", ""), asked.get("id", "")
    return explain_in_view(view, query, memory_id, _count(asked), wing=asked.get("wing"))


def _newest(view: View, asked: Asked) -> Fields:
    """Return memories without a question, newest first, from the one after `after` on."""
    with view.open() as seen:
        reader = seen.recaller.reader
        scope = Scope(wing=view.narrowed_to(asked.get("wing")), user=view.user)
        mask, _ = build_mask(scope, reader.facets, reader.created_at_us)
        live = seen.see_live(scope, mask)
        # What is new stands before the snapshot's; what was changed, in its place.
        new = {} if live is None else {r.memory.memory_id: r.memory for r in live.state.rows}
        changed = {place: new.pop(one) for one, place in reader.positions_of([*new]).items()}
        fresh = sorted(new.values(), key=lambda memory: -memory.created_at_us)
        # A look that was cut short hides what it did not read.
        mask = mask if live is None or live.state.faults else live.mask
        held = np.ones(reader.count, np.bool_) if mask is None else mask.copy()
        held[[*changed]] = True
        positions = np.flatnonzero(held)
        moments = reader.created_at_us[positions]
        # Among memories of the same minute, people's words come first.
        said = ~_is_chatter(seen, positions)
        order = positions[np.lexsort((positions, moments, said, moments // _MINUTE_US))[::-1]]
        start, after, ids = 0, asked.get("after"), [memory.memory_id for memory in fresh]
        if after in ids:
            start = ids.index(after) + 1
        elif after is not None:
            start = len(ids) + int(np.flatnonzero(order == seen.find(after)).sum()) + 1
        stop, total = start + _count(asked), len(ids) + int(order.size)
        rest = order[max(start - len(ids), 0) : max(stop - len(ids), 0)]
        shown = [*fresh[start:stop], *(changed.get(p, p) for p in map(int, rest))]
        listed = [_listed(seen, one) for one in shown]
        return {"memories": listed, "total": total, "left": total - start - len(listed)}


def _is_chatter(seen: Seen, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say of each memory whether it is a turn that talks to tools alone."""
    reader = seen.recaller.reader
    turns = reader.sessions.turns[positions].astype(np.bool_)
    return turns & (reader.importance[positions] <= _CHATTER)


def _listed(seen: Seen, one: MemoryRecord | int) -> Fields:
    reader = seen.recaller.reader
    fields = memory_fields(reader, one) if isinstance(one, int) else live_fields(reader, one)
    return {**fields, **cut_content(fields["content"], _LISTED_CHARS)}


def _in_snapshot(read: Callable[[Seen, Asked], Any], view: View, asked: Asked) -> Fields:
    with view.open() as seen:
        return read(seen, asked)


def _concepts(view: View, asked: Asked) -> Fields:
    """Return the concepts with most connections."""
    with view.open() as seen, seen.graph() as (source, book):
        return {"concepts": top_concepts(source, book, _CONCEPTS)}


def _night(view: View, asked: Asked) -> Fields:
    """Say whether there is a report of the last night for this view, and where its file is."""
    page, is_shown = _find_report(view)
    return {"path": None if page is None else str(page), "is_shown": is_shown}


def _find_report(view: View) -> tuple[Path | None, bool]:
    """Return the newest report, and whether the view sees all that it is about."""
    with view.open() as seen:
        pages = sorted(seen.recaller.paths.reports.glob("*.html"))
        return (pages[-1] if pages else None), bool(pages) and bool(seen.allowed.all())


def _count(asked: Asked) -> int:
    text = asked.get("k", str(_SHOWN))
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_MEMORIES:
        raise AskedWronglyError(f"k is {text!r}; expected a number from 1 to {MAX_MEMORIES}")
    return int(text)


# What the page may do with a memory: one that it shows. Rows are changed in the own store alone;
# forgetting and remembering keep the guards of the MCP tools.


def _own_row(seen: Seen, asked: Asked) -> Fields:
    return own_row(seen, asked.get("id", ""))


def _actions(seen: Seen, asked: Asked) -> Fields:
    """Say what may be done with a memory, and how it stands in the own store."""
    try:
        row = _own_row(seen, asked)
    except UnknownItemError:
        return {"actions": ["forget"]}  # the rest is its source's
    ends_us, _ = read_end_us(row["valid_until"])
    tags = {tag.strip().casefold() for tag in (row["tags"] or "").split(",")}
    # A memory replaces one of its own user only.
    replace = ["replace"] if row["user"] == seen.user else []
    return {
        "actions": ["confirm", *replace, "end", "reach", "forget"],
        "confirmed_at": row["confirmed_at"],
        "valid_until": row["valid_until"],
        "has_ended": ends_us is not None and ends_us <= time.time_ns() // 1000,
        "reach": next((tag for tag in TAGS if tag in tags), ""),
        "replaced_by": row["replaced_by"] and f"{own_prefix(seen)}{row['replaced_by']}",
    }


Night = Callable[[Any], Any] | None  # of a plan: what runs the night that purges it


def _mark(what: str, view: View, told: Asked, _: Night) -> Fields:
    """Confirm a memory, end it, or set its reach."""
    path, now = find_home() / OWN_FILE, datetime.now(UTC)
    row = _in_snapshot(_own_row, view, told)
    if what == "confirm":
        done = reviews.confirm(path, [row["id"]], now)
    elif what == "end":
        done = reviews.end(path, [row["id"]], None if told.get("undo") else now, now)
    elif (tag := told.get("reach", "")) not in ("", *TAGS):
        raise AskedWronglyError(f"reach is {tag!r}; expected {', '.join(TAGS)} or nothing")
    else:
        done = reviews.set_reach(path, row["id"], tag, now)
    return {"changed": done}


def _replace(view: View, told: Asked, _: Night) -> Fields:
    """Remember a text in the place of a memory."""
    row = _in_snapshot(_own_row, view, told)
    return remember_in_view(
        view, told.get("text", ""), supersedes=row["id"], wait_s=WAIT_S, origin=Origin.USER
    )


def _forget(view: View, told: Asked, night: Night) -> Fields:
    """Return the plan of forgetting a memory; with its token, hide it, and purge it if asked."""
    asked = [told.get("id", "")], told.get("token") or None, night if told.get("night") else None
    return {**forget_in_view(view, *asked), "can_purge": night is not None}


CHANGES: Mapping[str, Callable[[View, Asked, Night], Fields]] = {
    **{name: partial(_mark, name) for name in ("confirm", "end", "reach")},
    "replace": _replace,
    "forget": _forget,
}
ANSWERS: Mapping[str, Callable[[View, Asked], Fields]] = {
    "recall": _recall,
    "why": _why,
    "newest": _newest,
    "item": partial(_in_snapshot, lambda seen, asked: read_item(seen, asked.get("id", ""))),
    "cluster": partial(_in_snapshot, lambda seen, asked: read_cluster(seen, asked.get("id", ""))),
    "related": partial(
        _in_snapshot,
        lambda seen, asked: relate(seen, asked.get("id"), asked.get("concept"), MAX_MEMORIES),
    ),
    "concepts": _concepts,
    "actions": partial(_in_snapshot, _actions),
    "aged": partial(_in_snapshot, lambda seen, asked: list_aged(seen, MAX_MEMORIES)),
    "tokens": lambda view, asked: read_spending(find_home()),
    "status": lambda view, asked: read_state(view),
    "night": _night,
}


# What is sent, and to whom: this machine's own browser that was given the link.

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")
_SECRET_BYTES = 24
_MOST_REQUESTS = 16  # answered at once; others that know the link wait for a place
_MOST_BYTES = 2_000_000  # of what is sent with a change: more than the longest memory
_MOST_STRANGERS = 64  # connections that have not named the secret; beyond them the oldest is closed
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_REPORT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'; sandbox"
)
_HTML, _CSS, _JAVASCRIPT, _TEXT, _JSON = (
    "text/html", "text/css", "text/javascript", "text/plain", "application/json",
)  # fmt: skip
_FILES = {
    "": ("noctuary.agents", "browse.html", _HTML),
    "browse.js": ("noctuary.agents", "browse.js", _JAVASCRIPT),
    "browse.css": ("noctuary.agents", "browse.css", _CSS),
    "report.css": ("noctuary.evaluate", "style.css", _CSS),
}


class Sent(NamedTuple):
    """One answer of the server."""

    status: int
    kind: str
    body: bytes
    policy: str = _POLICY


def _say(status: int, sentence: object) -> Sent:
    return Sent(status, _TEXT, f"{visible(str(sentence))}\n".encode())


def _check_lengths(told: Asked) -> None:
    for name, text in told.items():
        if len(text) > MAX_CHARS:
            found = f"{name[:MAX_CHARS]!r} has {len(text):,} characters; expected at most"
            raise AskedWronglyError(f"{found} {MAX_CHARS:,}")


_BUSY = _say(HTTPStatus.SERVICE_UNAVAILABLE, "too many questions at once: ask again")


class PageServer(ThreadingTCPServer):
    """Serve one view to anyone with its link, until it is shut down."""

    allow_reuse_address = os.name == "posix"  # elsewhere it lets others listen there as well
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, view: View, port: int = 0, night: Night = None) -> None:
        """Listen on a port of loopback, 0 for a free one; `night` purges what is forgotten."""
        self._view, self._night = view, night
        self._secret = secrets.token_urlsafe(_SECRET_BYTES)
        self._free = threading.Semaphore(_MOST_REQUESTS)
        self._strangers: OrderedDict[Any, None] = OrderedDict()  # the oldest first
        self._counting = threading.Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise NoctuaryError(
                f"port {port} on {HOST} is not available ({error.strerror}): leave --port out, or "
                "choose another one"
            ) from error

    @property
    def port(self) -> int:
        """Return where it listens."""
        return int(self.server_address[1])

    @property
    def link(self) -> str:
        """Return the address of the page, which is its only key."""
        return f"http://{HOST}:{self.port}/{self._secret}/"

    def answer(self, address: str, headers: Message, body: BufferedIOBase | None = None) -> Sent:
        """Answer a GET, or a POST with its body; refuse it with a sentence."""
        try:
            parts = urlsplit(address)
        except ValueError:
            return _say(HTTPStatus.BAD_REQUEST, "the address cannot be read")
        name = parts.path.removeprefix("/").partition("/")[2]
        if not self._knows(parts.path):
            return _say(HTTPStatus.NOT_FOUND, "open the link that `noctuary browse` printed")
        fault = self._foreign(headers, is_page=not name)
        if fault is not None:
            return _say(HTTPStatus.FORBIDDEN, fault)
        if body is not None:
            return self._change(name, headers, body)
        if name in _FILES:
            package, file, kind = _FILES[name]
            return Sent(HTTPStatus.OK, kind, resources.files(package).joinpath(file).read_bytes())
        return self._ask(name, parts.query)

    def _knows(self, path: str) -> bool:
        secret, slash, _ = path.removeprefix("/").partition("/")
        is_secret = compare_digest(secret.encode(errors="replace"), self._secret.encode())
        return is_secret and bool(slash)

    def _foreign(self, headers: Message, *, is_page: bool) -> str | None:
        """Return why a request may be another page's; None where it is the browser's own."""
        hosts: Sequence[str] = headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in {f"{n}:{self.port}" for n in _NAMES}:
            # A name of its own that leads to 127.0.0.1 makes a foreign page look like ours.
            return f"the Host header is {', '.join(hosts) or 'missing'}; open {HOST}:{self.port}"
        origins: Sequence[str] = headers.get_all("Origin", [])
        sites: Sequence[str] = headers.get_all("Sec-Fetch-Site", [])
        # The file that opens the page in a browser is a foreign page too, and may do only that.
        is_opened = is_page and headers.get_all("Sec-Fetch-Dest") == ["document"]
        is_own = is_opened or {"same-origin", "none"}.issuperset(sites)
        if not is_own or any(origin != f"http://{hosts[0]}" for origin in origins):
            return "another web page sent this request, and only this page itself may"
        return None

    def _change(self, name: str, headers: Message, body: BufferedIOBase) -> Sent:
        """Carry out a change: sent by this page, as JSON of a known length."""
        if not headers.get_all("Origin"):
            return _say(HTTPStatus.FORBIDDEN, "only this page may change something (no Origin)")
        if headers.get_content_type() != _JSON:
            return _say(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected {_JSON}")
        length = headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,9}", length) or int(length) > _MOST_BYTES:
            said = f"Content-Length is {length[:20]!r}; expected at most {_MOST_BYTES} (bytes)"
            return _say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said)

        def do() -> Fields:
            told = cast("Fields", parse_json(body.read(int(length))))
            if type(told) is not dict or any(type(text) is not str for text in told.values()):
                raise AskedWronglyError("expected a JSON object of texts")
            _check_lengths({**told, "text": ""})
            return CHANGES[name.removeprefix("api/")](self._view, told, self._night)

        return self._reply(name, CHANGES, do)

    def _ask(self, name: str, query: str) -> Sent:
        def do() -> Fields:
            asked = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=8))
            _check_lengths(asked)
            return ANSWERS[name.removeprefix("api/")](self._view, asked)

        return self._reply(name, ANSWERS, do)

    def _reply(self, name: str, known: Mapping[str, Any], do: Callable[[], Fields]) -> Sent:
        try:
            if name == "report" and known is ANSWERS:
                return self._show_report()
            if name.removeprefix("api/") not in known or not name.startswith("api/"):
                return _say(HTTPStatus.NOT_FOUND, f"there is no {name!r} here")
            found = plain(do())
            return Sent(HTTPStatus.OK, _JSON, json.dumps(found, ensure_ascii=False).encode())
        except UnknownItemError as error:
            return _say(HTTPStatus.NOT_FOUND, error)
        except ValueError as error:
            return _say(HTTPStatus.BAD_REQUEST, error)
        except (NoctuaryError, OSError) as error:
            return _say(HTTPStatus.SERVICE_UNAVAILABLE, error)

    def _show_report(self) -> Sent:
        page, is_shown = _find_report(self._view)
        if page is None or not is_shown:
            return _say(HTTPStatus.NOT_FOUND, "this page shows no report")
        return Sent(HTTPStatus.OK, _HTML, page.read_bytes(), _REPORT_POLICY)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; beyond `_MOST_STRANGERS` close the oldest unknown connection."""
        with self._counting:
            self._strangers[request] = None
            oldest = next(iter(self._strangers))
            is_full = len(self._strangers) > _MOST_STRANGERS
            if is_full:
                del self._strangers[oldest]
                with suppress(OSError):  # its thread reads the end, and closes it
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and forget the connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._counting:
                self._strangers.pop(request, None)

    @contextmanager
    def place(self, request: Any, address: str) -> Generator[bool]:
        """Yield whether a slot is free; only requests with the secret take one."""
        if not self._knows(address):
            yield True
            return
        with self._counting:
            self._strangers.pop(request, None)
        is_free = self._free.acquire(timeout=_TIMEOUT_S)
        try:
            yield is_free
        finally:
            if is_free:
                self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that hung up: it does so with every letter that is typed."""
        logging.getLogger(__name__).debug("a request broke off", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One request; the connection ends with its answer."""

    timeout = 10  # s; a browser sends at once

    def do_GET(self, body: BufferedIOBase | None = None) -> None:
        server = cast("PageServer", self.server)
        with server.place(self.request, self.path) as is_free:
            try:
                sent = server.answer(self.path, self.headers, body) if is_free else _BUSY
            except Exception as error:
                # A defect in one answer must not leave the page waiting.
                what = f"{type(error).__name__} in the server"
                sent = _say(HTTPStatus.INTERNAL_SERVER_ERROR, what)
        self._send(sent)

    def do_POST(self) -> None:
        self.do_GET(self.rfile)

    def _send(self, sent: Sent) -> None:
        self.send_response(sent.status)
        kind = f"{sent.kind}; charset=utf-8"
        told = {"Content-Type": kind, "Content-Length": str(len(sent.body))}
        for name, value in {**told, **_HEADERS, "Content-Security-Policy": sent.policy}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse every other method with a plain sentence."""
        self._send(_say(code, message or "only GET and POST are answered"))

    def version_string(self) -> str:
        return "noctuary"

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: an address holds the secret, and the question."""


# Opening the page without telling the others: they can read every command line of the machine.


@contextmanager
def open_page(link: str, wanted: bool) -> Generator[None]:
    """Open a link in the user's browser, where there is a desktop, while the block runs."""
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    is_desktop = sys.platform == "darwin" or any(map(os.environ.get, displays))
    if not wanted or not is_desktop or os.environ.get("SSH_CONNECTION"):
        yield
        return
    descriptor, name = tempfile.mkstemp(prefix="noctuary-", suffix=".html")  # of mode 0600
    try:
        os.close(descriptor)
        Path(name).write_text(f'<meta http-equiv="refresh" content="0; url={link}">\n', "utf-8")
        opening = threading.Thread(target=webbrowser.open, args=(Path(name).as_uri(),), daemon=True)
        opening.start()
        yield
    finally:
        Path(name).unlink(missing_ok=True)
