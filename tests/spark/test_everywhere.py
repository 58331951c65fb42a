"""Runs the tests of Spark again, on executors in other processes and on a Connect server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.long
@pytest.mark.parametrize("on", ["connect", "local-cluster[2,1,1024]"])
def test_the_tests_of_spark_pass_elsewhere(on: str, tmp_path: Path) -> None:
    files = [str(path) for path in sorted(HERE.glob("test_*.py")) if path != Path(__file__)]
    output = tmp_path / "output"
    with output.open("wb") as stream:
        found = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "1", "-m", "", *files],
            cwd=HERE.parents[1],
            env={**os.environ, "DRAINER_TEST_SPARK": on},
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        )
    assert found.returncode == 0, output.read_text()[-5000:]
