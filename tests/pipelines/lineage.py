"""The asset graph as a text that a reviewer can read.

After a deliberate change: `python tests/pipelines/lineage.py > tests/pipelines/lineage.txt`.
"""

from __future__ import annotations

import sys
from typing import Any

import dagster as dg

from noctuary_pipelines.definitions import build_definitions


def describe_lineage(definitions: dg.Definitions) -> str:
    """Return every group with its assets: kinds, parents (<-) and checks (?)."""
    graph = definitions.resolve_asset_graph()
    lines: list[str] = []
    for group in sorted({node.group_name for node in graph.asset_nodes if node.group_name}):
        lines.append(f"[{group}]")
        nodes = [node for node in graph.asset_nodes if node.group_name == group]
        for node in sorted(nodes, key=lambda n: n.key.to_user_string()):
            lines += _describe(node)
        lines.append("")
    return "\n".join(lines)


def _describe(node: Any) -> list[str]:
    parents = sorted(key.to_user_string() for key in node.parent_keys)
    lines = [f"  {node.key.to_user_string()} ({', '.join(sorted(node.kinds))})"]
    lines += [f"    <- {parent}" for parent in parents]
    lines += [f"    ? {name}" for name in sorted(key.name for key in node.check_keys)]
    return lines


if __name__ == "__main__":
    sys.stdout.write(describe_lineage(build_definitions()))
