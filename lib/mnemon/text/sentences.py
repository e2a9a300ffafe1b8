"""Where a sentence ends, for what cuts texts into sentences and what recognises them again.

What belongs here: the one pattern. What does not: what is done with a sentence. Standard library
only.
"""

from __future__ import annotations

import re

SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")
"""What stands between two sentences; an abbreviation's full stop cuts as well."""
