"""A point: where in time a read stands, as ``at`` takes it everywhere.

============================================  ===================================================
point                                         as text
============================================  ===================================================
a receipt                                     ``lw1.`` and what follows, or its JSON
``At.version(412)``, the merged table's 412   ``version:412``
============================================  ===================================================

The text of a point means the same on the command line, in Spark and in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.errors import InvalidInput
from lancewal_core.ids import TableVersion
from lancewal_core.store.json_object import WHOLE_MAX, is_whole
from lancewal_reader.point.checked_text import PREFIX
from lancewal_reader.point.receipt import Receipt

_VERSION = "version:"
_LATER = ("timestamp:", "record-time:", "positions:", "snapshot:")
"""Names that are taken."""
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class At:
    """A point that is no receipt; made by ``At.version``, ``str()`` of it is its text."""

    table_version: TableVersion

    @staticmethod
    def version(number: int) -> At:
        """The merged table at its Lance version ``number``, without what was unmerged then.

        ``InvalidInput`` unless it is a whole number from 1 on.
        """
        if not is_whole(number, 1):
            raise InvalidInput(f"At.version({number!r}): a table version is a whole number from 1 to {WHOLE_MAX}")
        return At(TableVersion(number))

    def __str__(self) -> str:
        return f"{_VERSION}{self.table_version}"


Point = Receipt | At


def point_of(at: Point | str | bytes | None) -> Point | None:
    """The point that was given; ``InvalidInput`` for what is none."""
    if at is None or isinstance(at, Receipt | At):
        return at
    if not isinstance(at, str | bytes):
        raise InvalidInput(
            f"at={at!r:.{_SHOWN}} is no point: give a receipt, At.version(412), or the text of one of them"
        )
    text = at.strip() if isinstance(at, str) else at.decode(errors="replace").strip()
    if text.startswith(_VERSION):
        digits = text.removeprefix(_VERSION)
        if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(WHOLE_MAX)):
            raise InvalidInput(f"at={text[:_SHOWN]!r}: expected a whole number behind {_VERSION!r}, as in version:412")
        return At.version(int(digits))
    if text.startswith(_LATER):
        kind = text.partition(":")[0]
        raise InvalidInput(f"at: points by {kind} cannot be read yet: give a receipt ({PREFIX}...) or version:412")
    if not text.startswith((PREFIX, "{")):
        raise InvalidInput(f"at={text[:_SHOWN]!r} is not a receipt, nor another point: give {PREFIX}... or version:412")
    return Receipt.parse(at)
