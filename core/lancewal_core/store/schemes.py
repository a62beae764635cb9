"""The object stores that a table may lie in, by the scheme of its address: one table of how they differ.

A scheme has everything in which the stores differ for us.  It has the form of address, the client's class, the names
of options, the codes of errors, and the advice for each.  Lance and obstore must both open an address and take an
option.  An option that one of them does not know is refused at the start, since the other one would go elsewhere.

Two schemes of Azure name one store.  ``abfss`` has the account in the address, ``az`` takes it from the options.  A
place always has the account, so places of Azure have the form of ``abfss`` (``address``).

Sources: obstore 0.12.1 (names of options), and the error codes that Amazon S3, Azure Blob Storage and Google Cloud
Storage document.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Holder = Literal["bucket", "container"]
_NO_HOST = r"lookup address|name or service not known|dns error|nodename nor servname"
"""Pattern of a client's error about a host name that has no address."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """One kind of object store."""

    name: str
    form: str
    """Form of an address, for messages."""
    holder: Holder
    """Word for what holds the objects: a bucket or a container."""
    client: str
    """Name of the client's class in ``obstore.store``."""
    said: str
    """Name of the store in the client's own messages, such as ``S3`` in ``Generic S3 error``."""
    prefixes: tuple[str, ...]
    """Prefixes that an option's name may have or lack."""
    shown: frozenset[str]
    """Options that may be shown, by names without a prefix.  They hold no secret, except in the user information or
    the query of an address."""
    endpoints: tuple[str, ...]
    """Names of the option with the endpoint, with and without a prefix."""
    endpoint: str
    """Name of the endpoint's option in advice."""
    credentials: str
    """Names of the options with credentials, as advice shows them."""
    unfit: Mapping[str, str]
    """Options that are refused, because Lance and obstore do not take them alike: the advice for each, by its name
    without a prefix."""
    advice: tuple[tuple[str, str], ...]
    """Patterns of error texts, each with what to set.  The first match counts.  The advice for every store follows
    these (``refusal``)."""
    missing: tuple[str, ...]
    """Codes of the answer for a missing bucket or container, with the store's own code first."""
    accounts: tuple[str, ...] = field(default=())
    """Names of the option with the account, with and without a prefix; empty: no store of this kind has accounts."""
    bare: tuple[frozenset[str], ...] = field(default=())
    """Options that Lance, and not obstore, takes from variables of the environment without a prefix, such as
    ``TOKEN``.  The first set always counts.  Each other set has the names of one kind of credentials.  If one of them
    is given, the kinds after it do not count."""

    def of_environment(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Return the options that variables of the environment set, by their names in lower case."""
        lowered = {name.lower(): value for name, value in environment.items()}
        return {name: value for name, value in lowered.items() if name.startswith(self.prefixes)}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_S3 = Scheme(
    name="s3",
    form="s3://bucket/prefix",
    holder="bucket",
    client="S3Store",
    said="S3",
    prefixes=("aws_",),
    shown=_words("""
        access_key_id allow_http bucket bucket_name checksum_algorithm conditional_put copy_if_not_exists default_region
        disable_tagging endpoint endpoint_url endpoint_url_s3 imdsv1_fallback metadata_endpoint region request_payer
        role_arn role_session_name s3_express server_side_encryption skip_signature sse_bucket_key_enabled
        sse_kms_key_id unsigned_payload virtual_hosted_style_request web_identity_token_file
        """),
    endpoints=("aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint"),
    endpoint="aws_endpoint",
    credentials="aws_access_key_id and aws_secret_access_key (or the machine's own credentials)",
    unfit={},
    advice=(
        (
            r"\bInvalidAccessKeyId\b|\bXAdminUserNotFound\b",
            "the store does not know this key: correct storage.options aws_access_key_id",
        ),
        (
            r"\bSignatureDoesNotMatch\b",
            "the secret does not belong to this key: correct storage.options aws_secret_access_key",
        ),
        (r"\b(ExpiredToken|InvalidToken)\b", "renew storage.options aws_session_token and its key"),
        (
            r"\b(AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraintException|InvalidRegion)\b|"
            r"status code: 301\b|redirect without location|missing region",
            "the bucket is in another region: set storage.options aws_region",
        ),
        (_NO_HOST, "no such host: correct storage.options aws_endpoint, or aws_region and the bucket in table.uri"),
    ),
    missing=("NoSuchBucket", "XAdminUserNotFound"),
)

_GCS = Scheme(
    name="gs",
    form="gs://bucket/prefix",
    holder="bucket",
    client="GCSStore",
    said="GCS",
    prefixes=("google_",),
    shown=_words("application_credentials base_url bucket bucket_name"),
    endpoints=("google_base_url", "base_url"),
    endpoint="google_base_url",
    credentials="google_service_account, the path of a key file (or the machine's own service account)",
    unfit={
        "skip_signature": "Google accepts no unsigned puts: leave it out, and give credentials",
        "storage_token": "only Lance accepts it: set google_bearer_token",
    },
    advice=(
        (
            r"\b(SignatureDoesNotMatch|InvalidSecurity|AuthenticationRequired|invalid_grant|Invalid Credentials|"
            r"invalid_token|Invalid JWT)\b|status code: 401\b",
            "the store does not take these credentials: correct storage.options google_service_account or "
            "google_service_account_key, or set this machine's clock",
        ),
        (
            r"service account file|pem file",
            "this is not a key file: correct storage.options google_service_account (a path), google_service_account_key (its "
            "content) or google_application_credentials",
        ),
        (
            r"performing token request",
            "no token could be obtained: give this machine or this pod a service account that may use the store, or set "
            "storage.options google_service_account",
        ),
        (_NO_HOST, "no such host: correct storage.options google_base_url"),
    ),
    missing=("NoSuchBucket",),
    bare=(
        _words("base_url skip_signature"),
        _words("bearer_token"),
        _words("service_account_key"),
        _words("application_credentials"),
    ),
)

_AZURE_ADVICE = (
    (
        r"Request date header too old|Date header in the request is incorrect",
        "the store says that the request's time is wrong: set this machine's clock",
    ),
    (
        r"not valid in the specified time frame",
        "the SAS token has expired, or is not valid yet: renew storage.options azure_storage_sas_token, or set this "
        "machine's clock",
    ),
    (
        r"Lifetime validation failed",
        "the token has expired, or is not valid yet: renew storage.options azure_storage_token if it is set, or set "
        "this machine's clock",
    ),
    (
        r"federated token file",
        "storage.options azure_federated_token_file names no file that can be read: on AKS label the pod "
        "azure.workload.identity/use",
    ),
    (
        r"performing token request",
        "no token could be obtained: correct storage.options azure_client_id, azure_tenant_id, azure_client_secret or "
        "azure_federated_token_file, or give this machine or this pod an identity",
    ),
    (r"\bContainerBeingDeleted\b", "the container is being deleted: create it again later, or correct table.uri"),
    (
        r"\b(AuthenticationFailed|InvalidAuthenticationInfo)\b|failed to authenticate the request",
        "the store does not take these credentials: correct storage.options azure_storage_account_key, or renew the "
        "token in azure_storage_sas_token, or set this machine's clock",
    ),
    (r"\bAccountIsDisabled\b", "the storage account is disabled: enable it, or correct table.uri"),
    (r"\bOutOfRangeInput\b|\bInvalidResourceName\b", "this is not a valid container name: correct table.uri"),
    (
        r"\bAccount must be specified\b|no Azure account name",
        "name the account: write abfss://container@account.dfs.core.windows.net/..., or set storage.options "
        "azure_storage_account_name",
    ),
    (r"\bSAS query pair\b", "storage.options azure_storage_sas_token is not a SAS token"),
    (r"\bInvalid Access Key\b", "storage.options azure_storage_account_key is no key of an account"),
    (
        _NO_HOST,
        "no such host: correct the account in table.uri or in storage.options azure_storage_account_name, or "
        "azure_storage_endpoint",
    ),
)


def _azure(name: str, form: str) -> Scheme:
    return Scheme(
        name=name,
        form=form,
        holder="container",
        client="AzureStore",
        said="MicrosoftAzure",
        prefixes=("azure_storage_", "azure_"),
        shown=_words("""
            account_name authority_host authority_id client_id container_name credential_type disable_tagging endpoint
            federated_token_file identity_endpoint msi_endpoint msi_resource_id object_id skip_signature tenant_id
            use_azure_cli use_emulator use_fabric_endpoint
            """),
        endpoints=("azure_storage_endpoint", "azure_endpoint", "endpoint"),
        endpoint="azure_storage_endpoint",
        credentials=(
            "azure_storage_account_key or azure_storage_sas_token (or the machine's own managed or workload identity)"
        ),
        unfit={
            "use_emulator": "it hides which store is meant: set azure_storage_endpoint and the account's name and key",
        },
        advice=_AZURE_ADVICE,
        # The second one: the account is another one than the server's.
        missing=("ContainerNotFound", "ResourceNotFound"),
        accounts=("azure_storage_account_name", "account_name"),
        bare=(
            _words("endpoint skip_signature use_emulator credential_type"),
            _words("token bearer_token"),
            _words("account_key access_key master_key"),
            _words("""
                client_id client_secret tenant_id authority_id federated_token_file authority_host sas_token sas_key
                msi_endpoint object_id msi_resource_id
                """),
        ),
    )


SCHEMES: Mapping[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        _S3,
        _GCS,
        _azure("az", "az://container/prefix"),
        _azure("abfss", "abfss://container@account.dfs.core.windows.net/prefix"),
    )
}
"""Every scheme that a table's address may have, besides those of a local folder."""

OTHER_SPELLINGS: Mapping[str, str] = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "azure": "az",
    "adl": "abfss",
    "abfs": "abfss",
    "wasb": "abfss",
    "wasbs": "abfss",
}
"""Schemes of Spark or Hadoop that Lance cannot open, each with lancewal's scheme for such a store."""

