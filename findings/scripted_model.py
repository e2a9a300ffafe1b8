"""Serve a list of rules as a model until it is ended: scripted_model.py URL_FILE RULES_JSON."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.agents.model_server import Call, Reply, Rule, ScriptedServer


def main() -> None:
    """Write the server's address into a file, and answer."""
    url_file, rules = sys.argv[1:]
    with ScriptedServer() as server:
        for when, text, calls, tokens in json.loads(rules):
            server.rules.append(Rule(when, Reply(text, tuple(Call(*c) for c in calls), tokens)))
        Path(url_file).write_text(server.url, encoding="utf-8")
        signal.pause()


if __name__ == "__main__":
    main()
