"""The socket of a drain: what comes through it, and who else may lie beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from math import inf
from pathlib import Path

import pytest
from typer.testing import CliRunner

from builders import a_plan, a_status, a_summary
from drainer.cli.app import app
from drainer.cli.steering import found_as_json, running_page, state_of
from drainer.control import client
from drainer.control.client import FoundDrain
from drainer.control.place import folders, link_to, make_folder, socket_name
from drainer.control.server import ControlServer, peer
from drainer.control.wire import About, DrainReport
from drainer.engine.control import Control, Pause, Stop
from drainer.errors import Interrupted, Refused, UsageError
from drainer.host.process import is_suspended
from drainer.model.settings import LocalSettings
from drainer.model.status import FailureStatus, HeldBack, OutageStatus
from drainer.store.plan_file import PlanFile
from kafka.topic import eventually
from view import samples

PLAN = Path("orders.plan.json")
ABOUT = About(str(PLAN), "orders", "indexer", "d-1", "process", samples.ENDED.isoformat())


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runtime folder of this test's own."""
    runtime = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    return runtime / "drainer"


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer(PLAN, ABOUT, Control(LocalSettings()), lambda: None) as made:
        yield made


def here(folder: Path) -> list[FoundDrain]:
    return [each for each in client.running() if each.path.parent == folder]


@contextmanager
def answering(path: Path, sent: Iterable[bytes]) -> Iterator[None]:
    """A socket whose process sends this to whoever connects, and then hangs up."""
    over = threading.Event()
    make_folder(path.parent)

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            for data in sent:
                connection.sendall(data)
                if over.wait(0.01):
                    return

    def accept() -> None:
        with suppress(OSError):
            while True:
                answer(listening.accept()[0])

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_drain_is_found_with_its_process_and_state(server: ControlServer, folder: Path) -> None:
    [found] = here(folder)
    assert (found.pid, state_of(found)) == (os.getpid(), "starting")
    server.observe(a_status())
    [found] = here(folder)
    assert (found.pid, found_as_json(found)["state"]) == (os.getpid(), "draining")
    assert "orders" in str(running_page([found]))
    server.observe(a_status(held_back=(HeldBack(0, 470, "'d-root'", 423, 20.0),)))
    page = str(running_page(here(folder)))
    assert "watermark held back by 0:470, sub-key 'd-root' (423 before it), for 20s" in page
    assert found_as_json(here(folder)[0])["held_back"][0]["offset"] == 470


@pytest.mark.parametrize("words", ["stop", "pause", "unpause", "set concurrency=5"])
def test_a_command_for_a_running_drain_without_a_plan_names_those_that_run(
    server: ControlServer, words: str
) -> None:
    found = CliRunner().invoke(app, words.split(), prog_name="drainer")
    assert f" PLAN is one of {PLAN}" in found.stderr


def test_a_drain_in_an_outage_says_since_when_it_tries_and_when_it_halts(
    server: ControlServer, folder: Path
) -> None:
    since = datetime(2026, 11, 20, 17, 2, 11).astimezone()
    outage = OutageStatus(since, 70.0, since + timedelta(hours=1), 8.0)
    failures, why = FailureStatus(in_outage=True, outage=outage), "http://b:9200 refuses"
    server.observe(a_status(trouble=why, failures=failures))
    [found] = here(folder)
    page = str(running_page([found]))
    assert f"outage since 17:02:11 (1m 10s): {why}; next try in 8.0s, halts at 18:02" in page
    assert found_as_json(found)["outage"]["next_try_s"] == 8.0


def test_a_drain_without_a_status_starts_or_is_silent() -> None:
    # It waits for its lock, or its handler's open() takes long.
    assert state_of(FoundDrain(PLAN, ABOUT, None, 9.0, 4_711)) == "starting"
    assert state_of(FoundDrain(PLAN, ABOUT, None, inf, 4_711)) == "silent"


OK, CONFLICT = b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.0 409 Conflict\r\n\r\n"


def a_report(about: dict[str, str], part: dict[str, int]) -> bytes:
    report = json.loads(DrainReport(ABOUT, a_status()).encoded())
    report["about"] |= about
    report["status"]["partitions"][0] |= part
    return OK + json.dumps(report).encode()


NONSENSE = (
    *(b"", b"nonsense\n", OK, OK + b"{}", OK + b'{"about": 5}'),
    *(CONFLICT, CONFLICT + b"[]", CONFLICT + b"{}", CONFLICT + b'{"error": 5}'),
    OK[:-2] + b"Content-Length: -1\r\nTransfer-Encoding: chunked\r\n\r\nx",
    a_report({"since": "0001-01-01T00:00:00+14:00"}, {}),
    a_report({}, {"end": 10**400}),
    a_report({}, {"watermark": -1}),
)


