r"""Output of commands.  In text from outside, characters that a terminal would obey are shown as ``\x1b``.

Rows, names of columns and owners, keys of objects and errors of others come from outside.  Their author could move
the cursor, set the clipboard, fake a line, or turn text around.  Every command prints through this module.

Guarantees
 1. Printed text has no control character (C0, DEL, C1), no sign that changes the direction of text, no line break but those
    of the command itself, and no half of a surrogate pair.  Everything else is printed unchanged.
 2. JSON stays the same JSON.
 3. If stdout cannot take the output, the command fails with an error that says so, without a traceback.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress

import typer

from lancewal_core.errors import InvalidInput

_OBEYED = (
    "\x00-\x1f\x7f-\x9f"  # control characters
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction
    "\u2028\u2029\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # lines, marks, tags that nobody sees
    "\ud800-\udfff"
)
_IN_A_FIELD = re.compile(f"[{_OBEYED}]")
_IN_LINES = re.compile(f"(?!\n)[{_OBEYED}]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def one_line(text: str) -> str:
    """Escape control characters in one field (a cell, a name or a part of a line), so that it cannot control the
    terminal.
    """
    return text if text.isascii() and text.isprintable() else _IN_A_FIELD.sub(_escape, text)


def many_lines(text: str) -> str:
    """Escape control characters in lines of output, except line breaks.

    Fields of the lines must have been escaped by ``one_line`` before, since they may contain line breaks.
    """
    return _IN_LINES.sub(_escape, text)


def json_text(text: str) -> str:
    """Escape control characters in a JSON text. Between its values there must be only line breaks and spaces."""
    return _IN_LINES.sub(lambda found: "".join(f"\\u{unit:04x}" for unit in _utf16(found[0])), text)


def say(text: str, *, err: bool = False) -> None:
    """Print lines."""
    with nullcontext() if err else stdout_taken():
        typer.echo(many_lines(text), err=err)


def say_json(content: object) -> None:
    """Print a JSON value, one member per line."""
    with stdout_taken():
        typer.echo(json_text(json.dumps(content, indent=1)))


@contextmanager
def stdout_taken() -> Iterator[None]:
    """Raise ``InvalidInput`` if stdout cannot be written to, for example because a disk is full."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read it has enough; click ends the command in silence
    except OSError as error:
        # Else Python tries to write the rest once more at the end of the process, and says so in words of its own.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise InvalidInput(
            f"stdout: {error.strerror or error}. The output is cut off: write it to another place, and run this again"
        ) from error


def aligned(rows: Sequence[Sequence[str]], figures: Collection[int] = ()) -> list[str]:
    """Return a line for each row, with its cells aligned: the columns ``figures`` to the right, the others to the left."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i in figures else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def figure(value: int | None) -> str:
    """Return a number as text, or ``-`` if the number is not known."""
    return "-" if value is None else str(value)


def terms(found: Mapping[str, str]) -> list[str]:
    """Return aligned lines, each with a name and its text."""
    return aligned(list(found.items()))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def _utf16(text: str) -> list[int]:
    data = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]
