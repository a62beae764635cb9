"""Conversion of the columns that Arrow's JSON reader returns to the table's types.

The reader does not support dates, vectors or base64, accepts any time zone, and rounds silently.  Such columns are
therefore read in a *transport type* (text, lists), checked, and cast.  Cells whose meaning is not certain are
*doubtful*: they are masked, and the reference path decides on their rows.  Each other cell has exactly the reference
path's value:

1. float: finite and below 2^53 (float32: 2^24), where every integer is exact and no literal is refused;
2. date, timestamp: the text has the plain form, with a year in which no cast overflows;
3. binary, also of fixed size: the same function as in ``cells``; uuid, time of day: the text has the plain form;
4. vector: the right length, no null in it, and each float passes 1;
5. decimal: read in 256 bits, where no number of the type's precision overflows;
6. all other types: Arrow reads them as ``cells`` does, or refuses the whole text.
"""

from __future__ import annotations

import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_ingest.decode.json.cells import FRACTION_DIGITS, base64_bytes
from lancewal_ingest.decode.value_decoder import Mask, mask_of

_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_NO_UUID = "0" * 32

_EXACT = {"float": float(2**24), "double": float(2**53)}
_DATE = "^[1-8][0-9]{3}-[0-9]{2}-[0-9]{2}$"
_CLOCK = "[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
ZONE = "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
# 64 bits of nanoseconds reach from 1677 to 2262.
_DAY = {"ns": "(1[7-9]|2[01])[0-9]{2}-[0-9]{2}-[0-9]{2}"}
_DAY_WIDE = "[1-8][0-9]{3}-[0-9]{2}-[0-9]{2}"


def transport_type(type_: pa.DataType) -> pa.DataType:
    """Return the type in which the JSON reader reads a column of type ``type_``."""
    if pa.types.is_date32(type_) or pa.types.is_timestamp(type_) or pa.types.is_time(type_):
        return pa.string()
    if type_ in (pa.binary(), pa.large_string(), pa.large_binary(), pa.uuid()) or pa.types.is_fixed_size_binary(type_):
        return pa.string()
    if pa.types.is_duration(type_):
        return pa.int64()
    if pa.types.is_decimal128(type_):
        # In 128 bits the reader multiplies up to the scale without looking, and what wraps around can fit again.
        return pa.decimal256(type_.precision, type_.scale)
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.list_(transport_type(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(child.name, transport_type(child.type)) for child in type_])
    return type_


