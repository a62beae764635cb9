"""Translation of Lance's errors: the store's fault, a file that is gone or damaged, rows that cannot be written.

Guarantees
 1. If the store or stored bytes are at fault, the error is one of lancewal's: ``StoreUnavailable``, ``StoreRefused``,
    ``VersionGone``, ``ObjectCorrupt``.  This includes a panic of Lance's Rust code, which is not an ``Exception`` in
    Python.
 2. A filter that fails on a row (a division by zero, a cast) is ``InvalidInput``.  The error of any other wrong request
    of the caller is not translated.
 3. An error of a write never says that a file is damaged.  It is ``StoreUnavailable`` or ``StoreRefused`` if the
    store is at fault, else ``WriteFailed``.

Lance has no error type for damage, and its files have no checksum.  If a file cannot be decoded, Lance reports
invalid input, an I/O error, an internal error or a panic.  In Python these are OSError, ValueError, RuntimeError,
ArrowInvalid or ``PanicException``.  Only the error's text distinguishes damage from other faults (own measurement: a
thousand flips of single bits).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from lancewal_core.errors import (
    FLUSH_DAMAGED,
    InvalidInput,
    LancewalError,
    ObjectCorrupt,
    StoreUnavailable,
    VersionGone,
    WriteFailed,
)
from lancewal_core.process.library_errors import first_line
from lancewal_core.store.refusal import refusal, what_to_set

READ_ERRORS = (OSError, pa.ArrowInvalid)
"""Error types by which a read says that a file is missing.  Lance raises a fault of the store as OSError or, when it
opens a data set, as ValueError with ``IO_ERROR``.  Errors of a stream of batches come through Arrow's C interface, as
ArrowInvalid."""
IO_ERROR = "LanceError(IO)"
_NOT_FOUND = "not found"
_PANIC = "PanicException"
"""Name of the error class of a Rust panic.  Each Rust library has a class of its own, which cannot be imported."""
_STORE = re.compile(
    r"Generic \w+ error|error sending request|object store error|\(os error (?!22\))\d+\)", re.IGNORECASE
)
"""Pattern in messages about a fault of the store or of the operating system, such as a full disk.  EINVAL (22) is
left out: it comes from a damaged offset in a file."""
_BEYOND_ITS_END = re.compile(
    r"failed to fill whole buffer|range not satisfiable|invalidrange|wanted range starting"
    r"|invalid range \d+\.\.\d+ for object of size",
    re.IGNORECASE,
)
"""Pattern in messages of a store that was asked for bytes which the object does not have.  An offset stored in the
file is damaged, or the file's end is missing."""
_DAMAGE = re.compile(
    r"corrupt file|file size is too small|failed to decode protobuf|not appear to be a lance file|panicked with message"
    r"|encountered internal error|terminated before end of stream|references parent id|does not have sufficient data"
    r"|version conflict error|/rust/lance-(file|encoding)/src/|lance-table/src/io/deletion\.rs|lance/src/dataset/versions/",
    re.IGNORECASE,
)
_FILTER = re.compile(r"Error applying filter expression to batch: (?:(?:Arrow|Execution|Cast|Parser) error: )*")


@contextmanager
def reading(act: str, file: str | None = None, *, names_nothing: bool = False) -> Iterator[None]:
    """Translate Lance's errors of a read (``read_error``); ``act`` names the read in messages.

    ``file``: the read only decodes this data file of an unmerged flush.  So any fault that is not the store's is the
    file's.  ``names_nothing``: the read asks for no column and no index by name.  So if Lance does not find something,
    it is a file."""
    try:
        yield
    except BaseException as error:  # a panic is no Exception
        found = read_error(error, act, file, names_nothing=names_nothing)
        if found is error:
            raise
        raise found from error


@contextmanager
def no_panic(act: str) -> Iterator[None]:
    """Translate panics as ``reading`` does.  The caller handles other errors."""
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise _corrupt(error, act, None) from error


@contextmanager
def writing(act: str) -> Iterator[None]:
    """Translate a panic of a call that writes into ``WriteFailed``.

    The caller handles other errors, by ``write_error`` or itself."""
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise write_error(error, act) from error


def write_error(error: BaseException, act: str) -> LancewalError:
    """Return the error to raise instead of one that Lance raised while it wrote."""
    text = str(error)
    if not is_panic(error) and (_STORE.search(text) or IO_ERROR in text):
        return refusal(text)(f"{act} failed: {first_line(error)}{what_to_set(f'{act}: {text}')}")
    how = "Lance gave up by a panic" if is_panic(error) else "Lance refused the rows"
    return WriteFailed(
        f"{act} failed: {how}: {first_line(error)}. lancewal tries again. If that does not help, "
        "report this message with the types of the table's columns"
    )


def says_gone(error: BaseException) -> bool:
    """Return whether an error says that a file is missing; False if the whole bucket is missing."""
    text = str(error)
    return _NOT_FOUND in text.lower() and refusal(text) is StoreUnavailable


def is_panic(error: BaseException) -> bool:
    return type(error).__name__ == _PANIC


def read_error(
    error: BaseException, act: str, file: str | None = None, *, names_nothing: bool = False
) -> BaseException:
    """Return the error to raise instead of Lance's ``error``.  Return ``error`` itself if neither the store nor a
    file nor the filter is at fault, or if it is one of lancewal's.

    The other parameters are as in ``reading``."""
    if isinstance(error, LancewalError):
        return error
    text = str(error)
    told = isinstance(error, (OSError, ValueError, RuntimeError))
    failed = _FILTER.search(first_line(error)) if told else None
    if failed is not None:  # first, for the text may show what a row holds
        return InvalidInput(
            f"the filter fails on a row: {failed.string[failed.end() :]}. "
            "TRY_CAST gives null where CAST fails, and a divisor nullif(x, 0) gives null for 0"
        )
    only_files = names_nothing or file is not None
    if (isinstance(error, READ_ERRORS) or (told and only_files)) and says_gone(error):
        return VersionGone(f"{act}: a file is gone: {first_line(error)}")
    damaged = _BEYOND_ITS_END.search(text) or (_DAMAGE.search(text) and not _STORE.search(text))
    if is_panic(error) or (told and damaged):
        return _corrupt(error, act, file)
    if isinstance(error, OSError) or (told and IO_ERROR in text):
        return refusal(text)(f"{act} failed: {first_line(error)}{what_to_set(f'{act}: {text}')}")
    return _corrupt(error, act, file) if told and file is not None else error


def file_corrupt(file: str, error: BaseException) -> ObjectCorrupt:
    """Return the error for a damaged data file of an unmerged flush."""
    return ObjectCorrupt(
        f"data file {file!r} is corrupt: Lance cannot decode it: {first_line(error)}; {FLUSH_DAMAGED}", file=file
    )


def _corrupt(error: BaseException, act: str, file: str | None) -> ObjectCorrupt:
    if file is not None:
        return file_corrupt(file, error)
    return ObjectCorrupt(f"{act}: a file of the table is corrupt: Lance cannot decode it: {first_line(error)}")
