"""Where names stand in a text, whatever their case and spelling. No judgement about names."""

from __future__ import annotations

from collections import defaultdict

from noctuary.graph.fold import unsegmented_script, words

MAX_PLACES = 16
"""Places of one name in one memory that are kept: more evidence of the same costs space and adds
nothing."""

Span = tuple[int, int]


class Places:
    """The words of a text, to look names up in."""

    def __init__(self, content: str) -> None:
        self._content = content
        self._parts: list[tuple[str, int, int]] = []
        self._starts: defaultdict[str, list[int]] = defaultdict(list)
        for word in words(content):
            parts = word.folded.split(" ")
            for number, part in enumerate(parts):
                # Inside of a word that folds to several, no name begins or ends: -1 is no offset.
                first = word.start if number == 0 else -1
                last = word.end if number == len(parts) - 1 else -1
                if first >= 0:
                    self._starts[part].append(len(self._parts))
                self._parts.append((part, first, last))

    def find(self, surface: str) -> list[Span]:
        """Return where a name stands, in order, at most MAX_PLACES; whole words only.

        A name in a script without spaces is looked for as it is written, because its words cannot
        be told apart.
        """
        folded = [word.folded for word in words(surface)]
        if any(unsegmented_script(word) for word in folded):
            return self._find_literally(surface.strip())
        wanted = " ".join(folded).split()
        if not wanted:
            return []
        spans = (self._match(at, wanted) for at in self._starts.get(wanted[0], ()))
        return [span for span in spans if span is not None][:MAX_PLACES]

    def _match(self, at: int, wanted: list[str]) -> Span | None:
        parts = self._parts[at : at + len(wanted)]
        if [part for part, _, _ in parts] != wanted or parts[-1][2] < 0:
            return None
        return parts[0][1], parts[-1][2]

    def _find_literally(self, surface: str) -> list[Span]:
        spans: list[Span] = []
        at = self._content.find(surface)
        while at >= 0 and len(spans) < MAX_PLACES:
            spans.append((at, at + len(surface)))
            at = self._content.find(surface, at + len(surface))
        return spans
