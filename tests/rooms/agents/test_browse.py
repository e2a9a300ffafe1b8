"""The page's server over real HTTP: what it answers, and whom it refuses."""

from __future__ import annotations

import http.client
import json
import socket
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest

from noctuary import remember
from noctuary.agents import browse
from noctuary.agents.browse import MAX_CHARS, PageServer, open_page
from noctuary.agents.mcp_view import View, plain, read_item, recall_in_view, relate
from noctuary.core.store import OWN_FILE, store_for_source
from noctuary.core.types import MemoryRecord
from tests.rooms.sources.test_several import publish as publish_list
from tests.support.live import LONG_AGO, Cache, make_cache, publish_from
from tests.support.store import Store, day_us, memory, new_store, renumber

Start = Callable[..., "Site"]


class Got(NamedTuple):
    """One answer."""

    code: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def value(self) -> Any:
        assert self.code == 200, self.text
        return json.loads(self.text)


class Site(NamedTuple):
    """A running page."""

    port: int
    base: str  # its path, the secret

    def get(
        self, name: str = "", method: str = "GET", path: str | None = None, **headers: str
    ) -> Got:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest(method, self.base + name if path is None else path, skip_host=True)
        told = {
            "Host": f"127.0.0.1:{self.port}",
            **{n.replace("_", "-"): v for n, v in headers.items()},
        }
        for header, value in told.items():
            if value:
                connection.putheader(header, value.replace("{port}", str(self.port)))
        connection.endheaders()
        answer = connection.getresponse()
        got = Got(answer.status, answer.headers, answer.read().decode("utf-8"))
        connection.close()
        return got

    def send(self, name: str, body: str | bytes, **headers: str) -> Got:
        """Send a change as the page does; a header of "" is left out."""
        told = {
            "Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {n: v.replace("{port}", str(self.port)) for n, v in told.items() if v}
        connection.request("POST", f"{self.base}api/{name}", body, sent)
        answer = connection.getresponse()
        got = Got(answer.status, answer.headers, answer.read().decode("utf-8"))
        connection.close()
        return got

    def change(self, name: str, **told: str) -> Got:
        return self.send(name, json.dumps(told))

    def ask(self, name: str, **told: Any) -> Got:
        return self.get(f"api/{name}?{urlencode(told)}")


@pytest.fixture
def start() -> Iterator[Start]:
    servers: list[PageServer] = []

    def begin(store: Store, **view: Any) -> Site:
        server = PageServer(View(store.root, **view))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        servers.append(server)
        return Site(server.port, urlsplit(server.link).path)

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def files_of(store: Store) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in sorted(store.root.rglob("*")) if p.is_file()}


