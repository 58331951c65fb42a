"""The sandbox of a user: a broker that keeps running between commands, until ``down``."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path, user_state_path

from drainer.errors import SandboxRefused, raised_as
from drainer.host.java import find_java
from drainer.host.process import ProcessMark
from drainer.host.trust import NotTrusted, ensure_own, read_own
from drainer.model.codec import decode, encode
from drainer.sandbox import registry as schema_registry
from drainer.sandbox.broker import Broker, is_broker_of
from drainer.sandbox.jars import kafka_jars, quiet
from drainer.sandbox.ports import HOST, BrokerPorts
from drainer.sandbox.registry import RegistryState
from drainer.store.atomic_file import write_whole
from drainer.text.escape import command

FOLDER_VARIABLE = "DRAINER_SANDBOX"
STATE_FILE = "sandbox.json"
FORMAT = "drainer-sandbox/5"
STOP_TIMEOUT_S = 10.0
# The files that drainer, its demo, Kafka, and a Java that crashed leave in the folder.
OURS = re.compile(
    r"sandbox\.json|demo\.(url|log)|server\.properties|data(\.new)?|tmp|registry(\.log)?|broker\.(out|log(\.\d+)?)"
    r"|(hs_err|replay)_pid\d+\.log|\.drainer-.*\.new"
)


@dataclass(frozen=True, slots=True)
class SandboxState:
    """A sandbox, as the state file in its folder describes it."""

    ports: BrokerPorts
    process: ProcessMark | None = None  # The broker's process; None if it never started.
    registry: RegistryState | None = None
    format: str = FORMAT

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients: ``host:port``."""
        return f"{HOST}:{self.ports.client}"

    @property
    def running(self) -> bool:
        """Whether the broker's process runs. If not, ``up`` starts it again with its data."""
        return self.process is not None and self.process.alive()


def folder_of(named: Path | None) -> Path:
    """Return the folder of a sandbox.

    If none is named, it is the one in ``DRAINER_SANDBOX``, or else one in the user's state folder.
    """
    default = os.environ.get(FOLDER_VARIABLE)
    return (named or (Path(default) if default else _users_folder())).expanduser().resolve()


def down_command(folder: Path) -> str:
    """Return the command that removes the sandbox of a folder, even if DRAINER_SANDBOX changes."""
    named = () if folder == folder_of(_users_folder()) else ("--folder", str(folder))
    return command("sandbox down", options=named)


def _users_folder() -> Path:
    return user_state_path("drainer") / "sandbox"


def up(
    folder: Path | None = None,
    *,
    registry: bool = False,
    print_line: Callable[[str], None] = quiet,
    die_with_parent: bool = False,
) -> SandboxState:
    """Start the sandbox, and return once it answers. If it runs already, it is left as it is.

    A broker that has died is started again, with its data and on its ports. ``registry`` starts a
    schema registry beside it.

    Raises SandboxRefused when the folder has other files, or when the broker does not start. If the
    error names a log, the folder stays with it until ``down``. Otherwise a new sandbox leaves
    nothing behind.
    """
    folder = folder_of(folder)
    with _locked():
        found, is_made = find(folder), not folder.exists()
        if is_new := found is None:
            _require_unused(folder)
            found = SandboxState(BrokerPorts.free())
        elif found.running:
            print_line(f"the sandbox is already up on {found.bootstrap_servers}")
        else:
            its_data = ", with its data" if (folder / "data").exists() else ""
            print_line(f"starting the sandbox in {folder} again{its_data}")
        if not found.running:
            try:
                found = _start(folder, found, print_line, die_with_parent)
            except BaseException:
                if is_new and not any(folder.glob("broker.*")):
                    for each in (folder,) if is_made else folder.iterdir():
                        _remove(each)
                raise
        if found.registry is not None and not found.registry.process.alive():
            found = replace(found, registry=None)
        if registry:
            if found.registry is None:
                started = schema_registry.launch(folder, die_with_parent, print_line)
                found = replace(found, registry=started)
                _write(folder, found)
            assert found.registry is not None
            found.registry.wait_ready(folder / schema_registry.LOG)
            print_line(f"Apicurio Registry answers on {found.registry.url}")
        return found


