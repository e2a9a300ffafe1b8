"""What can go wrong between this machine and a provider of vectors.

What belongs here: the errors. None of them holds a text, a key, or what a provider wrote: its words
may quote both.
"""

from __future__ import annotations

from noctuary.errors import EncoderError


class ProviderDownError(EncoderError):
    """A provider gives no answer now; a later try may get one. What came before is kept."""


class ProviderRefusedError(EncoderError):
    """A provider answered that it will not do this; trying the same again is pointless.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[ProviderRefusedError], tuple[str, int]]:
        # Rebuilt from what __init__ takes: errors cross processes.
        return type(self), (str(self), self.status)


class BadVectorsError(EncoderError):
    """An answer came that is not one usable vector per text."""


class BudgetError(EncoderError):
    """Embedding would cost more than a night may spend."""


class PassingFaultError(Exception):
    """One try failed and another may not; never leaves this package.

    Attributes:
        wait_s: How long the provider asks to wait; None where it does not say.
    """

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
