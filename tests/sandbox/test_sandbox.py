"""A person's sandbox: up, looked at, killed, up again, down; what it refuses to touch; and that its
broker starts or is refused with a reason, and never outlives its owner."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from drainer import sandbox
from drainer.errors import SandboxRefused
from drainer.host.process import ProcessMark
from drainer.sandbox.broker import server_properties
from drainer.sandbox.ports import HOST, BrokerPorts
from drainer.sandbox.sandbox import down_command, find, folder_of
from kafka.topic import Topic
from privileges import for_root
from scenarios.brokers import Broker

TIMEOUT_S = 30


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that doesn't exist yet; whatever a test starts in it ends with the test."""
    folder = tmp_path / "my sandbox"
    yield folder
    if (folder / "sandbox.json").exists():
        sandbox.down(folder)


def _up(folder: Path, print_line: Callable[[str], None] = lambda _: None) -> sandbox.SandboxState:
    return sandbox.up(folder, print_line=print_line, die_with_parent=True)


def _leave(folder: Path, *, process: dict[str, object] | None) -> None:
    folder.mkdir()
    state = {
        "format": "drainer-sandbox/5",
        "ports": {"client": 20001, "controller": 20002},
        "process": process,
    }
    (folder / "sandbox.json").write_text(json.dumps(state))


@pytest.mark.long
@pytest.mark.usefixtures("kafka_installed")
def test_a_sandbox_goes_up_and_down_without_a_trace(folder: Path) -> None:
    assert find(folder) is None
    output: list[str] = []
    started = _up(folder, output.append)
    assert output[-1].endswith(f"answers on {started.bootstrap_servers}")
    assert find(folder) == started
    assert started.running
    assert _up(folder, output.append) == started
    assert "already up" in output[-1]

    assert sandbox.down(folder)
    assert not started.running
    assert started.ports.taken() == ()
    assert list(folder.parent.iterdir()) == []
    assert find(folder) is None
    assert not sandbox.down(folder)


@pytest.mark.long
@pytest.mark.usefixtures("kafka_installed")
def test_a_killed_sandbox_comes_up_again_with_its_data(folder: Path) -> None:
    started = _up(folder)
    topic = Topic(started.bootstrap_servers, "kept")
    topic.produce(map(str, range(100)))
    process = started.process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(TIMEOUT_S)
    leftovers = find(folder)
    assert leftovers is not None
    assert not leftovers.running
    revived = _up(folder)
    assert revived.running
    assert revived.ports == started.ports
    assert len(topic.read_all(100)) == 100


def test_up_without_java_is_refused_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxRefused, match="needs Java"):
        _up(folder)
    assert find(folder) is None
    assert not folder.exists()


