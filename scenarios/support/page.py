"""The page of supported versions, made from what the scenario found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).with_name("result.json")
PAGE = ROOT / "docs/reference/support.md"
SHOWN = (
    *("confluent-kafka", "msgspec", "orjson", "numpy", "google-re2", "rich", "typer"),
    *("rule-engine", "filelock", "platformdirs", "prometheus-client", "pyyaml", "uvloop"),
    *("aiohttp", "jinja2", "grpcio-tools", "protobuf", "pyspark", "pyarrow", "pandas"),
)
HEAD = """# Supported versions

The versions of Kafka, Python and its libraries with which drainer works. This page is what
`python -m scenarios.support` found on {date} at commit `{commit}`; `.ci/weekly` tries it
again.

Each combination is an environment of its own. It has the lowest or the highest versions that
`pyproject.toml` allows and that have a wheel for its Python. The installed command does these on a
real broker: {checks}.

| Kafka | Python | libraries | result |
|---|---|---|---|
"""
REST = """
- **Kafka** 2.8 runs with ZooKeeper here, and the brokers from 3.3 on run without.
- **Spark** is tried on the newest Kafka, with its lowest version on the oldest Python, and with its
  highest version on the newest. The tests of Spark run with PySpark 4.3, some with 3.5 and 4.0.
- Other systems than Linux, and other brokers than Apache Kafka's, are not tested here.

## Libraries

| library | lowest | highest |
|---|---|---|
"""


def page() -> str:
    """Return the page for the results in ``result.json``."""
    body = json.loads(RESULT.read_text("utf-8"))
    results = sorted(body["results"], key=_order)
    checks = min((each["checks"] for each in results if "checks" in each), key=len)
    rows = "".join(
        f"| {each['kafka']} | {each.get('python_version', each['python'])} |"
        f" {each['libraries']} | {_outcome(each)} |\n"
        for each in results
    )
    newest = max(each["date"] for each in results)
    commits = sorted({each["commit"] for each in results})
    head = HEAD.format(date=newest, commit="`, `".join(commits), checks=", ".join(checks))
    return head + rows + REST + "".join(_versions(results))


def write_page() -> None:
    PAGE.write_text(page(), "utf-8")


def _order(result: Mapping[str, Any]) -> tuple[list[int], list[int], bool]:
    return _numbers(result["kafka"]), _numbers(result["python"]), result["libraries"] == "highest"


def _outcome(result: Mapping[str, Any]) -> str:
    if why := result.get("unavailable"):
        return f"not tried: {why}"
    failed = [name for name, said in result["checks"].items() if said != "passed"]
    works = "works, also on Spark" if "drain on Spark" in result["checks"] else "works"
    return f"fails: {', '.join(failed)}" if failed else works


def _versions(results: list[Any]) -> Iterator[str]:
    for library in SHOWN:
        columns = []
        for which in ("lowest", "highest"):
            every = (each.get("versions", {}) for each in results if each["libraries"] == which)
            found = {each[library] for each in every if library in each}
            columns.append(", ".join(sorted(found, key=_numbers)))
        yield f"| {library} | {' | '.join(columns)} |\n"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".") if number.isdecimal()]
