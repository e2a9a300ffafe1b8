"""`noctuary browse` in a real browser: typed into, led by keys, and shown hostile memories."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.browser import Tab, find_chromium, open_tab
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