def test_a_new_sandbox_whose_port_is_taken_leaves_nothing_and_an_old_one_keeps_its_data(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its port was free when it was picked. Neither Java nor Kafka is needed to see that."""
    ports = BrokerPorts.free()
    monkeypatch.setattr("drainer.sandbox.sandbox.find_java", Path)
    monkeypatch.setattr("drainer.sandbox.broker.find_java", Path)
    monkeypatch.setattr("drainer.sandbox.sandbox.kafka_jars", lambda **_: [])
    monkeypatch.setattr("drainer.sandbox.broker.kafka_jars", lambda **_: [])
    monkeypatch.setattr(BrokerPorts, "free", lambda: ports)
    output: list[str] = []
    with socket.create_server((HOST, ports.client)):
        for _ in range(2):
            with pytest.raises(SandboxRefused, match=f"another process uses port {ports.client} "):
                _up(folder, output.append)
            assert not folder.exists()
        folder.mkdir()
        with pytest.raises(SandboxRefused, match="another process"):
            _up(folder, output.append)
        folder.rmdir()
    assert output == []

    _leave(folder, process=None)
    with socket.create_server((HOST, 20001)), pytest.raises(SandboxRefused, match="port 20001"):
        _up(folder, output.append)
    assert output == [f"starting the sandbox in {folder} again"]
    (folder / "data").mkdir()
    with socket.create_server((HOST, 20001)), pytest.raises(SandboxRefused, match="port 20001"):
        _up(folder, output.append)
    assert output[1:] == [f"starting the sandbox in {folder} again, with its data"]


@pytest.mark.parametrize("process", [None, {"pid": os.getpid(), "started": "before a reboot"}])
def test_down_removes_a_sandbox_whose_broker_does_not_run_and_signals_no_other_process(
    folder: Path, process: dict[str, object] | None
) -> None:
    _leave(folder, process=process)
    found = find(folder)
    assert found is not None
    assert not found.running
    assert sandbox.down(folder)
    assert not folder.exists()


def test_down_never_signals_a_process_that_is_not_its_broker(folder: Path) -> None:
    """The mark in a forged or copied file."""
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        mark = ProcessMark.of(bystander.pid)
        assert mark is not None
        _leave(folder, process=asdict(mark))
        with pytest.raises(SandboxRefused, match=f"process {bystander.pid} is not its broker"):
            sandbox.down(folder)
        assert mark.alive()
    finally:
        bystander.kill()
        bystander.wait()
    assert sandbox.down(folder)


@for_root
@pytest.mark.parametrize("theirs", ["", "sandbox.json"])
def test_a_sandbox_of_another_user_is_left_alone(folder: Path, theirs: str) -> None:
    _leave(folder, process=None)
    os.chown(folder / theirs, 65534, 65534)
    owner = pwd.getpwuid(65534).pw_name
    with pytest.raises(SandboxRefused, match=f"is not a sandbox of yours: .* belongs to {owner}"):
        sandbox.down(folder)
    os.chown(folder / theirs, 0, 0)
    (folder / theirs).chmod(0o777)
    with pytest.raises(SandboxRefused, match="is writable by everyone"):
        sandbox.down(folder)
    (folder / theirs).chmod(0o700)
    assert sandbox.down(folder)


def test_no_broker_is_started_where_others_can_write(folder: Path) -> None:
    """``down`` would refuse to end it."""
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SandboxRefused, match=r"not a sandbox of yours: .* is writable by everyone"):
        _up(folder)
    assert not list(folder.iterdir())


def test_down_removes_nothing_that_is_not_a_sandbox_s(folder: Path) -> None:
    _leave(folder, process=None)
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(SandboxRefused, match=r"has more than a sandbox: thesis\.tex"):
        sandbox.down(folder)
    (folder / "thesis.tex").unlink()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("precious.txt", "keep me", "is not a sandbox"),
        ("sandbox.json", '{"format": "another tool"}', "is not a sandbox's state"),
    ],
)
def test_a_folder_of_something_else_is_left_alone(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    for refused in (sandbox.down, _up):
        with pytest.raises(SandboxRefused, match=words):
            refused(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == text


def test_the_command_that_removes_a_sandbox_names_its_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRAINER_SANDBOX", raising=False)
    usual = folder_of(None)
    monkeypatch.setenv("DRAINER_SANDBOX", str(folder))  # not set where the command is run later
    assert folder_of(None) == folder
    assert down_command(usual) == "drainer sandbox down"
    assert down_command(folder) == f"drainer sandbox down --folder '{folder}'"


@pytest.mark.long
@pytest.mark.usefixtures("kafka_installed")
def test_a_setting_that_the_broker_rejects_is_quoted_from_its_log(tmp_path: Path) -> None:
    own = Broker(tmp_path, properties={"num.io.threads": "many"}, die_with_parent=True)
    with pytest.raises(SandboxRefused, match=r"num\.io\.threads"):
        own.start()
    assert not own.running


@pytest.mark.usefixtures("kafka_installed")
def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    ports = BrokerPorts.free()
    refused = pytest.raises(SandboxRefused, match=f"another process uses port {ports.client} ")
    with socket.create_server((HOST, ports.client)), refused:
        Broker(tmp_path, ports=ports).start()


@pytest.mark.long
@pytest.mark.usefixtures("kafka_installed")
def test_a_format_that_takes_too_long_is_reported_and_a_second_try_begins_afresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first Java leaves half a file, and hangs."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        "#!/bin/sh\n"
        """[ "$1" = -version ] && echo 'version "21"' && exit\n"""
        "data=$(sed -n s/^log.dirs=//p server.properties)\n"
        'mkdir "$data" && echo version= >"$data/meta.properties"\n'
        "exec sleep 60\n"
    )
    java.chmod(0o700)
    printed: list[str] = []
    own = Broker(tmp_path / "own", die_with_parent=True, print_line=printed.append)
    own.folder.mkdir()
    with monkeypatch.context() as patched:
        patched.setenv("JAVA_HOME", str(tmp_path))
        patched.setattr("drainer.sandbox.broker.START_TIMEOUT_S", 2.0)
        patched.setattr("drainer.sandbox.broker.REPORT_EVERY_S", 1.0)
        with pytest.raises(SandboxRefused, match="still formatting its storage after 2 s") as error:
            own.launch()
    assert "-cp" not in str(error.value)
    assert "Kafka is still formatting its storage (1s)" in printed
    assert list(own.folder.glob("data*/meta.properties"))

    with own:
        assert own.running


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a child whose parent died")
@pytest.mark.usefixtures("kafka_installed")
def test_a_broker_bound_to_its_parent_ends_when_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, scenarios.brokers as s;"
        "b = s.Broker(pathlib.Path(sys.argv[1]), die_with_parent=True); b.launch();"
        "print(b.mark.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        mark = ProcessMark.of(int(parent.stdout.readline()))
        assert mark is not None
        parent.kill()
    assert mark.wait(TIMEOUT_S)


def test_properties_of_the_caller_have_the_last_word(tmp_path: Path) -> None:
    text = server_properties(
        tmp_path / "back\\slash",
        BrokerPorts(client=1, controller=2),
        {"offsets.topic.num.partitions": "7", "note": " ü"},
    )
    lines = text.splitlines()
    assert "offsets.topic.num.partitions=7" in lines
    assert "offsets.topic.num.partitions=5" not in lines
    assert "note=\\ \\u00fc" in lines
    assert any(line.endswith("back\\\\slash") for line in lines if line.startswith("log.dirs="))
