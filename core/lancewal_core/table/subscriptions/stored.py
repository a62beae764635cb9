"""Stored subscriptions: the list of names, and one family of versions for each subscription.

Both lie in the table's folder for subscriptions, below its making.  So a table made again has none, and readers need the
right to write in that folder alone.
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
"""Most subscriptions of a table.  Each round of garbage collection reads all of them."""
_RECEIPT_MAX = 32 << 20
_Whole = Annotated[int, Field(ge=0, le=WHOLE_MAX)]


class SubscriptionNames(StoredVersion):
    """One version of the list of subscriptions: the id of each, by its name."""

    what = "list of subscriptions"
    format: Version1 = 1
    ids: Annotated[dict[Word, Word], Field(max_length=SUBSCRIPTIONS_MAX)] = Field(default_factory=dict)
    write_id: Word
    """Differs in every version: tells a lost reply from a lost race."""


NO_NAMES = SubscriptionNames(write_id="none")
"""The list of a table in which nobody has created a subscription."""


class MergedMark(StoredModel):
    """The newest merged generation of a region, and the position after it."""

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
    """Lowest table version that planning at the receipt may look at."""
    merged: dict[str, MergedMark]
    """Merged generations of ``version``, by the region's name: later ones are needed."""
    sure: bool
    """Whether it held everything needed when it was put, or its writer has found so afterwards."""
    created_at_ms: _Whole
    committed_at_ms: _Whole
    """Time of this version, by the clock of its writer."""
    write_id: Word

    @classmethod
    def decode(cls, data: bytes, where: str) -> Self:
        """Decode as every ``StoredVersion``.  ``ObjectCorrupt`` also if ``merged`` has a name that no region has."""
        found = super().decode(data, where)
        try:
            for name in found.merged:
                region_named(name)
        except JsonFault as error:
            raise ObjectCorrupt(f"{where} is not a subscription: {error}", object=where) from error
        return found

    @property
    def marks(self) -> dict[Region, Watermark]:
        """``merged``, by region."""
        return {
            region_named(name): Watermark(Generation(mark.generation), Position(mark.next))
            for name, mark in self.merged.items()
        }


def check_name(name: object) -> str:
    """Return ``name``.  Raises ``InvalidInput`` if no subscription may have it."""
    if not isinstance(name, str) or len(name) > NAME_MAX or not is_word(name):
        raise InvalidInput(f"{str(name)[:NAME_MAX]!r} is not a valid subscription name: {NAME_FORM}")
    return name


def names_family(making: Making | None) -> Family:
    return Family.made(
        making, paths.subscription_names_prefix, paths.subscription_names, paths.parse_subscription_names
    )


def subscription_family(id: str, making: Making | None) -> Family:
    """Return the keys of the versions of the subscription with this id."""
    prefix = paths.subscription_prefix(id, making)
    return Family.of(
        id, prefix, lambda version: paths.subscription_version(id, version, making), paths.parse_subscription_version
    )
