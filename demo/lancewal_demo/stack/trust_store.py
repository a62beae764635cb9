"""The certificates that this machine trusts, as a file that Java reads.

The Java runtime of a wheel trusts only the public authorities.  If an administrator added another authority to the
machine (for a company's proxy or mirror), pip and Go work and this Java does not.  So Java gets OpenSSL's certificates.

The file is a Java KeyStore (JKS, version 2), read by every Java: magic, version and count as 32-bit integers; an
entry is the tag 2, an alias, a time in ms, the type of certificate and its DER bytes; then a SHA-1 over the password,
a fixed phrase and all of that.  Lengths of texts have 16 bits, of certificates 32; everything is big-endian.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from pathlib import Path

from lancewal_demo.stack import cache

PASSWORD = "changeit"  # Java's own default: the file is no secret
_MAGIC, _VERSION, _TRUSTED = 0xFEEDFEED, 2, 2
_PHRASE = b"Mighty Aphrodite"

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
)


def trust_options() -> list[str]:
    """Return arguments for ``java`` that name the file; none if the machine has no bundle of certificates."""
    found = machine_certificates()
    if not found:
        return []
    store = key_store(found)

    def fill(folder: Path) -> None:
        (folder / "trusted.jks").write_bytes(store)

    place = cache.entry(f"trust-{cache.digest(store.hex())}", fill) / "trusted.jks"
    return [f"-Djavax.net.ssl.trustStore={place}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"]


def machine_certificates() -> list[bytes]:
    """Return the machine's trusted certificates as DER bytes; empty if no bundle is found."""
    bundle = machine_bundle()
    if bundle is None:
        return []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(bundle)
    return context.get_ca_certs(binary_form=True)


def machine_bundle() -> Path | None:
    """Return the file with the machine's trusted certificates: the first that exists of SSL_CERT_FILE, OpenSSL's default
    file, and the places of distributions."""
    for name in (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *_BUNDLES):
        if name and Path(name).is_file():
            return Path(name)
    return None


def key_store(certificates: list[bytes]) -> bytes:
    """Return the content of the JKS file.  Equal certificates give equal bytes."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode("ascii")

    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, der in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED) + text(f"machine-{number}") + struct.pack(">q", 0)
        body += text("X.509") + struct.pack(">I", len(der)) + der
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + _PHRASE + body).digest()
