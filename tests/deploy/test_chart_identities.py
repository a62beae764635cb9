"""Pods with a cloud identity: the chart's values on the pages for EKS, AKS and GKE, as helm renders them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from lancewal_core.settings.load import load_settings
from tests.deploy.helm_program import ROOT, Refused, Rendered, render

OF_PAGES: dict[str, tuple[str, dict[str, str], set[int]]] = {
    "deploy-with-helm": ("eks.amazonaws.com/role-arn", {}, {443, 9092}),
    "on-azure": ("azure.workload.identity/client-id", {"azure.workload.identity/use": "true"}, {443, 9092}),
    "on-google-cloud": ("iam.gke.io/gcp-service-account", {}, {443, 9092, 80, 988}),
}
"""Page, annotation of the service accounts, labels of the pods, ports that they reach."""


def values_of(page: str) -> dict[str, Any]:
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    (found,) = (block for block in re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S) if "serviceAccount:" in block)
    tree: dict[str, Any] = yaml.safe_load(found)
    return tree


def templates(rendered: Rendered) -> dict[str, Any]:
    return {o["metadata"]["name"]: o["spec"]["template"] for o in rendered.objects if "template" in o.get("spec", {})}


@pytest.mark.parametrize("page", OF_PAGES)
def test_every_pod_has_the_identity_of_the_page(page: str, tmp_path: Path) -> None:
    annotation, labels, ports = OF_PAGES[page]
    create = {"enabled": True, "columns": [{"name": "city", "type": "string"}]}
    values = {"tableCreate": create, **values_of(page)}
    rendered = render(None, values, release="trips")
    accounts = {o["metadata"]["name"]: o for o in rendered.objects if o["kind"] == "ServiceAccount"}
    assert accounts.keys() == {"trips-lancewal", "trips-lancewal-table-create"}
    wanted = values["serviceAccount"]["annotations"][annotation]
    assert {account["metadata"]["annotations"][annotation] for account in accounts.values()} == {wanted}
    pods = templates(rendered)
    assert len(pods) == 3
    for pod in pods.values():
        assert labels.items() <= pod["metadata"]["labels"].items()
        assert pod["spec"]["serviceAccountName"] in accounts
        # A webhook of the cloud adds its own volume; the token for Kubernetes itself stays out.
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["fsGroup"] == 10001  # or the volume's file cannot be read
    (rule,) = rendered.one("NetworkPolicy", "trips-lancewal")["spec"]["egress"]
    assert {port["port"] for port in rule["ports"]} == {53, *ports}
    for found in rendered.objects:
        kubernetes_validate.validate(found, "1.36.0", strict=True)
    file = tmp_path / "lancewal.yaml"
    file.write_text(next(iter(rendered.one("ConfigMap", "trips-lancewal")["data"].values())))
    assert load_settings(file, {}).table.uri == values["settings"]["table"]["uri"]


def test_labels_of_one_service_win_over_those_of_every_pod() -> None:
    rendered = render(
        "everything", {"podLabels": {"team": "all", "use": "true"}, "ingest": {"podLabels": {"team": "own"}}}
    )
    of = {name: pod["metadata"]["labels"] for name, pod in templates(rendered).items()}
    assert {name: labels["use"] for name, labels in of.items()} == dict.fromkeys(of, "true")
    assert of["r-lancewal-ingest"]["team"] == "own"
    assert of["r-lancewal-table-create"]["team"] == "all"


@pytest.mark.parametrize(
    ("uri", "taken"),
    [
        ("abfss://lake@acmelake.dfs.core.windows.net/trips", True),
        ("abfss://lake@acmelake.dfs.core.windows.net", True),
        ("gs://acme-lake/trips", True),
        ("az://lake/trips", True),
        ("abfss://lake:secret@acmelake.dfs.core.windows.net/trips", False),
        ("abfss://KEY@secret/trips", False),
        ("abfss://lake@acmelake.dfs.core.windows.net.evil/trips", False),
        ("s3://KEY@lake/trips", False),
    ],
)
def test_an_at_sign_is_for_the_account_of_azure_alone(uri: str, taken: bool) -> None:
    for section in ({"table": {"uri": uri}}, {"catalog": {"root": uri}}):
        values = {"settings": {**section}}
        if taken:
            render("smallest", values)
            continue
        with pytest.raises(Refused):
            render("smallest", values)
