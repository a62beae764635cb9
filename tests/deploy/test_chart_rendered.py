"""The chart as a real helm renders it: what Kubernetes gets, and what lancewal reads in the pod."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from lancewal_core.settings.load import Settings, load_settings
from tests.deploy.helm_program import ROOT, VALUES, Refused, Rendered, lint, render

OLDEST_KUBERNETES, NEWEST_KUBERNETES = "1.27.0", "1.36.0"
SETS = sorted(file.stem for file in VALUES.glob("*.yaml"))


@pytest.fixture(scope="module", params=SETS)
def rendered(request: pytest.FixtureRequest) -> Rendered:
    return render(request.param)


@pytest.fixture(scope="module")
def everything() -> Rendered:
    return render("everything")


def ours(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container of lancewal: the first, which `kubectl logs` and `exec` take."""
    container: Mapping[str, Any] = pod["containers"][0]
    assert container["name"] in ("ingest", "flusher", "table-create")
    return container


# -- Kubernetes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [None, *SETS])
def test_helm_lint_finds_nothing(values: str | None) -> None:
    """Without values too: whoever only looks at the chart has no table yet."""
    lint(values)


@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, NEWEST_KUBERNETES])
def test_every_object_is_what_kubernetes_knows(rendered: Rendered, version: str) -> None:
    """Strict: an unknown field is an error.  The Prometheus Operator's kinds are not among Kubernetes' own."""
    for found in rendered.objects:
        if found["apiVersion"] != "monitoring.coreos.com/v1":
            kubernetes_validate.validate(found, version, strict=True)


def test_the_strict_check_sees_a_misspelt_field() -> None:
    budget = dict(render("smallest").one("PodDisruptionBudget", "r-lancewal-ingest"))
    budget["spec"] = {**budget["spec"], "maxUnavailabel": 1}
    with pytest.raises(kubernetes_validate.ValidationError, match="maxUnavailabel"):
        kubernetes_validate.validate(budget, NEWEST_KUBERNETES, strict=True)


def test_each_switch_renders_its_objects(everything: Rendered) -> None:
    assert sorted((o["kind"], o["metadata"]["name"]) for o in everything.objects) == [
        ("ConfigMap", "r-lancewal"),
        *(("ConfigMap", f"r-lancewal-{board}-board") for board in ("flusher", "ingest", "overview", "store")),
        ("ConfigMap", "r-lancewal-table-create"),
        ("Deployment", "r-lancewal-flusher"),
        ("Deployment", "r-lancewal-ingest"),
        ("Job", "r-lancewal-table-create"),
        ("NetworkPolicy", "r-lancewal"),
        ("PodDisruptionBudget", "r-lancewal-ingest"),
        ("PodMonitor", "r-lancewal"),
        ("PrometheusRule", "r-lancewal"),
        ("ServiceAccount", "r-lancewal"),
        ("ServiceAccount", "r-lancewal-table-create"),
    ]


def test_no_pod_is_root_or_writes_outside_tmp(rendered: Rendered) -> None:
    for pod in rendered.pods().values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        container = ours(pod)
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
        assert writable - {"/lake"} == {"/tmp"}
        assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]} - {"scratch"}
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize(
    ("table", "topics", "allowed"),
    [
        ({}, None, ()),
        ({"topic": "trips"}, None, ("trips", "trips.dead-letters")),
        ({"topic": "trips", "dead_letter_topic": "bad"}, None, ("trips", "bad")),
        ({"topic": "trips"}, ["trips*", "bad"], ("trips*", "bad")),
        ({}, ["trips"], ("trips",)),
    ],
)
def test_the_pods_may_use_the_topics_of_the_values_alone(
    table: dict[str, str], topics: list[str] | None, allowed: tuple[str, ...], tmp_path: Path
) -> None:
    kafka = {} if topics is None else {"topics": topics}
    pods = render("smallest", {"settings": {"table": table, "kafka": kafka}})
    for component in ("ingest", "flusher"):
        (tmp_path / component).mkdir()
        assert settings_in_pod(pods, component, tmp_path / component, {}).kafka.topics == allowed


def test_services_of_the_namespace_put_no_variables_into_the_pods(rendered: Rendered) -> None:
    assert {pod["enableServiceLinks"] for pod in rendered.pods().values()} == {False}
    assert [o for o in rendered.objects if o["kind"] == "Service"] == []


