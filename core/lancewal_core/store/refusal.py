"""Decide from the text of a store's error whether the store refused access, and what a person must set.

Pure: a text gives a kind of error and an advice.  The words are those of the stores' error codes, of the client
(obstore and Lance have the same one inside) and of the operating system.  None of them is a promise.  So an unknown
text counts as a fault that may pass, and gets no advice.
"""

from __future__ import annotations

import re

from lancewal_core.errors import LancewalError, StoreNotWritable, StoreRefused, StoreUnavailable
from lancewal_core.store.schemes import SCHEMES, Scheme, scheme_in_error

_REFUSED = re.compile(
    r"\b(AccessDenied|AccountProblem|AllAccessDisabled|AuthorizationHeaderMalformed|ExpiredToken|"
    r"IllegalLocationConstraintException|InvalidAccessKeyId|InvalidBucketName|InvalidRegion|InvalidSecurity|InvalidToken|"
    r"NoSuchBucket|NotSignedUp|PermanentRedirect|RequestTimeTooSkewed|SignatureDoesNotMatch|TokenRefreshRequired|"
    r"XAdminUserNotFound|Failed to get AWS credentials)\b|"
    r"\b(AccountIsDisabled|AuthenticationFailed|AuthenticationRequired|AuthorizationFailure|"
    r"AuthorizationPermissionMismatch|ContainerDisabled|ContainerNotFound|InsufficientAccountPermissions|"
    r"InvalidAuthenticationInfo|InvalidResourceName|NoAuthenticationInformation|"
    r"OutOfRangeInput|ResourceNotFound)\b|"
    r"token request: .*status code: 400\b|federated token file|"
    r"\b(PermissionDenied|Unauthenticated)Error\b|status code: (301|40[13])\b|\b401 Unauthorized\b|\b403 Forbidden\b|"
    r"\bPermissionError\b|\bpermission denied\b|\bread-only file system\b|\(os error (1|13|30)\)",
    re.IGNORECASE,
)
"""Words of a refusal of access.  The last line is a local folder's: EPERM, EACCES, EROFS."""
_THROTTLED = re.compile(r"status code: 429\b")
_IN_THE_WAY = re.compile(r"not a directory|no such file|file exists", re.IGNORECASE)
"""Words of an error if something that is not a folder lies where a new table's folder, or a folder above it, belongs.
"""


def _advice(scheme: Scheme) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return patterns and advice, in the order in which they are tried."""
    credentials = f"storage.options {scheme.credentials}"
    told = (
        # Before what answers there: asked is a machine's own service, because nothing else gives credentials.
        (
            r"169\.254\.\d+\.\d+|metadata\.google|credential(s)? (provider|not found)|no credentials|"
            r"Failed to get AWS credentials",
            f"there are no credentials: set {credentials}",
        ),
        *scheme.advice,
        (r"\bRequestTimeTooSkewed\b", "set this machine's clock"),
        (
            rf"\b({'|'.join(scheme.missing)})\b",
            f"the store has no such {scheme.holder}: create it, or correct table.uri or storage.options {scheme.endpoint}",
        ),
        (r"\bInvalidBucketName\b", "this is not a valid bucket name: correct table.uri"),
        (
            r"builder error|BadScheme",
            f"the address cannot be used: storage.options {scheme.endpoint} must begin with http:// or https://, and "
            "http:// needs storage.options allow_http: 'true'",
        ),
        (
            r"connection refused|connect error|network is unreachable|no route to host",
            f"nothing listens there: correct storage.options {scheme.endpoint}, or start the store",
        ),
        (
            r"\bAccessDenied\b|\bAuthorization(PermissionMismatch|Failure)\b|\bInsufficientAccountPermissions\b|"
            r"status code: 40[13]\b",
            f"grant these credentials the rights (docs/reference/trust.md lists them), or set others in {credentials}",
        ),
        (r"\(os error (1|13)\)|\bPermissionError\b", "let the user of this process read and write the table's folder"),
        (r"\(os error 30\)|\bread-only file system\b", "mount the folder's file system for writing"),
    )
    return tuple((re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in told)


_ADVICE = {name: _advice(scheme) for name, scheme in SCHEMES.items()}


def refusal(text: str) -> type[StoreUnavailable]:
    """Return the class of error for a failed request, by the text of its failure."""
    return StoreRefused if _REFUSED.search(text) else StoreUnavailable


def is_throttled(text: str) -> bool:
    """Return whether the store has answered that there are too many requests, by the text of a failure."""
    return _THROTTLED.search(text) is not None


def refusal_of_puts(text: str) -> type[LancewalError]:
    """Return the class of error for a failed put: ``StoreNotWritable`` if a file or folder is in the way, otherwise as
    ``refusal``.
    """
    found = refusal(text)
    return StoreNotWritable if found is StoreUnavailable and _IN_THE_WAY.search(text) else found


def what_to_set(text: str, scheme: Scheme | None = None) -> str:
    """Return advice that follows ``; `` for a failure that is known; otherwise an empty text.

    ``scheme`` is that of the store.  None: it is found from the text (``scheme_in_error``).
    """
    advice = _ADVICE[(scheme or scheme_in_error(text)).name]
    return next((f"; {said}" for pattern, said in advice if pattern.search(text)), "")
