from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.errors import ConfigError
from noctuary.core.settings import (
    CONFIG_FILE_NAME,
    RecallSettings,
    Settings,
    SnapshotSettings,
    known_settings,
)


def from_toml(tmp_path: Path, text: str, **environ: str) -> Settings:
    path = tmp_path / "noctuary.toml"
    path.write_text(text, encoding="utf-8")
    return Settings.load(path, environ=environ)


def from_env(**environ: str) -> Settings:
    return Settings.load(environ=environ)


def faults_of(error: ConfigError) -> list[str]:
    return str(error).split("\n  - ")[1:]


def test_without_file_or_environment_the_defaults_are_in_force() -> None:
    assert from_env() == Settings()
    assert from_env(PATH="/bin", NOCTUARY_HOME="/x", NOCTUARY_STORE="y") == Settings()
    assert from_env(NOCTUARY_CONFIG="") == Settings()
    with pytest.raises(AttributeError):
        Settings().recall.fusion = "rrf"  # pyright: ignore[reportAttributeAccessIssue]
    assert SnapshotSettings().keep >= 2
    assert issubclass(ConfigError, ValueError)


def test_a_file_sets_what_it_names_and_nothing_else_and_the_environment_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert from_toml(tmp_path, "") == Settings()
    assert from_toml(tmp_path, "\n# only a comment\n[recall]\n") == Settings()
    assert from_toml(tmp_path, "[snapshot]\nkeep = 3.0").snapshot.keep == 3
    said = "[recall]\nfusion = 'rrf'\nprofile = 'mine'\nimportance_prior = 0.1"
    environ = {"NOCTUARY_RECALL_FUSION": "cc", "NOCTUARY_SNAPSHOT_KEEP": "4"}
    both = from_toml(tmp_path, said, **environ)
    assert (both.recall.fusion, both.recall.importance_prior) == ("cc", 0.1)
    assert (both.recall.profile, both.snapshot.keep) == ("mine", 4)
    for name in [n for n in os.environ if n.startswith("NOCTUARY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NOCTUARY_SNAPSHOT_KEEP", "6")
    assert Settings.load().snapshot.keep == 6
    settings = from_toml(
        tmp_path,
        """
        [recall]
        fusion = "rrf"
        graph_weight = 2
        log_retrievals = false
        [corpus]
        turn_categories = ["chat"]
        [snapshot]
        keep = 3
        """,
    )
    assert settings.recall == RecallSettings(fusion="rrf", graph_weight=2.0, log_retrievals=False)
    assert isinstance(settings.recall.graph_weight, float)
    assert settings.corpus.turn_categories == ("chat",)
    assert settings.snapshot.keep == 3
    assert settings.encoder == Settings().encoder


SAMPLES: dict[type, tuple[str, Any]] = {
    bool: ("off", False),
    int: ("77", 77),
    float: ("0.25", 0.25),
    str: ("rrf", "rrf"),
    tuple: ("a, b,,c ", ("a", "b", "c")),
}


CHOICES = {
    "compaction.summarizer": "extractive",
    "hook.scope": "project",
    "encoder.provider": "voyage",
    "runner.kind": "ray",
    "notify.webhook": "https://example.org/told",
}

OTHERS: dict[str, tuple[str, Any]] = {
    "sensor.poll_seconds": ("77.0", 77.0),
    "runner.memory_mb": ("777", 777),
    "transcripts.wings": ("~/a=x, /b=y", ("~/a=x", "/b=y")),
    "hook.origins": ("tool, file", ("tool", "file")),
}


@pytest.mark.parametrize("name", known_settings())
def test_every_setting_can_be_set_from_the_environment(name: str) -> None:
    section, key = name.split(".")
    text, value = SAMPLES[type(getattr(getattr(Settings(), section), key))]
    text, value = OTHERS.get(name, (text, value))
    if name == "schedule.cron":
        text = value = "5 4 * * 1"
    environ = {f"NOCTUARY_{section}_{key}".upper(): text}
    if name == "tiers.small_dims":
        environ["NOCTUARY_TIERS_MEDIUM_DIMS"] = "128"
    if name == "evaluation.on_drop":
        environ["NOCTUARY_EVALUATION_ON_DROP"] = value = "report"
    if name in CHOICES:
        environ = {f"NOCTUARY_{section}_{key}".upper(): CHOICES[name]}
        value = CHOICES[name]
    if name == "encoder.provider":
        environ |= {"NOCTUARY_ENCODER_MODEL": "m", "NOCTUARY_ENCODER_API_KEY_VARIABLE": "KEY"}
    if name == "graph.extractor":
        environ = {"NOCTUARY_GRAPH_EXTRACTOR": "llm", "NOCTUARY_GRAPH_LLM_URL": "http://h"}
        environ["NOCTUARY_GRAPH_LLM_MODEL"], value = "m", "llm"
    assert getattr(getattr(Settings.load(environ=environ), section), key) == value


def test_the_file_is_found_by_variable_then_in_the_home(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other.toml"
    home.mkdir()
    (home / CONFIG_FILE_NAME).write_text("[snapshot]\nkeep = 3")
    other.write_text("[snapshot]\nkeep = 4")
    explicit = tmp_path / "explicit.toml"
    explicit.write_text("[snapshot]\nkeep = 5")
    variable = {"NOCTUARY_CONFIG": str(other)}
    assert Settings.load(home=home, environ={}).snapshot.keep == 3
    assert Settings.load(home=home, environ=variable).snapshot.keep == 4
    assert Settings.load(explicit, home=home, environ=variable).snapshot.keep == 5
    assert Settings.load(home=tmp_path / "nowhere", environ={}) == Settings()


@pytest.mark.parametrize(
    ("text", "fault", "nearest"),
    [
        ("[recal]\nfusion = 'cc'", "unknown section [recal] in ", "recall"),
        ("[recall]\nfusoin = 'cc'", "unknown key recall.fusoin in ", "fusion"),
        ("[recall]\nlexical_wieght = 1", "unknown key recall.lexical_wieght", "lexical_weight"),
        ("[tiers]\nsmall = 1", "unknown key tiers.small", "small_dims"),
        ("fusion = 'cc'", "unknown section [fusion] in ", ""),
        ("recall = 'cc'", "[recall] in ", ""),
        ("profiles = 3", "[profiles] in ", ""),
        ("[profiles]\nmine = 3", "[profiles.mine] in ", ""),
        ("[profile.mine]\ndepth = 3", "unknown section [profile] in ", ""),
    ],
)
def test_unknown_names_are_errors_with_the_nearest_known_one(
    tmp_path: Path, text: str, fault: str, nearest: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        from_toml(tmp_path, text)
    (found,) = faults_of(caught.value)
    assert found.startswith(fault)
    assert str(tmp_path / "noctuary.toml") in found
    assert found.endswith(f"the nearest known one is {nearest}" if nearest else "")
    with pytest.raises(ConfigError, match=r"nearest known one is NOCTUARY_ENCODER_MODEL$"):
        from_env(NOCTUARY_ENCODR_MODEL="x")


def test_every_fault_of_file_and_environment_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        from_toml(
            tmp_path,
            "[snapshot]\nkeep = 1\n[nonsense]\na = 1\n[recall]\nfusion = 3",
            NOCTUARY_TIERS_SMALL_DIMS="many",
            NOCTUARY_UNHEARD_OF="1",
        )
    text = str(caught.value)
    assert len(faults_of(caught.value)) == 5
    for part in (
        "snapshot.keep",
        "[nonsense]",
        "recall.fusion",
        "small_dims",
        "NOCTUARY_UNHEARD_OF",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[snapshot]\nkeep = 'three'", "expected int, found 'three'"),
        ("[snapshot]\nkeep = 2.5", "expected a whole number, found 2.5"),
        ("[snapshot]\nkeep = inf", "expected a whole number, found inf"),
        ("[snapshot]\nkeep = nan", "expected a whole number, found nan"),
        ("[snapshot]\nkeep = true", "expected a number, found True"),
        ("[snapshot]\nkeep = [3]", "expected a number, found [3]"),
        ("[recall]\ndense_weight = inf", "expected a finite number, found inf"),
        ("[recall]\ndense_weight = nan", "expected a finite number, found nan"),
        (f"[recall]\ndense_weight = 1{'0' * 400}", "expected float"),
        ("[recall]\nlog_retrievals = 2", "expected true or false, found 2"),
        ("[recall]\nlog_retrievals = 'maybe'", "expected true or false, found 'maybe'"),
        ("[encoder]\nmodel = 3", "expected text, found 3"),
        ("[encoder]\nmodel = 2026-01-01", "expected text"),
        ("[corpus]\nturn_categories = [1]", "expected a list of texts, found [1]"),
        ("[corpus]\nturn_categories = 3", "expected a list of texts, found 3"),
        ("[corpus]\nmax_content_bytes = 0", "corpus.max_content_bytes"),
        ("[tiers]\nsmall_dims = 0", "tiers.small_dims"),
        ("[tiers]\nsmall_dims = 300", "tiers.medium_dims"),
        ("[compaction]\nprotected_tail_turns = -1", "compaction.protected_tail_turns"),
        ("[compaction]\npreserve_threshold = 1.1", "compaction.preserve_threshold"),
        ("[snapshot]\nkeep = 1", "snapshot.keep"),
        ("[recall]\nfusion = 'sum'", "recall.fusion"),
        ("[recall]\nlexical_weight = -0.1", "recall.lexical_weight"),
        ("[recall]\ndense_weight = -1", "recall.dense_weight"),
        ("[recall]\ngraph_weight = -1", "recall.graph_weight"),
        ("[recall]\nimportance_prior = 1.5", "recall.importance_prior"),
        ("[recall]\nprofile = ''", "recall.profile must name a profile"),
        ("[graph]\nextractor = 'magic'", "graph.extractor must be"),
        ("[graph]\nextractor = 'llm'\nllm_url = 'http://h'", "graph.llm_model"),
        ("[graph]\nllm_batch_memories = 0", "graph.llm_batch_memories"),
        ("[schedule]\ncron = '0 3 * *'", "schedule.cron"),
    ],
)
def test_values_of_another_type_or_out_of_range_are_errors(
    tmp_path: Path, text: str, found: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        from_toml(tmp_path, text)
    (fault,) = faults_of(caught.value)
    assert found in fault


@pytest.mark.parametrize("content", [b"[recall", b"a = ", b"\xff\xfe", b"[a]\n[a]", b"\x00"])
def test_broken_toml_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML"):
        Settings.load(path, environ={})


def test_a_named_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        Settings.load(tmp_path / "nothing.toml", environ={})
    with pytest.raises(ConfigError, match="cannot read"):
        Settings.load(environ={"NOCTUARY_CONFIG": str(tmp_path)})
    with pytest.raises(ConfigError, match="no home directory"):
        Settings.load(environ={"NOCTUARY_CONFIG": "~nobody-of-that-name/noctuary.toml"})


def test_settings_are_plain_values_for_a_manifest() -> None:
    value = Settings().to_json()
    assert json.loads(json.dumps(value)) == value
    assert value["corpus"]["turn_categories"] == ["turn", "dialog_turn"]
    named = [f"{s}.{k}" for s, keys in value.items() for k in keys]
    # An address may hold a key, and manifests are passed on.
    assert [*named, "notify.command", "notify.webhook"] == known_settings()


def test_tables_of_profiles_are_kept_as_they_stand(tmp_path: Path) -> None:
    settings = from_toml(tmp_path, "[profiles.default]\ndepth = 3\n[profiles.mine]\nx = 'y'\n")
    assert settings.profiles == {"default": {"depth": 3}, "mine": {"x": "y"}}
    assert settings != Settings()
    assert settings.to_json() == Settings().to_json()  # they shape no artifact of a night


def test_where_a_value_was_set_is_known(tmp_path: Path) -> None:
    settings = from_toml(
        tmp_path,
        "[recall]\nfusion = 'rrf'\ngraph_weight = 1.0\n[snapshot]\nkeep = 7",
        NOCTUARY_RECALL_FUSION="rrf",
    )
    file = f"in {tmp_path / 'noctuary.toml'}"
    assert settings.origins == {
        "recall.fusion": "environment NOCTUARY_RECALL_FUSION",
        "recall.graph_weight": file,
        "snapshot.keep": file,
    }
    same = Settings(recall=RecallSettings(fusion="rrf"))
    assert settings == same  # origins do not compare
    assert (settings != same) is False
    assert hash(settings) == hash(same)
    assert "origins" not in settings.to_json()
