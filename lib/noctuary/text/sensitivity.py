"""May a text be kept: what was already redacted, and what the secret scan finds.

What belongs here: the verdict on a text. What does not: marks and fields of a row
(`noctuary.corpus.sensitive`), what becomes of it.
"""

from __future__ import annotations

import re
from pathlib import Path

from noctuary.text.secret_rules import find_secret

PLACEHOLDER = "placeholder"
_SECRET_PREFIX = "secret:"
_PLACEHOLDERS = re.compile(r"\[(?:REDACTED|SENSITIVE)", re.IGNORECASE)


def find_text_sensitivity(text: str) -> str | None:
    """Return why a text must not be kept (a placeholder, a kind of secret), or None."""
    if _PLACEHOLDERS.search(text):
        return PLACEHOLDER
    secret = find_secret(text)
    return None if secret is None else _SECRET_PREFIX + secret


def read_rules() -> list[str]:
    """Return the lines of this package: what another version of it judged is judged again."""
    return [path.read_text("utf-8") for path in sorted(Path(__file__).parent.glob("*.py"))]
