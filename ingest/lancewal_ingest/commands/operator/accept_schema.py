"""``lancewal schema accept``: decode records by the schema that the registry has now for an id, from given positions
on.

Guarantees
 1. Existing entries stay as they are: each names the contract version by which its records were decoded, and only the
    new version of the contract names the new version of the schema.
 2. Records before the positions are decoded as before, in every process.
 3. A command that dies before step 3 is done has changed nothing that has an effect.  It can be run again.
 4. ``look_only`` makes the same checks and stores nothing.  It returns what the same command would store.

Steps
 1. Ask the registry for its schema, and compare it with the newest stored version.
 2. Put the next version of the schema, with the positions.  A command that died may have put versions that no contract
    names.  If the newest of these differs from the new version, first put the accepted versions once more after them,
    so that they have no effect.
 3. Put the next version of the contract, which names the new version of the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import Position, Region, SchemaKey
from lancewal_core.store.versioned import Version, swap
from lancewal_core.table.contract import SCHEMA_VERSIONS_MAX, SCHEMAS_ACCEPTED_MAX, Contract, put_next
from lancewal_core.wal.writer_schemas import (
    StoredSchema,
    WriterSchema,
    WriterSchemas,
    check_size,
    schema_family,
    stored_schema,
)
from lancewal_ingest.context import IngestContext
from lancewal_ingest.registry.registry import Registry


class AcceptedSchema(NamedTuple):
    """The new contract, and the version of the schema that it accepts."""

    contract: Contract
    version: int
    before: WriterSchema | None
    """The schema by which records were decoded; None: it was unknown."""
    after: WriterSchema


def accept_schema(
    context: IngestContext,
    registry: Registry,
    key: SchemaKey,
    since: Mapping[Region, Position],
    *,
    look_only: bool = False,
) -> AcceptedSchema:
    """Accept the registry's schema for ``key`` (module steps), and return the new contract.

    Raises ``InvalidInput`` if the table has not stored the schema, if the registry does not know it, or if both are
    equal.
    """
    contract = context.contract
    # Step 1
    counts = contract.schema_versions.get(key, 1)
    versions = WriterSchemas(context.store, contract.making).read(key, counts)
    if not versions:
        raise InvalidInput(
            f"schema {key}: the table has not stored it, so there is nothing to accept. Ingest looks it up in the registry "
            "once a record names it"
        )
    theirs = registry.schema(key)
    if theirs is None:
        raise InvalidInput(
            f"schema {key}: the registry does not know it. Nothing was changed. Register the schema, or correct registry.url"
        )
    ours = versions[counts - 1].writer
    if ours is not None and theirs.same(ours):
        raise InvalidInput(f"schema {key}: the registry has the stored one, so nothing was changed")
    check_size(key, theirs)
    if key not in contract.schema_versions and len(contract.schema_versions) >= SCHEMAS_ACCEPTED_MAX:
        raise InvalidInput(
            f"schema {key}: the table has accepted others for {SCHEMAS_ACCEPTED_MAX} ids, the most that it can. "
            "Nothing was changed"
        )
    wanted = stored_schema(theirs, context.new_id(), {region.partition: at for region, at in since.items()})

    # Step 2
    dead, version = versions[counts:], len(versions)
    if not dead or not _alike(dead[-1], wanted):
        # A version without positions counts everywhere, so those before it need not be put again.
        whole = max(number for number in range(counts) if not versions[number].since)
        again = [one.model_copy(update={"write_id": context.new_id()}) for one in versions[whole:counts] if dead]
        if version + len(again) >= SCHEMA_VERSIONS_MAX:
            raise InvalidInput(
                f"schema {key}: no further version of it can be stored: at most {SCHEMA_VERSIONS_MAX} versions are. Nothing "
                "was changed"
            )
        for following in [*again, wanted]:
            version += 1
            if not look_only:
                _put(context, key, version, following)
    # Step 3
    new = contract.model_copy(
        update={
            "version": contract.version + 1,
            "format": 2,
            "schema_versions": {**contract.schema_versions, key: version},
        }
    )
    new = new if look_only else put_next(context.store, context.clock, contract, new)
    return AcceptedSchema(new, version, ours, theirs)


def _put(context: IngestContext, key: SchemaKey, version: int, schema: StoredSchema) -> None:
    def decide(found: Version | None) -> StoredSchema:
        if found is None or found.version != version - 1:
            raise InvalidInput(
                f"schema {key}: another command accepts a schema for it at the same time. Run this command again"
            )
        return schema

    swap(context.store, schema_family(key, context.contract.making), context.clock, decide, StoredSchema.encode)


def _alike(one: StoredSchema, other: StoredSchema) -> bool:
    return (one.writer, one.since) == (other.writer, other.since)
