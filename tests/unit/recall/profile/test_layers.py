from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.recall.profile import (
    CHOICES,
    FIELD_NAMES,
    FIELD_TYPES,
    RANGES,
    SHIPPED,
    Layer,
    Layers,
    RetrievalProfile,
    list_profiles,
    resolve,
)

FILE = "config [recall] in noctuary.toml"


def good_value(flag: str) -> st.SearchStrategy[Any]:
    kind = FIELD_TYPES[flag]
    if flag in CHOICES:
        return st.sampled_from(CHOICES[flag])
    if kind is bool:
        return st.booleans()
    if kind is str:
        return st.text(max_size=3)
    low, high, _ = RANGES[flag]
    if kind is int:
        return st.integers(int(low), int(high))
    return st.floats(low, high) | st.integers(int(low) + (low > int(low)), int(high))


FLAGS = st.lists(st.sampled_from(FIELD_NAMES), max_size=4, unique=True).flatmap(
    lambda flags: st.fixed_dictionaries({flag: good_value(flag) for flag in flags})
)


@st.composite
def layered(draw: st.DrawFn) -> tuple[Layers, str | None, dict[str, Any]]:
    """Sound layers, a profile that is there, and a call's own flags."""
    config: dict[str, dict[str, Any]] = {}
    stored: dict[str, dict[str, Any]] = {}
    for tables in (config, stored):
        for name in draw(st.sets(st.sampled_from(["default", "synapse", "compact", "parent"]))):
            tables[name] = draw(FLAGS)
    config["mine"] = draw(FLAGS)
    parents = [None, "default", "synapse", "libravdb", *(["parent"] if "parent" in config else [])]
    parent = draw(st.sampled_from(parents))
    if parent is not None:
        config["mine"]["inherits"] = parent
    base = tuple(Layer({flag: value}, FILE) for flag, value in draw(FLAGS).items())
    layers = Layers(
        base, config, draw(FLAGS), stored, draw(st.sampled_from(["default", "compact"]))
    )
    name = draw(st.sampled_from([None, "default", "mine", "synapse", "off", "libravdb-two-pass"]))
    return layers, name, draw(FLAGS)


def naive_stack(
    layers: Layers, name: str | None, overrides: dict[str, Any]
) -> list[tuple[str, dict[str, Any]]]:
    """What docs/profiles.md says, written down one layer after the other."""
    chosen = layers.chosen if name is None else name
    stack = [("built-in", RetrievalProfile().to_json())]
    stack += [(FILE, dict(layer.values)) for layer in layers.recall]
    stack.append(("config [profiles.default]", dict(layers.config.get("default", {}))))
    stack.append(("store: adopted by its evaluation", dict(layers.adopted)))
    stack.append(("store profiles.toml [default]", dict(layers.stored.get("default", {}))))
    tables = {
        "shipped": {n: dict(s.values) for n, s in SHIPPED.items()},
        "config": {n: dict(t) for n, t in layers.config.items()},
        "store": {n: dict(t) for n, t in layers.stored.items()},
    }
    if chosen != "default":
        heir = [
            (p, t[chosen]["inherits"]) for p, t in tables.items() if "inherits" in t.get(chosen, {})
        ]
        if heir and heir[-1][1] != "default":
            place, parent = heir[-1]
            for where, found in tables.items():
                source = f"named {chosen} ({place}), inherits {parent} ({where})"
                stack.append((source, found.get(parent, {})))
        for where, found in tables.items():
            stack.append((f"named {chosen} ({where})", found.get(chosen, {})))
    stack.append(("this call", overrides))
    return stack


@given(layered())
def test_every_value_and_its_source_are_those_of_the_last_layer_that_has_it(
    case: tuple[Layers, str | None, dict[str, Any]],
) -> None:
    layers, name, overrides = case
    found = resolve(name, layers, overrides)
    values = found.profile.to_json()
    stack = naive_stack(layers, name, overrides)
    assert list(found.sources) == list(FIELD_NAMES)
    for flag in FIELD_NAMES:
        source, value = next((s, v[flag]) for s, v in reversed(stack) if flag in v)
        assert (values[flag], found.sources[flag]) == (value, source)
        assert type(values[flag]) is FIELD_TYPES[flag]
    assert found.warnings == ()
    assert found.requested == name
    assert found.used == (name or layers.chosen)


