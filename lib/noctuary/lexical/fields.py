"""Which fields of a memory are indexed.

What belongs here: the choice of fields and tags. What does not: how text becomes tokens
(noctuary.text.tokens).
Whoever changes the choice raises TOKENIZER_VERSION too: token memos carry no other version.
"""

from __future__ import annotations

from noctuary.text.tags import content_tags
from noctuary.text.tokens import tokenize


def document_tokens(content: str, tags: str, expanded_keywords: str, category: str) -> list[str]:
    """Return the tokens that one memory is indexed under: content, keywords, content tags.

    All fields weigh the same: a keyword that repeats the content raises its term frequency, which
    BM25 saturates. The category is accepted and left out: it is one of a dozen values that recall
    filters by, and on the development sets indexing it moved no figure.
    """
    del category
    return tokenize("\n".join((content, expanded_keywords, *content_tags(tags))))