def test_the_page_is_whole_and_may_load_nothing_from_elsewhere(
    dense_store: Store, start: Start
) -> None:
    site = start(dense_store)
    page = site.get()
    assert page.code == 200
    assert "text/html" in page.headers["Content-Type"]
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Set-Cookie"] is None
    assert "<script>" not in page.text
    assert "style=" not in page.text
    for name, kind in (("browse.js", "javascript"), ("browse.css", "css"), ("report.css", "css")):
        found = site.get(name)
        assert found.code == 200
        assert kind in found.headers["Content-Type"]
        assert f'"{name}"' in page.text
        assert "http" not in found.text
    script = site.get("browse.js").text
    assert [
        w for w in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(") if w in script
    ] == []


def test_answers_are_those_of_the_view_and_looking_writes_nothing(
    owned_store: Store, start: Start
) -> None:
    view, site = View(owned_store.root, user="ana"), start(owned_store, user="ana")
    site.ask("recall", q="warm up")
    before = files_of(owned_store)
    mine = recall_in_view(view, "spare key", 5, explain=True, dry_run=True)
    found = site.ask("recall", q="spare key", k=5).value
    assert found["memories"] == plain(mine["memories"])
    assert all(m["score_events"] for m in found["memories"])
    narrowed = site.ask("recall", q="spare key", wing="zanywing").value
    assert {m["wing"] for m in narrowed["memories"]} == {"zanywing"}
    with view.open() as seen:
        assert site.ask("item", id=102).value == plain(read_item(seen, "102"))
        assert site.ask("related", id=102).value == plain(relate(seen, "102", None, 50))
        assert site.ask("related", concept="atlas").value == plain(relate(seen, None, "atlas", 50))
        summary = read_item(seen, "105")["summarized_by"]
    assert len(site.ask("cluster", id=summary).value["sources"]) == 4
    assert "atlas" in {c["name"].lower() for c in site.ask("concepts").value["concepts"]}
    assert site.ask("status").value["wings"] == {"zanawing": 9, "zanywing": 9}
    why = site.ask("why", q="spare key", id=101, k=5).value
    place = 1 + [m["id"] for m in mine["memories"]].index(101)
    assert (why["stage"], why["facts"]["place"]) == ("returned", place)
    below = site.ask("why", q="spare key", id=105, k=1).value
    assert below["stage"] != "returned"
    assert below["sentences"]
    assert files_of(owned_store) == before


def test_a_store_of_named_users_says_how_to_name_one(owned_store: Store, start: Start) -> None:
    warnings = start(owned_store).ask("recall", q="spare key").value["warnings"]
    (said,) = [w["message"] for w in warnings if w["code"] == "user_required"]
    assert "`noctuary browse --user NAME`" in said


def test_newest_memories_are_listed_without_a_question(dense_store: Store, start: Start) -> None:
    site = start(dense_store)
    whole = site.ask("newest", k=50).value
    ids = [m["id"] for m in whole["memories"]]
    dates = [m.get("created_at", "") for m in whole["memories"]]
    assert dates == sorted(dates, reverse=True)
    assert dates[-1] == "", "the undated come last"
    assert (whole["total"], whole["left"], len(ids)) == (12, 0, 12)
    paged: list[int] = []
    after: dict[str, Any] = {}
    while True:
        page = site.ask("newest", k=5, **after).value
        paged += [m["id"] for m in page["memories"]]
        assert page["left"] == 12 - len(paged)
        if page["left"] == 0:
            break
        after = {"after": paged[-1]}
    assert paged == ids
    assert {m["wing"] for m in site.ask("newest", wing="work").value["memories"]} == {"work"}
    assert site.ask("newest", wing="nowhere").value["memories"] == []


def test_what_people_say_stands_before_what_is_only_said_to_tools(home: Path, start: Start) -> None:
    minute_us, second_us = day_us(20), 1_000_000

    def said(text: str, second: int, importance: float = 0.5, **told: Any) -> MemoryRecord:
        moment = minute_us + second * second_us
        return memory(text, created_at_us=moment, importance=importance, **told)

    turn: dict[str, Any] = {"category": "turn", "session_id": "s", "is_turn": True}
    store = new_store(home / "talk")
    store.publish(
        renumber(
            [
                said("User: where is the ledger?", 1, **turn),
                said("[Bash: ls ledger]", 5, 0.2, **turn),
                said("[Read: ledger]", 9, 0.2, **turn),
                said("The ledger is of little weight.", 3, 0.2),
                said("[Bash: ls ledger]", 65, 0.2, **turn),
            ]
        )
    )
    site = start(store)
    newest = site.ask("newest", k=9).value["memories"]
    assert [m["id"] for m in newest] == [105, 104, 101, 103, 102]
    assert newest[0]["created_at"].startswith("2026-01-20T00:01:05")
    found = site.ask("recall", q="ls ledger").value["memories"]
    scores = [m["final_score"] for m in found]
    assert scores == sorted(scores, reverse=True)


def test_a_view_shows_its_scope_and_nothing_tells_of_the_rest(
    owned_store: Store, start: Start
) -> None:
    report = owned_store.paths.reports / "20260101T000000-abc.html"
    report.parent.mkdir()
    report.write_text("about zben too")
    site = start(owned_store, user="ana", wing="zanawing")
    asked = [
        *(site.ask("recall", q=q, k=50) for q in ("spare key", "zben", "Atlas", "zany")),
        *(site.ask("newest", **n) for n in ({"k": 50}, {"after": 110}, {"wing": "zbenwing"})),
        *(site.ask(name, id=i) for name in ("item", "related", "cluster") for i in (110, 119, 101)),
        *(site.ask("why", q="spare key", id=i) for i in (110, 119, 101)),
        *(site.ask("related", concept=c) for c in ("zben", "zanytag", "atlas")),
        site.ask("concepts"), site.ask("status"), site.ask("night"), site.get("report"),
    ]  # fmt: skip
    told = [line.text.replace("spare key", "") for line in asked]
    for mark in ("zbenwing", "zanywing"):
        # What was asked for by name is repeated in the refusal.
        assert [text for text in told if mark in text and f"{mark!r} was asked" not in text] == []
    assert not [text for text in told if "zben spare" in text or "zany spare" in text]
    same = {site.ask("why", q="key", id=i).text.replace(str(i), "?") for i in (110, 119, 999)}
    assert len(same) == 1, "another wing's memory, another user's and none at all are alike"
    assert site.get("report").code == 404
    assert site.ask("night").value == {"path": str(report), "is_shown": False}


def test_the_report_of_the_last_night_is_shown_to_who_sees_everything(
    empty_store: Store, start: Start
) -> None:
    empty_store.publish(renumber([memory("The spare key hangs behind the blue door.")]))
    site = start(empty_store)
    assert site.ask("night").value == {"is_shown": False}
    assert site.get("report").code == 404
    empty_store.paths.reports.mkdir()
    for name in ("20260101T000000-abc.html", "20260102T000000-abc.html"):
        (empty_store.paths.reports / name).write_text(f"<script>alert(1)</script>{name}")
    assert site.ask("night").value["is_shown"] is True
    report = site.get("report")
    assert "20260102T000000-abc" in report.text
    policy = report.headers["Content-Security-Policy"]
    assert "sandbox" in policy
    assert "script-src" not in policy
    assert "default-src 'none'" in policy


def test_who_does_not_know_the_link_learns_nothing(dense_store: Store, start: Start) -> None:
    site, other = start(dense_store), start(dense_store)
    assert site.base != other.base
    assert len(site.base) >= 32
    for path in ("/", "/browse.js", "/api/status", other.base, f"{other.base}api/status",
                 site.base.rstrip("/"), "//", "/%00/", "/%C3%A9/api/status",
                 f"/x{site.base}", "/[/", "http://[/"):  # fmt: skip
        got = site.get(path=path)
        assert got.code in (400, 404), path
        assert "noctuary browse" in got.text or "cannot be read" in got.text
        assert site.base.strip("/") not in got.text
        assert "default-src 'none'" in got.headers["Content-Security-Policy"]


REFUSED: dict[str, dict[str, str]] = {
    "a-rebound-name": {"Host": "evil.example:{port}"},
    "a-name-that-begins-like-ours": {"Host": "localhost.evil.example:{port}"},
    "another-port's-name": {"Host": "127.0.0.1:1"},
    "no-name": {"Host": ""},
    "a-foreign-page": {"Origin": "http://evil.example"},
    "a-page-of-another-local-port": {"Origin": "http://127.0.0.1:8888"},
    "a-sandboxed-page": {"Origin": "null"},
    "a-script-of-a-foreign-page": {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "script"},
    "a-frame-of-a-local-page": {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Dest": "iframe"},
}


@pytest.mark.parametrize(
    "headers", REFUSED.values(), ids=[name.replace(" ", "-") for name in REFUSED]
)
def test_another_page_is_refused(dense_store: Store, start: Start, headers: dict[str, str]) -> None:
    site = start(dense_store)
    for name in ("", "browse.js", "api/status", "api/recall?q=key", "report"):
        got = site.get(name, **headers)
        assert got.code == 403, name
        assert "spare" not in got.text


def test_the_browser_s_own_requests_are_answered(dense_store: Store, start: Start) -> None:
    site = start(dense_store)
    own = {"Origin": "http://127.0.0.1:{port}", "Sec_Fetch_Site": "same-origin"}
    assert site.get("api/status", **own).code == 200
    assert site.get("api/status", Host="LOCALHOST:{port}").code == 200
    assert site.get("", Sec_Fetch_Site="none").code == 200
    opened = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "document"}
    assert site.get("", **opened).code == 200, "from the file that opens it, or a click in a mail"
    assert site.get("api/status", **opened).code == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "GRÜN"])
