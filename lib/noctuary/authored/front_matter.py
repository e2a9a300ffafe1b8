"""Front matter: the YAML block at the head of a document, and the three keys of it that count here.

What belongs here: recognising the block, reading `hop_targets`, `authority` and `authored`. What
does not: the body (`blocks`). PyYAML is loaded when there is front matter.

Only the shape of the YAML is read, its values stay text: a date that does not exist, or an id with
leading zeros, is as good as any other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noctuary.errors import AuthoredFormatError

if TYPE_CHECKING:
    from yaml.nodes import Node as YamlNode

MAX_FRONT_MATTER_CHARS: Final = 32_768
"""Longest front matter that is read: the parser takes a second for half a million characters."""

# Spaces at the end of a line cannot be seen, and must not decide.
_FRONT_MATTER: Final = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S | re.M)
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_NULL: Final = frozenset({"", "~", "null"})
_REMEDY: Final = 'Mend it, or put an empty line before the first "---" if it is no front matter.'


class FrontMatter(NamedTuple):
    """What the front matter of a document says.

    Attributes:
        hop_targets: Ids of nodes, in order, each once.
        authority: `authority` in [0, 1]; else 1 for `authored: true`; else 0.
    """

    hop_targets: tuple[str, ...] = ()
    authority: float = 0.0


NO_FRONT_MATTER: Final = FrontMatter()


def split_front_matter(text: str) -> tuple[str | None, str]:
    r"""Return the front matter without its fences, or None, and the body.

    It is there if the text begins with the line "---" and a later line is "---" or "...".

    Args:
        text: A document without byte order mark, its lines ended by "\n".

    Source: research/peers.md 1.3.
    """
    found = _FRONT_MATTER.match(text)
    return (None, text) if found is None else (found[1], text[found.end() :])


def read_front_matter(text: str, source: str) -> FrontMatter:
    """Return what front matter says; other keys may hold anything.

    Args:
        text: YAML, without the fences.
        source: The document's name, for the messages.

    Raises:
        AuthoredFormatError: It is too long, no YAML, no mapping, or has a wrong value.
    """
    if len(text) > MAX_FRONT_MATTER_CHARS:
        reason = f"{len(text):,} characters, more than {MAX_FRONT_MATTER_CHARS:,}"
        raise _error(source, reason)
    values = _compose_mapping(text, source)
    targets = values.get("hop_targets")
    return FrontMatter(
        hop_targets=() if targets is None else _read_targets(targets, source),
        authority=_read_authority(values, source),
    )


def _compose_mapping(text: str, source: str) -> dict[str, YamlNode]:
    """Return the values of a YAML mapping by key; of equal keys the last one, as is usual."""
    import yaml

    try:
        root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise _error(source, f"no YAML: {_reason(error)}") from error
    except (RecursionError, ValueError, OverflowError) as error:
        # The library lets these through for deep nesting and for escapes that are no character.
        raise _error(source, f"no YAML: {type(error).__name__}") from error
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise _error(source, "no mapping of keys to values")
    return {key.value: value for key, value in root.value if isinstance(key, yaml.ScalarNode)}


def _reason(error: Exception) -> str:
    """Say what a YAML error says, on one line, with the line of the document."""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
    mark = getattr(error, "problem_mark", None)
    # Lines are counted from 0 behind the opening fence.
    return f"{problem} (line {mark.line + 2})" if mark is not None else str(problem)


def _read_targets(value: YamlNode, source: str) -> tuple[str, ...]:
    """Return the ids of a list or of one scalar, without empty ones, each once."""
    import yaml

    entries: list[Any] = value.value if isinstance(value, yaml.SequenceNode) else [value]
    if not all(isinstance(entry, yaml.ScalarNode) for entry in entries):
        raise _error(source, '"hop_targets" must be an id or a list of ids')
    # An escape may give half a character, which could not be printed.
    texts = [
        entry.value.encode("utf-8", "replace").decode() for entry in entries if not _is_null(entry)
    ]
    targets = [" ".join(text.split()) for text in texts]
    return tuple(dict.fromkeys(target for target in targets if target))


def _read_authority(values: dict[str, YamlNode], source: str) -> float:
    given, authored = values.get("authority"), values.get("authored")
    if given is not None and not _is_null(given):
        try:
            authority = float(str(given.value))
        except ValueError:
            authority = -1.0
        if not 0.0 <= authority <= 1.0:
            raise _error(source, f'"authority" must be a number from 0 to 1, not {_shown(given)}')
        return authority
    if authored is None or _is_null(authored):
        return 0.0
    word = str(authored.value).lower()
    if word not in _TRUE | _FALSE:
        raise _error(source, f'"authored" must be true or false, not {_shown(authored)}')
    return 1.0 if word in _TRUE else 0.0


def _is_null(value: YamlNode) -> bool:
    """Tell whether a scalar was left empty; quoted, "null" is a text."""
    is_plain = getattr(value, "style", None) is None
    return is_plain and isinstance(value.value, str) and value.value.lower() in _NULL


def _shown(value: YamlNode) -> str:
    return repr(value.value) if isinstance(value.value, str) else "a list or mapping"


def _error(source: str, reason: str) -> AuthoredFormatError:
    return AuthoredFormatError(f"the front matter of {source} is wrong: {reason}. {_REMEDY}")