def test_a_process_that_answers_nothing_or_nonsense_is_listed_and_delays_no_other(
    server: ControlServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LOOK_S", 1.0)
    server.observe(a_status())
    answers = [*([each] for each in NONSENSE), *[repeat(b"")] * 50]
    with ExitStack() as stack:
        for number, sent in enumerate(answers):
            stack.enter_context(answering(folder / f"odd-{number}.sock", sent))
        found = here(folder)
    assert sorted(map(state_of, found)) == ["draining", *["silent"] * len(answers)]
    page = str(running_page(found))
    assert "odd-0" in page
    assert "?" not in page
    assert {each.pid for each in found} == {os.getpid()}
    year = str(datetime.now(UTC).year)
    assert all(each.about.since.startswith(year) for each in found if each.status is None)


@pytest.mark.parametrize("head", [b"", OK])
def test_a_drain_that_stops_answering_is_silent_and_a_request_to_it_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(client, "LOOK_S", 0.2)
    monkeypatch.setattr(client, "HEARD_S", 0.2)
    with answering(folder / socket_name(PLAN), chain([head], repeat(b""))):
        [found] = here(folder)
        assert state_of(found) == "silent"
        for ask in (lambda: client.request(PLAN, Pause()), lambda: next(client.watch(PLAN))):
            with pytest.raises(Interrupted, match=f"process {os.getpid()} does not answer$"):
                ask()


def test_a_drain_that_takes_no_request_is_named_in_the_ways_on_and_ends_as_usual(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drainer.control.server.ANSWER_S", 0.05)
    server.control.begin()  # Nothing takes its requests, as if the event loop were blocked.
    with pytest.raises(Refused, match="may block the event loop") as raised:
        client.request(PLAN, Pause())
    for way in (f"`drainer watch {PLAN}`", f"`drainer stop {PLAN} --now`"):
        assert way in str(raised.value.hint)


def test_a_drain_whose_process_is_gone_is_reported_with_its_resume(
    folder: Path, tmp_path: Path
) -> None:
    plan = PlanFile(tmp_path / "orders.plan.json")
    plan.write(a_plan(100))
    with (
        answering(folder / socket_name(plan.path), [a_report({}, {}) + b"\n"]),
        pytest.raises(Interrupted, match="process is gone") as raised,
    ):
        list(client.watch(plan.path))
    assert raised.value.hint == f"To resume it: `drainer resume {plan.path}`"


def test_a_drain_that_is_suspended_is_named_with_its_plan_and_how_to_continue_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(client, "LOOK_S", 0.2)
    monkeypatch.setattr(client, "HEARD_S", 0.2)
    plan = PlanFile(tmp_path / "orders.plan.json")
    plan.write(a_plan(100))
    with (
        subprocess.Popen(["sleep", "60"]) as suspended,
        answering(folder / socket_name(plan.path), repeat(b"")),
    ):
        suspended.send_signal(signal.SIGSTOP)
        eventually(lambda: is_suspended(suspended.pid), "it is suspended")
        link_to(plan.path).symlink_to(plan.path)
        monkeypatch.setattr(client, "peer", lambda _: (suspended.pid, os.geteuid()))
        [found] = here(folder)
        with pytest.raises(Interrupted, match="does not answer: it is suspended") as raised:
            client.request(plan.path, Pause())
        page = str(running_page([found]))
        suspended.kill()
    assert (found.about.plan, found.about.topic) == (str(plan.path), "orders")
    assert f"suspended; to continue it: `kill -CONT {suspended.pid}`" in page
    assert raised.value.hint == f"Continue it: `kill -CONT {suspended.pid}`"


def test_a_request_whose_client_has_gone_is_not_carried_out(
    server: ControlServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = threading.Event()

    def after_it_has_gone(connection: socket.socket) -> tuple[int, int]:
        gone.wait()
        return peer(connection)

    monkeypatch.setattr("drainer.control.server.peer", after_it_has_gone)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(folder / socket_name(PLAN)))
        connection.sendall(request_of("POST", "/stop", '{"reason": "late"}'))
    gone.set()
    client.request(PLAN, Stop(reason="now"))
    taken = [each.request.reason for each in server.control.taken(changes=False)]
    assert taken == ["now"]


def test_a_link_to_the_socket_of_another_drain_is_not_followed(
    server: ControlServer, folder: Path
) -> None:
    other = Path("other.plan.json")
    (folder / socket_name(other)).symlink_to(folder / socket_name(PLAN))
    assert len(here(folder)) == 1
    with pytest.raises(Refused, match="none of your drains"):
        client.request(other, Pause())


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
    server.observe(a_status())
    assert here(folder)
    shutil.rmtree(folder.parent)  # the session is over
    eventually(lambda: any((each / name).exists() for each in folders()), "in the next folder")


def test_a_request_is_done_by_the_drain_and_its_refusal_reported(server: ControlServer) -> None:
    control = server.control
    with pytest.raises(Refused, match="still starting"):
        client.request(PLAN, Pause())
    control.begin()

    def drain() -> None:
        requested = None
        while requested is None:
            requested = next(control.taken(changes=False), None)
        assert requested.request == Pause(60.0, reason="a\\nb")
        requested.done.set_exception(UsageError("no", hint="yes"))

    thread = threading.Thread(target=drain)
    thread.start()
    with pytest.raises(UsageError, match="no") as raised:
        client.request(PLAN, Pause(60.0, reason=" a\nb "))
    assert raised.value.hint == "yes"
    thread.join()


def request_of(method: str, path: str, body: str = "") -> bytes:
    return f"{method} {path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


STOP = b"POST /stop HTTP/1.1\r\nHost: drain\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request_of("GET", "/"), b"400"),
        (request_of("GET", "/stop"), b"400"),
        (request_of("POST", "/status"), b"400"),
        (request_of("POST", "/dance", '{"now": true}'), b"400"),
        (request_of("POST", "/pause", '{"for_s": 1e12}'), b"400"),
        (request_of("POST", "/pause", '{"for_s": -1}'), b"400"),
        (request_of("POST", "/pause", "nonsense"), b"400"),
        (request_of("POST", "/pause", '{"for": 600}'), b"400"),
        (request_of("POST", "/stop", '{"nwo": true}'), b"400"),
        (request_of("POST", "/set"), b"400"),
        (request_of("PUT", "/stop"), b"501"),
        # The body is not all there.
        (STOP + b'Transfer-Encoding: chunked\r\n\r\nd\r\n{"now": true}\r\n0\r\n\r\n', b"400"),
        (STOP + b'Content-Length: all\r\n\r\n{"now": true}', b"400"),
        (STOP + b"Content-Length: 9999999999999\r\n\r\n{", b"400"),
        (STOP + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{", b"400"),
        (STOP + b"Content-Length: 13\r\n\r\n", b"400"),
    ],
)
def test_a_request_that_makes_no_sense_or_whose_body_is_not_all_there_is_refused(
    server: ControlServer, folder: Path, sent: bytes, status: bytes
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(folder / socket_name(PLAN)))
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        assert connection.makefile("rb").readline().split()[1] == status
    assert list(server.control.taken(changes=False)) == []


def test_an_unknown_field_of_a_request_is_named_with_those_that_there_are(
    server: ControlServer, folder: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(folder / socket_name(PLAN)))
        connection.sendall(request_of("POST", "/pause", '{"for": 600}'))
        answer = json.loads(connection.makefile("rb").readlines()[-1])
    assert answer["error"] == "not a valid request: /pause has no field for"
    assert answer["hint"] == "The fields of /pause are reason, for_s: see `drainer pause --help`."


def test_a_stop_is_kept_for_a_drain_that_is_still_starting(server: ControlServer) -> None:
    assert "still starting" in client.request(PLAN, Stop())[0]
    [kept] = server.control.taken(changes=False)
    assert kept.request == Stop()


def test_watchers_see_how_it_ended_and_those_who_come_later_that_none_runs() -> None:
    with ControlServer(PLAN, ABOUT, Control(LocalSettings()), lambda: None) as server:
        server.observe(a_status())
        reports = client.watch(PLAN)
        assert next(reports).status is not None
        server.end(a_summary())
    *_, last = reports
    assert last.ended is not None
    assert last.ended["status"] == "done"
    with pytest.raises(Refused, match="none of your drains"):
        client.request(PLAN, Pause())


def test_a_process_that_is_gone_before_the_end_is_reported(folder: Path) -> None:
    line = a_report({}, {}) + b"\n"
    for sent in ([], [line], [line, b"{"]):
        with (
            answering(folder / socket_name(PLAN), sent),
            pytest.raises(Interrupted, match=r"gone|truncated"),
        ):
            list(client.watch(PLAN))
        (folder / socket_name(PLAN)).unlink()
