from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.metrics import compare, summarize
from noctuary.evaluate.report import (
    EXACT_BIAS,
    GateOutcome,
    NightReport,
    PerQuery,
    QueryGroup,
    as_data_uri,
    difference_cells,
    night_plots,
    render_page,
)
from noctuary.snapshot.checks import Drop
from tests.unit.reports.builders import (
    FEW_DRAWS,
    METRICS,
    abstention,
    arms,
    comparison,
    decision,
    difference,
    random_scores,
    scores,
)

VOID = frozenset({"meta", "img", "br", "hr", "link", "input"})
HOSTILE = "<script>alert('x')</script>\"&<img src=//evil.example/x>"
EMPTY = NightReport("store", "2026-11-20")


class Page(HTMLParser):
    """Reads a page and fails on what is not well formed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes nothing that is open"

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.text += data
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def group(name: str = "labelled") -> QueryGroup:
    reports, comparisons = arms(3)
    ours, baseline = random_scores("candidate", 40, 1), random_scores("serving", 40, 2)
    return QueryGroup(
        name,
        reports,
        comparisons,
        compare([(ours, baseline)], FEW_DRAWS)[0],
        PerQuery(ours, baseline, {"q3": ["m7"]}),
    )


def full_report() -> NightReport:
    return NightReport(
        title="family notes",
        night="2026-11-20",
        note=["Memories: 3 new, 18,234 in all."],
        candidate_digest="9f3a7c10",
        serving_snapshot="20261119-ab12",
        encoder_model="all-MiniLM-L6-v2",
        counts={"memories": 18234},
        query_counts=[("labelled", "temporal", 20), ("exact", "exact", 40)],
        groups=[group(), group("exact")],
        decision=decision("rrf", "proven", rrf=0.5),
        gate=GateOutcome(
            False, "It was refused.", [Drop("labelled", "recall@10", -0.1, -0.2, -0.05, 40, 0.01)]
        ),
        abstention=abstention(),
        notes=["3 labels name memories that are gone"],
    )


def hostile_report() -> NightReport:
    """Return a report whose every name and text tries to be markup."""
    ours = scores(HOSTILE, [[0, 0], [1, 1]], [HOSTILE, "b"], [f"q {HOSTILE}", "q1"])
    theirs = scores("b" + HOSTILE, [[1, 1], [0, 0]], [HOSTILE, "b"], ours.query_ids)
    (found,) = compare([(ours, theirs)], FEW_DRAWS)
    return NightReport(
        title=HOSTILE,
        night=HOSTILE,
        note=[HOSTILE],
        candidate_digest=HOSTILE,
        serving_snapshot=HOSTILE,
        encoder_model=HOSTILE,
        counts={HOSTILE: 1},
        query_counts=[(HOSTILE, HOSTILE, 2)],
        groups=[
            QueryGroup(
                HOSTILE,
                summarize([ours], FEW_DRAWS),
                [found],
                found,
                PerQuery(ours, theirs, {f"q {HOSTILE}": [HOSTILE]}),
            )
        ],
        decision=decision(HOSTILE, HOSTILE, **{HOSTILE: 0.5}),
        gate=GateOutcome(False, HOSTILE, [Drop(HOSTILE, HOSTILE, -0.1, -0.2, -0.1, 2, 0.1)]),
        abstention=replace(abstention(), name=HOSTILE),
        query_texts={f"q {HOSTILE}": HOSTILE},
        notes=[HOSTILE],
    )


def one_query() -> NightReport:
    ours, theirs = scores("a", [[1, 0.5]]), scores("b", [[0, 0.5]])
    return replace(
        EMPTY,
        groups=[
            QueryGroup(
                "labelled",
                summarize([ours, theirs]),
                compare([(ours, theirs)]),
                compare([(ours, theirs)])[0],
                PerQuery(ours, theirs),
            )
        ],
    )


def many_strata() -> NightReport:
    reports, comparisons = arms(4, n=400, n_strata=400)
    return replace(EMPTY, groups=[QueryGroup("labelled", reports, comparisons, comparisons[0])])


def strange_names() -> NightReport:
    names = [
        "\u05e9\u05dc\u05d5\u05dd",
        "\u202e\u202dtxt.exe",
        "\u4e2d\u6587",
        "a\x00b\x1b[0m\ud800",
    ]
    ours = scores("ours", [[0, 0]] * 4, names, names)
    theirs = scores("theirs", [[1, 1]] * 4, names, names)
    found = compare([(ours, theirs)], FEW_DRAWS)
    pair = PerQuery(ours, theirs, {name: [name] for name in names})
    texts = {name: f"{name}\nsecond line" for name in names}
    shown = QueryGroup("labelled", summarize([ours], FEW_DRAWS), found, found[0], pair)
    return replace(EMPTY, groups=[shown], query_texts=texts)


REPORTS = {
    "empty": lambda: EMPTY,
    "groups without results": lambda: replace(EMPTY, groups=[QueryGroup("a"), QueryGroup("exact")]),
    "one query": one_query,
    "no interval": lambda: replace(
        EMPTY, groups=[QueryGroup("a", (), [comparison("b", difference(0.5, n=13))])]
    ),
    "full": full_report,
    "hostile": hostile_report,
    "many strata": many_strata,
    "strange names": strange_names,
}


def rendered(report: NightReport) -> str:
    return render_page(report)


@cache
def page_of(make: Callable[[], NightReport]) -> str:
    """The page of one of the reports; seconds of drawing, and several tests read it."""
    return rendered(make())


@pytest.mark.parametrize("make", REPORTS.values(), ids=REPORTS)
def test_every_page_is_well_formed_complete_in_itself_and_accessible(
    make: Callable[[], NightReport],
) -> None:
    html = page_of(make)
    page = Page(html)
    assert html.encode("utf-8"), "it can be written"
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert "style" not in attributes
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            value = attributes.get(name, "#")
            assert value.startswith(("data:image/png;base64,", "#")), value
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "iframe", "object", "embed", "base", "form"}
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert style
    assert not re.search(r"url\(|@import|//", style)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"][1:] for link in page.all("a")} <= set(ids)
    assert all(head.get("scope") in ("row", "col") for head in page.all("th"))
    assert all(image.get("alt") for image in page.all("img"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert page.all("html") == [{"lang": "en"}]


@pytest.mark.parametrize("make", [REPORTS["full"], REPORTS["empty"], REPORTS["strange names"]])
def test_pages_name_no_address(make: Callable[[], NightReport]) -> None:
    assert not re.search(
        r"https?:|//", re.sub(r"data:image/png;base64,[\w+/=]+", "", page_of(make))
    )


def test_the_page_forbids_every_request() -> None:
    metas = Page(rendered(EMPTY)).all("meta")
    (policy,) = [meta["content"] for meta in metas if "http-equiv" in meta]
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_hostile_names_and_texts_are_text() -> None:
    html = page_of(hostile_report)
    page = Page(html)
    assert "<script" not in html
    assert "evil.example" in page.text
    assert page.text.count(HOSTILE) > 20
    assert all("evil" not in image["src"] for image in page.all("img"))


def test_equal_reports_give_equal_pages() -> None:
    assert rendered(full_report()) == page_of(full_report)


def test_a_page_shows_the_plots_of_the_metadata() -> None:
    plots = night_plots(full_report())
    assert [image["src"] for image in Page(page_of(full_report)).all("img")] == [
        as_data_uri(plots[name].png)
        for name in (
            "labelled_against_serving", "labelled_differences", "exact_against_serving",
            "exact_differences", "risk_coverage",
        )
    ]  # fmt: skip


def test_tables_hold_the_inputs_numbers() -> None:
    report = full_report()
    rows = Page(page_of(full_report)).rows
    for shown in report.groups:
        for found in shown.comparisons:
            for metric in METRICS:
                assert [found.ours, *difference_cells(found.overall[metric])] in rows
                for stratum, part in found.strata.items():
                    assert [stratum, found.ours, *difference_cells(part[metric])] in rows
        for arm in shown.reports:
            means = [arm.overall[metric] for metric in METRICS]
            cells = [
                f"{m.mean:.3f} ({m.interval.low:.3f} to {m.interval.high:.3f})"
                for m in means
                if m.interval
            ]
            assert len(cells) == len(METRICS)
            assert [arm.name, str(arm.n), *cells] in rows


def test_every_pair_of_candidate_and_serving_is_shown_in_every_metric() -> None:
    report = replace(EMPTY, groups=[group()])
    serving = report.groups[0].against_serving
    assert serving is not None
    rows = Page(rendered(report)).rows
    for metric, found in serving.overall.items():
        assert [metric, *difference_cells(found)] in rows


def test_the_note_comes_first_then_the_verdict_then_folded_statistics() -> None:
    html = page_of(full_report)
    note, word, verdict = map(html.index, ("3 new, 18,234 in all", "Refused.", "It was refused."))
    assert html.index("<h1>") < note < word < verdict < html.index("<details")
    assert html.index("<details") < min(html.index("<table"), html.index("<img"))
    assert "<details open" not in html


def test_the_bias_of_the_exact_group_is_stated_beside_its_count_and_its_results() -> None:
    text = Page(page_of(full_report)).text
    assert text.count(EXACT_BIAS) >= 2
    assert EXACT_BIAS not in Page(rendered(replace(EMPTY, groups=[group()]))).text


def test_losers_and_winners_are_ids_without_texts_unless_given() -> None:
    report = replace(full_report(), groups=[group()])
    texts = {f"q{i}": f"the secret question {i}" for i in range(40)}
    bare, page = rendered(report), rendered(replace(report, query_texts=texts))
    assert "secret" not in bare
    assert "appear by id only" in bare
    assert "the secret question" in page
    assert "appear by id only" not in page
    assert ["q3", "m7"] in [[row[0], row[5]] for row in Page(bare).rows if len(row) == 6]


def test_a_night_without_queries_says_so_in_words() -> None:
    text = Page(rendered(EMPTY)).text
    assert "There was no query to ask." in text
    assert not Page(rendered(EMPTY)).all("table")


def test_queries_that_did_not_change_are_said_to_be_unchanged() -> None:
    same = scores("a", [[0.5, 0.5]] * 3)
    pair = PerQuery(same, replace(same, name="b"))
    text = Page(rendered(replace(EMPTY, groups=[QueryGroup("x", per_query=pair)]))).text
    assert "No query changed, a against b." in text


def test_characters_that_reorder_or_break_a_page_are_shown_as_escapes() -> None:
    html = page_of(strange_names)
    assert not re.search("[\x00\x1b\u202d\u202e\ud800]", html)
    text = Page(html).text
    for shown in (
        "\\u202e\\u202dtxt.exe",
        "a\\u0000b\\u001b[0m\\ud800",
        "\u05e9\u05dc\u05d5\u05dd",
    ):
        assert shown in text


def test_hundreds_of_strata_make_a_page_below_three_megabytes() -> None:
    html = page_of(many_strata)
    assert len(html) < 3_000_000
    assert "1500 of 1600 rows are shown" in Page(html).text


def test_template_and_style_are_found_as_package_resources() -> None:
    folder = resources.files("noctuary.evaluate")
    assert {"template.html.j2", "style.css"} <= {entry.name for entry in folder.iterdir()}


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_the_contrast_that_wcag_asks_for_in_light_dark_and_print() -> None:
    css = (resources.files("noctuary.evaluate") / "style.css").read_text(encoding="utf-8")
    light, dark, printed = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{([^}]*)\}", css)
    )
    for colours in (light, dark, {**light, **printed}):
        for ink in ("ink", "muted", "link", "good", "bad"):
            for page in ("page", "band"):
                pair = sorted((luminance(colours[ink]), luminance(colours[page])))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (ink, page)
        for page in ("good-page", "bad-page", "open-page"):
            pair = sorted((luminance(colours["ink"]), luminance(colours[page])))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, page


@given(st.binary(max_size=200))
def test_a_data_uri_holds_the_bytes(png: bytes) -> None:
    head, _, body = as_data_uri(png).partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(body, validate=True) == png
