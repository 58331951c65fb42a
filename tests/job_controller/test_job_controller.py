"""A Job that ``drainer job`` prints, in the hands of the Job controller of Kubernetes itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from drainer import errors
from drainer.cli.app import app
from golang import compiler

# The version of Kubernetes that the manifest names.
KUBERNETES, LIBRARIES = "v1.31.14", "v0.31.14"
SOURCE = Path(__file__).with_name("main.go")
LASTING = sorted(
    code
    for name, code in vars(errors).items()
    if name.startswith("EXIT_") and code not in {errors.EXIT_DONE, errors.EXIT_INTERRUPTED}
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that plays the ends of pods, built from the sources of Kubernetes."""
    go = compiler()
    folder = tmp_path_factory.mktemp("controller")

    def run(*words: str) -> str:
        found = subprocess.run(
            [go, *words], cwd=folder, check=False, capture_output=True, text=True
        )
        assert not found.returncode, found.stderr
        return found.stdout

    run("mod", "init", "controller")
    module = json.loads(run("mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES}"))
    # Kubernetes names its own libraries without versions, and each has to be given one.
    own = re.findall(r"^\s+(k8s\.io/\S+) v0\.0\.0\s", Path(module["GoMod"]).read_text(), re.M)
    given = [f"-replace={each}={each}@{LIBRARIES}" for each in own]
    run("mod", "edit", f"-require=k8s.io/kubernetes@{KUBERNETES}", *given)
    shutil.copy(SOURCE, folder)
    run("build", "-mod=mod", "-o", "play", ".")
    return folder / "play"


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manifest")
    (folder / "h.py").write_text("def handle(sub):\n    pass\n")
    words = ("--topic", "orders", "--group", "indexer", "-b", "kafka:9092")
    handler = ("--handler", f"{folder / 'h.py'}:handle")
    found = CliRunner().invoke(app, ["job", *words, *handler], prog_name="drainer")
    assert found.exit_code == 0, found.stderr
    (folder / "job.yaml").write_text(found.stdout)
    return folder / "job.yaml"


def played(program: Path, manifest: Path, *ends: object) -> dict[str, Any]:
    words = [str(program), str(manifest), *map(str, ends)]
    found = subprocess.run(words, check=False, capture_output=True, text=True)
    assert not found.returncode, found.stderr
    answer: dict[str, Any] = json.loads(found.stdout)
    assert answer.pop("warnings") is None
    return answer


def test_a_drain_that_is_interrupted_or_killed_goes_on_in_the_next_pod(
    program: Path, manifest: Path
) -> None:
    done = {"condition": "Complete", "reason": "CompletionsReached"}

    assert played(program, manifest, 0) == {"pods": 1, **done}
    assert played(program, manifest, 4, 137, 143, 0) == {"pods": 4, **done}


def test_pods_that_a_node_evicts_are_replaced_without_limit(program: Path, manifest: Path) -> None:
    found = played(program, manifest, *["evicted"] * 20, 0)

    assert found == {"pods": 21, "condition": "Complete", "reason": "CompletionsReached"}


@pytest.mark.parametrize("code", LASTING)
def test_what_needs_a_person_fails_the_job_at_once(
    program: Path, manifest: Path, code: int
) -> None:
    found = played(program, manifest, 4, code, 0)

    assert found == {"pods": 2, "condition": "Failed", "reason": "PodFailurePolicy"}


def test_a_drain_that_gets_nowhere_ends_after_seven_pods(program: Path, manifest: Path) -> None:
    found = played(program, manifest, *[4] * 10)

    assert found == {"pods": 7, "condition": "Failed", "reason": "BackoffLimitExceeded"}
