"""The default of ``--tune buffer`` comes from the limits of cgroups."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from drainer.host.memory import memory_limit

MIB = 1024 * 1024
V1 = Path("/sys/fs/cgroup/memory")
PRINTS = "from drainer.model.settings import LocalSettings; print(LocalSettings().buffer_bytes)"


def root(folder: Path, cgroup: str, limits: dict[str, object]) -> Path:
    files = {
        "proc/self/cgroup": cgroup,
        **{f"sys/fs/cgroup/{n}": f"{v}\n" for n, v in limits.items()},
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(str(text))
    return folder


@pytest.mark.parametrize(
    ("cgroup", "limits", "found"),
    [
        pytest.param("0::/\n", {"memory.max": 512 * MIB}, 512 * MIB, id="in a container"),
        pytest.param("0::/\n", {"memory.max": "max"}, None, id="no limit"),
        pytest.param("0::/\n", {}, None, id="root of a machine"),
        pytest.param(
            "0::/kubepods/pod1/c1\n",
            {"kubepods/pod1/c1/memory.max": "max", "kubepods/pod1/memory.max": 300 * MIB}
            | {"kubepods/memory.max": 900 * MIB},
            300 * MIB,
            id="the lowest one of the parents",
        ),
        pytest.param("0::/../../c1\n", {"memory.max": 64 * MIB}, 64 * MIB, id="out of its view"),
        pytest.param(
            "9:name=systemd:/\n4:memory:/docker/ab\n3:cpu:/\n",
            {"memory/docker/ab/memory.limit_in_bytes": 128 * MIB}
            | {"memory/memory.limit_in_bytes": 2**63 - 4096},
            128 * MIB,
            id="version 1",
        ),
        pytest.param(
            "4:memory:/docker/ab\n",
            {"memory/memory.limit_in_bytes": 96 * MIB},
            96 * MIB,
            id="version 1, with the path on the host",
        ),
        pytest.param(
            "4:memory:/\n0::/a b\n",
            {"memory/memory.limit_in_bytes": 2**63 - 4096, "a b/memory.max": 80 * MIB},
            80 * MIB,
            id="both versions",
        ),
    ],
)
def test_the_lowest_limit_of_all_cgroups_counts(
    tmp_path: Path, cgroup: str, limits: dict[str, object], found: int | None
) -> None:
    assert memory_limit(root(tmp_path, cgroup, limits)) == found


def test_a_system_without_cgroups_has_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None


def test_a_real_cgroup_limits_the_buffer(tmp_path: Path) -> None:
    own = next(
        (
            line.rpartition(":")[2]
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if ":memory:" in line
        ),
        None,
    )
    made = None if own is None else V1 / own.lstrip("/") / f"drainer-{tmp_path.name}"
    try:
        if made is None:
            raise FileNotFoundError("no cgroup of version 1")
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        (made / "memory.limit_in_bytes").write_text(str(400 * MIB))
        enters = f"echo $$ > {made}/cgroup.procs && exec {sys.executable} -c '{PRINTS}'"
        printed = subprocess.run(["sh", "-c", enters], capture_output=True, text=True, check=True)
    finally:
        with suppress(OSError):
            made.rmdir()
    assert int(printed.stdout) == 100 * MIB
