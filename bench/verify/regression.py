"""A set's regression file: what its index must hold and what some arms must score.

No measuring, no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from bench.datasets import CHECKOUT
from noctuary.core.errors import SourceFormatError, SourceMissingError
from noctuary.core.files import write_text

REGRESSIONS = CHECKOUT / "bench" / "regressions"

DEFAULT_TOLERANCE = 0.0005
"""How far a score may move and still be called OKish: encoders are not bit-stable between machines.
Wider would hide that one query of a small set changed."""

SCORE_DIGITS = 6

Value = int | float | str | None
SECTIONS = ("corpus", "index", "scores")
_KEYS = frozenset({"dataset", "command", "tolerance", *SECTIONS})


@dataclass(frozen=True, slots=True)
class Regression:
    """What is expected of a set.

    Attributes:
        dataset: Its name.
        values: By dotted name, for example "index.memories" or "scores.noctuary.recall@10".
        tolerance: For scores; everything else has to be equal.
    """

    dataset: str
    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    tolerance: float = DEFAULT_TOLERANCE

    @property
    def command(self) -> str:
        """What reproduces the numbers."""
        return f"make bench-verify SETS={self.dataset}"


def regression_path(directory: Path, dataset: str) -> Path:
    """Return the file of a set."""
    return directory / f"{dataset}.yaml"


def read_regression(path: Path) -> Regression:
    """Read a regression file.

    Raises:
        SourceMissingError: If there is none.
        SourceFormatError: If it is not of this shape.
    """
    import yaml

    try:
        loaded: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SourceMissingError(
            f"no regression file at {path}: write it with "
            f'`python -m bench.verify --sets {path.stem} --accept "first measurement"`'
        ) from None
    except yaml.YAMLError as error:
        raise SourceFormatError(f"{path} is not YAML: {error}") from error
    document = cast("dict[str, Any]", loaded) if isinstance(loaded, dict) else {}
    if document.keys() != _KEYS:
        raise SourceFormatError(
            f"{path} must hold exactly {sorted(_KEYS)}, found {sorted(document)}"
        )
    values = flatten({section: document[section] for section in SECTIONS})
    tolerance = float(document["tolerance"]["scores"])
    return Regression(str(document["dataset"]), values, tolerance)


def write_regression(path: Path, regression: Regression) -> None:
    """Replace a regression file."""
    import yaml

    document = {
        "dataset": regression.dataset,
        "command": regression.command,
        "tolerance": {"scores": regression.tolerance},
        **{section: {} for section in SECTIONS},
        **nest(regression.values),
    }
    write_text(path, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Return the leaves of nested mappings by dotted name."""
    found: dict[str, Value] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found.update(flatten(cast("dict[str, Any]", value), f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def nest(values: Mapping[str, Value]) -> dict[str, Any]:
    """Return nested mappings for dotted names; the opposite of `flatten`."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *path, leaf = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[leaf] = value
    return tree
