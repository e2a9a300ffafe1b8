"""How a night's store is configured to rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noctuary.night.context import Night
from noctuary.recall.profile import RetrievalProfile, configured_profile, read_store_profiles


def store_profile(night: Night, adopted: Mapping[str, Any] | None = None) -> RetrievalProfile:
    """Return what the settings and the store's own profiles say.

    Args:
        night: Whose settings and store.
        adopted: What a snapshot's evaluation adopted; None for nothing.
    """
    stored = read_store_profiles(night.paths.profiles).tables
    return configured_profile(night.settings, adopted, stored)
