"""Whether a night would find anything to do: asked of stamps and file states, without Dagster.

Reading everything takes seconds to minutes, Dagster alone some eight seconds of CPU. A night that
sees that nothing changed notes that it looked, and that is all. Dagster is told by the next process
that loads it (`report_looks`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noctuary.core.errors import NoctuaryError
from noctuary.core.files import hash_json, write_text
from noctuary.core.store import DatabaseName, StorePaths, record_night
from noctuary.core.tombstones import read_tombstones
from noctuary.snapshot.publish import find_damage
from noctuary.sources.open import read_marker
from noctuary.work.ledger import find_faults, is_closed
from noctuary.work.lock import hold_lock
from noctuary.work.stage import FULL_LOOK_S, StageResult, hash_settled, load_hashes, save_hashes
from noctuary_pipelines.site import Site

if TYPE_CHECKING:
    import dagster as dg

_PACKAGES = ("noctuary", "noctuary_assets", "noctuary_pipelines")
_OF_NIGHT = frozenset({"LAST_NIGHT", "ledger.json", "hashes.json", "quiet.json", "nightly.lock"})
_OF_SQLITE = ("-wal", "-shm")
_KEPT_LOOKS = 30  # as many as Dagster keeps of what belongs to no run


def read_inputs(site: Site) -> str | None:
    """Return the state of all that a night reads; None where only a whole night tells.

    That is so for databases and services, and plans that change as days pass.
    """
    from noctuary.evaluate.queries import find_labels
    from noctuary.recall.profile import configured_profile

    settings = site.settings
    local = (
        settings.encoder.provider == "local"
        and settings.compaction.summarizer == "sentences"
        and settings.graph.extractor == "rules"
    )
    try:
        if not local or isinstance(site.source, DatabaseName):
            return None
        if configured_profile(settings).adaptive_compaction:
            return None
        paths, labels = site.paths, find_labels(site.source, settings.evaluation.queries)
        files = [
            *([labels] if labels else []),
            *sorted((site.home / "hooks").glob("journal*")),
            *(paths.merges, paths.archive, paths.access_log, paths.root / "forgotten.json"),
            *sorted(_locate_model(settings.encoder.model).rglob("*")),
        ]
        source = read_marker(site.source, settings)
    except (NoctuaryError, OSError, ImportError):  # a library of another model is gone
        return None
    told = settings.to_json()
    told["source"]["path"] = str(site.source)  # wherever it was named
    profiles = repr(settings.profiles)
    return hash_json([source, told, profiles, _code_state(), list(_states(files))])


def _locate_model(model: str) -> Path:
    from noctuary.embed.default_model import DEFAULT_MODEL, locate_default

    if model == DEFAULT_MODEL:
        return locate_default()
    from noctuary.embed.sentence import locate_model  # takes .2 s of CPU to load

    return locate_model(model)


def _code_state() -> list[Any]:
    """Return which code and libraries a night runs."""
    found = [spec.origin for spec in map(find_spec, _PACKAGES) if spec is not None and spec.origin]
    newest = max(p.stat().st_mtime_ns for one in found for p in Path(one).parent.rglob("*.py"))
    libraries = {name for at in sys.path if at for name in _listed(at) if name.endswith("-info")}
    return [sys.version, newest, *sorted(libraries)]


def _listed(directory: str) -> list[str]:
    with suppress(OSError):
        return [path.name for path in Path(directory).iterdir()]
    return []


def _states(files: Iterable[Path]) -> Iterator[list[Any]]:
    """Yield the state of every file that is there, and of its write-ahead log."""
    for file in files:
        for path in (file, file.with_name(f"{file.name}-wal")):
            with suppress(OSError):
                found = path.stat()
                if found.st_size or path is file:  # any reader leaves an empty log
                    times = (found.st_mtime_ns, found.st_ctime_ns)
                    yield [str(path), found.st_dev, found.st_ino, found.st_size, *times]


def _read_rest(paths: StorePaths) -> str:
    """Return the state of the store's own files, the ledger's and a night's marks apart."""
    files = [
        path
        for path in sorted(paths.root.iterdir())
        if path.is_file() and path.name not in _OF_NIGHT and path.name[-4:] not in _OF_SQLITE
    ]
    return hash_json(list(_states(files)))


def keep_state(site: Site, inputs: str | None, stages: Sequence[StageResult]) -> None:
    """Note that a whole night went through, and what it read; `inputs` are from before it read."""
    waits = any("names_not_embedded" in stage.facts for stage in stages)
    if waits or inputs is None or read_tombstones(site.paths.root).is_pending:
        return
    rest = _read_rest(site.paths)
    told = {"inputs": inputs, "rest": rest, "whole_s": time.time(), "looks": []}
    write_text(site.paths.quiet, json.dumps(told) + "\n")


def look(site: Site) -> float | None:
    """Note that a night looked and found nothing to do; None where it may find something.

    Returns when the last whole night ended, seconds since the epoch. Once in FULL_LOOK_S it is
    None. StoreLockedError while another night runs.
    """
    paths, kept = site.paths, _read_kept(site.paths)
    if not kept or not 0 <= time.time() - kept["whole_s"] < FULL_LOOK_S:
        return None
    with hold_lock(paths.lock):
        if kept["inputs"] != read_inputs(site) or kept["rest"] != _read_rest(paths):
            return None
        load_hashes(paths.hashes)
        if not is_closed(paths) or find_faults(paths) or find_damage(paths, hash_settled):
            return None
        looks = [*kept["looks"], datetime.now(UTC).isoformat(timespec="seconds")]
        write_text(paths.quiet, json.dumps({**kept, "looks": looks[-_KEPT_LOOKS:]}) + "\n")
        save_hashes(paths.hashes, paths.root)
        record_night(paths)
    return kept["whole_s"]


def _read_kept(paths: StorePaths) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        told = json.loads(paths.quiet.read_text(encoding="utf-8"))
        types = {"inputs": str, "rest": str, "whole_s": float, "looks": list}
        if all(isinstance(told.get(name), kind) for name, kind in types.items()):
            return told
    return None


def report_looks(instance: dg.DagsterInstance, site: Site) -> None:
    """Tell Dagster of every look: the snapshot is as fresh as the last one."""
    import dagster as dg

    from noctuary_assets.publish import snapshot

    kept = _read_kept(site.paths)
    if kept is None or not kept["looks"]:
        return
    last = instance.get_latest_materialization_event(snapshot.key)
    known = last.asset_materialization if last else None
    seen = (known.tags or {}) if known else {}
    # With its versions and inputs: without them the UI shows the snapshot as out of date.
    tags = {k: v for k, v in seen.items() if "version" in k or "input" in k}
    for moment in kept["looks"]:
        metadata = {"looked_at": moment, "reused": True, "found": "nothing changed"}
        event = dg.AssetMaterialization(snapshot.key, metadata=metadata, tags=tags)
        instance.report_runless_asset_event(event)
    write_text(site.paths.quiet, json.dumps({**kept, "looks": []}) + "\n")
