"""Lenient forms on the fast path: the columns that values of one *shape* have in Arrow, and their conversion.

Arrow's reader takes each column in one kind of JSON value (string, number, boolean), but a lenient column may come in
two.  A value's *shape* is the kind of each lenient column in the value.  Values of one shape are read together:

1. The shape of the first values is tried for all.  Producers write a column in one form, so this nearly always fits.
   If it does not, Arrow refuses the text, and ``read`` finds the shape of each value.
2. A shape decides how values are read, never what they mean: a cell whose meaning is not certain is doubtful, as in
   ``transport``.  Each other cell has the reference path's value.
3. A null, and a column that is absent, fit every shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.column_types import has_map
from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.json.cells import (
    FLOAT_NAMES,
    FRACTION_DIGITS,
    array_of,
    base64_bytes,
    cell_reader,
    is_json,
    vector_form,
)
from lancewal_ingest.decode.json.other_names import members_of
from lancewal_ingest.decode.json.strict import parse_value
from lancewal_ingest.decode.json.transport import ZONE, cast_text, either, lift, timestamp_form, transport_type
from lancewal_ingest.decode.naming import Form, Names, Naming
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_ingest.decode.value_decoder import Mask, mask_of

Lift = Callable[[pa.Array], tuple[pa.Array, Mask | None]]
Shape = tuple[int, ...]
"""Index, for each lenient column, of its spelling among those that ``spellings`` lists for its form."""
_FIRST = 8
"""Number of first values from which the shape of all values is guessed."""
_KEPT = 1024
"""Maximum number of cached shapes, one for each combination of kinds."""
_INTEGER = "^-?(0|[1-9][0-9]*)$"
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_EPOCH_DIGITS = {"epoch_s": 0, "epoch_ms": 3, "epoch_us": 6}
_DECIMAL_DIGITS = 76
# Years 1000 to 8999, for which no later step overflows; in nanoseconds 1700 to 2199.
_FIRST_DAY, _LAST_DAY = np.datetime64("1000-01-01", "s"), np.datetime64("9000-01-01", "s")
_FIRST_DAY_NS, _LAST_DAY_NS = np.datetime64("1700-01-01", "s"), np.datetime64("2200-01-01", "s")


@dataclass(frozen=True, slots=True)
class Spelling:
    """One kind of JSON value (such as string or number) that a lenient column accepts."""

    kinds: tuple[type, ...]
    """Python types of these values, as orjson parses them."""
    transport: pa.DataType
    """Type in which Arrow's reader takes these values."""
    lift: Lift
    """Conversion of an array of that type to the column's (``transport.lift``)."""


def spellings(type_: pa.DataType, form: Form, stand_in: str | None = None) -> tuple[Spelling, ...]:
    """Return the spellings that a column of a lenient form accepts, the most likely first.

    ``stand_in``: a text that form ``json_text`` takes although it is not JSON (``Naming.stand_ins``).
    """
    match form:
        case "epoch_s" | "epoch_ms" | "epoch_us":
            shift = FRACTION_DIGITS[type_.unit] - _EPOCH_DIGITS[form]
            exact = pa.decimal256(_DECIMAL_DIGITS, max(shift, 0))
            return (
                Spelling(
                    (int,), pa.int64(), lambda array: _instants(array.fill_null(0).to_numpy(), array, shift, type_)
                ),
                _strict(type_, str),
                Spelling((float,), exact, lambda array: _from_decimals(array, min(shift, 0), type_)),
            )
        case "utc":
            return (Spelling((str,), pa.string(), lambda array: _with_zone(array, type_)),)
        case "number_text":
            form_ = _INTEGER if pa.types.is_integer(type_) else _NUMBER
            kinds = (int,) if pa.types.is_integer(type_) else (int, float)
            return Spelling((str,), pa.string(), lambda array: _numbers(array, type_, form_)), _strict(type_, *kinds)
        case "text":
            return Spelling((int,), pa.int64(), lambda array: (array.cast(type_), None)), _strict(type_, str)
        case "raw" | "number":
            return (_strict(type_, str),)  # by then each value is a string
        case "json_text":
            return (Spelling((str,), pa.string(), lambda array: _json_texts(array, type_, stand_in)),)
        case "base64":
            return Spelling((str,), pa.string(), lambda array: _vectors(array, type_)), _strict(type_, list)
        case "float_name":
            names = Spelling((str,), pa.string(), lambda array: _named_floats(array, type_))
            return _strict(type_, int, float), names
        case "bool_text":
            return Spelling((str,), pa.string(), _truths), _strict(type_, bool)


