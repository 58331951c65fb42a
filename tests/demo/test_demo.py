"""The demo plays from start to finish on a sandbox of its own, and its last commands work."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from command.terminal import TerminalSession
from docs.reader import is_open
from docs.transcript import ESCAPES
from drainer import sandbox
from drainer.demo.service import Index, Service
from drainer.demo.story import fill
from drainer.errors import DrainerError
from drainer.host.process import python_module
from drainer.kafka.cluster import Cluster
from kafka.topic import eventually

SMALL = ("demo", "--messages", "800")
# The longest silence on an idle machine, where a command takes this long to start.
SILENCE_S, START_S = 5.0, 0.5
URL = "url=http://127.0.0.1:"


@pytest.fixture
def folder(tmp_path: Path, kafka_installed: None) -> Iterator[Path]:
    """The folder of a sandbox, which is down afterwards."""
    folder = tmp_path / "sandbox"
    yield folder
    sandbox.down(folder)


@pytest.fixture
def env(folder: Path) -> dict[str, str]:
    known = {name: text for name, text in os.environ.items() if not name.startswith("DRAINER")}
    return known | {"DRAINER_SANDBOX": str(folder)}


def watched(session: TerminalSession) -> tuple[str, float]:
    """The text that a command printed until its end, and its longest silence in seconds."""
    last_s, length, longest_s = time.monotonic(), 0, 0.0

    def looks() -> bool:
        nonlocal last_s, length, longest_s
        if len(session.seen) > length:
            longest_s = max(longest_s, time.monotonic() - last_s)
            last_s, length = time.monotonic(), len(session.seen)
        return "drainer sandbox down" in session.seen.rpartition("Try next")[2]

    session.until(looks, "it shows what to try next")
    return ESCAPES.sub("", session.ends(0)), longest_s


@pytest.mark.long
def test_the_demo_is_stopped_killed_and_verified_and_leaves_what_to_try(
    folder: Path, env: dict[str, str], tmp_path: Path
) -> None:
    begun_s = time.monotonic()
    with TerminalSession(["plan", "--help"], tmp_path, env) as session:
        session.ends(0)
    slowness = max(1.0, (time.monotonic() - begun_s) / START_S)
    with TerminalSession([*SMALL], tmp_path, env) as session:
        seen, silence_s = watched(session)
    assert silence_s < SILENCE_S * slowness
    parts = (
        "800 messages, one key, 16,000 updates of 20ms each: 5m 20s one after the other",
        "$ drainer estimate --topic demo",
        "$ drainer run --topic demo",
        "Stopped on request; no data lost",
        "$ drainer resume demo.indexer.plan.json",
        "Killed",
        "✓ Drained: 800 messages, 16,000 sub-messages",
        "$ drainer plan verify demo.indexer.plan.json",
        "✓ all 16,000 updates were made",
        "✓ no document was updated out of order",
        "calls came twice",
        "Try next",
    )
    at = [seen.index(part) for part in parts]
    assert at == sorted(at)
    assert [path.name for path in tmp_path.iterdir()] == ["sandbox"], "its plan is gone"

    lines = seen[at[-1] :].replace(" \\\n", " ").splitlines()[1:]
    typed = [shlex.split(line, comments=True) for line in lines]
    variable, *commands, down = filter(None, typed)
    name, _, value = variable[1].partition("=")
    env |= {name: value}
    (url,) = {word for words in commands for word in words if word.startswith(URL)}
    port = int(url.removeprefix(URL).partition("/")[0])
    for words in commands:
        assert words[0] == "drainer"
        with TerminalSession(words[1:], tmp_path, env) as session:
            if words[1] == "run":
                session.shows("[y/N] ")
                session.types("y\n")
                session.shows("% ")
                session.signal(signal.SIGKILL)
                session.ended()
            else:
                session.answers("[y/N] ", [])
                assert session.code in (0, None), session.seen
                session.ends(0)
    assert is_open(port)
    del env["DRAINER_SANDBOX"]  # The command names the folder.
    with TerminalSession(down[1:], tmp_path, env) as session:
        session.ends(0)
    assert not folder.exists()
    eventually(lambda: not is_open(port), "the service has ended")


@pytest.mark.long
def test_the_demo_plays_where_a_script_ignores_ctrl_c(
    folder: Path, env: dict[str, str], tmp_path: Path
) -> None:
    words = python_module("drainer", "demo", "--messages", "300")
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *words]
    found = subprocess.run(
        ignoring, cwd=tmp_path, env=env, capture_output=True, check=False, text=True
    )
    assert found.returncode == 0, found.stderr
    assert "✓ all 6,000 updates were made" in found.stdout + found.stderr


@pytest.mark.long
def test_a_demo_that_is_interrupted_ends_with_its_drain_and_says_what_still_runs(
    folder: Path, env: dict[str, str], tmp_path: Path
) -> None:
    with TerminalSession(["demo"], tmp_path, env) as session:
        session.shows("$ drainer run")
        session.shows("% ")
        session.types("\x03\x03")
        seen = ESCAPES.sub("", session.ends(4))
    end = " ".join(seen.rpartition("$ drainer run")[2].split())
    assert f"`drainer sandbox down --folder {folder}` stops them" in end
    assert end.endswith("■ interrupted")
    assert "resume:" not in end
    drain = f"drainer run .*{(folder / 'demo.url').read_text()}"
    drains = subprocess.run(["pgrep", "-f", drain], check=False)
    assert drains.returncode == 1, "its drain has ended, too"


def test_a_message_that_can_not_be_written_ends_the_demo(
    cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic_name, config={"max.message.bytes": "100"})
    refused = f"can't fill topic {topic_name}: {topic_name}/0: .*too large"
    with pytest.raises(DrainerError, match=refused) as caught:
        fill(cluster.settings, topic_name, 3, tmp_path)
    assert f"{tmp_path}/broker.log, or begin anew: `drainer sandbox down" in str(caught.value.hint)


@pytest.mark.long
def test_demos_share_a_service_which_ends_with_its_file(tmp_path: Path) -> None:
    first, second = Service(tmp_path), Service(tmp_path)
    assert first.url == second.url
    assert second.account("demo")["updates"] == 0
    (tmp_path / "demo.url").unlink()
    eventually(lambda: not is_open(port_of(first)), "it has ended")


def port_of(service: Service) -> int:
    return int(service.url.removeprefix(URL.removeprefix("url=")).partition("/")[0])


def test_the_service_counts_each_update_once_and_what_breaks_an_order() -> None:
    index = Index()

    async def update(*calls: tuple[str, int]) -> None:
        await asyncio.gather(*(index.update(id, "a", version) for id, version in calls))

    for call in (("1", 1), ("2", 2), ("1", 1)):
        asyncio.run(update(call))
    assert (index.versions, index.repeats, index.out_of_order) == ({"a": 2}, 1, 0)
    asyncio.run(update(("3", 0)))
    assert (index.out_of_order, index.overlapping) == (1, 0)
    asyncio.run(update(("4", 4), ("5", 5)))
    assert index.overlapping == 1
