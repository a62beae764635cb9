"""Columns for fields that the schemas of records have and the table lacks (``on_unknown_column: add``).

Guarantees
 1. A column is added by the steps of ``lancewal table alter --add-column``, and only to the version of the contract by
    which the records were decoded.  If there is a newer one, the records are decoded by that first.
 2. Two processes that meet a field at once add it once.  If one dies between two steps, the next one goes on.
 3. These fields are not added, and their records are bad records: a name that the table has in another case, a reserved
    name, a type that no column can have, a field beyond ``columns_max``.  So is every field while other programs have
    changed the contract's columns: records wait for no person.
 4. A former name of a column, or the name of a dropped one, is never added.  ``lancewal table alter --forget-name``
    frees it.
 5. If the store does not answer, its error is raised.  The records wait, and the segment is tried again.

A refused field is tried again only after ``AGAIN_S``, or under the next contract version.  Records wait during each
try.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.errors import ActionNeeded, Corrupt, InvalidInput
from lancewal_core.table.columns.changes import Added, ContractChange
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.columns.steps import take_steps
from lancewal_core.table.contract import Contract
from lancewal_ingest.append.newer_contract import contract_to_take_up
from lancewal_ingest.context import IngestContext
from lancewal_ingest.decode.naming import naming_of
from lancewal_ingest.observer import Observer

NewFields = Mapping[str, pa.DataType]
"""Type of each field of records for which the table has no column, by its name."""
AGAIN_S = 5.0
"""Seconds until a refused field is tried again."""
TRIALS_MAX = 200
"""Largest number of trials in one call of ``with_new_fields``, each of some fields together.  A trial takes some
milliseconds.  One field that is refused among a hundred costs about 14 trials."""
REFUSALS_TOLD_MAX = 100
"""Largest number of refused fields that one process reports, because producers choose these names."""


@dataclass(frozen=True, slots=True)
class Following:
    """The next version of a contract, with columns for new fields."""

    contract: Contract
    """The next version; if no field becomes a column, the given contract itself."""
    refused: Mapping[str, str]
    """By name, the reason for each field that becomes no column."""


def with_new_fields(contract: Contract, fields: NewFields, facts: Surroundings, change_id: str) -> Following:
    """Add columns for new fields.  Return the next version of the contract, and the reason for each field that gets no
    column.

    Fields are added in alphabetical order until the table has ``columns_max`` columns.
    """
    names = naming_of(contract).names
    changes, refused = list[ContractChange](), dict[str, str]()
    left, trials = [sorted(fields)], 0
    while left:
        some = left.pop()
        room = contract.columns_max - len(contract.columns) - len(changes)
        if room < 1 or trials > TRIALS_MAX:
            why = f"the table has as many columns as columns_max allows ({contract.columns_max})"
            refused |= dict.fromkeys(some, why if room < 1 else "too many other fields cannot become columns")
            continue
        if len(some) > room:
            left += [some[room:], some[:room]]
            continue
        trials += 1
        try:
            if names is not None and any(name in names.former or name in names.dropped for name in some):
                raise InvalidInput(
                    "the name is a former name of a column, or the name of a dropped one. To free it: "
                    "`lancewal table alter --forget-name`"
                )
            more = [Added((name,), fields[name]) for name in some]
            changed(contract, [*changes, *more], facts, change_id)
        except InvalidInput as error:
            if len(some) == 1:
                refused[some[0]] = str(error)
            else:  # one of them is refused: each half is tried by itself
                left += [some[len(some) // 2 :], some[: len(some) // 2]]
        else:
            changes += more
    return Following(changed(contract, changes, facts, change_id) if changes else contract, refused)


class NewColumns:
    """Finder of newer versions of a table's contract, which adds columns for new fields if there is none.  One thread
    at a time may call."""

    def __init__(self, context: IngestContext, observer: Observer) -> None:
        self._context = context
        self._observer = observer
        self._made: tuple[str | None, NewFields] = (None, {})
        """The last change that was begun here (``Contract.columns_change``), and its fields."""
        self._refused_until = dict[tuple[int, str, pa.DataType], float]()
        """Fields that a version of the contract does not get, and the monotonic seconds until which they are not tried
        again."""
        self._told = set[str]()

    def find(self, contract: Contract, fields: NewFields) -> Contract | None:
        """Return the newest version after ``contract``.  If there is none, add columns for ``fields``, and return that
        version.

        None if no field can become a column, or if the newest version has changes that a running process cannot follow.
        """
        store, group = self._context.store, self._context.group
        newer = contract_to_take_up(store, contract, group)
        if newer is None and contract.on_unknown_column == "add" and self._add(contract, fields):
            newer = contract_to_take_up(store, contract, group)
        change, added = self._made
        if newer is not None and change is not None and newer.columns_change == change:
            self._made = (None, {})
            for name, type_ in added.items():
                self._observer.column_added(name, type_, newer.version)
        return newer

    def _add(self, contract: Contract, fields: NewFields) -> bool:
        """Add columns for new fields.  Return False if no field can become a column.  After True, the contract may
        have a newer version."""
        now, version = self._context.clock.monotonic(), contract.version
        self._refused_until = {field: until for field, until in self._refused_until.items() if now < until}
        fields = {n: type_ for n, type_ in fields.items() if (version, n, type_) not in self._refused_until}
        if not fields:
            return False
        alone = Surroundings(max([*contract.field_ids, contract.highest_field_id or 0]), {})
        refused = with_new_fields(contract, fields, alone, "0").refused
        self._refuse(contract, fields, refused)
        wanted = {name: type_ for name, type_ in fields.items() if name not in refused}
        if not wanted:
            return False
        by_table = dict[str, str]()

        def following(newest: Contract, facts: Surroundings, change_id: str) -> Contract:
            by_table.clear()
            if newest != contract:
                return newest
            found = with_new_fields(newest, wanted, facts, change_id)
            by_table.update(found.refused)
            if found.contract is not newest:
                added = {name: type_ for name, type_ in sorted(wanted.items()) if name not in found.refused}
                self._made = (found.contract.columns_change, added)
            return found.contract

        context = self._context
        try:
            take_steps(context.store, context.table, context.clock, context.new_id, following)
        except (ActionNeeded, Corrupt) as error:
            by_table = dict.fromkeys(wanted, str(error))
        self._refuse(contract, wanted, by_table)
        return True

    def _refuse(self, contract: Contract, fields: NewFields, refused: Mapping[str, str]) -> None:
        until = self._context.clock.monotonic() + AGAIN_S
        for name, why in refused.items():
            self._refused_until[contract.version, name, fields[name]] = until
            if name not in self._told and len(self._told) < REFUSALS_TOLD_MAX:
                self._told.add(name)
                self._observer.column_refused(name, why)
