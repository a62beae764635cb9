"""Make a Lance table a lancewal table: contract, checkpoint, identity.  ``create`` and ``attach`` share these steps.

Guarantees
 1. An identity (``table_uuid``) is created with the contract that names it, in the run that puts that contract.  No other
    table gets this identity: neither a copy of the folder, whenever the copy was made, nor a clone, whose config names the
    original's identity.
 2. A run continues an interrupted run only if this folder's own contract says so.
 3. "Nothing merged" is recorded only for a version that is older than the identity: a run that comes too late records
    nothing.

Steps, each done once however often it is repeated
 0. Prove that the store keeps put-if-absent (``store_proof``), which all later puts rely on.  Without this proof no
    lancewal table is made, and only the empty Lance table of ``create`` stays.
 1. Put contract version 1 by put-if-absent, with a new uuid and the table's place.  If two runs do so at once, one wins.  No
    process reads any other object before this contract exists.
 2. Put the checkpoint ``merges/<newest version>`` "nothing merged".  A search for watermarks goes back through the
    versions, and ends at this checkpoint.  It never reads older versions of the table (from before a restore or an
    overwrite long ago).
 3. Set ``lancewal.table_uuid`` in the Lance table's config to the contract's uuid, whatever the config had before.  Until
    then services and readers refuse the table, so nothing is written under the new identity.
 4. Put a checkpoint of the version of step 3 too.  After that, a clean-up may delete any lower version.  If this checkpoint
    is missing, the flusher's first round writes it.

After a crash before step 1 the same command starts over.  After a later crash, it continues with step 2 under the
stored contract.  This contract must have version 1 and name this place, and no region may exist yet.  The table's
config must have another uuid.
"""

from __future__ import annotations

from contextlib import closing
from typing import assert_never
from uuid import uuid4

import pyarrow as pa

from lancewal_core.errors import LancewalError, StoreNotWritable, StoreUnavailable, TableExists, TableMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import Making, TableVersion
from lancewal_core.open import Folder
from lancewal_core.process.library_errors import first_line, way_on
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.record_keys.key_format import OF_FIRST_RELEASE
from lancewal_core.rows.column_types import format_type, of_first_release
from lancewal_core.rows.schema import FieldIds, RowSchema
from lancewal_core.settings.declared import OF_ITSELF, ColumnSource, declared_sources
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import PLACEHOLDER, TableSettings
from lancewal_core.store.address import place_of, same_place
from lancewal_core.store.object_store import Done, Lost, ObjectStore, Unknown, put_once
from lancewal_core.store.refusal import refusal_of_puts, what_to_set
from lancewal_core.table.checks import check_columns, check_settings, elsewhere_advice
from lancewal_core.table.contract import Column, Contract, check_in_use, encode_contract, newest_contract
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.proof.store_proof import prove_store
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.watermarks import NOTHING_MERGED, TABLE_UUID, Watermarks
from lancewal_tables.define.topic import FittingTopic

_TRIES = 4
"""Number of attempts to set the uuid in the Lance table's config while other commits conflict."""
_SAME = (TableSettings.model_fields.keys() & Contract.model_fields.keys()) - {"columns", "format", "start"}
"""Names of terms that a contract takes over from the settings of its table."""


