"""How a recall ranks: the profile, its rules, its names and the layers that it is merged from."""

from noctuary.recall.profile.configured import configured_profile, layers_of, resolve_for_recall
from noctuary.recall.profile.fields import FIELD_NAMES, RetrievalProfile
from noctuary.recall.profile.layers import Layers, ResolvedProfile, resolve
from noctuary.recall.profile.stored import read_store_profiles

__all__ = [
    "FIELD_NAMES",
    "Layers",
    "ResolvedProfile",
    "RetrievalProfile",
    "configured_profile",
    "layers_of",
    "read_store_profiles",
    "resolve",
    "resolve_for_recall",
]
