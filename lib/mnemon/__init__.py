"""mnemon: a nightly memory pipeline for agents, and `recall`, which answers from its snapshot.

    from mnemon import recall
    for memory in recall("where is the spare key?").memories:
        print(memory.final_score, memory.content)

Names are imported on first use, so that `import mnemon` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mnemon.context.api import assemble
    from mnemon.context.values import Context
    from mnemon.hooks import register_hook
    from mnemon.injection.injecting import inject
    from mnemon.recall.api import recall
    from mnemon.recall.expanding import Expansion, expand
    from mnemon.recall.profile import RetrievalProfile
    from mnemon.recall.result import RecalledMemory, RecallResult, RecallWarning
    from mnemon.sensitive.answer import SensitiveAnswer, SensitiveMemory
    from mnemon.sensitive.api import recall_sensitive

__version__ = "0.1.0"
__all__ = [
    "Context",
    "Expansion",
    "RecallResult",
    "RecallWarning",
    "RecalledMemory",
    "RetrievalProfile",
    "SensitiveAnswer",
    "SensitiveMemory",
    "__version__",
    "assemble",
    "expand",
    "inject",
    "recall",
    "recall_sensitive",
    "register_hook",
]

_HOMES = {
    "assemble": "mnemon.context.api",
    "Context": "mnemon.context.values",
    "Expansion": "mnemon.recall.expanding",
    "expand": "mnemon.recall.expanding",
    "inject": "mnemon.injection.injecting",
    "recall": "mnemon.recall.api",
    "register_hook": "mnemon.hooks",
    "RetrievalProfile": "mnemon.recall.profile",
    "RecallResult": "mnemon.recall.result",
    "RecalledMemory": "mnemon.recall.result",
    "RecallWarning": "mnemon.recall.result",
    "recall_sensitive": "mnemon.sensitive.api",
    "SensitiveAnswer": "mnemon.sensitive.answer",
    "SensitiveMemory": "mnemon.sensitive.answer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mnemon' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
