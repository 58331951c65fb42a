"""A plan is not believed for lying there: whose it is, where it connects, and what it loads."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from builders import changed
from command.conftest import operations
from command.process import Command
from drainer.model.account import StateReference
from drainer.model.plan import OffsetPlan
from drainer.store.plan_file import PlanFile
from kafka.topic import Topic

SOMEBODY = 65534
KEYS = {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "hush"}
LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=p\n"
for_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Trap:
    """A broker that is none, and a handler that leaves a mark when it is imported."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.brokers = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.handler = folder / "trap.py"
        self._ran = folder / "ran"
        self.handler.write_text(
            f"from pathlib import Path\nPath({str(self._ran)!r}).touch()\ndef handle(sub): pass\n"
        )

    def is_untouched(self) -> bool:
        try:
            self._socket.accept()[0].close()
        except BlockingIOError:
            return not self._ran.exists()
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Trap]:
    made = Trap(tmp_path)
    yield made
    made.close()


@pytest.fixture
def plan(command: Command) -> Path:
    """The plan of a drain that is done."""
    topic = command.topic(operations(10))
    command.drain(topic)
    return command.plan(topic)


def forge(plan: Path, **changes: object) -> None:
    file = PlanFile(plan)
    known: OffsetPlan = file.load().plan
    file.write(changed(known, **changes))


def client_file(command: Command, content: str) -> Path:
    path = command.home / "client.properties"
    path.write_text(content)
    return path


def test_the_client_file_says_where_to_connect_and_not_the_plan(
    command: Command, plan: Path, trap: Trap
) -> None:
    path = client_file(command, f"bootstrap.servers={command.bootstrap}\n")
    forge(plan, bootstrap_servers=trap.brokers, client_config=str(path))

    command("plan", "verify", str(plan))
    command("plan", "verify", str(plan), "--client-config", str(path))
    command("plan", "verify", str(plan), "-b", command.bootstrap)
    assert trap.is_untouched()


def test_a_login_does_not_go_where_the_plan_alone_says(
    command: Command, plan: Path, trap: Trap
) -> None:
    path = client_file(command, LOGIN)
    forge(plan, bootstrap_servers=trap.brokers, client_config=str(path))

    for more in ([], ["--client-config", str(path)]):
        outcome = command("plan", "verify", str(plan), *more, code=3)
        assert "--yes" in outcome.hint
        assert trap.brokers in outcome.err
        assert str(path) in outcome.err
    assert trap.is_untouched()


def test_resume_asks_before_it_connects_or_loads_anything(
    command: Command, plan: Path, trap: Trap
) -> None:
    forge(plan, bootstrap_servers=trap.brokers, handler=f"{trap.handler}")

    outcome = command("resume", str(plan), "--quiet", code=3)

    assert "--yes" in outcome.hint
    assert trap.brokers in outcome.err
    assert str(trap.handler) in outcome.err
    assert trap.is_untouched()


def test_the_state_that_a_plan_names_is_asked_for_before_anything_goes_there(
    command: Command, plan: Path, trap: Trap
) -> None:
    uri = f"s3://drains/d?region=eu-west-1&endpoint=http://{trap.brokers}"
    forge(plan, state=StateReference(uri, 1, 1))

    for words in ("plan show", "plan verify", "plan undo", "resume"):
        outcome = command(*words.split(), str(plan), env=KEYS, code=3)
        assert "--yes" in outcome.hint, words
        assert "s3://drains/d?region=eu-west-1 " in outcome.err, words
        assert trap.brokers not in outcome.err, words
    command("plan", "history", str(plan), env=KEYS)
    command("plan", "take", str(plan), "--to", "mine.json", "--yes", env=KEYS)
    assert trap.is_untouched()


