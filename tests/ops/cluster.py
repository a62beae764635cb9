"""A real API server with the definitions of the Prometheus Operator takes what the chart renders, field by field."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from lancewal_demo.stack import Process
from lancewal_demo.stack.ports import free_ports
from tests.deploy.helm_program import render
from tests.ops.tools import api_server, custom_resources, program

_TOKEN = "proof"
_START_S = 180.0


class Cluster:
    def __init__(self, address: str) -> None:
        self._address = address
        self._tls = ssl._create_unverified_context()  # its own certificate, on this machine

    def ready(self) -> bool:
        try:
            return self._call("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def apply(self, found: Mapping[str, Any], *, dry: bool) -> str:
        """Empty, or what the server says against it; unknown fields are errors."""
        version = found["apiVersion"]
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        _, listed = self._call("GET", root)
        kinds = [r for r in listed.get("resources", []) if r["kind"] == found["kind"] and "/" not in r["name"]]
        if not kinds:
            return f"{version} {found['kind']}: unknown"
        space = f"/namespaces/{found['metadata'].get('namespace', 'default')}" if kinds[0]["namespaced"] else ""
        path = f"{root}{space}/{kinds[0]['name']}/{found['metadata']['name']}"
        question = "?fieldManager=proof&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry else "")
        code, answer = self._call("PATCH", path + question, found)
        return "" if code in (200, 201) else f"{found['kind']} {found['metadata']['name']}: {answer.get('message')}"

    def knows(self, path: str) -> bool:
        return self._call("GET", path)[0] == 200

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {_TOKEN}"}
        if body is not None:
            headers["Content-Type"] = "application/apply-patch+yaml"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=30) as answer:
                text = answer.read().decode()
                return answer.status, json.loads(text) if text.startswith("{") else {}
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            return error.code, json.loads(text) if text.startswith("{") else {"message": text}


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    client, peer, secure = free_ports(3)
    address = f"http://127.0.0.1:{client}"
    subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f'{_TOKEN},admin,admin,"system:masters"\n')
    members = f"http://127.0.0.1:{peer}"
    etcd = Process(
        [program("etcd"), "--data-dir", folder / "etcd", "--listen-client-urls", address, "--advertise-client-urls", address,
         "--listen-peer-urls", members, "--initial-advertise-peer-urls", members, "--initial-cluster", f"default={members}"],
        folder / "etcd.log",
    )  # fmt: skip
    server = Process(
        [api_server(), f"--etcd-servers={address}", "--bind-address=127.0.0.1", f"--secure-port={secure}",
         f"--cert-dir={folder / 'certs'}", f"--service-account-key-file={folder / 'sa.key'}",
         f"--service-account-signing-key-file={folder / 'sa.key'}",
         "--service-account-issuer=https://kubernetes.default.svc", f"--token-auth-file={folder / 'tokens.csv'}",
         "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
         "--disable-admission-plugins=ServiceAccount", "--advertise-address=127.0.0.1"],
        folder / "api-server.log",
    )  # fmt: skip
    try:
        found = Cluster(f"https://127.0.0.1:{secure}")
        server.wait_until(found.ready, "the API server", _START_S)
        yield found
    finally:
        server.stop()
        etcd.stop()


def refused_objects(folder: Path) -> tuple[int, list[str]]:
    """How many objects the chart makes with everything on, and what the server says against them."""
    with cluster(folder) as server:
        for definition in custom_resources():
            for document in yaml.safe_load_all(definition.read_text()):
                assert server.apply(document, dry=False) == ""
        deadline = time.monotonic() + _START_S
        while not server.knows("/apis/monitoring.coreos.com/v1/prometheusrules"):
            assert time.monotonic() < deadline, "the definitions are not served"
            time.sleep(0.5)
        objects = render("everything").objects
        wrong = [said for found in objects if (said := server.apply(found, dry=True))]
        rule = next(found for found in objects if found["kind"] == "PrometheusRule")
        misspelt = {**rule, "spec": {"groups": [{"name": "x", "rulez": []}]}}
        if not server.apply(misspelt, dry=True):
            wrong.append("it takes a misspelt field: this says nothing")
        return len(objects), wrong
