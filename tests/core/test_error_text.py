"""What of a library's error stands in a message."""

from __future__ import annotations

import pytest

from lancewal_core.error_text import first_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "OSError"),
        (" no such file\n", "no such file"),
        ("LanceError(IO): no such file, rust/lance-io/src/local.rs:12:34", "LanceError(IO): no such file"),
        ("no such file, location: src/local.rs:12:34\nCaused by: more", "no such file"),
        ("no such file\nCaused by: more, src/local.rs:12:34", "no such file"),
        ("x" * 1000, "x" * 400),
    ],
)
def test_one_line_without_the_place_in_the_librarys_source(text: str, line: str) -> None:
    assert first_line(OSError(text)) == line
