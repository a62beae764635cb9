"""A table of a kept cut whose folder was moved: it is registered only by a command that names the cut, which lacks it then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pytest
import yaml

from lancewal_core.cli.program import run
from lancewal_core.errors import StoreUnavailable
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract
from lancewal_tables.catalog import cuts_of_table, registration
from tests.support.pipeline import by_key
from tests.tables.catalog.test_entries import Lake, crash
from tests.tables.define.test_copies import ROWS

NAME = "shop.orders"
Said = Callable[..., str]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "x")
    for name in (NAME, "shop.items"):
        made.attach(made.inside(name), name)
    return made


@pytest.fixture
def said(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    """What a command prints.  The cut june has been made."""
    config, alone = tmp_path / "lancewal.yaml", tmp_path / "alone.yaml"
    config.write_text(yaml.safe_dump({"catalog": {"root": str(lake.root)}}))
    alone.write_text("{}")

    def call(*words: object, code: int = 0, catalog: bool = True) -> str:
        capsys.readouterr()
        assert run([*map(str, words), "-c", str(config if catalog else alone)]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    call("cut", "make", "june", "--tables", "shop.*", "--up-to", "durable")
    return call


def rows_at_cut(said: Said) -> list[dict[str, object]]:
    lines = said("read", "-t", NAME, "--at", "cut:june", "-o", "jsonl").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_plain_lance_does_not_read_the_branch_of_a_folder_that_was_moved(
    lake: Lake, said: Said, tmp_path: Path
) -> None:
    """The reason why nothing mends the cut.  If Lance reads it one day, a cut may follow its table."""
    snapshot = lake.catalog.cuts()["june"].tables[NAME].snapshot
    read = lance.dataset(str(lake.inside(NAME))).checkout_version((snapshot, None)).to_table()
    assert by_key(read) == by_key(ROWS)
    shutil.move(lake.inside(NAME), tmp_path / "moved")
    with pytest.raises(Exception, match=r"Not found: .*shop\.orders\.lance"):
        lance.dataset(str(tmp_path / "moved")).checkout_version((snapshot, None)).to_table()


@pytest.mark.parametrize("catalog", [True, False])
@pytest.mark.parametrize("command", ["register", "moved"])
def test_a_moved_table_is_taken_up_only_if_its_cuts_are_named(
    lake: Lake, said: Said, tmp_path: Path, command: str, catalog: bool
) -> None:
    """Until then nothing is changed, and the folder that is moved back makes the cut whole.  Without a catalog the snapshots
    in the folder tell of the cut."""
    if command == "register" and not catalog:
        return
    home, moved = lake.inside(NAME), tmp_path / "moved"
    words = ("catalog", "register", NAME) if command == "register" else ("table", "moved", "--from", str(home))
    before = lake.contract(home)
    shutil.move(home, moved)
    refused = said(*words, "-t", moved, code=2, catalog=catalog)
    assert (
        f"is in kept cuts, which would lack it: june. Nothing was changed. To keep them, move the folder back to {home}"
        in refused
    )
    assert "or add --cut june" in refused
    assert "--cut may: there is no kept cut" in said(*words, "-t", moved, "--cut", "may", code=2, catalog=catalog)
    assert lake.contract(moved) == before
    shutil.move(moved, home)
    assert "june" in said("cut", "show", "june")
    assert len(rows_at_cut(said)) == len(ROWS)
    shutil.move(home, moved)
    done = said(*words, "-t", moved, "--cut", "june", catalog=catalog)
    assert "cut june lacks the table from now on: `lancewal cut show june` says so" in done
    assert lake.contract(moved).table_uuid != before.table_uuid
    assert f"its table {NAME} cannot be read. There is no lancewal table at {home}" in said(
        "cut", "show", "june", code=1
    )


def test_a_registration_of_a_moved_table_that_is_killed_is_repeated_with_the_same_words(
    lake: Lake, said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.move(lake.inside(NAME), tmp_path / "moved")
    words = ("catalog", "register", NAME, "-t", tmp_path / "moved", "--cut", "june")
    with monkeypatch.context() as patch:
        patch.setattr(registration, "put_entry", crash)
        said(*words, code=5)
    assert json.loads(said(*words, "-o", "json"))["uri"] == str(tmp_path / "moved")


def test_a_copy_takes_nothing_from_the_cut(lake: Lake, said: Said, tmp_path: Path) -> None:
    shutil.copytree(lake.inside(NAME), tmp_path / "copy")
    words = ("catalog", "register", "copy", "-t", tmp_path / "copy")
    assert "--cut june: there is no kept cut of this name that has the table" in said(*words, "--cut", "june", code=2)
    assert "june" not in said(*words)
    assert len(rows_at_cut(said)) == len(ROWS)
    said("cut", "show", "june")


def test_a_cut_that_lacks_a_moved_table_is_dropped_with_the_snapshots_that_moved(
    lake: Lake, said: Said, tmp_path: Path
) -> None:
    shutil.move(lake.inside(NAME), tmp_path / "moved")
    said("catalog", "register", NAME, "-t", tmp_path / "moved", "--cut", "june")
    said("cut", "drop", "june", "--yes")
    assert said("cut", "list") == "no cuts\n"
    for place in (tmp_path / "moved", lake.inside("shop.items")):
        assert not lance.dataset(str(place)).branches.list()
    assert said("catalog", "check") == "the catalog is right\n"


def test_the_status_of_a_moved_table_names_no_cut_that_lacks_it(lake: Lake, said: Said, tmp_path: Path) -> None:
    assert json.loads(said("status", "-t", NAME, "-o", "json"))["cuts"][0]["name"] == "june"
    shutil.move(lake.inside(NAME), tmp_path / "moved")
    done = said("catalog", "register", NAME, "-t", tmp_path / "moved", "--cut", "june")
    assert "Earlier receipts are no longer accepted, and named snapshots cannot be read here" in done
    assert json.loads(said("status", "-t", NAME, "-o", "json"))["cuts"] == []


def test_where_nobody_knows_whether_a_folder_was_moved_its_cuts_are_named(
    lake: Lake, said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store of the original does not answer, and may be gone for good."""
    shutil.copytree(lake.inside(NAME), tmp_path / "copy")
    words = ("catalog", "register", "copy", "-t", tmp_path / "copy")

    def no_answer(store: ObjectStore) -> Contract | None:
        raise StoreUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(cuts_of_table, "newest_contract", no_answer)
        assert "is in kept cuts, which would lack it: june" in said(*words, code=2)
    said(*words)


def test_a_copy_of_a_table_that_was_dropped_takes_nothing_from_its_cuts(lake: Lake, said: Said, tmp_path: Path) -> None:
    shutil.copytree(lake.inside(NAME), tmp_path / "copy")
    said("table", "drop", "-t", NAME, "--cut", "june")
    said("catalog", "register", "copy", "-t", tmp_path / "copy")
    said("table", "undrop", "-t", NAME)
    assert len(rows_at_cut(said)) == len(ROWS)