def test_only_get_and_post_are_answered(dense_store: Store, start: Start, method: str) -> None:
    site = start(dense_store)
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    connection.connect()
    line = f"{method} {site.base}api/status HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n"
    connection.sock.sendall(line.encode())
    answer = connection.sock.makefile("rb").read().decode()
    assert answer.startswith(("HTTP/1.0 501", "HTTP/1.0 400"))
    assert "wings" not in answer
    connection.close()


WRONG: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "a-long-question": ("recall", {"q": "x" * (MAX_CHARS + 1)}, 400, "at most 1,000"),
    "a-long-id": ("item", {"id": "x" * (MAX_CHARS + 1)}, 400, "at most 1,000"),
    "too-many": ("recall", {"q": "key", "k": 51}, 400, "from 1 to 50"),
    "none": ("recall", {"q": "key", "k": 0}, 400, "from 1 to 50"),
    "no-number": ("newest", {"k": "\u0665"}, 400, "from 1 to 50"),
    "a-huge-number": ("newest", {"k": "9" * 900}, 400, "from 1 to 50"),
    "an-unknown-id": ("item", {"id": "999"}, 404, "no memory '999'"),
    "no-id": ("item", {}, 404, "no memory ''"),
    "half-a-character": ("item", {"id": "\ufffd\x00\x1b[31m"}, 404, "no memory"),
    "an-unknown-concept": ("related", {"concept": "nobody"}, 404, "no concept"),
    "neither": ("related", {}, 400, "give either"),
    "an-unknown-place": ("newest", {"after": "999"}, 404, "no memory '999'"),
    "many-parameters": ("recall", {f"p{i}": "1" for i in range(9)}, 400, ""),
    "an-unknown-answer": ("sql", {"q": "select 1"}, 404, "there is no"),
    "a-path": ("../../etc/passwd", {}, 404, "there is no"),
}


