"""A cut that lacks something gives the same error at each door: Python, a command by name and by address, Spark, `cut show`,
and `catalog check`.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.opened import open_directory
from lancewal_core.cli.program import run
from lancewal_core.errors import LancewalError
from lancewal_core.settings.load import Settings
from lancewal_flusher.catalog.check import check_catalog
from lancewal_flusher.garbage.snapshots import drop_snapshot
from lancewal_reader.cuts import open_cut
from lancewal_reader.spark.source import pin_read
from lancewal_reader.table import open_table
from lancewal_tables.catalog.rebuild import rebuild
from lancewal_tables.define.drop import drop
from tests.support.pipeline import Pipeline, by_key
from tests.tables.cuts.lake import Lake

NAME = "shop.orders"


def drop_by_hand(lake: Lake, cut: Cut) -> None:
    drop_snapshot(lake.of[NAME].table, cut.tables[NAME].snapshot or "")


def lose_files_of_the_branch(lake: Lake, cut: Cut) -> None:
    shutil.rmtree(Path(lake.of[NAME].uri) / "tree" / (cut.tables[NAME].snapshot or ""))


def remove_folder(lake: Lake, cut: Cut) -> None:
    shutil.rmtree(lake.of[NAME].uri)


def move_folder(lake: Lake, cut: Cut) -> None:
    """The entry follows, as by `lancewal catalog register`."""
    shutil.move(lake.of[NAME].uri, lake.root / "moved")
    entry = lake.catalog.table(NAME)
    assert entry is not None
    new = entry.model_copy(update={"uri": str(lake.root / "moved"), "write_id": "2"})
    assert lake.catalog.swap_table(NAME, entry, new)


def remove_contracts(lake: Lake, cut: Cut) -> None:
    shutil.rmtree(Path(lake.of[NAME].uri) / "_lancewal")


def replace(lake: Lake, cut: Cut) -> None:
    of = cut.tables[NAME].model_copy(update={"table_uuid": "former"})
    assert lake.catalog.swap_cut("june", cut, None)
    assert lake.catalog.swap_cut("june", None, cut.model_copy(update={"tables": {**cut.tables, NAME: of}}))


def drop_table(lake: Lake, cut: Cut) -> None:
    drop(lake.of[NAME].flusher(), lambda: uuid.uuid4().hex)


FAULTS: dict[str, tuple[Callable[[Lake, Cut], None], str]] = {
    "snapshot": (drop_by_hand, "The state is not there: "),
    "branch": (lose_files_of_the_branch, "The snapshot june-"),
    "folder": (remove_folder, "There is no lancewal table at "),
    "moved": (move_folder, "There is no lancewal table at "),
    "contracts": (remove_contracts, "There is no lancewal table at "),
    "replaced": (replace, "there is now the table with uuid table-uuid. The cut has the table with uuid former"),
    "dropped": (drop_table, "was dropped at "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_door_gives_one_error(lake: Lake, capsys: pytest.CaptureFixture[str], fault: str) -> None:
    cut, config = lake.make("june"), lake.config()
    orders, items = cut.tables[NAME].uri, lake.expected(cut, "shop.items")
    make, said = FAULTS[fault]
    make(lake, cut)
    capsys.readouterr()
    with pytest.raises(LancewalError) as raised:
        open_cut(lake.catalog, "june", open_table)[NAME].to_arrow()
    text = f"{raised.value.kind}: {raised.value}"
    assert said in text
    assert text.startswith(
        "table_dropped: " if fault == "dropped" else f"cut_missing: cut june is incomplete: its table {NAME} "
    )
    for table in (NAME, orders):
        assert run(["read", "-t", table, "--at", "cut:june", "-c", config]) == 2
        assert capsys.readouterr().err.strip().endswith(text)
        with pytest.raises(LancewalError) as in_spark:
            pin_read({"catalog": str(lake.root), "table": table, "at": "cut:june"})
        assert f"{in_spark.value.kind}: {in_spark.value}" == text
    assert run(["cut", "show", "june", "-c", config]) == 1
    assert text in capsys.readouterr().out
    (found,) = [one for one in check_catalog(lake.catalog, Settings()) if one.kind == "incomplete-cut"]
    assert (found.name, found.uri) == ("june", orders)
    assert text in found.text
    assert run(["catalog", "check", "-c", config]) == 1
    assert "june: incomplete-cut: " in capsys.readouterr().out
    assert by_key(open_cut(lake.catalog, "june", open_table)["shop.items"].to_arrow()) == items


@pytest.mark.parametrize("taken", [False, True])
def test_a_table_that_was_forgotten_is_read_by_the_name_that_it_had(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], taken: bool
) -> None:
    """``taken``: another table has the name by now.  A cut keeps the table that it was made of."""
    cut, config = lake.make("june"), lake.config()
    expected = lake.expected(cut, NAME)
    assert lake.catalog.swap_table(NAME, lake.catalog.table(NAME), None)
    other = Pipeline(tmp_path / "another", topic="another", partitions=1) if taken else None
    if other is not None:
        former = lake.of[NAME]
        lake.add(NAME, other)
        other.close()
        lake.of[NAME] = former
    assert by_key(open_cut(lake.catalog, "june", open_table)[NAME].to_arrow()) == expected
    assert run(["count", "-t", NAME, "--at", "cut:june", "-c", config]) == 0
    assert capsys.readouterr().out.split()[0] == str(len(expected))
    pinned = pin_read({"catalog": str(lake.root), "table": NAME, "at": "cut:june"})
    assert pinned.pinned_plan.options.table == cut.tables[NAME].uri
    assert run(["cut", "show", "june", "-c", config]) == 0
    assert [one for one in check_catalog(lake.catalog, Settings()) if one.name == "june"] == []


def test_check_passes_over_cuts_that_are_over_or_move(lake: Lake) -> None:
    over = lake.make("over", for_ms=0)
    drop_by_hand(lake, over)
    moving = over.model_copy(
        update={"name": "live", "moving": True, "until_ms": None, "write_id": "live"}
        | {"tables": {name: of.model_copy(update={"snapshot": None}) for name, of in over.tables.items()}}
    )
    assert lake.catalog.swap_cut("live", None, moving)
    assert check_catalog(lake.catalog, Settings()) == []


@pytest.mark.parametrize("fault", ["branch", "dropped"])
def test_a_cut_that_cannot_be_read_is_not_written_again_as_a_whole_one(lake: Lake, tmp_path: Path, fault: str) -> None:
    """One with a dropped table is written, since `table undrop` makes it whole.  Both are findings."""
    cut, whole = lake.make("june"), lake.make("july", "shop.items")
    FAULTS[fault][0](lake, cut)
    (tmp_path / "empty").mkdir()
    catalog = open_directory(str(tmp_path / "empty"))
    done = rebuild(catalog, Settings(), [str(lake.root)])
    written = {"june": cut, "july": whole} if fault == "dropped" else {"july": whole}
    assert dict(catalog.cuts()) == written
    assert sorted(done.cuts) == sorted(written)
    begins = (
        "cut june: table_dropped: " if fault == "dropped" else "cut june was not written: cut_missing: cut june is "
    )
    (said,) = done.findings
    assert said.startswith(begins)
