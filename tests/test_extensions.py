"""The core knows its extensions by name: each can be imported, and is only when it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drainer import testing
from drainer.cli.app import PANELS, app
from drainer.extensions import EXTRAS, Extension, ExtraMissing


@pytest.mark.parametrize("extension", Extension)
def test_every_name_leads_somewhere(extension: Extension) -> None:
    assert extension.load().__name__ == extension


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        (
            "import runpy; sys.argv = ['drainer', '--version']\n"
            "try: runpy.run_module('drainer', run_name='__main__')\n"
            "except SystemExit: pass",
            {"rich", "confluent_kafka", "orjson", "numpy", "asyncio", "uvloop", "filelock"},
        ),
        (
            "import drainer.cli.run, drainer.operations.drain",
            {"pyspark", "pyarrow", "py4j", "pandas", "jinja2", "numpy"},
        ),
        (
            "from drainer.spark.state.state import State; import drainer.spark.task.fence\n"
            "State.open('/tmp/x', 'd').epoch()",
            {"obstore"},
        ),
    ],
    ids=["version", "run", "state in a folder"],
)
def test_nothing_is_loaded_before_it_is_needed(code: str, heavy: set[str]) -> None:
    words = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    loaded = {name.partition(".")[0] for name in printed.split()}
    assert "drainer" in loaded
    assert not loaded & heavy


WHERE = ["-b", "127.0.0.1:1", "--topic", "t"]
RUN = ["run", *WHERE, "--group", "g", "--handler", "count"]
INSPECT = ["inspect", *WHERE, "--group", "g", "--full"]


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("markupsafe", [*RUN, "--report", "x.html"], "report"),
        ("jinja2", [*INSPECT, "--report", "x.html"], "report"),
        ("pyspark", [*RUN, "--engine", "spark"], "spark"),
        ("pyarrow", [*RUN, "--master", "local"], "spark"),
        ("pyspark", [*INSPECT, "--engine", "spark"], "spark"),
        ("pandas", ["limits", "-b", "127.0.0.1:1"], "spark"),
        ("hypothesis", ["certify", "count", *WHERE], "certify"),
    ],
)
def test_an_error_for_a_missing_extra_names_it(
    package: str, words: list[str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    found = CliRunner().invoke(app, [*words, "-o", "json"])
    answer = json.loads(found.stdout)
    assert (found.exit_code, answer["exit_code"]) == (3, 3)
    assert package in answer["error"]
    assert answer["hint"] == installing(extra)


@pytest.mark.parametrize(
    "check", ["certify", "check_commutes", "check_idempotent", "check_split", "check_together"]
)
def test_the_checks_of_a_handler_name_it_too(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    state = () if check == "check_split" else (vars,)
    with pytest.raises(ExtraMissing) as caught:
        getattr(testing, check)("count", [], *state)
    assert caught.value.__notes__ == [installing("certify")]


def run_without_extras(code: str) -> str:
    """Run code that gets the packages of all extras as its arguments; return what it prints."""
    packages = [name for each in EXTRAS.values() for name in each]
    return subprocess.run(
        [sys.executable, "-c", code, *packages], capture_output=True, text=True, check=True
    ).stdout


def installing(extra: str) -> str:
    return f"Run `pip install '.[{extra}]'` in the folder of drainer's source."


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ([*RUN, "--report", "x.html"], "report"),
        ([*RUN, "--engine", "spark", "--dry-run"], "spark"),
        ([*RUN, "--master", "local"], "spark"),
        ([*RUN, "--remote", "sc://127.0.0.1:1"], "spark"),
        ([*INSPECT, "--engine", "spark"], "spark"),
        (["limits", "-b", "127.0.0.1:1"], "spark"),
        (["plan", "show", "s3://bucket/x.json"], "spark"),
        (["certify", "count", *WHERE], "certify"),
        (["run", *WHERE, "--group", "g", "--handler", "http"], "http"),
        ([*RUN, "--value-format", "avro", "--registry", "http://127.0.0.1:1"], "registry"),
    ],
    ids=" ".join,
)
def test_a_process_without_extras_names_the_missing_one(words: list[str], extra: str) -> None:
    """No package of any extra can be imported there, so that none is loaded before its guard."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys(sys.argv[1:])); sys.argv[1:] = {words!r};"
        "from drainer.cli import main; main()"
    )
    packages = [name for each in EXTRAS.values() for name in each]
    command = [sys.executable, "-c", code, *packages]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (ended.returncode, installing(extra) in ended.stderr) == (3, True), ended.stderr


def test_a_unit_test_of_a_handler_needs_no_extra() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(sys.argv[1:]))\n"
        "import asyncio; from drainer import testing\n"
        "print(asyncio.run(testing.run('count', [testing.message()])).done)"
    )
    printed = run_without_extras(code)
    assert printed == "[<SubMessage None>]\n"


def test_every_command_explains_itself_without_any_extra() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(sys.argv[1:])); sys.argv[1:] = ['-h'];"
        "from drainer.cli import main; main()"
    )
    printed = run_without_extras(code)
    for name in (name for names in PANELS.values() for name in names):
        assert f" {name} " in printed


MODULES = {
    "confluent_kafka[schemaregistry]": "httpx2",
    "googleapis_common_protos": "google",
    "protobuf": "google",
}


def test_an_extra_installs_what_it_is_missed_for() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for extra, packages in EXTRAS.items():
        installs = {
            line.partition(">")[0]
            .replace("-", "_")
            .replace("grpcio", "grpc")
            .removesuffix("_python")
            for line in project["optional-dependencies"][extra]
            if not line.startswith("drainer[")
        }
        assert set(packages) == {MODULES.get(name, name) for name in installs}