AZURE_HOST = ".dfs.core.windows.net"
"""Host in an address of ``abfss``, after the name of the account."""


def any_of(names: tuple[str, ...], said: Mapping[str, str]) -> str:
    """Return the first non-empty value in ``said``, the options, for one of ``names``; otherwise an empty text.
    Names are in lower case."""
    return next((said[name] for name in names if said.get(name)), "")


def endpoint_of(scheme: Scheme, said: Mapping[str, str]) -> str:
    """Return the endpoint in the options, whose names are in lower case.  An empty text stands for the cloud's own
    endpoint.
    """
    return any_of(scheme.endpoints, said) or str(google_key(scheme, said).get("gcs_base_url", ""))


def google_key(scheme: Scheme, said: Mapping[str, str]) -> Mapping[str, object]:
    """Return the content of the key file that options name or hold.  Empty if there is none, or none that can be read.
    Empty too for other stores than Google's."""
    return _google_key(scheme, said) or {}


def _google_key(scheme: Scheme, said: Mapping[str, str]) -> Mapping[str, object] | None:
    """Do the work of ``google_key``; None if the content is not a JSON object."""
    if scheme is not _GCS:
        return {}
    text = any_of(("google_service_account_key", "service_account_key"), said)
    path = any_of(
        ("google_service_account", "google_service_account_path", "service_account", "service_account_path"), said
    )
    path = path or said.get("google_application_credentials", "")
    try:
        text = text or (Path(path).read_text() if path else "{}")
    except (OSError, ValueError):
        return {}  # the client says so
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def plain_name(scheme: Scheme, option: str) -> str:
    """Return an option's name in lower case and without the scheme's prefix."""
    name = option.lower()
    return next((name[len(p) :] for p in scheme.prefixes if name.startswith(p)), name)


