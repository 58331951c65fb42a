"""The contract of a container: what drainer needs of it, and what it keeps to there."""

from __future__ import annotations

import json
import re
import signal
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from random import Random, randrange
from typing import Any

import pytest
import yaml

from command.conftest import distinct, operations
from command.container import UID, Container, Pod, config_map
from command.process import Command
from command.record import Record, check_repeats
from docs.pages import ROOT
from drainer.job.manifest import HANDLERS
from drainer.kafka.lock import lock_group
from kafka.topic import Topic, eventually

PLAN = "/plans/orders.plan.json"
PLACES = (PLAN, "kafka://drainer-plans")  # of plans that outlive a node: a shared folder, a topic
PODS, CONCURRENCY = 8, 8


@pytest.fixture
def container(command: Command, tmp_path: Path) -> Container:
    """A container with the recording handler of a ConfigMap, whose record is beside the plans."""
    handlers = config_map(tmp_path / "handlers", {"recorder.py": command.handlers.read_text()})
    (tmp_path / "containers").mkdir()
    plans = tmp_path / "plans"
    plans.mkdir()
    command.record = Record(plans / "record")
    command.record.path.touch()
    command.record.path.chmod(0o666)  # for the handlers of several users
    command.gate = plans / "gate"
    return Container(tmp_path / "containers", plans, {HANDLERS: handlers})


def args_of(
    command: Command, topic: Topic, *more: str, plan: str = PLAN, **options: object
) -> list[str]:
    """Return the arguments of the manifest that ``drainer job`` prints."""
    what = [*command.what(topic), "--from", "earliest", "--tune", "max-doubt=0", "--plan", plan]
    sets = [f"{n}={v}" for n, v in {"record": "/plans/record", **options}.items()]
    given = [word for text in sets for word in ("--set", text)]
    printed = command("job", *what, *given, *more).out
    (job,) = (each for each in yaml.safe_load_all(printed) if each["kind"] == "Job")
    args: list[str] = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"{HANDLERS}/recorder.py:OnTheLoop" in args
    # Containers of this test share the network of the machine.
    return ["127.0.0.1:0" if each == "0.0.0.0:9464" else each for each in args]


def answer(pod: Pod, code: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pod.ends(code))
    return found


def test_a_pod_without_a_name_a_home_and_a_place_to_write_runs_the_job(
    command: Command, container: Container
) -> None:
    topic = command.topic(operations(40))
    pod = container.start(*args_of(command, topic, pause_ms=20))
    assert answer(pod, 0)["status"] == "done"

    command.ensure_drained(topic, once=True)
    assert {line["event"] for line in map(json.loads, pod.err.splitlines())} >= {"begin", "summary"}
    plan = json.loads((container.plans / "orders.plan.json").read_bytes())
    assert {each["by"] for each in plan["history"]} == {f"{UID}@pod-0"}
    left = {path.name for path in container.plans.iterdir()}
    assert left == {"orders.plan.json", "record"}
    again = container.start(*args_of(command, topic, pause_ms=20), uid=UID + 1)
    assert answer(again, 0)["ended_before"]


def ok(pod: Pod, path: str) -> bool:
    """Whether a probe of the manifest succeeds."""
    (base,) = re.findall(r"metrics: (http://\S+)metrics", pod.err)
    try:
        with urllib.request.urlopen(base + path, timeout=10) as found:
            return bool(found.status == 200)
    except urllib.error.HTTPError:
        return False


def is_imported(pod: Pod) -> bool:
    """Whether the process handles SIGTERM, which is the first thing that drainer does."""
    if pod.first is None:
        return False
    (caught,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pod.first}/status").read_text())
    return bool(int(caught, 16) >> signal.SIGTERM - 1 & 1)


@pytest.mark.parametrize(
    "phase",
    [
        "importing",
        "draining",
        pytest.param("waiting for the lock", marks=pytest.mark.long),
        pytest.param("ending", marks=pytest.mark.long),
    ],
)
def test_a_sigterm_leaves_a_true_plan_and_a_released_lock_and_exit_code_4(
    command: Command, container: Container, phase: str
) -> None:
    topic = command.topic(distinct(40))
    args = args_of(command, topic, "-c", "4", "-X", "session.timeout.ms=20000", gate="/plans/gate")
    pod = container.start(*args)
    if phase == "importing":
        eventually(lambda: is_imported(pod), "it handles SIGTERM", 60)
    else:
        eventually(lambda: len(command.record.begun()) == 4 or not pod.running, "it drains", 60)
    if phase == "waiting for the lock":
        pod.kill()
        pod = container.start(*args, uid=UID + 1)
        pod.prints("to see whether it is alive")
    if phase == "draining":
        assert ok(pod, "healthz")
        eventually(lambda: ok(pod, "readyz"), "it is ready", 60)
    pod.signal(signal.SIGTERM)
    if phase == "draining":
        pod.prints("stopping: interrupted by SIGTERM")
        command.gate.touch()
    elif phase == "ending":
        pod.prints("stopping: interrupted by SIGTERM")
        pod.signal(signal.SIGTERM)  # A person or a node that does not wait.

    pod.ends(4, within_s=30)

    left = {path.name for path in container.plans.iterdir()} - {"record", "gate"}
    expected = {"importing": set()}.get(phase, {"orders.plan.json"})
    assert {name for name in left if ".journal-" not in name} == expected
    if phase != "waiting for the lock":  # The lock of the killed pod expires by itself.
        assert not command.cluster.group(lock_group(command.group(topic))).members
    command.gate.touch()
    assert answer(container.start(*args, uid=UID + 2), 0)["status"] == "done"
    command.ensure_drained(topic, once=phase in ("importing", "draining"))


