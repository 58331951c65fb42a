"""The house knows its wings by name: the names lead somewhere, and loading is late."""

from __future__ import annotations

import subprocess
import sys

import pytest

from drainer import wings


@pytest.mark.parametrize("place", [*wings.COMMANDS.values(), *wings.Hook])
def test_every_name_leads_somewhere(place: str) -> None:
    assert callable(wings.load(place))


def test_the_version_is_told_by_the_command_line_alone() -> None:
    code = (
        "import sys, runpy; sys.argv = ['drainer', '--version']\n"
        "try: runpy.run_module('drainer', run_name='__main__')\n"
        "finally: print(*sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    loaded = {name.partition(".")[0] for name in told.split()}
    assert "typer" in loaded
    heavy = {"rich", "confluent_kafka", "orjson", "numpy", "asyncio", "uvloop", "filelock"}
    assert not loaded & heavy
