"""Tries drainer's promises with each version of Kafka, Python and its libraries that it supports.

For each combination, drainer's wheel is installed by uv in an environment of its own, with the
lowest or the highest versions of its libraries, and its command drains a real broker. The results
go to ``result.json`` in the folder of this scenario, and from there to docs/reference/support.md.

A Python is found as ``python3.N`` on the path. If there is none, the page says so. Brokers and
libraries come from the registries.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from drainer.errors import DrainerError
from drainer.kafka.settings import ClientSettings
from scenarios.support.brokers import broker_of
from scenarios.support.checks import CHECKS, ON_SPARK, Failed, Stage, drain_on_spark
from scenarios.support.page import RESULT, ROOT, SHOWN, write_page

KAFKAS = ("2.8.2", "3.3.2", "3.9.1", "4.0.0", "4.4.0")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LOWEST, HIGHEST = "lowest", "highest"
EXTRAS = ("http", "registry", "report")
IMPORTED = "drainer.http.handler, drainer.payloads.formats, drainer.view.report.page"
Combination = tuple[str, str, str]  # The versions of Kafka and Python, and of which libraries.
TRIES = 2  # A fresh broker on a busy machine may take long to elect its coordinators.


def combinations(kafkas: Sequence[str], pythons: Sequence[str]) -> list[Combination]:
    """Return every Python on the newest Kafka, and every Kafka with the oldest and the newest."""
    ends = ((pythons[0], LOWEST), (pythons[-1], HIGHEST))
    every = [(kafkas[-1], python, which) for python in pythons for which in (LOWEST, HIGHEST)]
    others = [(kafka, python, which) for kafka in kafkas[:-1] for python, which in ends]
    return [*others, *every]


def python_of(version: str) -> str | None:
    """Return the program of a Python; None if this machine has none that runs."""
    program = shutil.which(f"python{version}")
    if program is None or subprocess.run([program, "-c", ""], check=False).returncode:
        return None
    return program


def installed(wheel: Path, python: str, which: str, to: Path, *, spark: bool) -> dict[str, str]:
    """Install drainer for a Python, and return the versions of its libraries.

    Only wheels are taken, so that the lowest version is the lowest one that has a wheel for this
    Python. Raises Failed.
    """
    resolution = "lowest-direct" if which == LOWEST else "highest"
    uv_pip, own = ("uv", "pip"), ("--python", str(to / "bin/python"))
    ran(["uv", "venv", "-q", "--python", python, str(to)])
    options = ["--resolution", resolution, "--only-binary", ":all:"]
    # uv takes the lowest versions only of what it is asked for, which are these libraries.
    extras = [word for extra in (*EXTRAS, *["spark"] * spark) for word in ("--extra", extra)]
    if spark:
        options += ["--find-links", str(wheel_of_pyspark(which))]
    wanted = ["-r", str(ROOT / "pyproject.toml"), *extras]
    ran([*uv_pip, "install", "-q", *own, *options, *wanted])
    ran([*uv_pip, "install", "-q", *own, "--no-deps", str(wheel)])
    ran([str(to / "bin/python"), "-c", f"import {IMPORTED}"])
    listed = json.loads(ran([*uv_pip, "list", *own, "--format", "json"]))
    return {each["name"]: each["version"] for each in listed if each["name"] in SHOWN}


def wheel_of_pyspark(which: str) -> Path:
    """Return the folder of a wheel of PySpark, which the registry only has as a source."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (lowest,) = (each.split(">=")[1] for each in extra["spark"] if each.startswith("pyspark>="))
    folder = user_cache_path("drainer") / "support" / f"pyspark-{which}"
    wanted = f"pyspark=={lowest}" if which == LOWEST else "pyspark"
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps")
    ran([*pip, "--find-links", str(folder), "-w", str(folder), wanted])
    return folder


def ran(command: Sequence[str]) -> str:
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(command[:3])}: {(done.stdout + done.stderr).strip()[-1500:]}")
    return done.stdout


def checked(kafka: str, drainer: Path, folder: Path, *, spark: bool) -> dict[str, str]:
    """Return what each check says: "passed", or why not."""
    found: dict[str, str] = {}
    checks = CHECKS | ({ON_SPARK: drain_on_spark} if spark else {})
    with broker_of(kafka, folder / "broker") as broker:
        for name, check in checks.items():
            for _ in range(TRIES):
                work = Path(tempfile.mkdtemp(dir=folder))
                settings = ClientSettings.load(broker.bootstrap_servers)
                try:
                    check(Stage([str(drainer)], settings, work))
                    found[name] = "passed"
                    break
                except Exception as error:  # The others are tried all the same.
                    found[name] = f"{type(error).__name__}: {error}"
            print(f"  {name}: {found[name]}", flush=True)
    return found


def tried(combination: Combination, wheel: Path, *, spark: bool) -> dict[str, Any]:
    kafka, version, which = combination
    print(f"Kafka {kafka}, Python {version}, {which}", flush=True)
    result: dict[str, Any] = {"kafka": kafka, "python": version, "libraries": which}
    if (python := python_of(version)) is None:
        return {**result, "unavailable": "this machine has no such Python"}
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="support-") as name:
        folder = Path(name)
        try:
            result["versions"] = installed(wheel, python, which, folder / "env", spark=spark)
            checks = checked(kafka, folder / "env/bin/drainer", folder, spark=spark)
        except (Failed, DrainerError) as error:
            print(f"  {error}", flush=True)
            checks = {"install": str(error)}
    seconds = round(time.monotonic() - begun_s)
    full = ran([python, "-c", "import platform; print(platform.python_version())"]).strip()
    return {**result, "python_version": full, "checks": checks, "seconds": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", nargs="*", default=KAFKAS, help="versions, the oldest first")
    parser.add_argument("--python", nargs="*", default=PYTHONS, help="versions, the oldest first")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--keep", action="store_true", help="keep the other results")
    options = parser.parse_args()
    if options.page:
        write_page()
        return 0
    commit = ran(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]).strip()
    before = json.loads(RESULT.read_text())["results"] if options.keep else []
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        ran(["uv", "build", "-q", "--wheel", "-o", name, str(ROOT)])
        (wheel,) = Path(name).glob("*.whl")
        wanted = combinations(options.kafka, options.python)
        # Spark is large, so it is tried once with its lowest and once with its highest version.
        ends = (options.python[0], LOWEST), (options.python[-1], HIGHEST)
        newest = [(options.kafka[-1], *end) for end in ends]
        results = [tried(each, wheel, spark=each in newest) for each in wanted]
    done = [tuple(each[n] for n in ("kafka", "python", "libraries")) for each in results]
    kept = [e for e in before if (e["kafka"], e["python"], e["libraries"]) not in done]
    found = {"date": datetime.now(UTC).date().isoformat(), "commit": commit}
    every = [*kept, *({**found, **each} for each in results)]
    RESULT.write_text(json.dumps({"results": every}, indent=1) + "\n")
    write_page()
    failed = [each for each in results if set(each.get("checks", {}).values()) - {"passed"}]
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
