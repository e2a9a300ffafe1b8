from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from importlib import resources
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.metrics import Difference, compare, summarize
from noctuary.evaluate.report import (
    DIFFERENCE_COLUMNS,
    HEADLINE_METRIC,
    MAX_IDS,
    MAX_QUERIES,
    MAX_ROWS,
    GateOutcome,
    NightReport,
    QueryGroup,
    Table,
    abstention_sentence,
    arms_table,
    as_interval,
    as_mean,
    as_p,
    as_signed,
    decision_table,
    difference_cells,
    difference_sentence,
    drops_table,
    group_tables,
    plot_differences,
    plot_group,
    queries_table,
    render_page,
    word_verdict,
)
from noctuary.evaluate.statistics import Interval
from noctuary.snapshot.checks import Drop
from tests.support.reports import (
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
    serving = compare([(ours, baseline)], FEW_DRAWS)[0]
    return QueryGroup(name, reports, comparisons, serving, (ours, baseline), {"q3": ["m7"]})


def full_report() -> NightReport:
    return NightReport(
        title="family notes",
        night="2026-11-20",
        note=["Memories: 3 new, 18,234 in all."],
        facts={"candidate": "9f3a7c10", "memories": "18,234"},
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
        facts={HOSTILE: HOSTILE},
        query_counts=[(HOSTILE, HOSTILE, 2)],
        groups=[
            QueryGroup(
                HOSTILE,
                summarize([ours], FEW_DRAWS),
                [found],
                found,
                (ours, theirs),
                {f"q {HOSTILE}": [HOSTILE]},
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
                (ours, theirs),
            )
        ],
    )


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
    ids = {name: [name] for name in names}
    texts = {name: f"{name}\nsecond line" for name in names}
    means = summarize([ours], FEW_DRAWS)
    shown = QueryGroup("labelled", means, found, found[0], (ours, theirs), ids)
    return replace(EMPTY, groups=[shown], query_texts=texts)


REPORTS = {
    "empty": lambda: EMPTY,
    "groups-without-results": lambda: replace(EMPTY, groups=[QueryGroup("a"), QueryGroup("exact")]),
    "one-query": one_query,
    "no-interval": lambda: replace(
        EMPTY, groups=[QueryGroup("a", (), [comparison("b", difference(0.5, n=13))])]
    ),
    "full": full_report,
    "hostile": hostile_report,
    "strange-names": strange_names,
}


def rendered(report: NightReport) -> str:
    return render_page(report)


@cache
def page_of(make: Callable[[], NightReport]) -> str:
    """The page of one of the reports; several tests read it."""
    return rendered(make())


@pytest.mark.parametrize("make", REPORTS.values(), ids=[name.replace(" ", "-") for name in REPORTS])
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
            assert value.startswith("#"), value
    tags = {tag for tag, _ in page.tags}
    assert not tags & {
        "script",
        "img",
        "image",
        "link",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
    }
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert style
    assert not re.search(r"url\(|@import|//", style)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"][1:] for link in page.all("a")} <= set(ids)
    assert all(head.get("scope") in ("row", "col") for head in page.all("th"))
    assert all(plot["role"] == "img" for plot in page.all("svg"))
    assert len(re.findall("<svg [^>]*><title>[^<]", html)) == len(page.all("svg"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert page.all("html") == [{"lang": "en"}]
    if make is not hostile_report:
        drawn = html.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?:|//", drawn), "it names no address"


def test_the_page_forbids_every_request() -> None:
    metas = Page(rendered(EMPTY)).all("meta")
    (policy,) = [meta["content"] for meta in metas if "http-equiv" in meta]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_hostile_names_and_texts_are_text() -> None:
    html = page_of(hostile_report)
    page = Page(html)
    assert "<script" not in html
    assert "evil.example" in page.text
    assert page.text.count(HOSTILE) > 15
    assert rendered(hostile_report()) == html, "equal reports give equal pages"


def test_tables_hold_the_inputs_numbers() -> None:
    report = full_report()
    rows = Page(page_of(full_report)).rows
    for shown in report.groups:
        for table in group_tables(shown, None):
            assert all(list(row) in rows for row in table.rows)
        for found in shown.comparisons:
            for metric in METRICS:
                cells = [row for row in rows if row[:1] == [found.ours]]
                assert difference_cells(found.overall[metric]) in [row[3:] for row in cells]
        for arm in shown.reports:
            mean = arm.overall[HEADLINE_METRIC]
            assert mean.interval
            ends = f"{mean.interval.low:.3f} to {mean.interval.high:.3f}"
            assert [arm.name, f"{mean.mean:.3f}", ends] in [row[:3] for row in rows]
    page = Page(page_of(full_report))
    assert page.text.count("phrases of the corpus itself, which favour lexical search") == 2
    assert len(page.all("svg")) == len(report.groups)
    assert "There was no query to ask." in Page(rendered(EMPTY)).text


def test_the_note_comes_first_then_the_verdict_then_folded_statistics() -> None:
    html = page_of(full_report)
    note, word, verdict = map(html.index, ("3 new, 18,234 in all", "Refused.", "It was refused."))
    assert html.index("<h1>") < note < word < verdict < html.index("<details")
    assert html.index("<details") < min(html.index("<table"), html.index("<svg"))
    assert "<details open" not in html


def test_changed_queries_are_ids_without_texts_unless_given() -> None:
    report = replace(full_report(), groups=[group()])
    texts = {f"q{i}": f"the secret question {i}" for i in range(40)}
    bare, page = rendered(report), rendered(replace(report, query_texts=texts))
    assert "secret" not in bare
    assert "appear by id only" in bare
    assert "the secret question" in page
    assert "appear by id only" not in page
    rows = [list(row) for row in queries_table(group(), HEADLINE_METRIC, None).rows]
    assert rows
    assert all(row in Page(bare).rows for row in rows)


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


def texts(table: Table) -> list[list[str]]:
    return [list(row) for row in table.rows]


def pair(ours: Sequence[float], baseline: Sequence[float]) -> QueryGroup:
    """Return two arms that differ in recall@10 only."""
    both = (
        scores("ours", [[value, 0.5] for value in ours]),
        scores("theirs", [[value, 0.5] for value in baseline]),
    )
    return QueryGroup("labelled", scores=both, relevant_ids={"q0": ["m1", "m2"]})


def test_every_row_is_as_long_as_the_heads() -> None:
    for known in (None, {}):
        for table in group_tables(group(), known):
            assert table.rows
            assert {len(row) for row in table.rows} == {len(table.columns)}


def test_a_difference_is_shown_with_everything_that_is_known_of_it() -> None:
    found = replace(difference(-0.041, -0.07, -0.012, p=0.0031), p_value=0.0008, n=12_040)
    cells = difference_cells(found)
    assert dict(zip(DIFFERENCE_COLUMNS, cells, strict=True)) == {
        "difference": "\u22120.041",
        "interval": "\u22120.070 to \u22120.012",
        "p": "0.0008",
        "Holm p": "0.0031",
        "detectable": "0.062",
        "n": "12\u202f040",
        "better": "7",
        "worse": "5",
        "same": "28",
        "verdict": "▼ worse",
    }
    unknown = [
        replace(difference(0.1, 0.05, 0.2, p=0.01), minimum_detectable=None),
        difference(0.1, 0.05, 0.2),
        difference(0.1),
    ]
    shown = [dict(zip(DIFFERENCE_COLUMNS, difference_cells(u), strict=True)) for u in unknown]
    verdicts = ["▲ better", "○ not significant", "○ not significant"]
    assert [row["verdict"] for row in shown] == verdicts
    assert shown[0]["detectable"] == as_interval(None) == "none"


def test_arms_are_sorted_by_their_mean_and_the_served_one_has_no_difference() -> None:
    reports, comparisons = arms(4)
    rows = texts(arms_table(QueryGroup("x", reports, comparisons), "recall@10"))
    means = [float(row[1]) for row in rows]
    assert means == sorted(means, reverse=True)
    (served,) = [row for row in rows if row[0] == "served"]
    assert served[3:] == [""] * len(DIFFERENCE_COLUMNS)
    assert not arms_table(QueryGroup("x"), "recall@10").rows


def test_the_largest_changes_come_first() -> None:
    both = pair([0.0, 1.0, 0.5, 0.2, 1.0], [1.0, 0.0, 0.5, 0.5, 0.75])
    rows = texts(queries_table(both, "recall@10", None))
    assert [row[0] for row in rows] == ["q0", "q1", "q3", "q4"]
    assert rows[0] == ["q0", "all", "0.000", "1.000", "\u22121.000", "m1, m2"]
    assert "text" not in queries_table(both, "recall@10", None).columns
    shown = queries_table(both, "recall@10", {"q0": "where?"})
    assert (shown.columns[-1], texts(shown)[0][-1]) == ("text", "where?")
    for n, end in ((MAX_IDS, f"m{MAX_IDS - 1}"), (MAX_IDS + 3, f"m{MAX_IDS - 1} and 3 more")):
        many = replace(both, relevant_ids={"q0": [f"m{i}" for i in range(n)]})
        assert texts(queries_table(many, "recall@10", None))[0][-1].endswith(end)


def test_equal_changes_are_in_the_order_of_their_ids_and_cut_with_a_word() -> None:
    n = MAX_QUERIES + 5
    table = queries_table(pair([0.0] * n, [1.0] * n), "recall@10", None)
    assert [row[0] for row in texts(table)] == sorted(f"q{i}" for i in range(n))[:MAX_QUERIES]
    assert table.caption.endswith(f": {MAX_QUERIES} of {n} queries")


def test_abstention_is_a_sentence_with_its_numbers() -> None:
    found = replace(abstention(), n_answerable=31, n_unanswerable=17)
    said = abstention_sentence(found)
    assert said.startswith("AUROC 0.812 (0.700 to 0.900) over 31 answerable and 17 unanswerable")
    assert said in Page(rendered(replace(EMPTY, abstention=found))).text


def test_the_gates_losses_keep_their_own_correction() -> None:
    drop = Drop("labelled: temporal", "recall@10", -0.04, -0.07, -0.012, 74, 0.0031)
    assert texts(drops_table([drop])) == [
        [
            "labelled: temporal",
            "recall@10",
            "\u22120.040",
            "\u22120.070 to \u22120.012",
            "0.0031",
            "74",
        ]
    ]


def test_a_decisions_rows_are_shown_as_text() -> None:
    table = decision_table(decision(None, "because", rrf=-0.5, graph_0=0.5))
    assert texts(table) == [
        ["rrf", "\u22120.5000", "\u22120.0123", "none", "0.5000", "\u22120.5000", "none", ""],
        ["graph_0", "0.5000", "\u22120.0123", "none", "0.5000", "0.5000", "0.2500", ""],
    ]
    assert not decision_table({"reason": "off", "decision": None}).rows


def plain(text: str) -> float:
    return float(text.replace("\u2212", "-"))


@given(st.floats(-1, 1))
def test_numbers_are_rounded_to_three_decimals_and_nothing_else(value: float) -> None:
    for text in (as_mean(value), as_signed(value)):
        assert plain(text) == pytest.approx(value, abs=0.0005 + 1e-12)
        assert "-" not in text, "a hyphen is no minus"
    if abs(value) >= 0.0006:
        assert as_signed(value)[0] == ("+" if value > 0 else "\u2212")
    assert as_signed(-0.0004) == as_signed(0.0004) == as_signed(0.0) == "0.000"


@given(st.floats(0, 1))
def test_p_values_never_look_like_zero(value: float) -> None:
    text = as_p(value)
    if text == "<0.0001":
        assert value < 0.0001
    else:
        assert float(text) > 0
        assert float(text) == pytest.approx(value, abs=0.00005 + 1e-12)


def test_intervals_name_both_ends() -> None:
    assert as_interval(Interval(0.5, 0.4, 0.6, 9)) == "0.400 to 0.600"
    assert as_interval(Interval(0.0, -0.1, 0.1, 9), signed=True) == "\u22120.100 to +0.100"


BETTER = difference(0.1, 0.05, 0.15, p=0.001)
WORSE = difference(-0.1, -0.15, -0.05, p=0.001)
NEITHER = difference(0.1, -0.05, 0.25)
SVG = "{http://www.w3.org/2000/svg}"


class Plot:
    """A parsed plot: its texts, and the marks of its rows and of its legend."""

    def __init__(self, svg: str) -> None:
        self.root = ET.fromstring(svg)
        self.texts = {text.text or "": text for text in self.root.iter(f"{SVG}text")}
        marks = [mark for mark in self.root if mark.get("fill", "none") != "none"]
        self.kinds = [mark.get("class") for mark in marks if mark.get("class")]
        assert self.kinds[0] == "paper"
        assert self.kinds[-3:] == ["better", "worse", "same"], "the legend"
        self.kinds = self.kinds[1:-3]

    def place(self, text: str, axis: str) -> float:
        return float(self.texts[text].attrib[axis])


def plotted(rows: dict[str, Difference], title: str = "t") -> Plot:
    return Plot(plot_differences(rows, "recall@10", title))


def test_hundreds_of_rows_with_long_names_are_cut_to_the_largest() -> None:
    _, comparisons = arms(300, n=6)
    name = "convex_combination dense_share/0.35 graph_weight " * 4
    rows = {f"{i} {name} {i}": c.overall["recall@10"] for i, c in enumerate(comparisons)}
    svg = plot_differences(rows, "recall@10", "many " * 30)
    assert len(svg) < 100_000
    assert len(Plot(svg).kinds) == MAX_ROWS
    assert f"({MAX_ROWS} of {len(rows)} rows)" in svg
    rows = {f"small {i}": NEITHER for i in range(MAX_ROWS)}
    largest = {"largest": difference(-0.4, -0.5, -0.3, p=0.001)}
    assert "largest" in plotted({**rows, **largest}).texts


def test_equal_input_gives_equal_plots_whatever_its_order() -> None:
    rows = {"a": BETTER, "b": WORSE, "c": NEITHER}
    first = plot_differences(rows, "recall@10", "title")
    assert first == plot_differences(dict(reversed(rows.items())), "recall@10", "title")


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (BETTER, "better"),
        (WORSE, "worse"),
        (NEITHER, "same"),
        (difference(0.1, 0.05, 0.15, p=0.06), "same"),
        (difference(0.1, n=13), "same"),
    ],
)
def test_significance_shows_in_colour_and_shape(found: Difference, kind: str) -> None:
    assert plotted({"a": found}).kinds == [kind]


def test_the_best_row_is_at_the_top() -> None:
    plot = plotted({"worse": WORSE, "better": BETTER})
    assert plot.kinds == ["better", "worse"]
    assert plot.place("better", "y") < plot.place("worse", "y")


@pytest.mark.parametrize(
    ("found", "ticks"),
    [
        (difference(0.0, n=13), ["0", "+0.0002"]),
        (difference(0.05, -0.013, 0.11), ["\u22120.05", "0", "+0.05", "+0.10", "+0.15"]),
        (difference(-1.0, n=13), ["\u22121.0", "\u22120.8", "\u22120.2", "0", "+0.2"]),
        (difference(0.51, 0.5, 0.54), ["0", "+0.1", "+0.5", "+0.6"]),
    ],
    ids=["zero", "small", "large", "whole-steps"],
)
def test_the_axis_has_round_values_around_everything_that_is_drawn(
    found: Difference, ticks: list[str]
) -> None:
    plot = plotted({"a": found})
    assert set(ticks) <= plot.texts.keys()
    assert [plot.place(tick, "x") for tick in ticks] == sorted(plot.place(t, "x") for t in ticks)
    (_, _, width, _) = map(float, plot.root.attrib["viewBox"].split())
    drawn = " ".join(path.attrib["d"] for path in plot.root.iter(f"{SVG}path"))
    places = [float(x) for x in re.findall(r"[MH](-?[\d.]+)", drawn)]
    assert 0 <= min(places) <= max(places) <= width


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("$x_1$ \\frac{ <b>&amp;", "$x_1$ \\frac{ <b>&amp;"),
        ("\u4e2d\u6587", "\u4e2d\u6587"),
        ("\x00\n\ud800", "\\u0000 \\ud800"),
        ("", ""),
    ],
    ids=["markup", "chinese", "hidden", "empty"],
)
def test_odd_names_are_drawn_as_text(name: str, shown: str) -> None:
    plot = plotted({name: NEITHER}, f"of {name}")
    assert {shown, f"of {shown}".strip()} <= plot.texts.keys()


