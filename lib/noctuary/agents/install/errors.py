"""What keeps hooks from being installed. What belongs here: the error; its sentences do not."""

from __future__ import annotations

from noctuary.errors import NoctuaryError


class HookInstallError(NoctuaryError):
    """An agent's settings cannot be read, merged or written; nothing was changed."""
