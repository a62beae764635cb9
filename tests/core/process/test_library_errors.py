"""What of a library's error stands in a message."""

from __future__ import annotations

import pytest

from lancewal_core.process.library_errors import first_line, without_secrets


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "OSError"),
        (" no such file\n", "no such file"),
        ("LanceError(IO): no such file, rust/lance-io/src/local.rs:12:34", "LanceError(IO): no such file"),
        ("no such file, location: src/local.rs:12:34\nCaused by: more", "no such file"),
        ("no such file\nCaused by: more, src/local.rs:12:34", "no such file"),
        ("x" * 1000, "x" * 400),
        (
            'error sending request\n\nDebug source:\nGeneric {\n source: Os {\n message: "Connection refused",\n}}',
            "error sending request: Connection refused",
        ),
    ],
)
def test_one_line_without_the_place_in_the_librarys_source(text: str, line: str) -> None:
    assert first_line(OSError(text)) == line


def test_a_certificate_that_is_not_trusted_says_what_to_do() -> None:
    text = "error sending request\n\nDebug source:\n  error: InvalidCertificate(\n      UnknownIssuer,\n  ),"
    assert "not accepted (UnknownIssuer)" in (line := first_line(OSError(text)))
    assert "SSL_CERT_FILE" in line


def test_a_request_that_could_not_be_sent_says_where_to_look() -> None:
    assert "SSL_CERT_FILE" in first_line(
        OSError("LanceError(IO): HTTP error: error sending request, rust/src/a.rs:1:2")
    )


MEGABYTE = 1 << 20


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "word", ["x", "a://", "a://b?", "u@", "<Error>", "<?xml ", ", a.rs:1", "InvalidCertificate(", 'error: "']
)
def test_a_value_of_a_megabyte_in_a_text_is_read_at_once(word: str) -> None:
    """A cast that fails shows the row's value.  Quadratic work on it takes an hour."""
    text = word * (MEGABYTE // len(word))
    assert len(first_line(ValueError(f"cannot cast {text}\n{text}"))) < 1000
    assert without_secrets(f"{text} s3://u:hush@b?token=hush").endswith("://***@b?***")
