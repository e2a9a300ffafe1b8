from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, astuple, field, fields, replace
from typing import Any

import pytest

from noctuary.core import types as values


def make(decorate: Any) -> Any:
    """Return the same class as either decorator makes it."""

    @decorate(frozen=True, slots=True)
    class Point:
        """A point."""

        x: int
        y: float = 0.5
        names: list[str] = field(default_factory=list[str])
        note: str = field(default="", compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x must be >= 0")

        @property
        def double(self) -> int:
            return 2 * self.x

        @staticmethod
        def origin() -> Any:
            return made(0)

    made: Any = Point
    return made


OURS, THEIRS = make(values.dataclass), make(dataclasses.dataclass)


@values.dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: tuple[str, ...] = ()


@values.dataclass(frozen=True, slots=True)
class Triple(Pair):
    third: int = 3


@pytest.mark.parametrize("arguments", [(1,), (1, 2.0), (1, 2.0, ["a"], "note")])
def test_it_behaves_as_the_standard_library_s(arguments: tuple[Any, ...]) -> None:
    ours, theirs = OURS(*arguments), THEIRS(*arguments)
    assert repr(ours) == repr(theirs)
    assert (asdict(ours), astuple(ours)) == (asdict(theirs), astuple(theirs))
    assert [f.name for f in fields(ours)] == [f.name for f in fields(theirs)]
    assert replace(ours, x=9) == OURS(9, *arguments[1:])
    assert asdict(replace(ours, y=7.0)) == asdict(replace(theirs, y=7.0))
    assert ours != theirs
    assert ours.double == 2
    assert not hasattr(ours, "__dict__")
    assert OURS.__slots__ == THEIRS.__slots__
    assert OURS.__match_args__ == THEIRS.__match_args__
    assert list(inspect.signature(OURS).parameters) == list(inspect.signature(THEIRS).parameters)


def test_equality_and_hash_follow_the_compared_fields() -> None:
    assert OURS(1, note="a") == OURS(1, note="b")
    assert OURS(1) != OURS(2)
    assert Pair(1, ("a",)) == Pair(1, ("a",))
    assert len({Pair(1), Pair(1), Pair(2)}) == 2
    assert Pair(1) != Triple(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(OURS(1))


def test_every_instance_gets_its_own_default() -> None:
    first, second = OURS(1), OURS(1)
    first.names.append("a")
    assert second.names == []


def test_it_is_frozen_checked_and_complete() -> None:
    point = OURS.origin()
    with pytest.raises(FrozenInstanceError):
        point.x = 1
    with pytest.raises(FrozenInstanceError):
        del point.x
    with pytest.raises(ValueError, match="x must be"):
        OURS(-1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        OURS()
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        OURS(1, z=2)


def test_it_survives_pickling_copying_and_matching() -> None:
    triple = Triple(1, ("a",), 4)
    assert pickle.loads(pickle.dumps(triple)) == triple
    assert copy.deepcopy(triple) == triple == copy.copy(triple)
    match triple:
        case Pair(left, right):
            assert (left, right) == (1, ("a",))
        case _:
            pytest.fail("does not match its own class")
    assert Triple.__slots__ == ("third",)
    assert isinstance(triple, Pair)


def test_own_methods_stay() -> None:
    @values.dataclass(frozen=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

    @values.dataclass(frozen=True, eq=False)
    class Alone:
        name: str

    assert repr(Named("a")) == "<a>"
    assert Alone("a") != Alone("a")
    assert len({Alone("a"), Alone("a")}) == 2


def test_a_class_that_changes_is_left_to_the_standard_library() -> None:
    @values.dataclass(slots=True)
    class Counter:
        count: int = 0

    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