@pytest.mark.parametrize(
    ("name", "told", "code", "said"), WRONG.values(), ids=[name.replace(" ", "-") for name in WRONG]
)
def test_what_cannot_be_answered_is_a_sentence(
    dense_store: Store, start: Start, name: str, told: dict[str, Any], code: int, said: str
) -> None:
    got = start(dense_store).ask(name, **told)
    assert got.code == code, got.text
    assert said in got.text
    assert "\x1b" not in got.text
    assert len(got.text) < MAX_CHARS + 200


def test_an_address_that_is_too_long_is_refused(dense_store: Store, start: Start) -> None:
    site = start(dense_store)
    assert site.get(f"api/recall?q={'x' * 70_000}").code == 414
    assert site.ask("recall", q="key").value["memories"]


def test_hidden_characters_arrive_as_marks(home: Path, start: Start) -> None:
    store = new_store(home / "hostile")
    store.publish(renumber([memory("key \x1b[31mred \u202egnp.exe", tags="a\u202eb")]))
    site = start(store)
    for got in (site.ask("recall", q="key"), site.ask("item", id=101), site.ask("newest"),
                site.ask("why", q="key \u202e", id=101)):  # fmt: skip
        told = "".join(strings(got.value))
        assert "red" in told or "key" in told
        assert not HIDDEN & set(told)


