"""A table of a kept cut is dropped only by a command that names the cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lancewal_core.catalog.opened import catalog_of
from lancewal_core.errors import InvalidInput
from lancewal_core.settings.load import Settings, load_settings
from lancewal_tables.catalog.cuts_of_table import check_kept_cuts
from lancewal_tables.catalog.dropping import contract_of
from lancewal_tables.catalog.registration import forget_table
from tests.tables.cuts.lake import Lake


def settings_with(lake: Lake, catalog: Mapping[str, str]) -> Settings:
    environment = {"LANCEWAL_TABLE__URI": lake.of["shop.orders"].uri, **catalog}
    return load_settings(None, environment)


def checking(settings: Settings) -> Callable[..., None]:
    """Return a check of the cuts that a command names, each as an argument."""
    contract, catalog = contract_of(settings), catalog_of(settings)
    return lambda *named: check_kept_cuts(settings, catalog, contract, named)


def test_a_table_of_a_kept_cut_is_not_dropped_by_the_way(tmp_path: Path, seed: int) -> None:
    lake = Lake(tmp_path, seed=seed)
    lake.produce(20)
    other = tmp_path / "other"
    other.mkdir()
    for place in ({"LANCEWAL_CATALOG__ROOT": str(lake.root)}, {"LANCEWAL_CATALOG__ROOT": str(other)}, {}):
        settings = settings_with(lake, place)
        check = checking(settings)
        check()
        cut = lake.make("june")
        with pytest.raises(InvalidInput, match=r"which would lack it: june\. Nothing was changed\..* --cut june"):
            check()
        for named in (("may",), ("june", "may")):
            with pytest.raises(InvalidInput, match=r"--cut may: there is no kept cut of this name that has the table"):
                check(*named)
        check("june")
        assert lake.catalog.swap_cut("june", cut, None)
        for table in lake.of.values():
            for branch in table.table.branches():
                table.table.drop_branch(branch.name)
        check()
    lake.close()


@pytest.mark.parametrize("catalog", ["own", "none"])
def test_a_cut_whose_time_is_over_binds_no_table(tmp_path: Path, catalog: str) -> None:
    """Its record and its snapshots are still there.  A command may name it all the same."""
    lake = Lake(tmp_path)
    lake.produce(20)
    check = checking(settings_with(lake, {"LANCEWAL_CATALOG__ROOT": str(lake.root)} if catalog == "own" else {}))
    for table in lake.of.values():
        table.clock.ahead_s -= 60  # the cut is made a minute ago
    lake.make("june", for_ms=1)
    check()
    if catalog == "own":
        check("june")
        forget_table(lake.catalog, "shop.orders")
    lake.close()
