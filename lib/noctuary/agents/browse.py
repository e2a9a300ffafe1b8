"""A page to look at one store: recall, why, single memories, concepts, the last night; read-only.

It is served over HTTP on loopback, where other users of the machine and other pages in the browser
reach it too: whoever asks has to know a secret that is part of every address.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import sys
import tempfile
import threading
import webbrowser
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.message import Message
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib import resources
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
    memory_fields,
    plain,
    read_cluster,
    read_item,
    read_state,
    recall_in_view,
    relate,
)
from noctuary.core.errors import NoctuaryError
from noctuary.graph.view import top_concepts
from noctuary.recall.query import Scope, build_mask
from noctuary.text.marks import visible

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
        positions = np.arange(reader.count) if mask is None else np.flatnonzero(mask)
        moments = reader.created_at_us[positions]
        # Among memories of the same minute, people's words come first.
        said = ~_is_chatter(seen, positions)
        order = positions[np.lexsort((positions, moments, said, moments // _MINUTE_US))[::-1]]
        start = 0
        if "after" in asked:
            start = int(np.flatnonzero(order == seen.find(asked["after"])).sum()) + 1
        shown = order[start : start + _count(asked)].tolist()
        listed = [_listed(seen, position) for position in shown]
        left = int(order.size) - start - len(shown)
        return {"memories": listed, "total": int(order.size), "left": left}


def _is_chatter(seen: Seen, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say of each memory whether it is a turn that talks to tools alone."""
    reader = seen.recaller.reader
    turns = reader.sessions.turns[positions].astype(np.bool_)
    return turns & (reader.importance[positions] <= _CHATTER)


def _listed(seen: Seen, position: int) -> Fields:
    fields = memory_fields(seen.recaller.reader, position)
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
    "status": lambda view, asked: read_state(view),
    "night": _night,
}


# What is sent, and to whom: this machine's own browser that was given the link.

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")
_SECRET_BYTES = 24
_MOST_REQUESTS = 16  # answered at once; others that know the link wait for a place
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


_BUSY = _say(HTTPStatus.SERVICE_UNAVAILABLE, "too many questions at once: ask again")


class PageServer(ThreadingTCPServer):
    """Serve one view to anyone with its link, until it is shut down."""

    allow_reuse_address = os.name == "posix"  # elsewhere it lets others listen there as well
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, view: View, port: int = 0) -> None:
        """Listen on a port of loopback, 0 for a free one."""
        self._view = view
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

    def answer(self, address: str, headers: Message) -> Sent:
        """Answer a GET, or refuse it with a sentence."""
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

    def _ask(self, name: str, query: str) -> Sent:
        try:
            if name == "report":
                return self._show_report()
            if name.removeprefix("api/") not in ANSWERS or not name.startswith("api/"):
                return _say(HTTPStatus.NOT_FOUND, f"there is no {name!r} here")
            asked = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=8))
            for parameter, text in asked.items():
                if len(text) > MAX_CHARS:
                    found = f"{parameter!r} has {len(text):,} characters; expected at most"
                    raise AskedWronglyError(f"{found} {MAX_CHARS:,}")
            found = plain(ANSWERS[name.removeprefix("api/")](self._view, asked))
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

    def do_GET(self) -> None:
        server = cast("PageServer", self.server)
        with server.place(self.request, self.path) as is_free:
            try:
                sent = server.answer(self.path, self.headers) if is_free else _BUSY
            except Exception as error:
                # A defect in one answer must not leave the page waiting.
                what = f"{type(error).__name__} in the server"
                sent = _say(HTTPStatus.INTERNAL_SERVER_ERROR, what)
        self._send(sent)

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
        self._send(_say(code, message or "only GET is answered"))

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