def wrong_options(
    scheme: Scheme, options: Mapping[str, str], account: str, environment: Mapping[str, str] = os.environ
) -> str:
    """Return why options are refused that obstore or Lance would accept; an empty text if all are fine.  No value is
    shown.

    ``options``: names in lower case.  ``account``: the account in the address.
    """
    return next(_wrong(scheme, options, account, environment), "")


def _wrong(scheme: Scheme, options: Mapping[str, str], account: str, environment: Mapping[str, str]) -> Iterator[str]:
    variables = scheme.of_environment(environment)
    said = {**variables, **options}
    for option in said:
        if advice := scheme.unfit.get(plain_name(scheme, option)):
            yield f"{option if option in options else option.upper()}: {advice}"
    if _google_key(scheme, said) is None:
        yield "the key of Google is not the content of a key file, which is a JSON object (it is not shown here)"
    if google_key(scheme, said).get("type") == "external_account":
        yield (
            "the key file of Google is of the type external_account. The store's client does not know this type. Give a "
            "key of a service account, or let the machine have one"
        )
    other = any_of(scheme.accounts, options)
    if account and other and other != account:
        yield f"{scheme.accounts[0]} names another account than the address"
    yield from _taken_by_lance_alone(scheme, {plain_name(scheme, option) for option in said}, environment)
    for option, value in options.items():
        # Lance has one name of its own for each option, under which it adds a variable.  Of two names it takes either.
        plain = plain_name(scheme, option)
        own = option == f"{scheme.prefixes[0]}{plain}" and plain != "sas_token"
        for variable, another in variables.items():
            if scheme.bare and not own and plain_name(scheme, variable) == plain and another != value:
                yield f"{option} and the variable {variable.upper()} differ: set one of them"


def _taken_by_lance_alone(scheme: Scheme, given: set[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield why variables without a prefix are refused.  ``given``: names of what both libraries take."""
    lowered = {name.lower(): name for name in environment}
    always, *kinds, weakest = scheme.bare or (frozenset[str](), frozenset[str]())
    counted = set(always)
    for kind in kinds:
        if kind & given:
            break
        counted |= kind
    else:
        counted |= weakest
    for name in sorted(counted & lowered.keys() - given):
        yield (
            f"Lance alone takes the variable {lowered[name]} of the environment, for {scheme.prefixes[0]}{name}: unset it, "
            "or say by storage.options what is meant"
        )


def shown_options() -> frozenset[str]:
    """Return the names of all options that hold no secret, with and without a prefix."""
    return frozenset(
        name
        for scheme in SCHEMES.values()
        for plain in scheme.shown
        for name in (plain, *(f"{prefix}{plain}" for prefix in scheme.prefixes))
    )


def scheme_in_error(text: str) -> Scheme:
    """Return the kind of store that a client's error is about, from its words or from an address in it.  S3 if neither
    shows it.
    """
    found = (scheme for scheme in SCHEMES.values() if re.search(rf"\bGeneric {scheme.said} error\b", text))
    if match := next(found, None):
        return match
    hosts = (
        (_GCS, r"\bgs://|\bgoogleapis\.com\b|\bmetadata\.google\b"),
        (SCHEMES["az"], r"\b(az|abfss)://|\.core\.windows\.net\b|<Code>Container"),
    )
    return next((scheme for scheme, pattern in hosts if re.search(pattern, text)), _S3)