def test_the_endpoint_of_a_state_comes_from_a_person(
    command: Command, plan: Path, trap: Trap
) -> None:
    forge(plan, state=StateReference(f"s3://drains/d?endpoint=http://{trap.brokers}", 1, 1))

    with empty_store() as (endpoint, asked):
        show = ("plan", "show", str(plan))
        private = {**KEYS, "AWS_ENDPOINT_URL": endpoint}
        outcome = command(*show, "--yes", env=private, code=3)
        assert "can't read it" in outcome.error
        assert "/drains" in asked.pop()
        asked.clear()
        command(*show, "--state", f"s3://drains/d?endpoint={endpoint}", env=KEYS, code=3)
        assert "/drains" in asked.pop()
    assert trap.is_untouched()


@contextmanager
def empty_store() -> Iterator[tuple[str, list[str]]]:
    """The address of an object store without a bucket, and what it was asked for."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_a_plan_that_is_not_a_file_is_refused_at_once(command: Command) -> None:
    fifo = command.folder / "p.json"
    os.mkfifo(fifo)
    for words in ("plan show", "plan verify", "plan history", "resume"):
        code = 7 if words == "plan verify" else 3
        outcome = command(*words.split(), str(fifo), code=code)
        assert "not a regular file" in outcome.out + outcome.err


def killed_amid(command: Command) -> Topic:
    """A topic whose drain was killed before it had handled anything."""
    topic = command.topic(operations(30))
    running = command.begin(topic, gate=command.gate)
    command.wait_for(running, "begun", 1)
    running.kill()
    return topic


def test_a_handler_that_has_changed_is_told_once(command: Command) -> None:
    topic = killed_amid(command)
    words = ["resume", str(command.plan(topic)), *command.options()]
    changed = "has changed since the last run"

    assert changed not in command(*words, "--yes", "--until-never", code=2).err
    with command.handlers.open("a") as file:
        file.write("\n# mended\n")
    assert changed in command(*words, "--yes").err
    assert changed not in command(*words, "--yes").err
    assert command.committed(topic) == {0: 30}


def refusals(command: Command, plan: Path, topic: Topic) -> Iterator[str]:
    for words in (
        ["resume", str(plan), "--yes"],
        ["plan", "undo", str(plan), "--yes"],
        ["run", *command.what(topic), "--yes"],
    ):
        outcome = command(*words, code=3)
        assert f"`drainer plan take {plan}`" in outcome.hint
        yield outcome.error


@for_root
def test_the_plan_of_another_user_is_looked_at_taken_and_gone_on_with(command: Command) -> None:
    topic = killed_amid(command)
    plan = command.plan(topic)
    theirs = [path for path in command.folder.iterdir() if path.name.startswith(plan.name)]
    assert len(theirs) > 1, "there is a journal"
    for path in theirs:
        os.chown(path, SOMEBODY, SOMEBODY)

    for error in refusals(command, plan, topic):
        assert "belongs to nobody (uid 65534)" in error
    shown = command("plan", "show", str(plan))
    assert f"warning: {plan} belongs to nobody" in shown.err
    assert str(command.handlers) in shown.out
    assert "--yes" in command("plan", "take", str(plan), code=3).hint

    copy = command.folder / "my copy.json"
    told = command("plan", "take", str(plan), "--to", str(copy), "--yes")
    assert told.hint == f"Resume it: drainer resume '{copy}'"
    assert plan.stat().st_uid == SOMEBODY
    shutil.copy(command.handlers, command.folder / "mine.py")
    command("plan", "take", str(plan), "--handler", "mine.py:OnTheLoop", "--yes")
    command.handlers.unlink()
    command("plan", "verify", str(plan))
    resumed = command("resume", str(plan), *command.options(), "--yes").err
    assert "mine.py:OnTheLoop" in resumed
    assert "code of" not in resumed, "it is the same"
    assert command.committed(topic) == {0: 30}
    assert len(command.record.done()) == 60


def test_client_properties_that_others_can_write_are_not_taken_on_a_plan_s_word(
    command: Command, plan: Path
) -> None:
    path = client_file(command, f"bootstrap.servers={command.bootstrap}\n")
    path.chmod(0o666)
    forge(plan, client_config=str(path))

    outcome = command("plan", "verify", str(plan), code=3)
    assert f"{path} is writable by everyone" in outcome.error
    assert f"--client-config {path}" in outcome.hint
    command("plan", "verify", str(plan), "--client-config", str(path))