def test_selectors_choose_exactly_their_own_pods(everything: Rendered) -> None:
    """The budget and the two deployments must not count each other's pods, nor the job's."""
    pods = {
        o["metadata"]["name"]: o["spec"]["template"]["metadata"]["labels"]
        for o in everything.objects
        if o["kind"] in ("Deployment", "Job")
    }
    chosen = {
        (o["kind"], o["metadata"]["name"]): [
            name for name, labels in pods.items() if o["spec"]["selector"]["matchLabels"].items() <= labels.items()
        ]
        for o in everything.objects
        if o["kind"] in ("Deployment", "PodDisruptionBudget")
    }
    assert chosen == {
        ("Deployment", "r-lancewal-ingest"): ["r-lancewal-ingest"],
        ("Deployment", "r-lancewal-flusher"): ["r-lancewal-flusher"],
        ("PodDisruptionBudget", "r-lancewal-ingest"): ["r-lancewal-ingest"],
    }


@pytest.mark.parametrize(("drain_s", "grace_s"), [(None, None), (30, 45), (40.5, 56), (600, 615)])
def test_kubernetes_waits_longer_than_the_process_takes_to_end(drain_s: float | None, grace_s: int | None) -> None:
    section = {} if drain_s is None else {"drain_timeout_s": drain_s}
    pods = render("smallest", {"settings": {"ingest": section, "flusher": section}}).pods()
    for name, by_default in (("ingest", Settings().ingest), ("flusher", Settings().flusher)):
        expected = math.ceil(by_default.drain_timeout_s) + 15 if grace_s is None else grace_s
        assert pods[name]["terminationGracePeriodSeconds"] == expected


def test_a_roll_out_goes_on_once_a_pod_has_been_ready_for_a_while(everything: Rendered) -> None:
    assert everything.one("Deployment", "r-lancewal-ingest")["spec"]["minReadySeconds"] == 10


def test_probes_and_metrics_are_on_the_port_of_the_settings(everything: Rendered) -> None:
    for component, port in (("ingest", 9500), ("flusher", 9501)):
        container = ours(everything.pods()[component])
        assert container["ports"] == [{"name": "metrics", "containerPort": port}]
        paths = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
        assert paths == {
            "startup": {"path": "/livez", "port": "metrics"},
            "liveness": {"path": "/livez", "port": "metrics"},
            "readiness": {"path": "/readyz", "port": "metrics"},
        }
    (endpoint,) = everything.one("PodMonitor", "r-lancewal")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"


def test_a_secret_variable_comes_from_a_secret(everything: Rendered) -> None:
    for pod in everything.pods().values():
        container = ours(pod)
        (found,) = [variable for variable in container["env"] if variable["name"] == "AWS_SECRET_ACCESS_KEY"]
        assert found["valueFrom"] == {"secretKeyRef": {"name": "trips-store", "key": "secret"}}


def test_extra_volumes_and_variables_reach_every_pod(everything: Rendered) -> None:
    values = yaml.safe_load((VALUES / "everything.yaml").read_text())
    for pod in everything.pods().values():
        assert [v for v in pod["volumes"] if v in values["extraVolumes"]] == values["extraVolumes"]
        assert [m for m in ours(pod)["volumeMounts"] if m in values["extraVolumeMounts"]] == values["extraVolumeMounts"]
        assert ours(pod)["envFrom"] == values["extraEnvFrom"]


def test_sidecars_stand_beside_the_services_and_never_in_the_job(everything: Rendered) -> None:
    """A job with a sidecar would never end."""
    beside = {
        component: [c["name"] for c in (*pod.get("initContainers", ()), *pod["containers"])]
        for component, pod in everything.pods().items()
    }
    assert beside == {
        "ingest": ["fetch-truststore", "ingest", "log-shipper"],
        "flusher": ["fetch-truststore", "flusher", "log-shipper"],
        "table-create": ["table-create"],
    }


