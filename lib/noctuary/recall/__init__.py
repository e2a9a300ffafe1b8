"""The read side: open a published snapshot and answer from it. Never imports a builder.

`recall` is both this package and the function that users import (`from noctuary import recall`).
Python binds a subpackage over an attribute of the same name on its first import, so the package
itself is made callable: whichever of the two a caller got hold of, calling it recalls
(docs/decisions/0002).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from noctuary.recall.api import recall

        return recall(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
