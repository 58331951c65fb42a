"""The socket of a drain: what comes through it, and who else may lie beside it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from builders import a_status, a_summary, changed
from drainer.control import client, place
from drainer.control.client import Found
from drainer.control.place import folders, make_folder, socket_name
from drainer.control.server import ControlServer
from drainer.control.wire import About, Answer, Question, decode_status, encode_status
from drainer.engine.control import Control, Pause, Stop
from drainer.engine.status import DeadlineStatus, Paused, Repr
from drainer.errors import DrainerError, Interrupted, Refused, UsageError
from drainer.model.codec import encode
from drainer.model.event import Event, EventKind
from drainer.store.plan_file import PlanPlace
from drainer.view.live import lay_out
from drainer.view.running import found_as_json, running_page, state_of
from kafka.topic import eventually
from privileges import NOBODY, without_privileges
from view import samples

PLAN = Path("orders.plan.json")
ABOUT = About(str(PLAN), "orders", "indexer", "d-1", "process", samples.ENDED.isoformat())
EVENT = Event(samples.ENDED.isoformat(), EventKind.PAUSED, "ana@db1", "failover")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime folder of nobody else."""
    runtime = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    return runtime / "drainer"


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer(PLAN, ABOUT, Control(), lambda: None) as made:
        yield made


def here(folder: Path) -> list[Found]:
    return [each for each in client.running() if each.path.parent == folder]


@contextmanager
def answering(path: Path, sent: Iterable[bytes]) -> Iterator[None]:
    """A socket whose process sends this to whoever connects, and then hangs up."""
    over = threading.Event()
    make_folder(path.parent)

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
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


def test_a_status_is_shown_there_as_it_is_here(server: ControlServer, folder: Path) -> None:
    odd = (("\ud800", 5), (b"\x00k", 4), (float("nan"), 3), (10**30, 2), (("a", 1), 1))
    deadline = DeadlineStatus(samples.ENDED, 60.0, -5.0, missed=True)
    rich = a_status(
        3,
        hottest=odd,
        paused=Paused(EVENT, samples.ENDED.isoformat()),
        changes=(EVENT,),
        changes_total=1,
        deadline=deadline,
        auto=samples.AUTO,
    )
    for status in (a_status(), rich, changed(rich, engine=samples.on_spark(7))):
        server.observe(status)
        [found] = here(folder)
        assert found.status is not None
        shown = changed(status, hottest=tuple((Repr(repr(k)), n) for k, n in status.limits.hottest))
        assert lay_out(found.status, 200, 60) == lay_out(shown, 200, 60)
        assert found.pid == os.getpid()
        assert found_as_json(found)["state"] == state_of(found)
        assert "orders" in str(running_page([found]))
    assert decode_status(encode_status(rich)).control.changes == (EVENT,)


def test_who_says_nothing_or_nonsense_is_listed_and_holds_up_nobody(
    server: ControlServer, folder: Path
) -> None:
    server.observe(a_status())
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

    answers += [b""] * 50  # each waits for a question that it never answers
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


def an_answer(about: dict[str, str], part: dict[str, int]) -> bytes:
    answer = json.loads(encode(Answer(about=ABOUT, status=encode_status(a_status()))))
    answer["about"] |= about
    answer["status"]["progress"]["partitions"][0] |= part
    return json.dumps(answer).encode() + b"\n"


ABSURD = (
    an_answer({"since": "0001-01-01T00:00:00+14:00"}, {}),
    an_answer({}, {"end": 10**400}),
    an_answer({}, {"watermark": -1}),
)


@pytest.mark.parametrize("sent", ABSURD)
def test_absurd_values_are_no_answer(folder: Path, sent: bytes) -> None:
    with answering(folder / "odd.sock", [sent]):
        [found] = here(folder)
    assert state_of(found) == "silent"
    assert running_page([found])


def test_what_a_process_reports_fills_no_screen(folder: Path) -> None:
    with answering(folder / "odd.sock", [an_answer({"plan": "p" * 100_000}, {})]):
        [found] = here(folder)
    assert state_of(found) == "draining"
    assert len(str(running_page([found]))) < 3_000


def byte_by_byte() -> Iterator[bytes]:
    while True:
        yield b" "


def test_one_deadline_holds_for_a_whole_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LOOK_S", 0.2)
    monkeypatch.setattr(client, "ANSWERED_S", 0.2)
    with answering(folder / socket_name(PLAN), byte_by_byte()):
        [found] = here(folder)
        assert state_of(found) == "silent"
        with pytest.raises(Interrupted, match="timed out"):
            client.ask(PLAN, Question("pause"))


