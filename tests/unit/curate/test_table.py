from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noctuary.core.errors import ConfigError, CurationRefusedError, StoreError
from noctuary.core.store import name_source, names_postgres
from noctuary.curate.apply import (
    ProposalTable,
    chosen,
    read_proposals,
    replacement_text,
    write_proposals,
)
from noctuary.curate.proposals import Evidence, Piece, Proposal, Span, Target, named
from noctuary.sources.postgres import read_address


def proposal(number: int = 0, **fields: Any) -> Proposal:
    values: dict[str, Any] = {
        "action": "ADD",
        "kind": "fragments",
        "confidence": 0.8,
        "user": None,
        "wing": "harbour",
        "targets": (
            Target(f"b{number}", 2, "superseded", "h2", "t2"),
            Target(f"a{number}", 1, "superseded", "h1", "t1"),
        ),
        "evidence": Evidence("Because.", (Span(f"a{number}", 0, 4),), 0.5, None),
        "pieces": (Piece("", f"a{number}", 0, 4), Piece("\n", f"b{number}", 1, 3)),
        **fields,
    }
    return named(Proposal(**values))


def test_a_table_is_read_as_it_was_written_and_equal_ones_have_equal_bytes(tmp_path: Path) -> None:
    table = ProposalTable((proposal(), proposal(1, action="NOOP", pieces=())), True, "digest")
    for name in ("one", "two"):
        write_proposals(tmp_path / name, table)
    assert read_proposals(tmp_path / "one") == table
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_an_empty_table_says_that_nothing_was_looked_for(tmp_path: Path) -> None:
    write_proposals(tmp_path / "t", ProposalTable((), False, ""))
    assert read_proposals(tmp_path / "t") == ProposalTable((), False, "")


def test_a_table_that_is_missing_or_damaged_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"set curation\.enabled"):
        read_proposals(tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"PAR1 no")
    with pytest.raises(StoreError, match="run the night again"):
        read_proposals(tmp_path / "bad")


def test_targets_are_in_order_of_position() -> None:
    assert proposal().memory_ids == ("a0", "b0")


@pytest.mark.parametrize(
    ("field", "value", "same"),
    [
        ("confidence", 0.1, True),
        ("evidence", Evidence("Otherwise."), True),
        ("action", "NOOP", False),
        ("kind", "superseded", False),
        ("fields", ("tags",), False),
        ("pieces", (), False),
        ("targets", (Target("a0", 1, "superseded", "h1", "t1"),), False),
    ],
)
def test_an_id_is_of_what_would_be_done(field: str, value: Any, same: bool) -> None:
    assert (proposal(**{field: value}).proposal_id == proposal().proposal_id) is same


def test_a_replacement_is_composed_of_the_texts_at_hand() -> None:
    assert replacement_text(proposal(), {"a0": "tides", "b0": "high"}) == "tide\nig"
    assert replacement_text(proposal(), {"a0": "tides"}) is None
    assert replacement_text(proposal(action="NOOP", pieces=()), {}) is None


def test_proposals_are_chosen_by_the_start_of_their_id() -> None:
    found = [proposal(n) for n in range(3)] + [proposal(3, action="NOOP", pieces=())]
    first = found[0]
    assert chosen(found, (first.proposal_id[:6],), 0.0) == [first]
    assert chosen(found, (first.proposal_id, first.proposal_id), 0.99) == [first]
    assert chosen(found, (found[3].proposal_id,), 0.0) == [found[3]]
    assert chosen(found, (), 0.0) == found[:3]
    assert chosen(found, (), 0.81) == []
    for wrong in ("", "xyz"):
        with pytest.raises(CurationRefusedError, match="expected one"):
            chosen(found, (wrong,), 0.0)
    for least in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="expected 0 to 1"):
            chosen(found, (), least)


def test_an_address_comes_from_a_variable_and_shows_no_password() -> None:
    dsn = "postgresql://ann:s3cret@db.local:5433/memory"
    address = read_address("env:MEMORY_DSN", {"MEMORY_DSN": f" {dsn}\n"})
    assert address.conninfo == dsn
    assert address.display == "postgresql://ann@db.local:5433/memory"
    assert "s3cret" not in repr(address)
    assert "s3cret" not in repr(name_source(dsn)) + str(name_source(dsn))
    assert address.cleaned(f"no: s3cret\n at {dsn}") == "no: *** at ***"


@pytest.mark.parametrize(
    ("source", "environ"),
    [
        ("env:MISSING", {}),
        ("env:OTHER", {"OTHER": "s3cret"}),
        ("postgresql://ann:s3cret@[::1", {}),
        ("postgresql://h/d?s3cret=1", {}),
    ],
)
def test_a_wrong_address_is_not_repeated(source: str, environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_address(source, environ)
    assert "s3cret" not in str(caught.value)


def test_what_is_an_address() -> None:
    assert all(names_postgres(s) for s in ("postgresql://h/d", "postgres://h/d", "env:X"))
    assert not any(names_postgres(s) for s in ("memory.db", "./env", "https://h"))