def test_pods_spread_as_the_values_say_and_count_only_their_own(everything: Rendered) -> None:
    def spread(rendered: Rendered, component: str) -> Any:
        return rendered.pods()[component].get("topologySpreadConstraints")

    own = {"matchLabels": everything.one("Deployment", "r-lancewal-ingest")["spec"]["selector"]["matchLabels"]}
    by_default = [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}]
    assert spread(render("smallest"), "ingest") == [{**by_default[0], "labelSelector": own}]
    assert spread(render("smallest", {"ingest": {"topologySpreadConstraints": []}}), "ingest") is None
    assert spread(render("smallest"), "flusher") is None
    values = yaml.safe_load((VALUES / "everything.yaml").read_text())["ingest"]["topologySpreadConstraints"]
    assert spread(everything, "ingest") == [{**values[0], "labelSelector": own}, values[1]]
    (only,) = spread(everything, "flusher")
    assert only["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "flusher"


def test_the_chart_makes_no_secret(rendered: Rendered) -> None:
    """`secrets` names those that are there: values stand in the release, which many may read."""
    assert [o for o in rendered.objects if o["kind"] == "Secret"] == []


def test_the_port_is_for_those_that_are_named_and_by_default_for_the_namespace(everything: Rendered) -> None:
    def spec(rendered: Rendered) -> Any:
        return rendered.one("NetworkPolicy", "r-lancewal")["spec"]

    assert spec(render("smallest"))["policyTypes"] == ["Ingress"]
    (rule,) = spec(render("smallest"))["ingress"]
    assert rule == {"ports": [{"port": "metrics", "protocol": "TCP"}], "from": [{"podSelector": {}}]}
    (rule,) = spec(everything)["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert spec(everything)["policyTypes"] == ["Ingress", "Egress"]


def test_a_change_of_the_settings_replaces_the_pods() -> None:
    def annotation(overrides: Mapping[str, Any]) -> str:
        deployment = render("smallest", overrides).one("Deployment", "r-lancewal-ingest")
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["lancewal/settings"])

    assert annotation({}) == annotation({"ingest": {"replicas": 7}})
    assert annotation({}) != annotation({"settings": {"ingest": {"linger_ms": 7}}})


@pytest.mark.parametrize("release", ["r", "lancewal", "trips-lancewal", "a" * 53])
def test_names_stay_within_kubernetes_limits(release: str) -> None:
    for found in render("everything", release=release).objects:
        assert len(found["metadata"]["name"]) <= 63


# -- lancewal --------------------------------------------------------------------------------------------------


def settings_in_pod(
    rendered: Rendered, component: str, folder: Path, secrets: Mapping[str, Mapping[str, str]]
) -> Settings:
    """What ``load_settings`` makes of the files and variables that the pod would have."""
    pod = rendered.pods()[component]
    container = ours(pod)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts: dict[str, Path] = {}
    for mount in container["volumeMounts"]:
        place = mounts[mount["mountPath"]] = folder / mount["name"]
        place.mkdir()
        match volumes[mount["name"]]:
            case {"configMap": {"name": name}} if name.startswith("r-lancewal"):
                for file, text in rendered.one("ConfigMap", name)["data"].items():
                    (place / file).write_text(text)
            case {"projected": {"sources": sources}}:
                for source in sources:
                    secret = secrets[source["secret"]["name"]]
                    items = source["secret"].get("items") or [{"key": key, "path": key} for key in secret]
                    for item in items:
                        (place / item["path"]).write_text(secret[item["key"]])
    environ = {variable["name"]: str(variable["value"]) for variable in container["env"] if "value" in variable}
    for name in {"LANCEWAL_CONFIG", "LANCEWAL_SECRETS_DIR"} & environ.keys():
        inside = next(inside for inside in mounts if environ[name].startswith(inside))
        environ[name] = environ[name].replace(inside, str(mounts[inside]), 1)
    return load_settings(None, environ)


SECRETS = {
    "kafka-user": {"password": "hush", "other": "not asked for"},
    "kafka-ca": {"ca.crt": "-----BEGIN CERTIFICATE-----"},
    "store-keys": {"LANCEWAL_STORAGE__OPTIONS__AWS_SECRET_ACCESS_KEY": "hush hush"},
}


@pytest.mark.parametrize("component", ["ingest", "flusher", "table-create"])
def test_the_pod_reads_the_settings_that_the_values_say(everything: Rendered, component: str, tmp_path: Path) -> None:
    values = yaml.safe_load((VALUES / "everything.yaml").read_text())
    (tmp_path / "said").mkdir()
    (tmp_path / "said" / "lancewal.yaml").write_text(yaml.safe_dump(values["settings"], sort_keys=False))
    said = {
        "LANCEWAL_KAFKA__OPTIONS__SASL_PASSWORD": "hush",
        "LANCEWAL_STORAGE__OPTIONS__AWS_SECRET_ACCESS_KEY": "hush hush",
        "LANCEWAL_HTTP__HOST": "0.0.0.0",
        "LANCEWAL_KAFKA__TOPICS": "trips, trips.dead-letters",
    }
    if component == "table-create":
        said["LANCEWAL_TABLE__COLUMNS"] = json.dumps({c.pop("name"): c for c in values["tableCreate"]["columns"]})
    expected = load_settings(tmp_path / "said" / "lancewal.yaml", said)
    assert settings_in_pod(everything, component, tmp_path, SECRETS) == expected
    assert expected.ingest.seal_rows == 2_000_000  # Helm writes large numbers as 2e+06 if one lets it
    assert expected.table.record_bytes_max == 1_000_000


def test_the_columns_keep_their_order(everything: Rendered, tmp_path: Path) -> None:
    """Helm sorts the keys of mappings; the order of the columns is the table's."""
    settings = settings_in_pod(everything, "table-create", tmp_path, SECRETS)
    assert list(settings.table.columns) == ["trip", "city", '"odd": name', "ended_at"]


def test_without_secrets_there_is_no_folder_of_them(tmp_path: Path) -> None:
    settings = settings_in_pod(render("smallest"), "ingest", tmp_path, {})
    assert settings.http.host == "0.0.0.0"
    assert settings.storage.options == {}


def test_the_table_is_made_at_the_first_installation_only(everything: Rendered) -> None:
    made = [o for o in everything.objects if o["metadata"]["name"].endswith("-table-create")]
    hooks = {o["kind"]: o["metadata"]["annotations"] for o in made}
    assert {kind: note["helm.sh/hook"] for kind, note in hooks.items()} == dict.fromkeys(hooks, "pre-install")
    weight = {kind: int(note["helm.sh/hook-weight"]) for kind, note in hooks.items()}
    assert weight["ConfigMap"] < weight["Job"]
    assert weight["ServiceAccount"] < weight["Job"]


@pytest.mark.parametrize(
    ("uri", "root", "name"),
    [
        ("shop.orders", "s3://lake", " --name shop.orders"),
        ("s3://lake/trips", "s3://lake", ""),
        ("$(id)", "s3://lake", ""),
        ("trips", "", ""),
    ],
)
def test_a_table_is_made_under_its_name_in_the_catalog(uri: str, root: str, name: str) -> None:
    values = yaml.safe_load((VALUES / "everything.yaml").read_text())
    settings = {**values["settings"], "catalog": {"root": root}}
    found = render("everything", {"settings": {**settings, "table": {**settings["table"], "uri": uri}}})
    job = found.one("Job", "r-lancewal-table-create")
    command = ours(job["spec"]["template"]["spec"])["command"]
    assert command == ["/bin/sh", "-euc", f"lancewal table show 2>/dev/null || exec lancewal table create{name}"]


def test_the_pods_find_the_table_by_its_name_with_the_password_of_a_secret(tmp_path: Path) -> None:
    pods = render("catalog")
    secrets = {"lake-catalog": {"password": "hush", "ca.crt": "-----BEGIN CERTIFICATE-----"}}
    values = yaml.safe_load((VALUES / "catalog.yaml").read_text())["settings"]
    for component in ("ingest", "flusher", "table-create"):
        (tmp_path / component).mkdir()
        settings = settings_in_pod(pods, component, tmp_path / component, secrets)
        assert settings.table.uri == "shop.orders"
        assert settings.catalog.model_dump() == {**values["catalog"], "password": "hush"}
        assert "hush" not in json.dumps(pods.objects)
    command = ours(pods.one("Job", "r-lancewal-table-create")["spec"]["template"]["spec"])["command"]
    assert command[-1].endswith("lancewal table create --name shop.orders")


@pytest.mark.parametrize(
    ("url", "ports", "missing"),
    [
        ("postgresql://lancewal@db.example:6432/lake", [9092, 5432], "6432"),
        ("postgresql://lancewal@db.example/lake?sslrootcert=/a:1", [9092, 6432], "5432"),
        ("postgresql://db-0:5432,db-1:5433/lake", [5432], "5433"),
        ("postgresql://db-0:5432,db-1:5433/lake", [5432, 5433], ""),
        ("postgresql://[::1]/lake", [5432], ""),
        ("postgresql://db.example:6432/lake", [], ""),
    ],
)
def test_a_policy_that_shuts_the_catalog_out_is_refused(url: str, ports: list[int], missing: str) -> None:
    values = {"settings": {"catalog": {"kind": "postgres", "url": url}}, "networkPolicy": {"egressPorts": ports}}
    if not missing:
        render("smallest", values)
        return
    with pytest.raises(Refused, match=f"networkPolicy.egressPorts: .* port {missing} "):
        render("smallest", values)


# -- memory ----------------------------------------------------------------------------------------------------

NEED = 300 << 20
"""What a process takes beside its budget (docs/reference/settings.md)."""


@pytest.mark.parametrize(
    ("component", "setting", "budget", "limit", "fits"),
    [
        ("ingest", "memory_bytes_max", None, "812Mi", True),
        ("ingest", "memory_bytes_max", None, "811Mi", False),
        ("ingest", "memory_bytes_max", (512 << 20), (512 << 20) + NEED, True),
        ("ingest", "memory_bytes_max", (512 << 20), str((512 << 20) + NEED - 1), False),
        ("ingest", "memory_bytes_max", "4 GB", "4Gi", False),
        ("ingest", "memory_bytes_max", "4 GB", "4.1Gi", True),
        ("ingest", "memory_bytes_max", "1.5GiB", "1900M", False),
        ("ingest", "memory_bytes_max", "1.5GiB", "2G", True),
        ("ingest", "memory_bytes_max", "1.5GiB", "1925185535000m", False),
        ("ingest", "memory_bytes_max", "1.5GiB", "1925185536000m", True),
        ("ingest", "memory_bytes_max", "2000000000B", "2314572k", False),
        ("ingest", "memory_bytes_max", "2000000000B", "2314573k", True),
        ("ingest", "memory_bytes_max", "1TiB", "1T", False),
        ("ingest", "memory_bytes_max", "1PB", "1E", True),
        ("ingest", "memory_bytes_max", "8GiB", None, True),
        ("flusher", "merge_memory_bytes_max", None, "1324Mi", True),
        ("flusher", "merge_memory_bytes_max", None, "1323Mi", False),
        ("flusher", "merge_memory_bytes_max", "256MiB", "1Gi", True),
    ],
)
def test_a_limit_of_memory_that_the_process_outgrows_is_refused(
    component: str, setting: str, budget: str | int | None, limit: str | int | None, fits: bool
) -> None:
    section = {} if budget is None else {setting: budget}
    values = {"settings": {component: section}, component: {"resources": {"limits": {"memory": limit}}}}
    if fits:
        render("smallest", values)
        return
    with pytest.raises(Refused) as caught:
        render("smallest", values)
    said = budget or {"ingest": "512MiB", "flusher": "1GiB"}[component]
    for word in (f"{component}.resources.limits.memory", f"settings.{component}.{setting}", str(limit), str(said)):
        assert word in str(caught.value)


# -- values that are refused -----------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"ingset": {}}, "ingset"),
    "unknown setting": ({"settings": {"ingest": {"liner_ms": 5}}}, "liner_ms"),
    "unknown nested key": ({"ingest": {"resources": {"limits": {"memroy": "1Gi"}}}}, "memroy"),
    "no table": ({"settings": {"table": {"uri": ""}}}, "uri"),
    "no topic": ({"settings": {"kafka": {"topics": ["a b"]}}}, "topics"),
    "no brokers": ({"settings": {"kafka": {"bootstrap_servers": ""}}}, "bootstrap_servers"),
    "quantity": ({"flusher": {"resources": {"limits": {"memory": "1Gx"}}}}, "memory"),
    "size of /tmp": ({"tmpSizeLimit": "1 GiB"}, "tmpSizeLimit"),
    "secret option of Kafka": (
        {"settings": {"kafka": {"options": {"sasl.password": "x"}}}},
        r"sasl\.password|options",
    ),
    "secret option of the store": ({"settings": {"storage": {"options": {"aws_secret_access_key": "x"}}}}, "options"),
    "sorted columns": ({"settings": {"table": {"columns": {"a": "int64"}}}}, "columns"),
    "table without columns": ({"tableCreate": {"enabled": True}}, "columns"),
    "setting as extra variable": ({"extraEnv": [{"name": "LANCEWAL_TABLE__URI", "value": "x"}]}, "extraEnv"),
    "secret as plain variable": ({"extraEnv": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}]}, "extraEnv"),
    "token as plain variable": ({"extraEnv": [{"name": "aws_session_token", "value": "x"}]}, "extraEnv"),
    "password in an address": ({"extraEnv": [{"name": "HTTPS_PROXY", "value": "http://u:x@proxy"}]}, "extraEnv"),
    "variable without a value": ({"extraEnv": [{"name": "AWS_REGION"}]}, "extraEnv"),
    "user information": ({"settings": {"table": {"uri": "s3://AKIA:hush@bucket/t"}}}, "uri"),
    "user information with a slash": ({"settings": {"table": {"uri": "s3://AKIA:hu/sh@bucket/t"}}}, "uri"),
    "port for nobody in particular": ({"networkPolicy": {"metricsFrom": []}}, "metricsFrom"),
    "a port that nobody knows": ({"settings": {"http": {"flusher_port": 0}}}, "flusher_port"),
    "sidecar without an image": ({"ingest": {"extraContainers": [{"name": "x"}]}}, "image"),
    "sidecar of the name of ours": ({"flusher": {"extraContainers": [{"name": "flusher", "image": "x"}]}}, "name"),
    "sidecar as a map": ({"ingest": {"extraContainers": {"x": {"image": "y"}}}}, "extraContainers"),
    "sidecar of the job": ({"tableCreate": {"extraContainers": [{"name": "x", "image": "y"}]}}, "extraContainers"),
    "volume of the name of ours": ({"extraVolumes": [{"name": "settings", "emptyDir": {}}]}, "extraVolumes"),
    "volume without a name": ({"extraVolumes": [{"emptyDir": {}}]}, "name"),
    "mount over the settings": ({"extraVolumeMounts": [{"name": "x", "mountPath": "/etc/lancewal"}]}, "mountPath"),
    "mount among the secrets": (
        {"extraVolumeMounts": [{"name": "x", "mountPath": "/etc/lancewal/secrets/ca"}]},
        "mountPath",
    ),
    "mount over /tmp": ({"extraVolumeMounts": [{"name": "x", "mountPath": "/tmp/"}]}, "mountPath"),
    "mount over everything": ({"extraVolumeMounts": [{"name": "x", "mountPath": "/"}]}, "mountPath"),
    "mount of a volume that is not there": ({"extraVolumeMounts": [{"name": "x", "mountPath": "/x"}]}, "extraVolumes"),
    "variables from nowhere": ({"extraEnvFrom": [{"prefix": "X_"}]}, "extraEnvFrom"),
    "variables from a misspelt source": ({"extraEnvFrom": [{"secretref": {"name": "x"}}]}, "secretref"),
    "spread over nothing": ({"ingest": {"topologySpreadConstraints": [{"maxSkew": 1}]}}, "topologyKey"),
    "kind of catalog": ({"settings": {"catalog": {"kind": "postgresql"}}}, "kind"),
    "catalog without a server": ({"settings": {"catalog": {"kind": "postgres"}}}, "url"),
    "catalog without a kind": ({"settings": {"catalog": {"url": "postgresql://db/lake"}}}, "url"),
    "catalog's password in its address": (
        {"settings": {"catalog": {"kind": "postgres", "url": "postgresql://u:hush@db/lake"}}},
        "url",
    ),
    "catalog's password as a value": (
        {"settings": {"catalog": {"kind": "postgres", "url": "postgresql://db/lake", "password": "hush"}}},
        "password",
    ),
    "latest by accident": ({"image": {"digest": "latest"}}, "digest"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_values_are_refused(case: str) -> None:
    overrides, expected = REFUSED[case]
    with pytest.raises(Refused, match=expected) as caught:
        render("smallest", overrides)
    assert "hush" not in str(caught.value)


def test_as_shipped_the_chart_says_what_it_needs() -> None:
    with pytest.raises(Refused, match=r"settings\.table\.uri .*s3://"):
        render(None)


def test_the_example_of_the_page_is_right() -> None:
    page = (ROOT / "docs" / "how-to" / "deploy-with-helm.md").read_text()
    example = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    pods = render("smallest", example).pods()
    assert sorted(pods) == ["flusher", "ingest", "table-create"]
    assert pods["ingest"]["containers"][0]["image"] == "registry.example/lancewal:0.1.0"


def test_every_further_example_of_the_page_is_right() -> None:
    page = (ROOT / "docs" / "how-to" / "deploy-with-helm.md").read_text()
    examples = [part.partition("```")[0] for part in page.split("```yaml\n")[2:]]
    assert len(examples) >= 3
    for example in examples:
        for found in render("smallest", yaml.safe_load(example)).objects:
            if found["apiVersion"] != "monitoring.coreos.com/v1":
                kubernetes_validate.validate(found, NEWEST_KUBERNETES, strict=True)