def test_the_title_for_screen_readers_counts_what_is_significant() -> None:
    found = {"a": BETTER, "b": WORSE, "c": difference(-0.2, -0.25, -0.15, p=0.001), "d": NEITHER}
    shown = QueryGroup("x", comparisons=[comparison(name, row) for name, row in found.items()])
    svg = plot_group(shown)
    assert svg is not None
    first = ET.fromstring(svg)[0]
    assert first.tag == f"{SVG}title"
    assert "4 arms, 1 significantly better, 2 significantly worse" in (first.text or "")
    assert plot_group(QueryGroup("x")) is None


BLANK = NightReport("store", "tonight")
LOSS = difference(-0.041, -0.07, -0.012, p=0.0031)


def against(found: Difference) -> NightReport:
    group = QueryGroup("labelled", against_serving=comparison("candidate", found, "serving"))
    return replace(BLANK, groups=(group,))


def test_only_a_gate_passes_or_refuses_a_candidate() -> None:
    for found in (LOSS, difference(0.1, 0.05, 0.15, p=0.001), difference(-1.0, n=13)):
        kind, sentence, details = word_verdict(against(found))
        assert (kind, sentence[:10]) == ("open", "Not judged")
        assert details == [f"labelled, recall@10: {difference_sentence(found)}"]
    assert not word_verdict(BLANK)[2]
    for passed, start in ((True, "Passed. "), (False, "Refused. ")):
        kind, sentence, _ = word_verdict(replace(BLANK, gate=GateOutcome(passed, "By the gate.")))
        assert (kind, sentence) == ("good" if passed else "bad", f"{start}By the gate.")


def test_a_loss_is_told_with_its_numbers() -> None:
    assert difference_sentence(LOSS) == (
        "significantly worse than the current snapshot, by 0.041 "
        "(95% interval \u22120.070 to \u22120.012, n = 40, Holm p 0.0031)."
    )


def test_no_difference_is_told_with_what_could_not_be_seen() -> None:
    found = difference(0.003, -0.01, 0.016)
    sentence = difference_sentence(found)
    assert sentence.startswith(
        "no significant difference from the current snapshot (+0.003, 95% interval"
    )
    assert sentence.endswith("; a true difference below 0.062 is easily missed.")
    few = "too few queries to say anything (+0.500, n = 13)."
    assert difference_sentence(difference(0.5, n=13)) == few


def test_the_decisions_reason_is_among_the_details() -> None:
    kept = word_verdict(replace(BLANK, decision=decision(None, "the settings stay")))
    assert kept[2] == ["Ranking: the settings stay"]
    taken = word_verdict(replace(BLANK, decision=decision("rrf", "it is better")))
    assert taken[2] == ["Ranking: rrf is adopted: it is better"]