@given(layered())
def test_merging_is_idempotent(case: tuple[Layers, str | None, dict[str, Any]]) -> None:
    layers, name, overrides = case
    once = resolve(name, layers, overrides)
    again = resolve(name, layers, once.profile.to_json())
    assert again.profile == once.profile
    assert set(again.sources.values()) == {"this call"}
    doubled = layers._replace(recall=(*layers.recall, *layers.recall))
    assert resolve(name, doubled, overrides) == once


@given(FLAGS, FLAGS)
def test_the_later_layer_wins_whatever_the_layers(
    first: dict[str, Any], last: dict[str, Any]
) -> None:
    merged = {**first, **last}
    for layers, overrides in (
        (Layers(config={"default": first}, adopted=last), {}),
        (Layers(adopted=first, stored={"default": last}), {}),
        (Layers(stored={"default": first, "mine": last}, chosen="mine"), {}),
        (Layers(config={"mine": first}, stored={"mine": last}, chosen="mine"), {}),
        (Layers(config={"mine": first}, chosen="mine"), last),
    ):
        values = resolve(None, layers, overrides).profile.to_json()
        assert values.items() >= merged.items()


def test_the_sources_read_as_documented() -> None:
    layers = Layers(
        recall=(
            Layer({"fusion": "rrf"}, "config [recall] in /x/noctuary.toml"),
            Layer({"graph_weight": 0.5}, "environment NOCTUARY_RECALL_GRAPH_WEIGHT"),
        ),
        config={
            "default": {"depth": 40},
            "mine": {"inherits": "synapse", "rrf_k": 30},
        },
        adopted={"dense_weight": 0.7},
        stored={"default": {"half_life_days": 7}},
    )
    found = resolve("mine", layers, {"explain": True})
    flags = ("rerank_depth", "fusion", "graph_weight", "depth", "dense_weight", "half_life_days")
    assert [found.sources[f] for f in (*flags, "decay_floor", "rrf_k", "explain")] == [
        "built-in",
        "config [recall] in /x/noctuary.toml",
        "environment NOCTUARY_RECALL_GRAPH_WEIGHT",
        "config [profiles.default]",
        "store: adopted by its evaluation",
        "store profiles.toml [default]",
        "named mine (config), inherits synapse (shipped)",
        "named mine (config)",
        "this call",
    ]
    assert resolve("synapse", layers).sources["decay_floor"] == "named synapse (shipped)"


def test_an_unknown_name_warns_with_near_ones_and_falls_back_to_default() -> None:
    layers = Layers(config={"default": {"depth": 9}}, stored={"synapses": {}}, chosen="compact")
    found = resolve("synaspe", layers)
    assert (found.requested, found.used) == ("synaspe", "default")
    assert found.profile == RetrievalProfile(depth=9)
    (warning,) = found.warnings
    assert warning.code == "unknown_profile"
    assert "'synaspe'" in warning.message
    assert "nearest known ones are synapse, synapses" in warning.message


def test_an_unknown_configured_name_warns_too() -> None:
    found = resolve(None, Layers(chosen="gone"))
    assert (found.requested, found.used) == (None, "default")
    assert [w.code for w in found.warnings] == ["unknown_profile"]


BAD: dict[str, Any] = {"mmr_lambda": 2.0, "depht": 3, "explain": "yes", "rrf_k": 10}
BAD_FAULTS = ("unknown flag 'depht'; the nearest known one is depth", "mmr_lambda", "explain")


@pytest.mark.parametrize(
    ("layers", "name", "what"),
    [
        (Layers(config={"default": BAD}), None, "profile default (config)"),
        (Layers(stored={"default": BAD}), None, "profile default (store)"),
        (Layers(adopted=BAD), None, "what the store's evaluation adopted"),
        (Layers(config={"synapse": BAD}), "synapse", "profile synapse (config)"),
        (Layers(stored={"synapse": BAD}), "synapse", "profile synapse (store)"),
        (
            Layers(config={"mine": {"inherits": "up"}, "up": BAD}),
            "mine",
            "profile up (config)",
        ),
    ],
)
def test_a_bad_layer_is_left_out_with_all_its_faults(
    layers: Layers, name: str | None, what: str
) -> None:
    found = resolve(name, layers, {"depth": 12})
    (warning,) = found.warnings
    assert warning.code == "bad_profile"
    assert warning.message.startswith(f"{what} is left out: ")
    assert all(fault in warning.message for fault in BAD_FAULTS)
    sound = resolve(name if name in SHIPPED else None, Layers(), {"depth": 12})
    assert found.profile == sound.profile