def await_done(command: Command, pod: Pod, count: int) -> None:
    """Wait until so many sub-messages are done, or the pod has ended."""

    def found() -> bool:
        return len(command.record.done()) >= count or not pod.running

    eventually(found, f"{count} are done", 120)


def test_a_job_gets_the_processor_that_the_drain_is_estimated_to_take(command: Command) -> None:
    topic = command.topic(distinct(50))
    words = (*command.what(topic), "--from", "earliest", "--latency", "10ms")
    printed = command("job", *words).out
    assert re.search(r"# The drain is estimated to take \d+% of a core \(--latency 10ms\)", printed)
    (cores,) = re.findall(r"requests: {cpu: (\d+)m", printed)
    assert 100 <= int(cores) <= 1_000


def test_the_image_is_built_from_what_is_here_and_passes_signals_on() -> None:
    text = (ROOT / "deploy/Containerfile").read_text()
    copied = {path for line in re.findall("^COPY ([^-].*) ", text, re.M) for path in line.split()}
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, packages = found["project"], found["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {project["readme"], *project["license-files"], "pyproject.toml"}
    assert copied == needed | {*packages["packages"]}
    assert all((ROOT / path).exists() for path in copied)
    assert '\nENTRYPOINT ["tini", "--", "drainer"]\n' in text
    assert "\nUSER 10001:0\n" in text, "a number, so that runAsNonRoot can be checked"
    (extras,) = re.findall(r"# .*EXTRAS=(\S+)", text)
    assert {*extras.split(",")} <= project["optional-dependencies"].keys()


@pytest.mark.long
@pytest.mark.parametrize("plan", PLACES)
def test_a_night_in_pods_that_are_killed_evicted_and_lost_with_their_nodes(
    command: Command, container: Container, plan: str
) -> None:
    """The same manifest again and again, by operators of different names, until it is done.

    A pod's temporary folder is gone with it, so each one begins as on another node.
    """
    seed = randrange(10**6)
    print(f"seed {seed}")
    random = Random(seed)
    topic = command.topic(operations(300, lanes=40), partitions=2)
    at_once = ("-c", str(CONCURRENCY), "-X", "session.timeout.ms=3000", "--tune", "grace=2s")
    args = args_of(command, topic, *at_once, plan=plan, pause_ms=20)
    killed: set[int] = set()
    for night in range(1, PODS + 1):
        pod = container.start(*args, uid=UID + night)
        at_least = len(command.record.done()) + random.randrange(1, 60)
        await_done(command, pod, at_least)
        if not pod.running:
            break
        if random.random() < 0.6:
            pod.kill()
            killed.add(night)
        else:
            pod.signal(signal.SIGTERM)
            assert answer(pod, 4)["status"] == "interrupted"
    # An operator goes on elsewhere, by the same arguments, and hands over to consumers.
    pod = container.start(*args, "--hand-over", "1m", uid=UID)
    pod.prints("drainer watches them")
    command.ensure_drained(topic)
    member = topic.live_member(command.group(topic), "indexer-7")
    for number in range(2):
        topic.produce(["[]"], partition=number)

    def has_committed() -> bool:
        if (message := member.poll(0.1)) is not None and not message.error():
            member.commit(message=message, asynchronous=False)
        return command.committed(topic) == {0: 301, 1: 301}

    eventually(has_committed, "the consumer takes over")
    done = answer(pod, 0)
    member.close()
    assert (
        done["hand_over"]["verdict"]
        == "handed over: offsets show no gap, no overlap in 2 partitions"
    )
    # The Job is repeated after that, and moves no offset of the consumers.
    again = answer(container.start(*args, uid=UID + 1), 0)
    assert command.committed(topic) == {0: 301, 1: 301}
    check_repeats(command.record.lines(), killed, CONCURRENCY, len(killed))
    assert (done["ended_before"], again["ended_before"]) == (None, done["history"][-1]["at"])
    began = [each for each in done["history"] if each["what"] in ("begun", "resumed")]
    assert len({each["by"] for each in began}) == len(began) > PODS / 2
    assert {each["what"] for each in done["history"]} <= {"begun", "resumed", "ended"}
