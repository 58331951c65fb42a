"""A process in the conditions of a container, made of namespaces instead of an image.

It is process 1, with a read-only root, a temporary folder of its own that is gone with it, and a
user that has no name, no home and no rights. It shares the network of this machine.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from docs.pages import ROOT
from kafka.topic import eventually
from needs import missing

UID = 1_000_680_000  # as OpenShift gives one; its group is 0
CODE, PYTHON = "/opt/code", "/opt/venv/bin/python"
# Links such as /bin are made again, and these folders are mounted as they are.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
IN_ETC = ("ld.so.cache", "nsswitch.conf", "hosts", "ssl", "localtime")
# This runs as root in new namespaces, and ends as the command.
ENTERS = """
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755 root "$root"
bind() {
    if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$root${2%/*}"; : > "$root$2"; fi
    mount --bind "$1" "$root$2"
    mount -o "remount,bind,$3" "$root$2"
}
for each in $system; do
    if [ -L "$each" ]; then
        ln -s "$(readlink "$each")" "$root$each"
    else
        bind "$each" "$each" ro
    fi
done
"""


@dataclass
class Container:
    """Where containers run: what is mounted read-only, and the one folder that outlives them."""

    folder: Path  # of the streams, and of the mount point of the root
    plans: Path  # mounted at /plans
    mounts: Mapping[str, Path] = field(default_factory=dict)  # read-only, by their places

    def __post_init__(self) -> None:
        ensure_namespaces()
        self.plans.mkdir(exist_ok=True)
        os.chown(self.plans, 0, 0)
        self.plans.chmod(0o2770)  # as a volume with an fsGroup

    def start(self, *words: str, uid: int = UID, by: Sequence[str] = ()) -> Pod:
        """Start drainer with these words as process 1, or as that of a command that runs it."""
        number = len([*self.folder.glob("pod-*")])
        folder = self.folder / f"pod-{number}"
        folder.mkdir()
        binds = {
            **{f"/etc/{name}": Path("/etc") / name for name in IN_ETC},
            **{"/opt/venv": Path(sys.prefix), f"{CODE}/drainer": ROOT / "drainer"},
            **self.mounts,
        }
        if not sys.base_prefix.startswith("/usr"):
            binds[sys.base_prefix] = Path(sys.base_prefix)
        command = [*by, PYTHON, "-P", "-m", "drainer", *words]
        lines = [f"hostname pod-{number}", ENTERS.replace("$system", " ".join(SYSTEM))]
        lines += [
            f"bind {shlex.quote(str(path))} {place} ro"
            for place, path in binds.items()
            if path.exists()
        ]
        lines += [
            f"bind {shlex.quote(str(self.plans))} /plans rw",
            'mkdir "$root/proc" "$root/tmp" "$root/dev"',
            'mount -t proc proc "$root/proc"',
            'mount -t tmpfs -o mode=1777 tmp "$root/tmp"',
            'mount --rbind /dev "$root/dev"',
            'mount -o remount,ro "$root"',
            f'exec chroot "$root" setpriv --reuid={uid} --regid=0 --clear-groups --no-new-privs'
            f" --bounding-set=-all env -i -C /tmp PATH=/usr/bin:/bin PYTHONPATH={CODE}"
            f" PYTHONDONTWRITEBYTECODE=1 RECORDER_PID={number + 1} {shlex.join(command)}",
        ]
        root = folder / "root"
        root.mkdir()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [
                    "unshare",
                    "--uts",
                    "--mount",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "sh",
                    "-c",
                    "\n".join(lines),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "root": str(root)},
            )
        return Pod(process, folder)


@dataclass
class Pod:
    """A process that runs in a container."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def first(self) -> int | None:
        """The process that is number 1 in the container, by its number outside; None before it."""
        pid = self.process.pid
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(found[0]) if found else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to process 1 of the container, as the runtime does."""
        assert self.first is not None
        os.kill(self.first, number)

    def prints(self, words: str, within_s: float = 60.0) -> None:
        eventually(lambda: words in self.err or not self.running, f"prints {words!r}", within_s)
        assert words in self.err, self.err

    def kill(self) -> None:
        """Kill everything in the container. Its temporary folder is gone then, too."""
        self.signal(signal.SIGKILL)
        self.process.wait(30)

    def ends(self, code: int, within_s: float = 120.0) -> str:
        """Wait for its end with this exit code, and return what it printed to stdout."""
        found = self.process.wait(within_s)
        assert found == code, f"exit {found}, not {code}\n{self.out}{self.err}"
        assert "Traceback" not in self.err, self.err
        return self.out


def config_map(folder: Path, files: Mapping[str, str]) -> Path:
    """Lay files out as a mounted ConfigMap has them: links in folders that everyone may write."""
    data = folder / "..2026_11_30"
    data.mkdir(parents=True)
    (folder / "..data").symlink_to(data.name)
    for name, text in files.items():
        (data / name).write_text(text)
        (data / name).chmod(0o644)
        (folder / name).symlink_to(f"..data/{name}")
    for each in (folder, data):
        each.chmod(0o777)
    return folder


@cache
def ensure_namespaces() -> None:
    """Skip the test where this user may not make namespaces."""
    tries = ["unshare", "--mount", "--pid", "--fork", "mount", "--make-rprivate", "/"]
    if os.geteuid() or not all(map(shutil.which, ("unshare", "setpriv", "chroot"))):
        missing("containers need root, unshare and setpriv")
    if subprocess.run(tries, capture_output=True, check=False).returncode:
        missing("this machine allows no namespaces")
