"""The socket of a drain: what comes through it, and who else may lie beside it."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from drainer.control import client
from drainer.control.client import Found
from drainer.control.place import folders, make_folder, socket_name
from drainer.control.server import ControlServer
from drainer.control.wire import About, Question, decode_status, encode_status
from drainer.core.event import Deed, Event
from drainer.engine.control import Control, Pause, Stop
from drainer.engine.status import DeadlineStatus, Paused, Shown
from drainer.errors import DrainerError, Interrupted, Refused, UsageError
from drainer.view.live import lay_out
from drainer.view.running import found_as_json, running_page, state_of
from kafka.topic import eventually
from view import samples

PLAN = Path("orders.plan.json")
ABOUT = About(str(PLAN), "orders", "indexer", "d-1", "process", samples.ENDED.isoformat())
EVENT = Event(samples.ENDED.isoformat(), Deed.PAUSED, "ana@db1", "failover")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime folder of nobody else."""
    place = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    return place / "drainer"


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer(PLAN, ABOUT, Control(), lambda: None) as made:
        yield made


def here(folder: Path) -> list[Found]:
    return [each for each in client.running() if each.path.parent == folder]


def test_a_status_is_shown_there_as_it_is_here(server: ControlServer, folder: Path) -> None:
    odd = (("\ud800", 5), (b"\x00k", 4), (float("nan"), 3), (10**30, 2), (("a", 1), 1))
    deadline = DeadlineStatus(samples.ENDED, 60.0, -5.0, missed=True)
    rich = replace(
        samples.status(3),
        hottest=odd,
        paused=Paused(EVENT, samples.ENDED.isoformat()),
        asked=(EVENT,),
        asked_total=1,
        deadline=deadline,
        auto=samples.AUTO,
    )
    for status in (samples.status(), rich, replace(rich, engine=samples.on_spark(7))):
        server.observe(status)
        [found] = here(folder)
        assert found.status is not None
        shown = replace(status, hottest=tuple((Shown(repr(k)), n) for k, n in status.hottest))
        assert lay_out(found.status, 200, 60) == lay_out(shown, 200, 60)
        assert found.pid == os.getpid()
        assert found_as_json(found)["state"] == state_of(found)
        assert "orders" in str(running_page([found]))
    assert decode_status(encode_status(rich)).asked == (EVENT,)


def test_who_says_nothing_or_nonsense_is_listed_and_holds_up_nobody(
    server: ControlServer, folder: Path
) -> None:
    server.observe(samples.status())
    answers = [b"", b"{}\n", b"nonsense\n", b'{"about": 5}\n', b'{"status": {"topic": 1}}\n']
    stop, odd = threading.Event(), list[socket.socket]()

    def answer(listening: socket.socket, words: bytes) -> None:
        while not stop.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            if words:
                connection.sendall(words)
                connection.close()

    for number, words in enumerate(answers):
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(folder / f"odd-{number}.sock"))
        listening.listen()
        odd.append(listening)
        threading.Thread(target=answer, args=(listening, words), daemon=True).start()
    found = here(folder)
    stop.set()
    for listening in odd:
        listening.close()
    assert len(found) == 1 + len(answers)
    assert sorted(map(state_of, found)) == ["draining", *["silent"] * len(answers)]
    assert "odd-0" in str(running_page(found))


def test_what_the_dead_left_is_removed_and_nothing_else(folder: Path) -> None:
    make_folder(folder)
    dead, file, other = folder / "dead.sock", folder / "file.sock", folder.parent / "other.sock"
    for path in (dead, other):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
            gone.bind(str(path))
    file.write_text("important")
    (folder / "link.sock").symlink_to(other)
    assert "dead.sock" not in {each.path.name for each in here(folder)}
    assert not dead.exists()
    assert file.read_text() == "important"
    assert other.exists()


def test_a_socket_that_is_removed_comes_again(server: ControlServer, folder: Path) -> None:
    name = socket_name(PLAN)
    (folder / name).unlink()
    eventually((folder / name).exists, "it is there again")
    server.observe(samples.status())
    assert here(folder)
    shutil.rmtree(folder.parent)  # the session is over
    eventually(lambda: any((each / name).exists() for each in folders()), "in the next folder")


def test_what_is_asked_is_done_by_the_drain_and_its_refusal_told(server: ControlServer) -> None:
    control = server.control
    with pytest.raises(Refused, match="still starting"):
        client.ask(PLAN, Question("pause"))
    control.begin()

    def drain() -> None:
        asked = None
        while asked is None:
            asked = next(control.taken(), None)
        assert isinstance(asked.request, Pause)
        assert (asked.request.for_s, asked.reason) == (60.0, "a\\nb")
        asked.answer.set_exception(UsageError("no", hint="yes"))

    thread = threading.Thread(target=drain)
    thread.start()
    with pytest.raises(UsageError, match="no") as raised:
        client.ask(PLAN, Question("pause", for_s=60.0, reason=" a\nb "))
    assert raised.value.hint == "yes"
    thread.join()
    for wrong in (Question("pause", for_s=1e12), Question("pause", for_s=-1.0), Question("dance")):
        with pytest.raises(DrainerError):
            client.ask(PLAN, wrong)


def test_a_stop_is_kept_for_a_drain_that_is_still_starting(server: ControlServer) -> None:
    told = server.control.ask(Stop(), "ana@db1").result(1)
    assert "still starting" in told[0]
    [kept] = server.control.taken()
    assert kept.request == Stop()


def test_watchers_hear_how_it_ended_and_those_who_come_later_that_none_runs() -> None:
    with ControlServer(PLAN, ABOUT, Control(), lambda: None) as server:
        server.observe(samples.status())
        answers = client.watch(PLAN, Question("watch"))
        assert next(answers).status is not None
        server.end(samples.summary())
    assert [each.ended for each in answers if each.ended][-1]["status"] == "done"
    with pytest.raises(Refused, match="none of your drains"):
        client.ask(PLAN, Question("pause"))


def test_one_that_is_gone_in_the_middle_is_told() -> None:
    folder = folders()[0]
    make_folder(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(folder / socket_name(PLAN)))
        listening.listen()

        def hang_up() -> None:
            connection, _ = listening.accept()
            connection.recv(1000)
            connection.close()

        threading.Thread(target=hang_up).start()
        with pytest.raises(Interrupted, match="gone"):
            list(client.watch(PLAN, Question("watch")))