def test_an_answer_has_a_greatest_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_MOST", 1 << 16)
    flood = repeat(b" " * 1000)
    with (
        answering(folder / socket_name(PLAN), flood),
        pytest.raises(Interrupted, match="more than 65,536 bytes"),
    ):
        client.ask(PLAN, Question("pause"))


def test_the_answers_of_all_drains_share_a_size(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may make hundreds of sockets that root's ps reads at once."""
    answer = an_answer({}, {})
    monkeypatch.setattr(client, "ANSWERS_MOST", len(answer))
    with answering(folder / "one.sock", [answer]):
        assert list(map(state_of, here(folder))) == ["draining"]
        with answering(folder / "two.sock", repeat(b" " * 1000)):
            assert list(map(state_of, here(folder))) == ["draining", "silent"]


def test_a_link_to_the_socket_of_another_drain_is_not_followed(
    server: ControlServer, folder: Path
) -> None:
    other = Path("other.plan.json")
    (folder / socket_name(other)).symlink_to(folder / socket_name(PLAN))
    assert len(here(folder)) == 1
    with pytest.raises(Refused, match="none of your drains"):
        client.ask(other, Question("pause"))


for_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of another user's sockets."""
    with TemporaryDirectory(prefix="tmp-") as tmp:
        Path(tmp).chmod(0o1777)
        monkeypatch.setattr(place, "_TMP", Path(tmp))
        yield Path(tmp, f"drainer-{NOBODY}")


def other_users_server(plan: PlanPlace) -> ControlServer:
    """Of a drain of another user, in this process: the kernel reports who began to listen."""
    return ControlServer(plan, replace(ABOUT, plan=str(plan)), Control(), lambda: None)


@for_root
def test_root_finds_another_user_s_drain_and_steers_it_by_name_alone(theirs: Path) -> None:
    plan = "s3://backlogs/orders.plan.json"
    with ExitStack() as stack:
        with without_privileges():
            server = stack.enter_context(other_users_server(plan))
        server.observe(a_status())
        [found] = here(theirs)
        assert (found.uid, found_as_json(found)["user"]) == (NOBODY, "nobody")
        assert "nobody" in str(running_page([found]))
        with pytest.raises(Refused, match="none of your drains") as refused:
            client.ask(plan, Question("stop"))
        assert "--user" in str(refused.value.hint)
        assert client.ask(plan, Question("stop"), NOBODY) == (
            "it is still starting, and stops then",
        )


@for_root
def test_root_steers_the_drain_of_a_plan_file_s_owner(theirs: Path, tmp_path: Path) -> None:
    plan = tmp_path / "orders.plan.json"
    with ExitStack() as stack:
        with without_privileges():
            stack.enter_context(other_users_server(plan))
        with pytest.raises(Refused, match="none of your drains"):
            client.ask(plan, Question("stop"))
        plan.touch()
        with pytest.raises(Refused, match="none of your drains"):
            client.ask(plan, Question("stop"))
        os.chown(plan, NOBODY, NOBODY)
        assert client.ask(plan, Question("stop"))


@for_root
def test_another_user_s_drain_hands_root_no_command_to_copy(theirs: Path) -> None:
    with ExitStack() as stack:
        with without_privileges():
            server = stack.enter_context(other_users_server(PLAN))
        answers = client.watch(PLAN, Question("watch"), NOBODY)
        server.observe(a_status())
        next(answers)
        server.end(a_summary(plan_path="x; rm -rf ~", status="halted", exit_code=5))
        server.__exit__()
        [ended] = [each.ended for each in answers if each.ended]
    assert (ended["status"], ended["resume"]) == ("halted", None)


@for_root
def test_the_socket_of_another_user_s_folder_leads_only_to_that_user(theirs: Path) -> None:
    roots = theirs / socket_name(PLAN)
    with answering(roots, [an_answer({}, {})]):
        for path in (theirs, roots):
            os.chown(path, NOBODY, NOBODY)
        [found] = here(theirs)
        assert state_of(found) == "silent"
        with pytest.raises(Refused, match="another user's process"):
            client.ask(PLAN, Question("stop"), NOBODY)


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
        server.observe(a_status())
        answers = client.watch(PLAN, Question("watch"))
        assert next(answers).status is not None
        server.end(a_summary())
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