def _strict(type_: pa.DataType, *kinds: type) -> Spelling:
    return Spelling(kinds, transport_type(type_), lambda array: lift(array, type_))


def _of_maps(field: pa.Field, names: Names | None) -> tuple[Spelling, ...]:
    """Return the one spelling of a column that has maps in it.

    Arrow's reader cannot read objects whose names are not known, so such a value comes as its text.  Its cells are
    those of the reference path.
    """
    read = cell_reader(field.type, names)

    def lifted(texts: pa.Array) -> tuple[pa.Array, Mask | None]:
        cells: list[object] = []
        refused = np.zeros(len(texts), np.bool_)
        for place, text in enumerate(texts.to_pylist()):
            try:
                cells.append(None if text is None else read(parse_value(text), field.name))
            except Refusal:
                cells.append(None)
                refused[place] = True
        return array_of(cells, field.type), refused if refused.any() else None

    return (Spelling((str,), pa.string(), lifted),)


class ShapeReader:
    """Finder of the shapes of values.  It knows the lenient columns of a table.  Columns with maps count as lenient
    ones.
    """

    def __init__(self, rows: RowSchema, naming: Naming) -> None:
        """``rows``: the columns, by their present names (``naming``)."""
        self._spellings = {
            place: spellings(field.type, naming.forms[field.name], naming.stand_ins.get(field.name))
            if field.name in naming.forms
            else _of_maps(field, naming.within(field.name))
            for place, field in enumerate(rows.columns)
            if field.name in naming.forms or (has_map(field.type) and field.name not in naming.absent)
        }
        self._names: list[str] = []
        """Present and former names of lenient columns."""
        self._owners: list[int] = []
        """For each of ``_names``, the index of its column among the lenient columns."""
        for number, place in enumerate(self._spellings):
            names = naming.names_of(rows.columns.names[place])
            self._names += names
            self._owners += [number] * len(names)
        self._places = [
            {kind: at for at, spelling in enumerate(of) for kind in spelling.kinds} for of in self._spellings.values()
        ]
        self._places_known = lru_cache(_KEPT)(self._places_of)
        self.likely: Shape = (0,) * len(self._spellings)
        """Shape of values in which each lenient column has its most likely spelling."""

    def of(self, shape: Shape) -> Mapping[int, Spelling]:
        """Return the spelling of each lenient column in a shape, by the column's index."""
        return {place: of[at] for (place, of), at in zip(self._spellings.items(), shape, strict=True)}

    def needs_decimals(self, shape: Shape) -> bool:
        """Return whether Arrow reads decimals from values of this shape, so that hazardous values must be kept from it."""
        return any(pa.types.is_decimal(spelling.transport) for spelling in self.of(shape).values())

    def first(self, values: Sequence[bytes]) -> Shape:
        """Guess the shape of all values from the first ones."""
        if not self._spellings:
            return ()
        found = [kinds for kinds in map(self._kinds, values[:_FIRST]) if kinds is not None]
        return self._filled(found, self.likely)

    def read(self, values: Sequence[bytes]) -> list[Shape | None]:
        """Return the shape of each value; None for values that must be decoded one by one."""
        found = list(map(self._kinds, values))
        usual = self._filled([kinds for kinds in found if kinds is not None], self.likely)
        return [None if kinds is None else self._filled([kinds], usual) for kinds in found]

    def _filled(self, found: Sequence[tuple[int | None, ...]], usual: Shape) -> Shape:
        """Return for each lenient column its first known spelling in ``found``, or else its spelling in ``usual``."""
        if len(found) == 1 and None not in found[0]:
            return found[0]  # type: ignore[return-value]  # none is None
        return tuple(
            next((kinds[number] for kinds in found if kinds[number] is not None), at)  # type: ignore[misc]  # likewise
            for number, at in enumerate(usual)
        )

    def _kinds(self, value: bytes) -> tuple[int | None, ...] | None:
        members = members_of(value)
        if members is None:
            return None
        return self._places_known(tuple(map(type, map(members.get, self._names))))

    def _places_of(self, types: tuple[type, ...]) -> tuple[int | None, ...] | None:
        found: list[int | None] = [None] * len(self._places)
        for owner, kind in zip(self._owners, types, strict=True):
            if kind is type(None):
                continue
            if kind not in self._places[owner] or found[owner] is not None:
                return None
            found[owner] = self._places[owner][kind]
        return tuple(found)


