"""What a person sets where a store, in its client's own words, lets nobody in or is not there at all.

Pure: a text in, an advice out.  The words are those of S3's error codes, of the client (obstore, Lance: the same one inside)
and of the operating system; none of them is a promise, so a text that is not known gets no advice.
"""

from __future__ import annotations

import re

_CREDENTIALS = "storage.options aws_access_key_id and aws_secret_access_key (or the machine's own credentials)"
_ADVICE: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        # Before what answers there: asked is a machine's own service, because nothing else gives credentials.
        (
            r"169\.254\.\d+\.\d+|metadata\.google|credential(s)? (provider|not found)|no credentials",
            f"there are no credentials: set {_CREDENTIALS}",
        ),
        (r"\bInvalidAccessKeyId\b", "the store does not know this key: correct storage.options aws_access_key_id"),
        (
            r"\bSignatureDoesNotMatch\b",
            "the secret is another one than the key's: correct storage.options aws_secret_access_key",
        ),
        (r"\b(ExpiredToken|InvalidToken)\b", "renew storage.options aws_session_token and its key"),
        (r"\bRequestTimeTooSkewed\b", "set this machine's clock"),
        (
            r"\bNoSuchBucket\b",
            "the store has no such bucket: create it, or correct table.uri or storage.options aws_endpoint",
        ),
        (r"\bInvalidBucketName\b", "this is no name of a bucket: correct table.uri"),
        (
            r"\b(AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraintException|InvalidRegion)\b|"
            r"status code: 301\b|redirect without location|missing region",
            "the bucket is in another region: set storage.options aws_region",
        ),
        (
            r"builder error|BadScheme",
            "the address cannot be used: storage.options aws_endpoint must begin with http:// or https://, and "
            "http:// needs storage.options allow_http: 'true'",
        ),
        (
            r"lookup address|name or service not known|dns error|nodename nor servname",
            "no such host: correct storage.options aws_endpoint, or aws_region and the bucket in table.uri",
        ),
        (
            r"connection refused|connect error|network is unreachable|no route to host",
            "nothing listens there: correct storage.options aws_endpoint, or start the store",
        ),
        (
            r"\bAccessDenied\b|status code: 40[13]\b",
            f"grant these credentials the rights (docs/reference/trust.md lists them), or set others in {_CREDENTIALS}",
        ),
    )
)


def what_to_set(text: str) -> str:
    """A part of a sentence, behind a semicolon; empty for a text that says nothing of the kind."""
    return next((f"; {advice}" for pattern, advice in _ADVICE if pattern.search(text)), "")
