"""Every setting of mnemon: one frozen tree, read from one TOML file with environment overrides.

What belongs here: names, types, defaults and ranges of settings, and where they come from. Standard
library only, because a hook reads its settings too.
"""

from mnemon.settings.sections import (
    FUSIONS,
    GRAPH_EXTRACTORS,
    HOOK_SCOPES,
    ON_DROP,
    STRATEGIES,
    SUMMARIZERS,
    CompactionSettings,
    CorpusSettings,
    CurationSettings,
    EncoderSettings,
    EvaluationSettings,
    GraphSettings,
    HookSettings,
    PromotionSettings,
    RecallSettings,
    ScheduleSettings,
    SnapshotSettings,
    SourceSettings,
    TierSettings,
    TranscriptSettings,
)
from mnemon.settings.tree import CONFIG_FILE_NAME, ENV_PREFIX, Settings, known_settings

__all__ = [
    "CONFIG_FILE_NAME",
    "ENV_PREFIX",
    "FUSIONS",
    "GRAPH_EXTRACTORS",
    "HOOK_SCOPES",
    "ON_DROP",
    "STRATEGIES",
    "SUMMARIZERS",
    "CompactionSettings",
    "CorpusSettings",
    "CurationSettings",
    "EncoderSettings",
    "EvaluationSettings",
    "GraphSettings",
    "HookSettings",
    "PromotionSettings",
    "RecallSettings",
    "ScheduleSettings",
    "Settings",
    "SnapshotSettings",
    "SourceSettings",
    "TierSettings",
    "TranscriptSettings",
    "known_settings",
]
