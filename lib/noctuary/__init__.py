"""noctuary: a nightly memory pipeline for agents, and `recall`, which answers from its snapshot.

    from noctuary import recall
    for memory in recall("where is the spare key?").memories:
        print(memory.final_score, memory.content)

Names are imported on first use, so that `import noctuary` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # a checker takes it for true; `typing` costs a hook as much as its exchange
if TYPE_CHECKING:
    from typing import Any

    from noctuary.context.assemble import assemble
    from noctuary.context.inject import inject
    from noctuary.context.prompt import Context
    from noctuary.core.types import register_hook
    from noctuary.recall.api import expand, recall
    from noctuary.recall.explain import Expansion
    from noctuary.recall.profile import RetrievalProfile
    from noctuary.recall.result import RecalledMemory, RecallResult, RecallWarning
    from noctuary.sources.own_store import Remembered, remember

__version__ = "0.1.0"
__all__ = [
    "Context",
    "Expansion",
    "RecallResult",
    "RecallWarning",
    "RecalledMemory",
    "Remembered",
    "RetrievalProfile",
    "__version__",
    "assemble",
    "expand",
    "inject",
    "recall",
    "register_hook",
    "remember",
]

_HOMES = {
    "assemble": "noctuary.context.assemble",
    "Context": "noctuary.context.prompt",
    "Expansion": "noctuary.recall.explain",
    "expand": "noctuary.recall.api",
    "inject": "noctuary.context.inject",
    "recall": "noctuary.recall.api",
    "register_hook": "noctuary.core.types",
    "Remembered": "noctuary.sources.own_store",
    "remember": "noctuary.sources.own_store",
    "RetrievalProfile": "noctuary.recall.profile",
    "RecallResult": "noctuary.recall.result",
    "RecalledMemory": "noctuary.recall.result",
    "RecallWarning": "noctuary.recall.result",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'noctuary' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
