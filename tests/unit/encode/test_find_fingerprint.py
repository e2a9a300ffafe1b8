"""A model's fingerprint: measured once per state of its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.sentence import FINGERPRINT_KIND, find_fingerprint
from noctuary.work.content import ContentStore

TinyModel = Callable[..., Path]


class Measuring:
    """Counts how often a model would have been loaded."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> EncoderFingerprint:
        self.count += 1
        return EncoderFingerprint("m", f"{self.count:064}", 4, "mean", True, "", "é", 16)


def test_it_is_measured_once_and_again_when_a_file_changed(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    model, measure = tiny_model("model"), Measuring()

    def find() -> EncoderFingerprint:
        store = ContentStore(tmp_path / "content", FINGERPRINT_KIND)
        return find_fingerprint(str(model), store, measure)

    first = find()
    assert (find(), measure.count) == (first, 1)
    config = model / "config.json"
    before = config.read_text()
    config.write_text(before + " ")
    second = find()
    assert second != first
    assert (find(), measure.count) == (second, 2)
    store = ContentStore(tmp_path / "content", FINGERPRINT_KIND)
    assert store.rows == 1, "only the last one is kept"
    config.write_text(before)
    find()
    assert measure.count == 3


def test_one_that_is_damaged_is_measured_again(tiny_model: TinyModel, tmp_path: Path) -> None:
    model, measure = tiny_model("model"), Measuring()
    find_fingerprint(str(model), ContentStore(tmp_path, FINGERPRINT_KIND), measure)
    (fragment,) = ContentStore(tmp_path, FINGERPRINT_KIND).fragments
    fragment.path.write_bytes(fragment.path.read_bytes()[:-9])
    for _ in range(2):
        find_fingerprint(str(model), ContentStore(tmp_path, FINGERPRINT_KIND), measure)
    assert measure.count == 2
