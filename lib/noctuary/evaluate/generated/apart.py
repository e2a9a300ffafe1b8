"""Generator and judge are two models. What belongs here: that one rule."""

from __future__ import annotations

from noctuary.hosted.endpoint import Endpoint


def check_apart(generator: Endpoint, judge: Endpoint) -> None:
    """Check that generator and judge are two models: one would favour what it wrote itself.

    Raises:
        ValueError: If both names are the same; the addresses may be.
    """
    if generator.model.strip().casefold() == judge.model.strip().casefold():
        raise ValueError(
            f"generator and judge are both {judge.model!r}; a model favours what it wrote itself: "
            "configure two different models"
        )