def begun_contract(folder: Folder) -> Contract | None:
    """Return the contract that an interrupted run of ``create`` or ``attach`` has put, or None if none was put.

    Raises ``TableExists`` if the folder is a lancewal table, or a copy of one, or holds objects of a former one.
    Raises ``StoreRefused`` if the store denies access.  Raises ``TableDropped`` if the table there was dropped.
    """
    uri = folder.table.uri
    try:
        contract = newest_contract(folder.store)
        left = _left(folder.store, contract)
    except StoreUnavailable as error:
        raise store_error(error, f"looking for a contract at {uri}") from error
    if contract is None:
        if left:
            raise TableExists(
                f"{uri} has no contract, but {left[0]}, an object of a former lancewal table. If no such object is "
                f"needed, delete the folder {paths.ROOT.rstrip('/')} in it, and run the same command again"
            )
        return None
    check_in_use(contract, uri)
    here = place_of(uri)
    if contract.place is not None and not same_place(contract.place, here):
        raise TableExists(
            f"{here} is a lancewal table, and its contract is that of the table at {contract.place}. "
            f"{elsewhere_advice(contract.place)}"
        )
    if left or contract.place is None or contract.version > 1 or _names(folder.table, contract):
        raise TableExists(
            f"{uri} is already a lancewal table: topic {contract.topic}, contract version {contract.version}; "
            "see `lancewal table show`"
        )
    return contract


def _left(store: ObjectStore, contract: Contract | None) -> list[str]:
    """Return keys of some objects that services of the contract's table have written.  If ``contract`` is None, return
    keys that any former table has left."""
    making = None if contract is None else contract.making
    prefixes = [paths.pages_prefix(making), paths.regions_prefix(making)]
    if contract is None:
        prefixes.append(paths.MADE)
    return [info.key for prefix in prefixes for info in store.list(prefix, limit=1)]


def _names(table: LanceTable, contract: Contract) -> bool:
    """Return whether the Lance table's config names the contract's uuid.  Also true if there is no Lance table."""
    try:
        return table.newest().config.get(TABLE_UUID) == contract.table_uuid
    except TableMissing:
        return True


def go_on(
    folder: Folder, pinned: LancePinnedTable, contract: Contract, settings: Settings, *, look_only: bool = False
) -> Contract:
    """Continue an interrupted run under its contract (steps 0 and 2 to 4), and return the contract.

    The settings must be those from which the contract was made.  ``look_only``: only check."""
    check_settings(settings, contract)
    check_columns(pinned, contract)
    if not look_only:
        _prove(folder)
        _take_effect(folder, pinned, contract)
    return contract


def first_contract(
    uri: str,
    pinned: PinnedTable | None,
    rows: RowSchema,
    settings: TableSettings,
    topic: FittingTopic,
    name: str | None = None,
) -> Contract:
    """Return the first contract of a table, with a new identity.  Nothing is written.

    ``pinned``: the table, whose columns have the ids that Lance has assigned; None if there is no table yet.  ``name``: the
    table's name in the catalog."""
    ids = {} if pinned is None else pinned.field_ids
    sources = declared_sources(settings)
    columns = [_column(f, ids.get(f.name, ()), sources.get(f.name, OF_ITSELF)) for f in rows.columns]
    later = (
        *("on_unknown_column", "columns_max", "partitioner", "on_wrong_format", "on_unknown_schema"),
        *("on_other_record", "subscription_hold_s_max", "on_truncate", "snapshot_rows"),
        "on_unavailable_value",
    )
    plain = all(getattr(settings, term) == Contract.model_fields[term].default for term in later)
    plain = plain and settings.format.key in OF_FIRST_RELEASE and settings.format.value == "json"
    plain = plain and settings.format.envelope == "none" and settings.format.unavailable_value == PLACEHOLDER
    plain = plain and name is None and all(column.source == OF_ITSELF for column in columns)
    plain = plain and all(map(of_first_release, rows.columns.types))
    terms = {name: getattr(settings, name) for name in _SAME}
    terms |= {name: terms[name] or None for name in ("dead_letter_topic", "ttl_column", "ttl_s")}
    terms |= {
        "format": 1 if plain else 2,
        "table_uuid": str(uuid4()),
        "place": place_of(uri),
        "name": name,
        "making": Making(uuid4().hex),
        "topic": topic.state.topic,
        "topic_id": topic.state.topic_id,
        "partitions": topic.state.partitions,
        "primary_key": rows.primary_key,
        "region_key": rows.region_key,
        "value_format": settings.format.value,
        "value_record": settings.format.record or None,
        "envelope": settings.format.envelope,
        "unavailable_value": settings.format.unavailable_value,
        "key_format": settings.format.key,
        "start": tuple(topic.start),
        "columns": tuple(columns),
    }
    return Contract.model_validate(terms)


