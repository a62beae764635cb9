"""Which package may import which (ARCHITECTURE.md), read from the source, and what no file of the project may name."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.layering.source import KAFKA, ROOT, RULES, Import, Rule, imports, imports_of, modules


def violations(package: str, rule: Rule, found: list[Import]) -> list[str]:
    wrong = []
    for item in found:
        if item.top in RULES and item.top != package and item.top not in rule.ours:
            wrong.append(f"line {item.line}: {package} may not import {item.top}")
        if item.top in rule.never:
            wrong.append(f"line {item.line}: {package} never imports {item.top}")
        if item.top in rule.lazily and not item.lazy and not item.typing:
            wrong.append(f"line {item.line}: {package} imports {item.top} inside functions only")
    return wrong


@pytest.mark.parametrize("package", RULES)
def test_a_package_imports_what_it_may(package: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)} {text}"
        for module, file in modules(package).items()
        for text in violations(package, RULES[package], imports_of(module, file))
    ]
    assert wrong == []


def test_ingest_has_a_group_member_and_a_producer_and_leaves_all_other_questions_to_the_package_for_kafka() -> None:
    clients = {
        module
        for module, file in modules("lancewal_ingest").items()
        if any(item.top == KAFKA for item in imports_of(module, file))
    }
    ours = {"lancewal_ingest.kafka.consumer", "lancewal_ingest.kafka.dead_letters"}
    assert clients - {"lancewal_ingest.registry.confluent"} == ours, "the client of registries asks Kafka nothing"


def test_looking_up_the_spark_source_does_not_load_lance() -> None:
    """Spark imports every ``pyspark_*`` module when it looks for data sources, also in jobs that never use ours."""
    everything = {name: file for package in RULES for name, file in modules(package).items()}
    pending = [[name] for name in modules("pyspark_lancewal")]
    seen: set[str] = set()
    chains = []
    while pending:
        chain = pending.pop()
        module = chain[-1]
        if module in seen:
            continue
        seen.add(module)
        for item in imports_of(module, everything[module]):
            if item.lazy or item.typing:
                continue
            if item.top == "lance":
                chains.append(" -> ".join([*chain, item.module]))
            # Importing a.b.c runs a and a.b too.
            names = item.module.split(".")
            loaded = {".".join(names[: end + 1]) for end in range(len(names))}
            pending += [[*chain, name] for name in loaded & everything.keys()]
    assert chains == []


@pytest.mark.parametrize(
    ("package", "source", "expected"),
    [
        ("lancewal_core", "import lancewal_reader.plan.strong", "may not import lancewal_reader"),
        ("lancewal_core", "def f():\n    from pyspark.sql import Row", "never imports pyspark"),
        ("lancewal_core", "if 1:\n    import confluent_kafka as k", "never imports confluent_kafka"),
        ("lancewal_ingest", "from lancewal_flusher import merge", "may not import lancewal_flusher"),
        ("lancewal_flusher", "from pyspark.sql import SparkSession", "inside functions only"),
        ("lancewal_flusher", "from lancewal_kafka.topic import TopicInspector", "inside functions only"),
        ("lancewal_flusher", "def f():\n    import confluent_kafka", "never imports confluent_kafka"),
        ("lancewal_audit", "import lancewal_flusher.merge", "may not import lancewal_flusher"),
        ("lancewal_flusher", "from lancewal_tables import define", "may not import lancewal_tables"),
        ("lancewal_audit", "from confluent_kafka import Consumer", "never imports confluent_kafka"),
        ("lancewal_demo", "import confluent_kafka", "inside functions only"),
        ("lancewal_demo", "class A:\n    import pyspark", "inside functions only"),
        ("pyspark_lancewal", "def f():\n    import lance", "never imports lance"),
    ],
)
def test_the_rules_are_seen_to_be_broken(package: str, source: str, expected: str) -> None:
    wrong = violations(package, RULES[package], list(imports(source, package)))
    assert any(expected in text for text in wrong), wrong


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("lancewal_demo", "def f():\n    import pyspark"),
        ("lancewal_demo", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark"),
        ("lancewal_core", "from . import pyspark_like\nfrom .a import b\nimport lance"),
        ("lancewal_reader", "from lancewal_core import rows"),
    ],
)
def test_what_is_allowed_passes(package: str, source: str) -> None:
    assert violations(package, RULES[package], list(imports(source, package))) == []


def test_every_package_of_the_wheel_has_a_rule() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(listed) == sorted(f"{rule.folder}/{package}" for package, rule in RULES.items())


# -- what no file may name -------------------------------------------------------------------------------------

#: Where files come from is a setting of the machine (pip, Ivy, Go, a container engine), never of this project.
#: Written in two halves, so that this file does not name them either.
HOSTS = [
    left + right
    for left, right in [
        ("repo1.maven", ".org"),
        ("repo.maven", ".apache.org"),
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("github", ".com"),
        ("githubusercontent", ".com"),
        ("proxy.golang", ".org"),
        ("sum.golang", ".org"),
        ("registry.npmjs", ".org"),
        ("docker", ".io"),
        ("ghcr", ".io"),
        ("quay", ".io"),
        ("gcr", ".io"),
    ]
]
#: Folders of one person's machine.
PLACES = [left + right for left, right in [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/")]]
FORBIDDEN = re.compile(
    "|".join([*(rf"(?<![\w-]){re.escape(host)}\b" for host in HOSTS), *(rf"(?<![\w.}}$-]){p}" for p in PLACES)])
)
#: Names of Go modules: they start with a host by Go's rules and are no addresses that anything is fetched from.
GO_MODULES = {
    Path("demo/lancewal_demo/stack/versitygw.py"): ("versity/versitygw",),
    Path("demo/lancewal_demo/stack/clouds/gcs_go/main.go"): ("fsouza/fake-gcs-server",),
    Path("tests/ops/tools.py"): ("prometheus-operator/prometheus-operator",),
    Path("tests/core/record_keys/go_partitions.go"): ("IBM/sarama", "segmentio/kafka-go", "twmb/franz-go"),
}


#: Go writes the names of all modules of a build into these.
GO_LOCKS = ("go.mod", "go.sum")


def project_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_host_or_a_folder_of_one_machine() -> None:
    wrong = []
    for file in project_files():
        if file.name in GO_LOCKS:
            continue
        try:
            text = (ROOT / file).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a binary file
        for module in GO_MODULES.get(file, ()):
            text = text.replace(f"{HOSTS[4]}/{module}", "")
        for number, line in enumerate(text.splitlines(), 1):
            wrong += [f"{file}:{number}: {found[0]}" for found in FORBIDDEN.finditer(line)]
    assert wrong == []


def test_the_forbidden_list_finds_and_spares_what_it_should() -> None:
    for text in (f"see https://{HOSTS[4]}/a/b", f"image: {HOSTS[9]}/x", f"cd {PLACES[0]}main", f'"{PLACES[1]}x"'):
        assert FORBIDDEN.search(text), text
    for text in ("docs/work/plan", "my" + HOSTS[2], "$HOME/work/x", "data/root/leaf"):
        assert not FORBIDDEN.search(text), text


def test_only_merges_write_columns_in_place() -> None:
    """They alone look for indexes over these columns first (``lancewal_flusher.tasks.in_place``)."""
    writers: set[str] = set()
    for rule in RULES.values():
        for file in sorted((ROOT / rule.folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    named = {keyword.arg for keyword in node.keywords}
                    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
                    if "columns_written" in named or called in ("write_columns", "update_columns"):
                        writers.add(file.name)
    assert writers == {"in_place.py", "merge.py"}
