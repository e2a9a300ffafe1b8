"""The adapter on a real spaCy pipeline (blank, with rules), where spaCy is installed."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from noctuary.errors import ConfigError
from noctuary.graph.plugins.base import PluginInput
from noctuary.graph.plugins.spacy import MAX_CHARS, SpacyExtractor
from noctuary.graph.plugins.verify import verify_extraction
from noctuary.progress import SILENT

ABSENT = "spaCy is an optional plug-in and not among noctuary's dependencies"
CONTENT = "Maria paid Acme Corp 12 euro on Monday; Acme's invoice is open"


class DictCache(dict[str, bytes]):
    """A cache in memory."""

    def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        return {key: self[key] for key in keys if key in self}

    def put_many(self, values: Mapping[str, bytes]) -> None:
        self.update(values)


def save_pipeline(directory: Path, *names: tuple[str, str]) -> Path:
    spacy: Any = pytest.importorskip("spacy", reason=ABSENT)
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": label, "pattern": text} for label, text in names])
    pipeline.to_disk(directory)
    return directory


def test_entities_become_names_with_their_spans(tmp_path: Path) -> None:
    labels = (("PERSON", "Maria"), ("ORG", "Acme Corp"), ("ORG", "Acme"), ("DATE", "Monday"))
    directory = save_pipeline(tmp_path / "nlp", *labels)
    extractor = SpacyExtractor.open(str(directory))
    cache = DictCache()
    memories = [PluginInput("a", CONTENT), PluginInput("b", "x" * (MAX_CHARS + 1))]
    findings = extractor.extract_many(memories, cache, SILENT)
    assert findings.counts == {"left_out_long": 1}
    kept = verify_extraction(CONTENT, findings.extractions["a"])
    assert [(f.surface, f.kind, f.role) for f in kept.extraction.found] == [
        ("Maria", "name", "mentions"),
        ("Acme Corp", "name", "mentions"),
        ("Acme's", "name", "mentions"),
    ]
    assert kept.dropped == {}
    again = extractor.extract_many(memories, cache, SILENT)
    assert (again.tonight, again.extractions) == ({"computed": 0}, findings.extractions)


def test_another_pipeline_has_another_fingerprint_and_its_own_entities(tmp_path: Path) -> None:
    one = SpacyExtractor.open(str(save_pipeline(tmp_path / "one", ("ORG", "Acme"))))
    two = SpacyExtractor.open(str(save_pipeline(tmp_path / "two", ("ORG", "Maria"))))
    assert one.fingerprint.split(":")[-1] != two.fingerprint.split(":")[-1]
    assert one.cache_key("x") != two.cache_key("x")


def test_a_directory_that_is_no_pipeline_is_a_clear_error(tmp_path: Path) -> None:
    pytest.importorskip("spacy", reason=ABSENT)
    extractor = SpacyExtractor.open(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be loaded"):
        extractor.extract_many([PluginInput("a", "x")], DictCache(), SILENT)


@pytest.mark.parametrize("pipeline", ["", "no_such_pipeline", "../nowhere"])
def test_what_is_not_installed_is_named(pipeline: str) -> None:
    with pytest.raises(ConfigError, match="install"):
        SpacyExtractor.open(pipeline)


def test_without_spacy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(ConfigError, match="install the package spacy, or set"):
        SpacyExtractor.open("en_core_web_sm")


def test_naming_the_adapter_imports_no_spacy() -> None:
    code = "import sys, noctuary.graph.plugins.spacy; assert 'spacy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