def down(folder: Path | None = None, *, print_line: Callable[[str], None] = quiet) -> bool:
    """Stop the sandbox and remove its folder. Returns False when there was none.

    Raises SandboxRefused if the folder is not a sandbox's, or can't be removed.
    """
    folder = folder_of(folder)
    with _locked():
        found = find(folder)
        if found is None:
            _require_unused(folder)
            return False
        for path in folder.iterdir():
            if not OURS.fullmatch(path.name):
                raise SandboxRefused(
                    f"{folder} has more than a sandbox: {path.name}", hint=f"Move {path} elsewhere."
                )
        print_line(f"stopping the sandbox on {found.bootstrap_servers}")
        if found.process is not None and not found.process.end(grace_s=STOP_TIMEOUT_S):
            raise SandboxRefused(
                f"can't end the sandbox's broker, process {found.process.pid}",
                hint="Kill the process, then try again.",
            )
        if found.registry is not None:
            found.registry.process.end(grace_s=STOP_TIMEOUT_S)
        about = f"can't remove the sandbox's folder {folder}: "
        hint = "Remove the folder by hand. Its broker has stopped."
        with raised_as(SandboxRefused, OSError, about=about, hint=hint):
            shutil.rmtree(folder)
        print_line(f"removed {folder}")
        return True


def _start(
    folder: Path, state: SandboxState, print_line: Callable[[str], None], die_with_parent: bool
) -> SandboxState:
    # If anything is missing, it is most often Java or the jars. So they are checked before a folder
    # is made.
    find_java()
    kafka_jars(print_line=print_line)
    # From now on ``down`` knows the folder, whatever happens.
    _write(folder, state)
    broker = Broker(folder, state.ports, die_with_parent=die_with_parent, print_line=print_line)
    try:
        broker.launch()
        # If this process is killed while the broker starts, ``down`` must know the broker.
        state = replace(state, process=broker.mark)
        _write(folder, state)
        broker.wait_ready()
    except BaseException:
        broker.kill()
        raise
    return state


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _locked() -> FileLock:
    """Return the lock of all sandboxes.

    It is not in a sandbox's folder, because ``down`` removes that folder, and a lock beside the
    folder would be left behind. With a single lock, one sandbox may wait a few seconds for another.
    """
    cache = user_cache_path("drainer")
    hint = "Make that folder writable, or name another with XDG_CACHE_HOME."
    with raised_as(SandboxRefused, OSError, about="can't lock the sandbox: ", hint=hint):
        cache.mkdir(parents=True, exist_ok=True)
    return FileLock(cache / "sandbox.lock")


def _require_unused(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise SandboxRefused(
            f"{folder} is not a sandbox: it has other files",
            hint=f"Name an empty or new folder with {FOLDER_VARIABLE}.",
        )


def _write(folder: Path, state: SandboxState) -> None:
    about = f"can't write to the sandbox's folder {folder}: "
    hint = f"Make it writable, or name another with {FOLDER_VARIABLE}."
    with raised_as(SandboxRefused, OSError, about=about, hint=hint):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder / STATE_FILE, encode(state))


def find(folder: Path) -> SandboxState | None:
    """Return the sandbox of a folder; None when there is none.

    Raises SandboxRefused as ``down`` does, and when another user could write to the folder.
    """
    file = folder / STATE_FILE
    hint = "If its broker still runs, kill it. Then remove the folder."
    with raised_as(
        SandboxRefused, OSError, ValueError, about=f"{file} is not a sandbox's state: ", hint=hint
    ):
        try:
            ensure_own(folder)
            found = decode(read_own(file), SandboxState)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except NotTrusted as error:
            text = f"{folder} is not a sandbox of yours: {error}"
            raise SandboxRefused(text, hint="Name another folder with --folder.") from None
        if found.format != FORMAT:
            raise ValueError(f"its format is {found.format}")
        process = found.process
        if process is not None and process.alive() and not is_broker_of(folder, process):
            raise ValueError(f"process {process.pid} is not its broker")
        if found.registry is not None and not found.registry.is_of(folder):
            raise ValueError(f"process {found.registry.process.pid} is not its registry")
    return found
