"""Stored subscriptions: the list of names, and the versions of each subscription.

Both lie in the table's folder for subscriptions, under the table's making.  So a table that is made again at the same
place has none.  Readers need no right to write outside this folder.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from lancewal_core.errors import InvalidInput, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Making, Position, Region
from lancewal_core.names.words import is_word
from lancewal_core.store.json_model import StoredModel, StoredVersion, Version1, Word
from lancewal_core.store.json_object import WHOLE_MAX, JsonFault, region_named
from lancewal_core.store.versioned import Family
from lancewal_core.table.watermarks import Watermark

NAME_MAX = 64
NAME_FORM = f"1 to {NAME_MAX} characters of [a-zA-Z0-9._-], neither '.' nor '..'"
SUBSCRIPTIONS_MAX = 1_000
"""Largest number of subscriptions of a table.  Each round of garbage collection reads all of them."""
_RECEIPT_MAX = 32 << 20
_Whole = Annotated[int, Field(ge=0, le=WHOLE_MAX)]


class SubscriptionNames(StoredVersion):
    """One version of the list of subscriptions."""

    what = "list of subscriptions"
    format: Version1 = 1
    ids: Annotated[dict[Word, Word], Field(max_length=SUBSCRIPTIONS_MAX)] = Field(default_factory=dict)
    """Name of a subscription to its id."""
    write_id: Word
    """Random id, another one in every version.  It shows whether a put with a lost reply was this process's own."""


NO_NAMES = SubscriptionNames(write_id="none")
"""List of subscriptions of a table in which nobody has created one."""


class MergedMark(StoredModel):
    """Watermark of a region, as stored: the newest merged generation (0: none), and the position after it."""

    generation: _Whole
    next: _Whole


class StoredSubscription(StoredVersion):
    """One version of a subscription."""

    what = "subscription"
    format: Version1 = 1
    name: Word
    receipt: Annotated[str, Field(min_length=1, max_length=_RECEIPT_MAX)]
    """Text of the receipt."""
    version: Annotated[int, Field(ge=1, le=WHOLE_MAX)]
    """Table version that a read at the receipt pins."""
    versions_from: Annotated[int, Field(ge=1, le=WHOLE_MAX)]
    """Lowest table version that the plan of a read at the receipt may need."""
    merged: dict[str, MergedMark]
    """Region name to the region's watermark in ``version``.  The subscription needs all later generations."""
    sure: bool
    """Whether everything that the subscription needs was held when this version was put, or was found to be there
    afterwards."""
    created_at_ms: _Whole
    """Time when the subscription was created, in milliseconds since 1970, by the clock of its writer."""
    committed_at_ms: _Whole
    """Time when this version was written, in milliseconds since 1970, by the clock of its writer."""
    write_id: Word
    """Random id, another one in every version.  It shows whether a put with a lost reply was this process's own."""

    @classmethod
    def decode(cls, data: bytes, where: str) -> Self:
        """Decode the object as ``StoredVersion`` does.  Raise ``ObjectCorrupt`` also if ``merged`` has a name that is
        not a region's."""
        found = super().decode(data, where)
        try:
            for name in found.merged:
                region_named(name)
        except JsonFault as error:
            raise ObjectCorrupt(f"{where} is not a subscription: {error}", object=where) from error
        return found

    @property
    def marks(self) -> dict[Region, Watermark]:
        """``merged`` as watermarks by region."""
        return {
            region_named(name): Watermark(Generation(mark.generation), Position(mark.next))
            for name, mark in self.merged.items()
        }


def check_name(name: object) -> str:
    """Return ``name``.  Raise ``InvalidInput`` if no subscription may have it."""
    if not isinstance(name, str) or len(name) > NAME_MAX or not is_word(name):
        raise InvalidInput(f"{str(name)[:NAME_MAX]!r} is not a valid subscription name: {NAME_FORM}")
    return name


def names_family(making: Making | None) -> Family:
    return Family.made(
        making, paths.subscription_names_prefix, paths.subscription_names, paths.parse_subscription_names
    )


def subscription_family(id: str, making: Making | None) -> Family:
    """Return the object keys of the versions of the subscription with this id."""
    prefix = paths.subscription_prefix(id, making)
    return Family.of(
        id, prefix, lambda version: paths.subscription_version(id, version, making), paths.parse_subscription_version
    )
