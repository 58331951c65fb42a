"""The core knows its extensions by name: each can be imported, and is only when it is needed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command.test_extensions import EXTENSIONS
from drainer.cli.app import PANELS, app
from drainer.loading.extensions import EXTRAS, Extension


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
            {"pyspark", "pyarrow", "py4j", "pandas", "jinja2", "numpy", *EXTENSIONS},
        ),
        (
            "import drainer.cli.run, drainer.cli.resume",
            {"confluent_kafka", "drainer.engine.local", "drainer.core.dispatch", "http.server"},
        ),
        (
            "from drainer.spark.state.state import State; import drainer.spark.task.python_worker\n"
            "State.open('/tmp/x', 'd').epoch()",
            {"obstore"},
        ),
    ],
    ids=["version", "run", "help", "state in a folder"],
)
def test_nothing_is_loaded_before_it_is_needed(code: str, heavy: set[str]) -> None:
    words = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    loaded = {".".join(name.split(".")[:n]) for name in printed.split() for n in (1, 2, 3)}
    assert "drainer" in loaded
    assert not loaded & heavy


WHERE = ["-b", "127.0.0.1:1", "--topic", "t"]
RUN = ["run", *WHERE, "--group", "g", "--handler", "count"]


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("markupsafe", [*RUN, "--report", "x.html"], "report"),
        ("jinja2", [*RUN, "--report", "x.html"], "report"),
        ("pyspark", [*RUN, "--engine", "spark"], "spark"),
        ("pyarrow", [*RUN, "--master", "local"], "spark"),
        ("pandas", ["limits", "-b", "127.0.0.1:1"], "spark"),
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


PACKAGES = [name for each in EXTRAS.values() for name in each]
# Runs each command in a fork of a process that can import no package of any extra, so that none is
# loaded before its guard. Prints a line with the exit code behind what the command printed.
COMMANDS = """
import json, os, sys
packages, commands = map(json.loads, sys.argv[1:])
sys.modules.update(dict.fromkeys(packages))
import drainer.cli.app
for words in commands:
    if os.fork() == 0:
        sys.argv[1:] = words
        drainer.cli.main()
    print("ended", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def installing(extra: str) -> str:
    return f"Run `pip install '.[{extra}]'` in the folder of drainer's source."


def test_without_extras_every_command_explains_itself_or_names_the_missing_one() -> None:
    missing = [
        ([*RUN, "--master", "sc://127.0.0.1:1"], "spark"),
        (["plan", "show", "s3://bucket/x.json"], "bucket"),
        (["run", *WHERE, "--group", "g", "--handler", "http"], "http"),
        ([*RUN, "--value-format", "avro", "--registry", "http://127.0.0.1:1"], "registry"),
    ]
    commands = [["-h"], *(words for words, _ in missing)]
    ended = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(PACKAGES), json.dumps(commands)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=100,
    ).stdout
    explained, *refused = re.findall(r"(.*?)ended (\d+)\n", ended, re.DOTALL)
    assert explained[1] == "0"
    for name in (name for names in PANELS.values() for name in names):
        assert f" {name} " in explained[0]
    for (words, extra), (printed, code) in zip(missing, refused, strict=True):
        assert (code, installing(extra) in printed) == ("3", True), (words, printed)


def test_a_unit_test_of_a_handler_needs_no_extra() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(sys.argv[1:]))\n"
        "import asyncio; from drainer import testing\n"
        "print(asyncio.run(testing.run('count', [testing.message()])).done)"
    )
    words = [sys.executable, "-c", code, *PACKAGES]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert printed == "[<SubMessage None>]\n"


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
