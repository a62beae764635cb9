"""Texts of other libraries' errors, as one line for a message of lancewal."""

from __future__ import annotations

import re

_SOURCE_PLACE = re.compile(r"(,( location:)? \S+\.rs:\d+:\d+)(?=$|[\s,)])")
"""Place in a Rust library's own source, at which the error arose or through which it went."""
_CAUSE = re.compile(r'InvalidCertificate\(\s*(?P<certificate>\w+)|(?:message|error): "(?P<text>[^"]*)"')
"""Cause of an error, in the lines that obstore's text has after the first (Rust's debug form).  The innermost cause
says why nothing was sent."""
_NOT_TRUSTED = (
    "the server's certificate is not accepted ({}): name the file of the authority that has signed it in SSL_CERT_FILE"
)
_S3_ANSWER = re.compile(r"<\?xml.*?</Error>|<Error>.*?</Error>", re.DOTALL)
"""Body of an error response of S3.  Its code and message say more than the status."""
_S3_PART = re.compile(r"<(?P<name>Code|Message)>(?P<text>.*?)</(?P=name)>", re.DOTALL)
_URL_USER = re.compile(r"(?<!\w)(\w+://)[^/@\s]+@")
_URL_QUERY = re.compile(r"(?<!\w)(\w+://[^\s?'\"]*)(\?[^\s)'\"]+)?")
"""Pattern of an address with its query.  Like ``_URL_USER`` it looks at each character a fixed number of times.  A text
may hold a row's value of a megabyte without a space."""
_TOKEN_CONFIG = re.compile(r'(sasl\.oauthbearer\.config beginning at: )[^"\n]+')
"""Part of librdkafka's error in which it shows a property's value, from where it cannot parse it to the end.  The
value may hold secrets."""
UNSENT = "error sending request"
"""Words in errors of requests that got no answer, since there was no connection or it ended."""
_UNTOLD = " (it does not say why: look at the address and, for https, at the authorities in SSL_CERT_FILE)"
"""Text to add to an error that ends with ``UNSENT`` and names no cause."""
_LENGTH_MAX = 400
_READ_MAX = 20_000
"""Largest number of characters of an error's text that are read.  Later characters show a value and say nothing about
the error."""
_NO_SPACE = re.compile(
    r"no space left|quota|storage ?full|insufficient ?storage|file too large|\b507\b|os error (27|28|122)\b",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return a library's ``text``, with ``***`` for the user information and the query of each address in it, and for the
    value of ``sasl.oauthbearer.config``."""
    text = _URL_USER.sub(r"\g<1>***@", text)
    text = _URL_QUERY.sub(lambda found: f"{found[1]}?***" if found[2] else found[1], text)
    return _TOKEN_CONFIG.sub(r"\g<1>***", text)


def first_line(error: BaseException) -> str:
    """Return an error as one line, without secrets in addresses.  If the error has no text, return the name of its
    type.

    The line is the first one of the text, without the position in the library's source, and shortened.  If the library
    gives a cause further below, it is added.  For an error response of S3, only its code and message are kept.
    """
    first, _, rest = _S3_ANSWER.sub(_s3_answer, without_secrets(str(error)).strip()[:_READ_MAX], count=1).partition(
        "\n"
    )
    if not first:
        return type(error).__name__
    line = _SOURCE_PLACE.sub("", first.rstrip())[:_LENGTH_MAX]
    causes = list(_CAUSE.finditer(rest))
    if not causes:
        return line + _UNTOLD if line.endswith(UNSENT) else line
    cause = causes[-1]
    return (
        f"{line}: {_NOT_TRUSTED.format(cause['certificate']) if cause['certificate'] else cause['text'][:_LENGTH_MAX]}"
    )


def _s3_answer(found: re.Match[str]) -> str:
    parts = {part["name"]: " ".join(part["text"].split()) for part in _S3_PART.finditer(found[0])}
    return ": ".join(parts[name] for name in ("Code", "Message") if parts.get(name))


def way_on(text: str, otherwise: str) -> str:
    """Return advice for a failed put.  If ``text``, the text of the error, says that the store is full, the advice is
    to make room; otherwise it is ``otherwise``.
    """
    return "The store is full: make room, or a larger one" if _NO_SPACE.search(text) else otherwise
