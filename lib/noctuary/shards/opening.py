"""Which runner the settings ask for."""

from __future__ import annotations

from noctuary.settings.scale_sections import RunnerSettings
from noctuary.shards.local_runner import LocalRunner
from noctuary.shards.task import Runner


def open_runner(settings: RunnerSettings) -> Runner:
    """Return the runner that is configured; Ray is imported only where it is asked for.

    Raises:
        ConfigError: `runner.kind` is "ray" and the extra is not installed.
    """
    if settings.kind == "ray":
        from noctuary.shards.ray_runner import open_ray_runner

        return open_ray_runner(settings)
    return LocalRunner(settings.workers)