def _from_decimals(array: pa.Array, shift: int, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    limbs = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 4)[array.offset : array.offset + len(array)]
    low = np.where(mask_of(array.is_valid()), limbs[:, 0], 0)
    wide: Mask = (limbs[:, 1:] != (limbs[:, :1] >> 63)).any(axis=1) & mask_of(array.is_valid())
    return _instants(np.where(wide, 0, low), array, shift, type_, wide)


def _instants(
    numbers: npt.NDArray[np.int64], array: pa.Array, shift: int, type_: pa.DataType, wide: Mask | None = None
) -> tuple[pa.Array, Mask | None]:
    """Return ten to the ``shift`` times the numbers as times, null where ``array`` is null.  Also return a mask of
    the doubtful rows; None if there are none.

    ``wide``: rows that are doubtful already.
    """
    unit = 10 ** FRACTION_DIGITS[type_.unit]
    days = (_FIRST_DAY_NS, _LAST_DAY_NS) if type_.unit == "ns" else (_FIRST_DAY, _LAST_DAY)
    first, last = (int(day.astype(np.int64)) * unit for day in days)
    factor = 10 ** abs(shift)
    if shift >= 0:
        far = (numbers < -(-first // factor)) | (numbers >= last // factor)
        instants = np.where(far, 0, numbers) * factor
    else:
        instants, rest = np.divmod(numbers, factor)
        far = (instants < first) | (instants >= last) | (rest != 0)
    far = far if wide is None else far | wide
    # A null is 0 here, which is near enough.
    nulls = None if array.null_count == 0 else ~mask_of(array.is_valid())
    found = pa.array(instants, mask=nulls).cast(pa.timestamp(type_.unit)).cast(type_)
    return found, far if far.any() else None


def _with_zone(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    zoneless, doubts = cast_text(array, pa.timestamp(type_.unit), timestamp_form(pa.timestamp(type_.unit)))
    if doubts is None:
        return zoneless.cast(pa.int64()).cast(type_), None
    zoned = pc.match_substring_regex(array, f"{ZONE}$")
    zoned_times, zoned_doubts = lift(pc.if_else(zoned, array, pa.scalar(None, pa.string())), type_)
    zoneless = zoneless.cast(pa.int64()).cast(type_)
    left = doubts & ~mask_of(zoned)
    return pc.coalesce(zoneless, zoned_times), either(left if left.any() else None, zoned_doubts)


def _numbers(array: pa.Array, type_: pa.DataType, form: str) -> tuple[pa.Array, Mask | None]:
    numbers, doubts = cast_text(array, type_, form)
    if pa.types.is_floating(type_):
        numbers, large = lift(numbers, type_)
        doubts = either(doubts, large)
    return numbers, doubts


def _named_floats(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    return cast_text(array, type_, f"^({'|'.join(FLOAT_NAMES)})$")


def _json_texts(array: pa.Array, type_: pa.DataType, stand_in: str | None) -> tuple[pa.Array, Mask | None]:
    other: Mask = np.array([text not in (None, stand_in) and not is_json(text) for text in array.to_pylist()], np.bool_)
    return array.cast(type_), other if other.any() else None


def _vectors(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    form = vector_form(type_)
    read = [None if text is None else base64_bytes(text) for text in array.to_pylist()]
    given = [data if data is not None and len(data) == form.itemsize else None for data in read]
    items = np.frombuffer(b"".join(data or bytes(form.itemsize) for data in given), form.base)
    missing: Mask = np.array([data is None for data in given], np.bool_)
    found = pa.FixedSizeListArray.from_arrays(pa.array(items), type=type_, mask=pa.array(missing))
    other: Mask = missing & mask_of(array.is_valid())
    return found, other if other.any() else None


def _truths(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    true = pc.equal(array, "true")
    known = pc.or_(true, pc.equal(array, "false"))
    if pc.all(known).as_py() is not False:
        return true, None
    return true, mask_of(pc.invert(known))
