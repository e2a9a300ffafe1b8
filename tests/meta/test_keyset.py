"""No statement of the product pages by OFFSET: it grows slower with every page, and skips rows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.meta.test_house_rules import PRODUCT, named, python_files
from tests.support.imports import tree_of

_PAGED = re.compile(r"\bOFFSET\b|\blimit\s+[^;]*\boffset\b|\boffset\s+(?:\?|:\w|\d|\{)", re.DOTALL)


def statements(tree: ast.AST) -> Iterator[str]:
    """Yield every text in the code that is not a docstring, f-strings with {} for their values."""
    docstrings = {
        id(node.value) for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }  # fmt: skip
    inside = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    skipped = docstrings | inside
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in skipped:
            yield str(node.value)


def pages_by_offset(text: str) -> bool:
    return _PAGED.search(text) is not None


def test_no_statement_pages_by_offset() -> None:
    wrong = [
        f"{named(path)}: {text!r}"
        for path in python_files(*PRODUCT)
        for text in statements(tree_of(path))
        if pages_by_offset(text)
    ]
    assert not wrong


def test_the_rule_sees_what_it_must() -> None:
    for source, breaks in (
        ("x = 'SELECT a FROM b LIMIT 5 OFFSET 10'", True),
        ("x = f'select a from b limit {n} offset {m}'", True),
        ("x = 'select a from b limit ? offset ?'", True),
        ("x = ('SELECT a FROM b LIMIT ? '\n 'OFFSET ?')", True),
        ("def f():\n    '''No OFFSET.'''", False),
        ("x = {'offset': 3}", False),
        ("x = 'SELECT a FROM b WHERE id > ? ORDER BY id LIMIT ?'", False),
    ):
        found = any(pages_by_offset(text) for text in statements(ast.parse(source)))
        assert found is breaks, source
