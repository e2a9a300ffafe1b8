"""The resource `workers`: a Ray for the assets that ask for it, where the settings say so."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import dagster as dg

from noctuary.core.errors import ConfigError
from noctuary.core.settings import RunnerSettings, Settings
from noctuary.core.store import find_home

RAY = "ray"


@dg.resource(description="Who runs the heavy steps: processes of this machine, or Ray.")
def workers(context: dg.InitResourceContext) -> Iterator[Any]:
    """None where `runner.kind` is "local": the night starts processes when it has work for them.

    Where it is "ray", dagster-ray's resource, up for the runs whose assets ask for it and down with
    them.
    """
    settings = Settings.load(home=find_home()).runner
    if settings.kind != RAY:
        yield None
        return
    with open_ray(settings).yield_for_execution(context) as ray:
        yield ray


def open_ray(settings: RunnerSettings) -> Any:
    """Return a `dagster_ray.RayResource` that connects as noctuary's own runner does."""
    if importlib.util.find_spec("dagster_ray") is None:
        raise ConfigError(
            'runner.kind is "ray" and dagster_ray is not installed: '
            "pip install 'noctuary[ray]', or set runner.kind to \"local\""
        )
    from noctuary.work.ray import RayCluster

    cluster = RayCluster(settings)
    library: Any = importlib.import_module("dagster_ray")

    class NightRay(library.RayResource):
        """A Ray of this machine, or one that is there; both exist as soon as they answer."""

        @property
        def host(self) -> str:
            return settings.address or "127.0.0.1"

        @property
        def ray_address(self) -> str:
            return settings.address or "local"

        @property
        def name(self) -> str:
            return f"Ray at {settings.address}" if settings.address else "Ray of this machine"

        @property
        def created(self) -> bool:
            return True

        @property
        def ready(self) -> bool:
            return True

        def connect(self, context: Any) -> None:
            cluster.connect()

        def on_connect(self, context: Any) -> None:
            context.log.info(f"{self.name}: {cluster.workers()} workers")

        def delete(self, context: Any) -> None:
            cluster.close()

    return NightRay()
