"""Every setting of noctuary: one frozen tree, read from one TOML file with environment overrides.

What belongs here: names, types, defaults and ranges of settings, and where they come from. Standard
library only, because a hook reads its settings too.
"""

from noctuary.settings.scale_sections import RUNNERS, RunnerSettings
from noctuary.settings.sections import (
    FUSIONS,
    GRAPH_EXTRACTORS,
    HOOK_SCOPES,
    ON_DROP,
    PROVIDERS,
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
    TierSettings,
    TranscriptSettings,
)
from noctuary.settings.source_sections import (
    LiveSettings,
    SensitiveSettings,
    SensorSettings,
    SourceSettings,
)
from noctuary.settings.tree import CONFIG_FILE_NAME, ENV_PREFIX, Settings, known_settings

__all__ = [
    "CONFIG_FILE_NAME",
    "ENV_PREFIX",
    "FUSIONS",
    "GRAPH_EXTRACTORS",
    "HOOK_SCOPES",
    "ON_DROP",
    "PROVIDERS",
    "RUNNERS",
    "SUMMARIZERS",
    "CompactionSettings",
    "CorpusSettings",
    "CurationSettings",
    "EncoderSettings",
    "EvaluationSettings",
    "GraphSettings",
    "HookSettings",
    "LiveSettings",
    "PromotionSettings",
    "RecallSettings",
    "RunnerSettings",
    "ScheduleSettings",
    "SensitiveSettings",
    "SensorSettings",
    "Settings",
    "SnapshotSettings",
    "SourceSettings",
    "TierSettings",
    "TranscriptSettings",
    "known_settings",
]