def test_a_profile_of_which_nothing_is_left_is_not_said_to_be_used() -> None:
    assert resolve("mine", Layers(config={"mine": BAD})).used == "default"
    assert resolve("synapse", Layers(config={"synapse": BAD})).used == "synapse"


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        ({"mine": {"inherits": "mine"}}, "mine inherits itself"),
        (
            {"mine": {"inherits": "synaspe"}},
            "names no profile: 'synaspe'; the nearest known ones are",
        ),
        ({"mine": {"inherits": 3}}, "must be the name of a profile, found 3"),
        ({"mine": {"inherits": "libravdb-two-pass"}}, "inheritance has one level"),
        (
            {"mine": {"inherits": "b"}, "b": {"inherits": "off"}},
            "mine inherits b, which inherits off",
        ),
        ({"mine": {"inherits": "b"}, "b": {"inherits": "mine"}}, "inheritance has one level"),
        ({"mine": {"description": 3}}, "description must be a text"),
    ],
)
def test_faults_of_inheritance(tables: dict[str, Any], fault: str) -> None:
    found = resolve("mine", Layers(config=tables))
    (warning,) = found.warnings
    assert warning.code == "bad_profile"
    assert fault in warning.message
    assert found.profile == RetrievalProfile()


def test_the_default_cannot_inherit() -> None:
    found = resolve(None, Layers(config={"default": {"inherits": "off", "depth": 3}}))
    assert "default cannot inherit" in found.warnings[0].message
    assert found.profile == RetrievalProfile()


def test_to_inherit_the_default_changes_nothing() -> None:
    tables: dict[str, Any] = {"default": {"depth": 7}, "mine": {"inherits": "default", "rrf_k": 9}}
    found = resolve("mine", Layers(config=tables, stored={"default": {"depth": 8}}))
    assert (found.profile.depth, found.profile.rrf_k) == (8, 9)
    assert found.sources["depth"] == "store profiles.toml [default]"


def test_a_parent_stands_below_every_table_of_its_heir() -> None:
    layers = Layers(
        config={"synapse": {"inherits": "off", "depth": 11}},
        stored={"off": {"depth": 5, "rrf_k": 5}},
    )
    profile = resolve("synapse", layers).profile
    assert (profile.ltp_enabled, profile.decay_floor) == (True, 0.0)  # synapse, as shipped
    assert profile.graph_weight == 0.0  # off, as shipped
    assert (profile.depth, profile.rrf_k) == (11, 5)


def test_what_a_call_does_not_give_is_not_given() -> None:
    found = resolve("synapse", Layers(), {"decay_floor": None, "depth": 3})
    assert (found.profile.decay_floor, found.sources["decay_floor"]) == (
        0.0,
        "named synapse (shipped)",
    )
    assert found.sources["depth"] == "this call"


def test_faults_of_a_call_are_an_error_that_lists_them_all() -> None:
    with pytest.raises(ValueError, match="depht") as caught:
        resolve(None, Layers(), {**BAD, "inherits": "off"})
    faults = str(caught.value).split("; ")
    assert all(any(f.startswith(part) for f in faults) for part in ("mmr_lambda", "explain"))
    assert "the nearest known one is depth" in faults
    assert "unknown flag 'inherits'" in faults


def test_the_list_of_profiles_says_where_and_what_is_wrong() -> None:
    layers = Layers(
        config={"synapse": {"description": "ours"}, "mine": {"inherits": "off", "depth": 0}},
        stored={"synapse": {}, "theirs": {"rrf_k": 3}},
    )
    entries = {entry.name: entry for entry in list_profiles(layers)}
    assert list(entries) == [*SHIPPED, "mine", "theirs"]
    assert entries["synapse"].defined == ("shipped", "config", "store")
    assert entries["synapse"].description == "ours"
    assert entries["libravdb-two-pass"].inherits == "libravdb"
    assert entries["mine"].inherits == "off"
    (fault,) = entries["mine"].faults
    assert fault.startswith("config: depth must lie in [1, ")
    assert all(not entry.faults for name, entry in entries.items() if name != "mine")
