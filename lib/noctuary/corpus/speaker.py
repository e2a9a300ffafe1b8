"""Who says a turn, under the name that the export and what builds on it use.

What belongs here: nothing of its own; the rule (`noctuary.text.speaker`) is shared with the read
side.
"""

from __future__ import annotations

from noctuary.text.speaker import MAX_SPEAKER_CHARS, find_speaker

__all__ = ["MAX_SPEAKER_CHARS", "find_speaker"]
