"""The sandbox of a person: one broker that stays up between commands, until ``down``."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path, user_state_path

from drainer.errors import SandboxRefused
from drainer.java import find_java
from drainer.sandbox.broker import STOP_TIMEOUT_S, Broker
from drainer.sandbox.jars import kafka_jars
from drainer.sandbox.ports import HOST, BrokerPorts
from drainer.sandbox.process import ProcessMark
from drainer.sandbox.progress import Say, unheard

FOLDER_VARIABLE = "DRAINER_SANDBOX"
STATE_FILE = "sandbox.json"
FORMAT = "drainer-sandbox/1"
ANSWER_TIMEOUT_S = 30.0  # another `up` may have started it a moment ago


@dataclass(frozen=True, slots=True)
class SandboxState:
    """A sandbox as it was found.

    Attributes:
        folder: where all of it is; ``down`` removes it whole.
        ports: where its broker listens.
        bootstrap_servers: where clients connect: ``host:port``.
        process: the broker's process; None when it never came so far.
        started_at: when the broker was last started.
        running: whether that process runs; if not, these are the leftovers of a dead broker,
            which ``up`` starts again with their data.
    """

    folder: Path
    ports: BrokerPorts
    bootstrap_servers: str
    process: ProcessMark | None
    started_at: datetime
    running: bool


def default_folder() -> Path:
    """The sandbox's folder: ``DRAINER_SANDBOX``, else one in the user's state folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else user_state_path("drainer") / "sandbox"


def up(
    folder: Path | None = None, *, say: Say = unheard, die_with_parent: bool = False
) -> SandboxState:
    """Start the sandbox, and return once it answers; a running one is left as it is.

    The leftovers of a dead broker are started again: with their data, and on their ports unless
    someone else took those.

    Raises:
        SandboxRefused: when the folder holds something else, or when the broker does not start;
            what it leaves in the folder then is its log, and ``down`` removes it.
    """
    folder = _resolved(folder)
    with _locked():
        found = _read(folder)
        if found is not None and found.running:
            say(f"the sandbox is already up on {found.bootstrap_servers}")
            _require_answer(found)
            return found
        if found is None:
            _require_unused(folder)
            ports = BrokerPorts.free()
        else:
            say(f"starting the sandbox in {folder} again, with its data")
            ports = _usable(found.ports, say)
        return _start(folder, ports, say, die_with_parent)


def status(folder: Path | None = None) -> SandboxState | None:
    """Look at the sandbox; None when there is none.

    Raises:
        SandboxRefused: when the folder's state can't be read.
    """
    return _read(_resolved(folder))


def down(folder: Path | None = None, *, say: Say = unheard) -> bool:
    """Stop the sandbox and remove its folder; False when there was none.

    Raises:
        SandboxRefused: when the folder is not a sandbox's, or can't be removed.
    """
    folder = _resolved(folder)
    with _locked():
        found = _read(folder)
        if found is None:
            _require_unused(folder)
            return False
        if found.process is not None and found.running:
            say(f"stopping the sandbox on {found.bootstrap_servers}")
            if not found.process.end(grace_s=STOP_TIMEOUT_S):
                raise SandboxRefused(
                    f"the sandbox's broker (process {found.process.pid}) can't be ended",
                    hint="end it by hand, then try again",
                )
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise SandboxRefused(
                f"can't remove the sandbox's folder {folder}: {error}",
                hint="its broker is stopped; remove the folder by hand",
            ) from error
        say(f"removed {folder}")
        return True


def _start(folder: Path, ports: BrokerPorts, say: Say, die_with_parent: bool) -> SandboxState:
    # What is most often missing is missed before there is a folder to clear away.
    find_java()
    kafka_jars(say=say)
    state = SandboxState(
        folder=folder,
        ports=ports,
        bootstrap_servers=f"{HOST}:{ports.client}",
        process=None,
        started_at=datetime.now(UTC),
        running=False,
    )
    # Written before there is anything to lose: whatever happens now, `down` knows the folder.
    _write(state)
    broker = Broker(folder, ports=ports, die_with_parent=die_with_parent, say=say)
    broker.launch()
    try:
        # Before it answers: if this process is killed meanwhile, `down` must know the broker.
        state = replace(state, process=broker.mark, running=True)
        _write(state)
        broker.wait_ready()
    except BaseException:
        broker.kill()
        raise
    return state


def _require_answer(state: SandboxState) -> None:
    broker = Broker(state.folder, ports=state.ports)
    broker.mark = state.process
    try:
        broker.wait_ready(timeout_s=ANSWER_TIMEOUT_S)
    except SandboxRefused as error:
        error.hint = "it may be paused or hung; take the sandbox down, then up again"
        raise


def _usable(ports: BrokerPorts, say: Say) -> BrokerPorts:
    if not (taken := ports.taken()):
        return ports
    other = BrokerPorts.free()
    say(f"port {taken[0]} is in use by another process: the broker moves to {HOST}:{other.client}")
    return other


def _resolved(folder: Path | None) -> Path:
    return (folder or default_folder()).expanduser().resolve()


def _locked() -> FileLock:
    # Not in the folder, which `down` removes, nor beside it, where it would stay. One lock for all
    # sandboxes: to wait a few seconds for another one's start beats a file left for each folder.
    cache = user_cache_path("drainer")
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SandboxRefused(
            f"can't lock the sandbox: {error}",
            hint="make that folder writable, or name another with XDG_CACHE_HOME",
        ) from error
    return FileLock(cache / "sandbox.lock")


def _require_unused(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise SandboxRefused(
            f"{folder} is not a sandbox: it holds something else",
            hint=f"name an empty folder, or one that does not exist yet, with {FOLDER_VARIABLE}",
        )


def _write(state: SandboxState) -> None:
    content = {
        "format": FORMAT,
        "bootstrap_servers": state.bootstrap_servers,
        "ports": asdict(state.ports),
        "process": asdict(state.process) if state.process else None,
        "started_at": state.started_at.isoformat(),
    }
    file = state.folder / STATE_FILE
    try:
        state.folder.mkdir(parents=True, exist_ok=True)
        written = file.with_suffix(".tmp")
        written.write_text(json.dumps(content, indent=2) + "\n")
        written.replace(file)
    except OSError as error:
        raise SandboxRefused(
            f"can't write to the sandbox's folder {state.folder}: {error}",
            hint=f"make it writable, or name another with {FOLDER_VARIABLE}",
        ) from error


def _read(folder: Path) -> SandboxState | None:
    file = folder / STATE_FILE
    try:
        content: dict[str, Any] = json.loads(file.read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}")
        process = ProcessMark(**content["process"]) if content["process"] else None
        return SandboxState(
            folder=folder,
            ports=BrokerPorts(**content["ports"]),
            bootstrap_servers=content["bootstrap_servers"],
            process=process,
            started_at=datetime.fromisoformat(content["started_at"]),
            running=process is not None and process.alive(),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SandboxRefused(
            f"{file} is not a sandbox's state: {error}",
            hint="if a broker of it still runs, end it by hand; then remove the folder",
        ) from error
