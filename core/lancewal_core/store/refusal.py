"""Deciding from the text of a store's error whether the store refused access, and what a person must set.

Pure: a text gives a kind of error and an advice.  The words are those of S3's error codes, of the client (obstore and
Lance have the same one inside) and of the operating system.  None of them is a promise.  So an unknown text counts as a
fault that may pass, and gets no advice.
"""

from __future__ import annotations

import re

from lancewal_core.errors import LancewalError, StoreNotWritable, StoreRefused, StoreUnavailable

_REFUSED = re.compile(
    r"\b(AccessDenied|AccountProblem|AllAccessDisabled|AuthorizationHeaderMalformed|ExpiredToken|"
    r"IllegalLocationConstraintException|InvalidAccessKeyId|InvalidBucketName|InvalidRegion|InvalidSecurity|InvalidToken|"
    r"NoSuchBucket|NotSignedUp|PermanentRedirect|RequestTimeTooSkewed|SignatureDoesNotMatch|TokenRefreshRequired)\b|"
    r"\b(PermissionDenied|Unauthenticated)Error\b|status code: (301|40[13])\b|\b401 Unauthorized\b|\b403 Forbidden\b|"
    r"\bPermissionError\b|\bpermission denied\b|\bread-only file system\b|\(os error (1|13|30)\)",
    re.IGNORECASE,
)
"""Words of a refusal of access.  The last line is a local folder's: EPERM, EACCES, EROFS."""
_IN_THE_WAY = re.compile(r"not a directory|no such file|file exists", re.IGNORECASE)
"""Words that say that something else lies where the folder of a new table belongs."""
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
            "the secret does not belong to this key: correct storage.options aws_secret_access_key",
        ),
        (r"\b(ExpiredToken|InvalidToken)\b", "renew storage.options aws_session_token and its key"),
        (r"\bRequestTimeTooSkewed\b", "set this machine's clock"),
        (
            r"\bNoSuchBucket\b",
            "the store has no such bucket: create it, or correct table.uri or storage.options aws_endpoint",
        ),
        (r"\bInvalidBucketName\b", "this is not a valid bucket name: correct table.uri"),
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
        (r"\(os error (1|13)\)|\bPermissionError\b", "let the user of this process read and write the table's folder"),
        (r"\(os error 30\)|\bread-only file system\b", "mount the folder's file system for writing"),
    )
)


def refusal(text: str) -> type[StoreUnavailable]:
    """Return the class of error for a failed request, by the text of its failure."""
    return StoreRefused if _REFUSED.search(text) else StoreUnavailable


def refusal_of_puts(text: str) -> type[LancewalError]:
    """Return the class of error for a failed put: ``StoreNotWritable`` if something else lies there, else ``refusal``."""
    found = refusal(text)
    return StoreNotWritable if found is StoreUnavailable and _IN_THE_WAY.search(text) else found


def what_to_set(text: str) -> str:
    """Return ``; `` and advice for the text of a failure; an empty text if the failure is not known."""
    return next((f"; {advice}" for pattern, advice in _ADVICE if pattern.search(text)), "")
