"""`dataclass` for frozen classes, built in a fifth of the time. Standard library only.

What belongs here: the decorator. The read path defines some sixty frozen dataclasses, and the
standard library compiles six methods for each of them at every start of Python: 45 ms of CPU where
`import numpy` takes 68. This one compiles `__init__` and shares the other methods, which find the
fields through `__dataclass_fields__`. A class behaves as one of `dataclasses.dataclass` does
(`fields`, `replace`, `asdict`, pickling, matching); type checkers see that decorator itself.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]


def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _compared(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, f.name) for f in dataclasses.fields(self) if f.compare)


def _eq(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return _compared(self) == _compared(other)


def _hash(self: Any) -> int:
    hashed = (f for f in dataclasses.fields(self) if (f.compare if f.hash is None else f.hash))
    return hash(tuple(getattr(self, f.name) for f in hashed))


def _setattr(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for found, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, found.name, value)


def _compile_init(cls: type) -> Any:
    """Return `__init__`, the one method whose signature callers and tools look at."""
    names: dict[str, Any] = {"_put": object.__setattr__, "_made": object()}
    arguments, body = [], []
    for found in dataclasses.fields(cls):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        name = found.name
        value = name
        if found.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = found.default
            arguments.append(f"{name}=_default_{name}")
        elif found.default_factory is not dataclasses.MISSING:
            names[f"_factory_{name}"] = found.default_factory
            arguments.append(f"{name}=_made")
            value = f"_factory_{name}() if {name} is _made else {name}"
        else:
            arguments.append(name)
        body.append(f" _put(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    exec(f"def __init__(self, {', '.join(arguments)}):\n" + "\n".join(body or [" pass"]), names)
    init = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {f.name: f.type for f in dataclasses.fields(cls)}  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return init


def _with_slots(cls: type) -> type:
    """Return the class again with `__slots__`: they cannot be added to one that exists."""
    content = dict(cls.__dict__)
    inherited = {name for base in cls.__mro__[1:-1] for name in getattr(base, "__slots__", ())}
    own = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for name in (*own, "__dict__", "__weakref__"):
        content.pop(name, None)
    content["__slots__"] = tuple(name for name in own if name not in inherited)
    made = type(cls)(cls.__name__, cls.__bases__, content)
    made.__qualname__ = cls.__qualname__
    return made


def _build(cls: type, *, slots: bool, eq: bool) -> type:
    # Collects the fields and compiles nothing.
    made = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    shared = {"__setattr__": _setattr, "__delattr__": _delattr, "__init__": _compile_init(made)}
    if slots:
        shared |= {"__getstate__": _getstate, "__setstate__": _setstate}
    if eq:
        shared |= {"__eq__": _eq, "__hash__": _hash}
    for name, method in {**shared, "__repr__": _repr}.items():
        # An own method stays, as with the standard library; the frozen ones never do there.
        if name in ("__repr__", "__eq__", "__hash__", "__getstate__", "__setstate__") and (
            made.__dict__.get(name) is not None
        ):
            continue
        setattr(made, name, method)
    return _with_slots(made) if slots else made


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True
    ) -> Any:
        """Return the class as a dataclass; only frozen ones are built here."""
        if not frozen:
            return dataclasses.dataclass(cls, slots=slots, eq=eq)
        if cls is None:
            return lambda found: _build(found, slots=slots, eq=eq)
        return _build(cls, slots=slots, eq=eq)
