"""A broker starts or is refused with a reason, and never outlives its owner."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from drainer.errors import SandboxRefused
from drainer.host.process import ProcessMark
from drainer.sandbox.broker import server_properties
from drainer.sandbox.ports import HOST, BrokerPorts
from scenarios.brokers import Broker

TIMEOUT_S = 30


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
