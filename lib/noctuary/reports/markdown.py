"""Images as text: data URIs, for HTML and for Markdown.

What belongs here: the encoding. What does not: drawing.
"""

from __future__ import annotations

import base64
import re

_BREAKS_MARKDOWN = re.compile(r"[\[\]()<>!`\\\s]+")


def as_data_uri(png: bytes) -> str:
    """Return a PNG as a data URI (RFC 2397), a third longer than its bytes."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def as_markdown_image(png: bytes, alt: str) -> str:
    """Return a Markdown image that holds its own bytes, so that it needs no file and no network.

    Args:
        png: The image; keep it under 100 KB, because Dagster stores it in its event log.
        alt: What it shows; characters that would end the Markdown become blanks.
    """
    return f"![{_BREAKS_MARKDOWN.sub(' ', alt).strip()}]({as_data_uri(png)})"
