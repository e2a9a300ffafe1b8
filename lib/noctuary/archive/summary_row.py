"""A summary of a plan as a row of archive.sqlite: its text apart, everything else as JSON.

What belongs here: the conversion, both ways. What does not: reading and writing the file. The text
stands alone in its column, because it alone has to be forgotten when a source turns sensitive.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from noctuary.compact.facts.report import FactReport
from noctuary.compact.gate import GateReport
from noctuary.compact.summary import Summary


def body_of(summary: Summary) -> str:
    """Return everything of a summary but its text, as JSON.

    What its fact check named is left out: of an accepted summary that is nothing.
    """
    body = asdict(summary)
    del body["text"]
    if summary.facts is not None:
        body["facts"] = {"kept": summary.facts.kept, "total": summary.facts.total}
    return json.dumps(body, sort_keys=True, ensure_ascii=False)


def summary_of(text: str, body: str) -> Summary:
    """Return the summary that a text and a body describe.

    Raises:
        ValueError: The body was not written by `body_of`.
    """
    try:
        values: dict[str, Any] = json.loads(body)
        report, facts = values.pop("report"), values.pop("facts")
        for name in ("source_ids", "source_positions", "parent_ids"):
            values[name] = tuple(values[name])
        if report is not None:
            report["reasons"] = tuple(report["reasons"])
            report = GateReport(**report)
        if facts is not None:
            facts = FactReport(facts["kept"], facts["total"])
        return Summary(text=text, report=report, facts=facts, **values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a summary of archive.sqlite has another form ({error})") from error
