"""Which fields of a memory are indexed.

What belongs here: the choice of fields and tags. What does not: how text becomes tokens
(mnemon.text.tokens).
Whoever changes the choice raises TOKENIZER_VERSION too: token memos carry no other version.
"""

from __future__ import annotations

from mnemon.text.tokens import tokenize

SCOPE_TAG_PREFIXES = ("wing:", "room:", "session:", "user:")
"""Tags that say where a memory lives. They are filters; indexed, they would make every memory of a
wing match a query that names the wing, and a user's name would be findable by other users."""


def content_tags(tags: str) -> list[str]:
    """Return the comma-separated tags that describe the content: stripped, no scope tags."""
    stripped = (tag.strip() for tag in tags.split(","))
    return [tag for tag in stripped if tag and not tag.casefold().startswith(SCOPE_TAG_PREFIXES)]


def document_tokens(content: str, tags: str, expanded_keywords: str, category: str) -> list[str]:
    """Return the tokens that one memory is indexed under: content, keywords, content tags.

    All fields weigh the same: a keyword that repeats the content raises its term frequency, which
    BM25 saturates. The category is accepted and left out: it is one of a dozen values that recall
    filters by, and on the development sets indexing it moved no figure.
    """
    del category
    return tokenize("\n".join((content, expanded_keywords, *content_tags(tags))))