def _column(field: pa.Field, ids: FieldIds, source: ColumnSource) -> Column:
    return Column(
        name=field.name,
        type=format_type(field.type),
        field_ids=ids,
        json_form=source.json,
        toast=source.toast,
        field=source.field,
        metadata=source.metadata,
    )


def register(folder: Folder, pinned: LancePinnedTable, contract: Contract) -> Contract:
    """Make a Lance table a lancewal table with its first contract (steps 0 to 4), and return the contract.

    ``pinned``: the newest version of the table.  Raises ``TableExists`` if another process was faster.
    """
    # Step 0
    _prove(folder)
    # Step 1
    key = paths.contract_version(contract.version, contract.making)
    outcome = put_once(folder.store, key, encode_contract(contract))
    match outcome:
        case Done():
            pass
        case Lost():
            raise TableExists(
                f"{folder.table.uri} was made a lancewal table by another process at the same time: see `lancewal table "
                "show`"
            )
        case Unknown(cause=cause):
            raise store_error(OSError(cause), f"writing {key}")
        case _:
            assert_never(outcome)
    _take_effect(folder, pinned, contract)
    return contract


def _prove(folder: Folder) -> None:
    with closing(ThreadTasks()) as tasks:
        prove_store(folder.store, tasks, folder.way, folder.table.uri, lambda: uuid4().hex)


def _take_effect(folder: Folder, pinned: LancePinnedTable, contract: Contract) -> None:
    """Make the contract take effect (steps 2 to 4).  Raises ``StoreNotWritable`` if the record of step 2 is missing
    afterwards."""
    # Step 2
    version = TableVersion(pinned.version)
    watermarks = Watermarks(folder.store, folder.table, contract.making)
    watermarks.record(NOTHING_MERGED, version, "checkpoint")
    key = paths.merge_record(version, contract.making)
    if folder.store.get(key) is None:
        raise StoreNotWritable(
            f"{key} could not be written into {folder.table.uri}. Check that there is room, that the "
            "folder is writable and that the store's credentials allow PutObject, then run the same command again"
        )
    # Step 3
    identify(folder.table, contract)
    # Step 4.  Services may be at work already.
    newest, in_force = watermarks.newest()
    watermarks.record(in_force, TableVersion(newest.version), "checkpoint")


def identify(table: LanceTable, contract: Contract) -> None:
    """Make the Lance table's config name the contract's uuid.  Raises ``StoreUnavailable`` if other commits keep
    conflicting.
    """
    for _ in range(_TRIES):
        pinned = table.newest()
        if pinned.config.get(TABLE_UUID) == contract.table_uuid:
            return
        try:
            pinned.dataset.update_config({TABLE_UUID: contract.table_uuid})
        except OSError as error:
            if "incompatible transaction" not in str(error).lower():
                raise store_error(error, f"setting {TABLE_UUID} in the config of {table.uri}") from error
    if table.newest().config.get(TABLE_UUID) != contract.table_uuid:
        raise StoreUnavailable(f"others keep changing the config of {table.uri}; run the same command again")


def store_error(error: BaseException, act: str) -> LancewalError:
    """Return the error for a failure of the store during ``act``: one that may pass, or one that a person must solve."""
    # A store's reason, such as NoSuchBucket, may be in a later line.
    said = f"{error} {error.__cause__}"
    text = str(error) if isinstance(error, LancewalError) else f"{first_line(error)}{what_to_set(f'{act}: {said}')}"
    found = refusal_of_puts(said)
    if found is StoreUnavailable:
        return found(f"{act} failed: {text}. {way_on(said, 'Try again')}")
    return found(f"{act} failed: {text}. Check table.uri, the folder's or bucket's permissions, and storage.options")