HIDDEN = set("\x1b\u202e")


def strings(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value."""
    if isinstance(value, str):
        yield value
    for item in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from strings(item)


def test_a_store_that_cannot_be_read_is_a_sentence(plain_store: Store, start: Start) -> None:
    site = start(plain_store)
    (snapshot,) = plain_store.paths.snapshots.iterdir()
    (snapshot / "rows.sqlite").write_bytes(b"")
    assert [w["code"] for w in site.ask("status").value["warnings"]] == ["no_snapshot"]
    got = site.ask("item", id=101)
    assert got.code == 503
    assert got.text.count("\n") == 1


@pytest.mark.parametrize("sent", [b"", b"GET /", b"GET /guess/ HTTP/1.1\r\nX-A: "])
@pytest.mark.parametrize("count", [16, 200])
def test_strangers_who_hold_connections_keep_the_owner_from_nothing(
    dense_store: Store, start: Start, count: int, sent: bytes
) -> None:
    site = start(dense_store)
    before = threading.active_count()
    held = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(count)]
    for connection in held:
        with suppress(OSError):
            connection.sendall(sent)
    began = time.monotonic()
    for _ in range(4):
        assert site.ask("status").code == 200
    assert time.monotonic() - began < 5
    assert threading.active_count() - before < 80
    for connection in held:
        connection.close()


def test_who_knows_the_link_waits_for_a_place(
    dense_store: Store, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browse, "_MOST_REQUESTS", 1)
    site = start(dense_store)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(site.ask, ["status"] * 8))
    assert [got.code for got in found] == [200] * 8


def test_the_link_is_given_to_the_browser_in_a_private_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[tuple[str, str, int]] = []
    done = threading.Event()

    def note(url: str) -> bool:
        file = Path(urlsplit(url).path)
        opened.append((url, file.read_text(), stat.S_IMODE(file.stat().st_mode)))
        done.set()
        return True

    monkeypatch.setattr("webbrowser.open", note)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    with open_page("http://127.0.0.1:1/secret/", True):
        assert done.wait(10)
    ((url, text, mode),) = opened
    assert "secret" not in url
    assert "http://127.0.0.1:1/secret/" in text
    assert mode == 0o600
    assert list(tmp_path.iterdir()) == []
    for wanted, display in ((False, ":0"), (True, "")):
        monkeypatch.setenv("DISPLAY", display)
        monkeypatch.setenv("WAYLAND_DISPLAY", "")
        with open_page("http://127.0.0.1:1/secret/", wanted):
            assert list(tmp_path.iterdir()) == []


# What the page changes: rows of the own store, under the guards of the view.

SERVER = "The staging server listens on port 8443."


@pytest.fixture
def own(home: Path) -> Store:
    """An own store of two users and two wings, of long ago, with a night on it."""
    path = remember(SERVER, wing="mill", tags=["net"]).path
    remember("Ana's spare key hangs in the hall.", wing="home", user="ana")
    remember("Ben's spare key hangs in the shed.", wing="home", user="ben")
    remember("The door code is with the neighbour.", wing="home")
    Cache(path).run("UPDATE memories SET created_at = ?, updated_at = ?", LONG_AGO, LONG_AGO)
    store = new_store(store_for_source(home, path))
    publish_from(Cache(path), store)
    return store


def rows_of(home: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(home / OWN_FILE)) as db:
        return db.execute("SELECT * FROM memories ORDER BY id").fetchall()


def test_a_memory_is_confirmed_ended_spread_and_replaced_and_shows_it_at_once(
    own: Store, start: Start
) -> None:
    site = start(own)
    assert site.ask("actions", id=1).value["actions"] == [
        "confirm", "replace", "end", "reach", "forget",
    ]  # fmt: skip
    assert site.change("confirm", id="1").code == 200
    assert site.ask("actions", id=1).value["confirmed_at"]
    for reach in ("reach:everywhere", "reach:project"):
        assert site.change("reach", id="1", reach=reach).code == 200
        assert site.ask("actions", id=1).value["reach"] == reach
        assert site.ask("item", id=1).value["tags"] == ["net", reach]
    assert site.change("end", id="4").code == 200
    assert site.ask("actions", id=4).value["has_ended"] is True
    assert "4" not in str([m["id"] for m in site.ask("newest").value["memories"]])
    assert site.change("end", id="4", undo="yes").code == 200
    assert site.ask("actions", id=4).value["has_ended"] is False
    kept = site.change("replace", id="1", text="The staging server listens on 9443.").value
    assert (kept["recallable"], kept["supersedes"]) == (True, 1)
    newest = site.ask("newest").value["memories"]
    assert [m["id"] for m in newest] == [kept["id"], 4, 1], "in its place, and others' are hidden"
    assert site.ask("newest", after=kept["id"]).value["memories"] == newest[1:]
    new = site.ask("item", id=kept["id"]).value
    assert (new["wing"], new["tags"], new["written_by"]) == (
        "mill",
        ["net", "reach:project"],
        "user",
    )
    assert site.ask("actions", id=1).value["replaced_by"] == str(kept["id"])


def test_a_page_forgets_what_its_plan_showed(own: Store, start: Start, home: Path) -> None:
    site = start(own, user="ana")
    plan = site.change("forget", id="2").value
    (memory_,) = plan["memories"]
    assert (memory_["content"], memory_["places"][0]) == (
        "Ana's spare key hangs in the hall.",
        "own store",
    )
    assert len(rows_of(home)) == 4, "nothing is changed yet"
    assert "another plan" in site.change("forget", id="2", token="x" * 16).text
    done = site.change("forget", id="2", token=plan["token"]).value
    assert done["forgotten"]
    assert done["removed"] == {"own store": 1}
    assert len(rows_of(home)) == 3
    assert site.ask("item", id=2).code == 404
    assert "2" not in str([m["id"] for m in site.ask("newest").value["memories"]])


def test_what_the_page_may_not_show_it_may_not_change(own: Store, start: Start, home: Path) -> None:
    before = rows_of(home)
    site = start(own, user="ana", wing="home")
    assert site.ask("actions", id=4).value["actions"] == ["confirm", "end", "reach", "forget"], (
        "nobody's memory is not replaced by one of ana's"
    )
    assert site.change("replace", id="4", text="Ana's now.").code == 400
    for memory_id in ("1", "3", "99", "-1", "1e1", "٢", "9" * 30, "\0", ""):
        asked = [site.change(name, id=memory_id, text="x y z") for name in
                 ("confirm", "end", "reach", "replace")]  # fmt: skip
        assert {got.code for got in asked} == {404}, memory_id
        plan = site.change("forget", id=memory_id)
        assert "token" not in plan.text, memory_id
        assert not {"Ben's", SERVER} & {plan.text}
    assert rows_of(home) == before
    Cache(home / OWN_FILE).run(
        "UPDATE memories SET created_at='2020-01-01', updated_at='2020-01-01'"
    )
    assert {one["id"] for one in site.ask("aged").value["memories"]} == {"2", "4"}


def test_memories_of_another_source_can_be_forgotten_alone(
    dense_store: Store, start: Start
) -> None:
    site = start(dense_store)
    assert site.ask("actions", id=101).value == {"actions": ["forget"]}
    assert site.change("confirm", id="101").code == 404
    assert site.ask("aged").value == {"memories": [], "total": 0, "is_own": False}


BAD_CHANGES: dict[str, tuple[bytes, dict[str, str], int]] = {
    "no-origin": (b"{}", {"Origin": ""}, 403),
    "another-origin": (b"{}", {"Origin": "http://evil.example"}, 403),
    "another-local-port": (b"{}", {"Origin": "http://127.0.0.1:1"}, 403),
    "a-sandbox": (b"{}", {"Origin": "null"}, 403),
    "a-rebound-name": (b"{}", {"Host": "evil.example:{port}"}, 403),
    "a-form": (b"id=1", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "plain-text": (b'{"id": "1"}', {"Content-Type": "text/plain"}, 415),
    "no-length": (b"", {"Content-Length": "-1"}, 413),
    "too-long": (b"{}", {"Content-Length": "9" * 40}, 413),
    "a-bit-too-long": (b"{}", {"Content-Length": "2000001"}, 413),
    "no-json": (b"\xff{", {}, 400),
    "a-list": (b"[1]", {}, 400),
    "a-number": (b'{"id": 1}', {}, 400),
    "nested": (b"[" * 5_000, {}, 400),
    "a-long-id": (json.dumps({"id": "x" * (MAX_CHARS + 1)}).encode(), {}, 400),
    "a-secret": (json.dumps({"id": "1", "text": "my password is hunter2-Zx81!"}).encode(), {}, 400),
    "nul": (json.dumps({"id": "1", "text": "a\0b"}).encode(), {}, 400),
    "half-a-character": (b'{"id": "1", "text": "\\ud800"}', {}, 400),
    "nothing": (json.dumps({"id": "1", "text": " \n"}).encode(), {}, 400),
    "no-text": (json.dumps({"id": "1"}).encode(), {}, 400),
}


@pytest.mark.parametrize(("body", "headers", "code"), BAD_CHANGES.values(), ids=[*BAD_CHANGES])
def test_a_bad_change_changes_nothing(
    own: Store, start: Start, home: Path, body: bytes, headers: dict[str, str], code: int
) -> None:
    before, site = rows_of(home), start(own)
    got = site.send("replace", body, **headers)
    assert got.code == code, got.text
    assert got.text.count("\n") == 1
    assert "Traceback" not in got.text
    assert rows_of(home) == before


def test_reading_addresses_take_no_post_and_changing_ones_no_get(own: Store, start: Start) -> None:
    site = start(own)
    for name in ("status", "recall", "../report", "nothing"):
        assert site.change(name, id="1").code == 404
    for name in browse.CHANGES:
        assert site.ask(name, id="1").code == 404


def test_among_several_stores_only_the_own_one_s_rows_change(
    home: Path, tmp_path: Path, start: Start
) -> None:
    cache = make_cache(tmp_path / "memory.db", [{"content": "The ferry leaves at noon."}])
    own_file = remember("The bell of the old pier is green.").path
    Cache(own_file).run("UPDATE memories SET created_at='2020-01-01', updated_at='2020-01-01'")
    listed = home / "noctuary.toml"
    listed.write_text(f"[sources]\ncache = '{cache.path}'\n")
    publish_list(listed, store := new_store(store_for_source(home, listed)))
    site = start(store)
    assert site.ask("actions", id="cache:1").value == {"actions": ["forget"]}
    assert site.change("end", id="cache:1").code == 404
    (aged,) = site.ask("aged").value["memories"]
    assert aged["id"] == "own:1"
    assert site.change("confirm", id="own:1").code == 200
    assert site.ask("aged").value["memories"] == []
    kept = site.change("replace", id="own:1", text="The bell of the old pier is red.").value
    assert (kept["id"], kept["supersedes"]) == ("own:2", "own:1")
    assert site.ask("actions", id="own:1").value["replaced_by"] == "own:2"
    assert site.ask("newest").value["memories"][0]["id"] == "own:2"
    plan = site.change("forget", id="own:2").value
    assert site.change("forget", id="own:2", token=plan["token"]).value["receipt"]
    assert len(rows_of(home)) == 1