def lift(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Convert ``array``, of the transport type and not a slice, to ``type_``; also return a mask of the doubtful rows.

    The mask is None if no row is doubtful.  Raises ``pyarrow.ArrowInvalid`` if a cast refuses a text of the plain form,
    such as February 30.
    """
    if pa.types.is_floating(type_):
        return array, _large(array)
    if pa.types.is_decimal128(type_):
        return array.cast(type_), None
    if pa.types.is_date32(type_):
        return cast_text(array, type_, _DATE)
    if pa.types.is_timestamp(type_):
        return cast_text(array, type_, timestamp_form(type_))
    if pa.types.is_time(type_):
        return _lift_times(array, type_)
    if type_ in (pa.binary(), pa.large_binary()) or pa.types.is_fixed_size_binary(type_):
        return _lift_binary(array, type_)
    if type_ == pa.uuid():
        return _lift_uuids(array)
    if type_ == pa.large_string() or pa.types.is_duration(type_):
        return array.cast(type_), None
    if pa.types.is_struct(type_):
        return _lift_struct(array, type_)
    if pa.types.is_list(type_):
        return _lift_list(array, type_)
    if pa.types.is_fixed_size_list(type_):
        return lift_vector(array, type_)
    return array, None


def _large(array: pa.Array) -> Mask | None:
    # NaN is not below the limit, so it is caught too.
    exact = pc.less(pc.abs(array), pa.scalar(_EXACT[str(array.type)], array.type))
    if pc.all(exact).as_py() is not False:
        return None
    return mask_of(pc.invert(exact))


def cast_text(array: pa.Array, type_: pa.DataType, form: str) -> tuple[pa.Array, Mask | None]:
    """Cast texts that match ``form``, a regular expression, to a type.  Other texts become null, and their rows
    doubtful.

    Returns the array and a mask of the doubtful rows; None if there are none.
    """
    plain = pc.match_substring_regex(array, form)
    if pc.all(plain).as_py() is not False:
        return array.cast(type_), None
    return pc.if_else(plain, array, pa.scalar(None, pa.string())).cast(type_), mask_of(pc.invert(plain))


def timestamp_form(type_: pa.DataType) -> str:
    """Return the regular expression of timestamps that Arrow's cast reads correctly."""
    digits = FRACTION_DIGITS[type_.unit]
    fraction = rf"(\.[0-9]{{1,{digits}}})?" if digits else ""
    return f"^{_DAY.get(type_.unit, _DAY_WIDE)}{_CLOCK}{fraction}{'' if type_.tz is None else ZONE}$"


def _lift_times(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    # Arrow has no cast from texts to times of day, so each gets a day.
    digits = FRACTION_DIGITS[type_.unit]
    fraction = rf"(\.[0-9]{{1,{digits}}})?" if digits else ""
    day = pa.scalar("1970-01-01 ", pa.string())
    dated = pc.binary_join_element_wise(day, array, pa.scalar("", pa.string()))
    times, doubts = cast_text(dated, pa.timestamp(type_.unit), f"^.{{10}}{_CLOCK}{fraction}$")
    numbers = times.cast(pa.int64())
    return (numbers.cast(pa.int32()) if pa.types.is_time32(type_) else numbers).cast(type_), doubts


def _lift_uuids(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    texts, doubts = cast_text(array, pa.string(), _UUID)
    missing = mask_of(texts.is_null()) if texts.null_count else None
    digits = "".join(pc.replace_substring(texts.fill_null(_NO_UUID), "-", "").to_pylist())
    ids = pa.Array.from_buffers(pa.binary(16), len(texts), [None, pa.py_buffer(binascii.unhexlify(digits))])
    if missing is not None:
        ids = pc.if_else(pa.array(~missing), ids, pa.scalar(None, ids.type))
    return ids.cast(pa.uuid()), doubts


def _lift_binary(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    texts = array.to_pylist()
    decoded = [None if text is None else base64_bytes(text) for text in texts]
    if pa.types.is_fixed_size_binary(type_):
        decoded = [None if data is None or len(data) != type_.byte_width else data for data in decoded]
    lifted = pa.array(decoded, type=type_)
    if lifted.null_count == array.null_count:
        return lifted, None
    return lifted, mask_of(lifted.is_null()) & ~mask_of(array.is_null())


def _lift_struct(array: pa.Array, type_: pa.StructType) -> tuple[pa.Array, Mask | None]:
    doubtful: Mask | None = None
    children: list[pa.Array] = []
    for number, child in enumerate(type_):
        lifted, doubts = lift(array.field(number), child.type)
        children.append(lifted)
        doubtful = either(doubtful, doubts)
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null()), doubtful


def _lift_list(array: pa.Array, type_: pa.ListType) -> tuple[pa.Array, Mask | None]:
    items, doubts = lift(array.values, type_.value_type)
    lifted = pa.ListArray.from_arrays(array.offsets, items, type=type_, mask=array.is_null())
    return lifted, None if doubts is None else rows_with(doubts, array)


def lift_vector(array: pa.Array, type_: pa.FixedSizeListType) -> tuple[pa.Array, Mask | None]:
    """Convert lists of items to vectors.  Also return a mask of the rows whose list is not a valid vector; None if
    there are none.
    """
    size = type_.list_size
    items, ends = array.values, array.offsets.to_numpy()
    doubtful: Mask = (np.diff(ends) != size) & ~mask_of(array.is_null())
    large = _large(items) if pa.types.is_floating(items.type) else None
    for doubts in (large, mask_of(items.is_null()) if items.null_count else None):
        if doubts is not None:
            doubtful |= rows_with(doubts, array)
    if array.null_count == 0 and not doubtful.any():
        return pa.FixedSizeListArray.from_arrays(items, type=type_), None
    missing = mask_of(array.is_null()) | doubtful
    numbers = items.fill_null(0).to_numpy()
    vectors = np.zeros((len(array), size), dtype=numbers.dtype)
    vectors[~missing] = numbers[ends[:-1][~missing, None] + np.arange(size)]
    lifted = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=type_, mask=pa.array(missing))
    return lifted, doubtful if doubtful.any() else None


def rows_with(doubts: Mask, lists: pa.Array) -> Mask:
    """Return a mask of the rows of ``lists`` that hold an item for which ``doubts`` is true."""
    rows = np.zeros(len(lists), dtype=np.bool_)
    ends = lists.offsets.to_numpy()
    rows[np.repeat(np.arange(len(lists)), np.diff(ends))[doubts]] = True
    return rows


def either(first: Mask | None, second: Mask | None) -> Mask | None:
    """Return a mask of the rows that are doubtful in at least one of two masks; None if both are None."""
    if first is None or second is None:
        return second if first is None else first
    joined: Mask = first | second
    return joined
