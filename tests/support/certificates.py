"""Certificates made for one run: a private authority, what it has signed, and an authority that nobody asked."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class KeyPair(NamedTuple):
    certificate: Path
    key: Path

    def joined(self) -> Path:
        """Key and certificate in one file, as Kafka's key stores of type PEM have them."""
        whole = self.key.with_suffix(".keystore.pem")
        whole.write_text(self.key.read_text() + self.certificate.read_text())
        return whole


class Certificates(NamedTuple):
    ca: Path
    other_ca: Path
    server: KeyPair
    """For 127.0.0.1."""
    client: KeyPair


def make_certificates(folder: Path) -> Certificates:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ["-newkey", "rsa:2048", "-nodes", "-days", "2"]
    for name in ("ca", "other"):
        openssl("req", "-x509", *new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
    pairs = []
    for name, subject in (("server", "/CN=127.0.0.1"), ("client", "/CN=lancewal")):
        openssl("req", *new, "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
        pairs.append(KeyPair(folder / f"{name}.pem", folder / f"{name}.key"))
    return Certificates(folder / "ca.pem", folder / "other.pem", *pairs)
