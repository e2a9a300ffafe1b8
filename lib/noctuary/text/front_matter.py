"""The YAML block at the head of a Markdown text.

Only the shape of the YAML is read, its values stay text: a date that does not exist, or an id with
leading zeros, is as good as any other.
"""

from __future__ import annotations

import re
from typing import Any, Final

MAX_FRONT_MATTER_CHARS: Final = 32_768  # the parser takes a second for half a million

# Spaces at the end of a line cannot be seen, and must not decide.
_FRONT_MATTER: Final = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S | re.M)
_NULL: Final = frozenset({"", "~", "null"})


def split_front_matter(text: str) -> tuple[str | None, str]:
    """Return the front matter without its fences, or None, and the body.

    It is there if the text begins with the line "---" and a later line is "---" or "...".
    """
    found = _FRONT_MATTER.match(text)
    return (None, text) if found is None else (found[1], text[found.end() :])


def read_yaml(
    text: str, most_chars: int = MAX_FRONT_MATTER_CHARS, *, nested: bool = False
) -> dict[str, Any]:
    """Return the values of a YAML mapping by key, of equal keys the last; ValueError for no YAML.

    A value is a text, None where it was left empty, a list of both, or `...` for anything else;
    where `nested`, a mapping of such texts and lists too.
    """
    if len(text) > most_chars:
        raise ValueError(f"{len(text):,} characters, more than {most_chars:,}")
    import yaml

    def plain(node: Any, *, inside: bool = False) -> Any:
        """Return a text, None where a scalar was left empty, or a list of such; `...` else."""
        if isinstance(node, yaml.SequenceNode) and not inside:
            return [plain(entry, inside=True) for entry in node.value]
        if nested and isinstance(node, yaml.MappingNode) and not inside:
            pairs = [(key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
            return {key.value: plain(value, inside=True) for key, value in pairs}
        if not isinstance(node, yaml.ScalarNode):
            return ...
        is_null = node.style is None and node.value.lower() in _NULL  # quoted, "null" is a text
        return None if is_null else str(node.value)

    try:
        root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        fault = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        if (mark := getattr(error, "problem_mark", None)) is not None:
            fault += f" (line {mark.line + 2})"  # from 0, behind the opening fence
        raise ValueError(f"no YAML: {fault}") from error
    except (RecursionError, ValueError, OverflowError) as error:
        # The library lets these through for deep nesting and for escapes that are no character.
        raise ValueError(f"no YAML: {type(error).__name__}") from error
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise ValueError("no mapping of keys to values")
    pairs = [] if root is None else root.value
    return {key.value: plain(value) for key, value in pairs if isinstance(key, yaml.ScalarNode)}
