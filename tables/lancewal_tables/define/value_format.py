"""``lancewal table alter --format-value``: another format of record values, for a table without a row.

Guarantees
 1. The format changes only while the table has no row: neither in the Lance table, nor in a region.  A region whose
    state does not say so has had a row.
 2. Every entry names the version of the contract by which its records were decoded.  So a row that becomes durable
    while the command runs was decoded in the former format, and stays right.
 3. Running services use the new version without a restart.  Ingest opens partitions again that were stopped by a
    record.  While a region has no row, ingest looks for a newer version before it rejects a record
    (``append.prepare``).

Steps
 1. Read the newest contract, and check that the table has no row.
 2. Put the next version of the contract.  If another command has put one, nothing is changed.
"""

from __future__ import annotations

from contextlib import closing
from typing import get_args

from lancewal_core.errors import InvalidInput, InvalidSettings
from lancewal_core.open import Address, open_at
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.durable_position import rejected_without_row
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TYPED_FORMATS
from lancewal_core.table.checks import check_place
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.contract import Contract, put_next
from lancewal_tables.define.alter import check_settings_of

_OF_FIRST_RELEASE = "json"


def alter_value_format(settings: Settings, value_format: str, *, look_only: bool = False) -> Contract:
    """Alter the format of record values, and return the new contract.

    Raises ``InvalidInput`` if there is no such format, or the table has rows.  Raises ``InvalidSettings`` if the
    contract has this format already.  Raises ``ContractMismatch`` if the settings name another one.
    """
    address = Address.of(settings)
    with closing(ThreadTasks(workers=1)) as tasks:
        # Step 1
        opened = open_at(address, tasks, SystemClock())
        old = opened.contract
        check_place(address.uri, old)
        check_fit(opened.store, opened.table.newest(), old)
        known: tuple[str, ...] = get_args(Contract.model_fields["value_format"].annotation)
        if value_format not in known:
            raise InvalidInput(f"--format-value {value_format[:60]!a}: expected one of {', '.join(known)}")
        if value_format == old.value_format:
            raise InvalidSettings(f"the contract already has the format {value_format}: nothing was changed")
        _check_no_row(opened, value_format)
        if old.value_record is not None:
            raise InvalidInput(
                f"the table takes records of the name {old.value_record!a} (table.format.record), which only its format of "
                "values has. Make a table without it. Nothing was changed"
            )
        formed = [column.name for column in old.columns if column.json_form is not None]
        if formed and value_format in TYPED_FORMATS:
            raise InvalidInput(
                f"column {formed[0]!r} has json, and the schemas of {value_format} say the form of each value. Drop the "
                "column, and add it without json: `lancewal table alter --drop-column`, `--add-column`. Nothing was changed"
            )
        format_ = old.format if value_format == _OF_FIRST_RELEASE else 2
        new = old.model_copy(update={"version": old.version + 1, "format": format_, "value_format": value_format})
        check_settings_of(settings, new, opened.store)
        # Step 2
        return new if look_only else put_next(opened.store, opened.clock, old, new)


def _check_no_row(opened: OpenedTable, value_format: str) -> None:
    contract = opened.contract
    rows = sum(fragment.live_rows for fragment in opened.table.newest().fragments())
    with_rows = [r.partition for r, told in rejected_without_row(opened, contract.regions).items() if told is None]
    if not rows and not with_rows:
        return
    where = f"{rows} rows" if rows else f"had rows in partitions {', '.join(map(str, sorted(with_rows)))}"
    raise InvalidInput(
        f"the table has {where}, and its format of values ({contract.value_format}) changes only before the first one. "
        f"Have the producers write {value_format} into a new topic, and make a table of that topic. Nothing was changed"
    )
