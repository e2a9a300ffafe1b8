"""`noctuary browse` in a real browser: typed into, led by keys, and shown hostile memories."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from noctuary import remember
from noctuary.core.store import StorePaths, store_for_source
from tests.e2e.browser import Tab, find_chromium, open_tab
from tests.support.live import Cache, publish_from
from tests.support.mcp import publish_owned
from tests.support.store import Store, memory, new_store, renumber

HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(2)</script>"
    '<a href="javascript:alert(3)">key</a>" onfocus="alert(4)" autofocus x="'
)
BOUND = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]{32}/")


@contextmanager
def page(store: Store, *options: str) -> Generator[str]:
    """Run the command; its link. It ends with code 0 when it is told to stop."""
    words = [sys.executable, "-m", "noctuary.cli.entry", "browse", "--store", str(store.root)]
    with subprocess.Popen(
        [*words, "--no-open", "--json", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        encoding="utf-8", env={**os.environ, "DISPLAY": ""},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            lines = "".join(iter(process.stdout.readline, "}\n")) + "}"
            found = json.loads(lines)
            assert BOUND.fullmatch(found["link"]), found
            assert found["store"] == str(store.root)
            yield found["link"]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert (process.stdout.read(), process.stderr.read()) == ("", ""), "no address is printed"


def test_the_command_serves_until_it_is_stopped_and_a_taken_port_is_named(
    plain_store: Store,
) -> None:
    with page(plain_store) as link:
        port = link.split(":")[2].split("/")[0]
        words = ["browse", "--store", str(plain_store.root), "--port", port, "--no-open"]
        ran = subprocess.run(
            [sys.executable, "-m", "noctuary.cli.entry", *words],
            capture_output=True, encoding="utf-8", check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (1, "")
        assert f"port {port}" in ran.stderr
        assert ran.stderr.count("\n") == 1


needs_chromium = pytest.mark.skipif(find_chromium() is None, reason="needs Chromium")


@pytest.fixture
def tab() -> Iterator[Tab]:
    with open_tab() as opened:
        yield opened


def show_memory(tab: Tab, link: str, memory_id: int) -> str:
    """Go to a memory; what the page says of it."""
    tab.open(f"{link}#/memory?id={memory_id}")
    tab.wait(f"document.querySelector('#detail h1')?.textContent === 'Memory [{memory_id}]'")
    return tab.run("document.querySelector('#detail').innerText")


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_a_person_finds_opens_and_asks_why_by_keys_alone(home: Path, tab: Tab, width: int) -> None:
    store = new_store(home / "shared")
    publish_owned(store)
    tab.look(width, 844)
    with page(store, "--user", "ana") as link:
        tab.open(link)
        tab.wait("document.querySelectorAll('.hit').length === 18")
        assert tab.run("document.activeElement.id") == "query"
        tab.type("spare key")
        tab.wait("document.querySelector('.hit .steps')?.textContent.includes('lexical')")
        tab.press("ArrowDown")
        tab.press("ArrowDown")
        tab.press("ArrowUp")
        opened = tab.run("document.activeElement.getAttribute('href')")
        assert opened == tab.run("document.querySelector('.hit').getAttribute('href')")
        tab.press("Enter")
        tab.wait("document.querySelector('#detail h2')?.textContent === 'Why'")
        assert "came back at place 1" in tab.run("document.querySelector('#detail').innerText")
        is_listed = tab.run("getComputedStyle(document.querySelector('#list')).display !== 'none'")
        assert is_listed is (width > 960)
        tab.press("Escape")
        tab.wait("location.hash.startsWith('#/?q=spare')")
        tab.press("Escape")
        tab.wait("document.querySelectorAll('.hit').length === 18")
        tab.run("document.activeElement.blur()")
        tab.press("/")
        assert tab.run("document.activeElement.id") == "query"
        told = show_memory(tab, link, 102)
        assert "A newer memory replaces it: [103]" in told
        assert "replaces it" in told.split("this one")[1]
        told = show_memory(tab, link, 105).partition("Before and after")[2]
        assert re.findall(r"\[(\d+)\]", told)[:5] == ["104", "105", "106", "107", "108"]
        for view, said in (
            ("concepts", "atlas"), ("concept?name=atlas", "In the same memories"),
            ("night", "There is no report yet"), ("memory?id=999&q=key", "there is no memory"),
        ):  # fmt: skip
            tab.open(f"{link}#/{view}")
            tab.wait(f"document.querySelector('#detail').innerText.includes({json.dumps(said)})")
            assert tab.run("document.documentElement.scrollWidth") <= width
        assert [fault for fault in tab.faults if "404" not in fault] == []


@pytest.mark.slow
@needs_chromium
def test_a_hostile_memory_is_text_and_nothing_else(home: Path, tab: Tab) -> None:
    store = new_store(home / "hostile")
    more = {"category": HOSTILE[:60], "wing": HOSTILE[:90], "room": HOSTILE, "session_id": HOSTILE}
    records = [
        memory(f"key {i} {HOSTILE}", tags=HOSTILE, memory_id=f"{HOSTILE}{i}", **more) for i in "ab"
    ]
    store.publish(renumber(records), id_kind="str")
    with page(store) as link:
        for view in ("", "?q=key", "concepts", "night"):
            tab.open(f"{link}#/{view}")
            tab.wait("document.querySelector('.hit, #detail h1')")
        tab.open(f"{link}#/?q=key")
        tab.wait("document.querySelector('.hit')")
        assert HOSTILE in tab.run("document.querySelector('.hit .text').textContent")
        tab.run("document.querySelector('.hit').click()")
        tab.wait("document.querySelector('.whole')")
        assert HOSTILE in tab.run("document.querySelector('.whole').textContent")
        for chip in range(tab.run("document.querySelectorAll('#detail .chip').length")):
            tab.run(f"document.querySelectorAll('#detail .chip')[{chip}]?.click()")
            tab.run("history.back()")
        found = tab.run("document.querySelectorAll('img, script:not([src]), [onfocus]').length")
        assert found == 0
        assert tab.run("[...document.links].every((a) => a.href.startsWith(location.origin))")
    assert tab.faults == []


SERVER, TEA = "The staging server listens on port 8443.", "Nina lives in Lisbon and likes tea."
KEY = "The spare key hangs behind the blue door."


@pytest.fixture
def own(home: Path) -> Store:
    """An own store of long ago, with a night on it; the last memory is hostile."""
    for text in (SERVER, TEA, KEY, f"key {HOSTILE} \u202e {'W' * 3_000}"):
        path = remember(text, wing="mill", tags=HOSTILE.replace(",", " ")).path
    Cache(path).run(
        "UPDATE memories SET created_at = ?, updated_at = ?", *["2024-03-01T09:00:00"] * 2
    )
    publish_from(Cache(path), store := new_store(store_for_source(home, path)))
    return store


def rows_of(store: Store) -> dict[int, tuple[str, str, str | None, str | None]]:
    with closing(sqlite3.connect(store.root.parent / "memories.sqlite")) as db:
        sql = "SELECT id, content, tags, confirmed_at, valid_until FROM memories"
        return {row[0]: row[1:] for row in db.execute(sql)}


def defects(tab: Tab) -> list[str]:
    """What went wrong in the page itself: refusals, and what the graph does not know, are told."""
    return [fault for fault in tab.faults if "Failed to load resource" not in fault]


def said(tab: Tab, text: str) -> None:
    tab.wait(f"document.querySelector('.said')?.innerText.includes({json.dumps(text)})")


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_a_person_changes_memories_by_keys_alone(own: Store, tab: Tab, width: int) -> None:
    tab.look(width, 844)
    with page(own) as link:
        tab.open(link)
        tab.wait("document.querySelectorAll('.hit').length === 4")
        tab.type("staging server port")
        tab.wait("document.querySelector('.hit .text')?.textContent.includes('8443')")
        tab.press("Enter")
        tab.wait("document.querySelectorAll('.actions button').length === 5")
        told = tab.run("document.querySelector('footer').innerText")
        assert "k still true r replace n no longer true e reach f forget" in " ".join(told.split())
        tab.press("k")
        said(tab, "it still holds")
        assert rows_of(own)[1][2]
        tab.press("e")
        tab.wait("document.activeElement.tagName === 'SELECT'")
        tab.press("ArrowDown")
        tab.press("Tab")
        tab.press("Enter")
        said(tab, "every project")
        assert rows_of(own)[1][1].endswith(",reach:everywhere")
        tab.press("n")
        said(tab, "It has ended")
        assert rows_of(own)[1][3]
        tab.press("n")
        said(tab, "It holds again")
        assert rows_of(own)[1][3] is None
        tab.press("r")
        tab.wait("document.activeElement.tagName === 'TEXTAREA'")
        tab.press("Enter", ctrl=True)
        tab.wait("document.querySelector('#detail [role=alert]')?.innerText.includes('the same')")
        tab.run("document.activeElement.select()")
        tab.type("The staging server listens on port 9443 now.")
        tab.press("Enter", ctrl=True)
        said(tab, "Kept as [5]")
        assert tab.run("document.querySelector('.whole').innerText").endswith("9443 now.")
        assert rows_of(own)[5][1] == rows_of(own)[1][1], "its tags"
        tab.press("f")
        tab.wait("document.activeElement.innerText === 'Forget for good'")
        assert tab.run("document.documentElement.scrollWidth") <= width
        tab.press("Escape")
        tab.wait("!document.querySelector('.act')")
        assert 5 in rows_of(own)
        assert tab.run("document.activeElement.firstChild.data") == "Forget", "where one was"
        tab.press("f")
        tab.wait("document.activeElement.innerText === 'Forget for good'")
        assert "own store" in tab.run("document.querySelector('.plan').innerText")
        tab.press("Enter")
        said(tab, "Receipt")
        assert 5 not in rows_of(own)
        assert list((own.root / "receipts").glob("[0-9]*.json")), "no snapshot ever held it"
        tab.press("Escape")
        tab.press("Escape")
        tab.wait("document.querySelectorAll('.hit').length === 4")
        assert defects(tab) == []


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_a_person_walks_through_what_has_aged_by_keys_alone(
    own: Store, tab: Tab, width: int
) -> None:
    tab.look(width, 844)
    with page(own) as link:
        tab.open(f"{link}#/review")
        shown = "document.querySelector('#detail .whole')?.textContent"
        tab.wait("document.querySelector('#detail .note')?.innerText.startsWith('4 left')")
        for text, keys, told in (
            (SERVER, "k", "it still holds"), (TEA, "n", "It has ended"), (KEY, "s", ""),
        ):  # fmt: skip
            tab.wait(f"{shown} === {json.dumps(text)}")
            tab.press(keys)
            if told:
                said(tab, told)
        tab.wait(f"{shown}?.includes('<script>')")
        assert tab.run("document.documentElement.scrollWidth") <= width
        tab.press("r")
        tab.wait("document.activeElement.value?.includes('<script>')")
        tab.type(" and more")
        tab.press("Enter", ctrl=True)
        said(tab, "Kept as [5]")
        tab.wait("document.querySelector('#detail').innerText.includes('1 memory left')")
        tab.run("location.reload()")
        tab.wait(f"{shown} === {json.dumps(KEY)}")
        tab.press("f")
        tab.wait("document.querySelector('.plan')?.innerText.includes('1 snapshot')")
        tab.press("Enter")
        said(tab, "1 row deleted: own store")
        tab.wait("document.querySelector('#detail').innerText.includes('every memory was checked')")
        rows = rows_of(own)
        assert rows.keys() == {1, 2, 4, 5}
        assert rows[1][2]
        assert rows[2][3]
        assert "<script>" in rows[5][0]
        assert rows[5][0].endswith("W and more")
        tab.open(f"{link}#/memory?id=5")
        tab.wait("document.querySelector('.actions')")
        for key, what in (("e", "select"), ("r", "textarea"), ("f", ".plan")):
            tab.press(key)
            tab.wait(f"document.querySelector('.act {what}')")
            assert tab.run("document.documentElement.scrollWidth") <= width
            tab.press("Escape")
        assert tab.run("document.querySelectorAll('img, script:not([src]), [onfocus]').length") == 0
    assert defects(tab) == []


@pytest.mark.slow
@needs_chromium
def test_what_a_night_has_read_is_purged_from_the_page_and_its_receipt_shown(
    home: Path, tab: Tab
) -> None:
    for text in (SERVER, TEA, KEY):
        source = remember(text).source
    words = [sys.executable, "-m", "noctuary.cli.entry", "nightly", str(source), "--json"]
    root = Path(json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["store"])
    with page(Store(StorePaths(root))) as link:
        tab.open(f"{link}#/memory?id=3")
        tab.wait("document.querySelectorAll('.actions button').length === 5")
        tab.press("f")
        tab.wait("document.querySelector('.plan')")
        tab.press("Enter")
        said(tab, "hidden from every recall")
        assert tab.run("document.activeElement.innerText").startswith("Purge now")
        tab.press("Enter")
        tab.wait("document.querySelector('.said h2')?.innerText === 'Receipt'", 300)
        said(tab, "no byte is left")
        assert len(list((root / "receipts").glob("[0-9]*.json"))) == 1
        tab.press("Escape")
        tab.wait("document.querySelectorAll('.hit').length === 2")
    assert defects(tab) == []
