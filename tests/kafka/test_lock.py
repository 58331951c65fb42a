"""One drain at a time for a group, and what becomes of the others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message

from drainer.engine.runtime import boottime_s
from drainer.errors import BrokerUnreachable, LockHeld, LockLost, Refused, Signalled
from drainer.kafka import lock as lock_module
from drainer.kafka import settings as settings_module
from drainer.kafka.cluster import Cluster
from drainer.kafka.group import GroupInfo
from drainer.kafka.lock import GroupLock, lock_group
from kafka.conftest import SESSION_TIMEOUT_MS
from kafka.topic import Topic, eventually
from scenarios.brokers import Broker

LONG_SESSION_S = 60.0
SOON_S = 20.0  # on a busy machine, and far less than that session
SILENT_S = 2.0
RELEASED_WITHIN_S = 2.5  # less than the time after which a release gives up
MakeLock = Callable[..., GroupLock]


@pytest.fixture
def lock(quick_cluster: Cluster, group: str, topic: Topic) -> Iterator[MakeLock]:
    made: list[GroupLock] = []

    def make(drain_id: str, **named: object) -> GroupLock:
        made.append(GroupLock(quick_cluster, group, topic.name, drain_id, **named))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.release()


class Interposed(Consumer):
    """A consumer whose commits fail while a test wants it, or that gets an answer before others."""

    silent = False
    answer: Message | None = None

    def __init__(self, conf: dict[str, Any]) -> None:
        on_commit = conf.get("on_commit", lambda *_: None)

        def answered(error: KafkaError | None, offsets: Any) -> None:
            on_commit(KafkaError(KafkaError._TIMED_OUT) if self.silent else error, offsets)

        super().__init__(conf | {"on_commit": answered})

    def poll(self, timeout: float = -1) -> Message | None:
        return super().poll(timeout) if self.answer is None else self.answer


@pytest.fixture
def interposed(monkeypatch: pytest.MonkeyPatch) -> type[Interposed]:
    monkeypatch.setattr(settings_module, "Consumer", Interposed)
    monkeypatch.setattr(Interposed, "silent", False)
    monkeypatch.setattr(Interposed, "answer", None)
    return Interposed


@pytest.fixture
def checks(quick_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[bool]]:
    """Whether a lock was sure of itself, each time that its members were looked up from now on."""
    group = quick_cluster.group

    def of(lock: GroupLock) -> list[bool]:
        sure: list[bool] = []

        def noted(*args: Any) -> GroupInfo:
            sure.append(is_sure(lock))
            return group(*args)

        monkeypatch.setattr(quick_cluster, "group", noted)
        return sure

    return of


def join_as(
    topic: Topic,
    group: str,
    client_id: str,
    instance_id: str = "drainer-other",
    session_ms: int = SESSION_TIMEOUT_MS,
) -> Consumer:
    """The membership of another drain, or of an earlier process of one."""
    return topic.live_member(
        lock_group(group),
        client_id,
        group_instance_id=instance_id,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=500,
    )


def is_sure(lock: GroupLock) -> bool:
    return lock_module.boottime_s() < lock.sure_until_s  # type: ignore[attr-defined]


def took_s(call: Callable[[], object]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def test_a_free_lock_is_taken_and_given_back_at_once(
    lock: MakeLock, quick_cluster: Cluster, group: str
) -> None:
    lines: list[str] = []
    first, second = (
        lock(name, session_s=LONG_SESSION_S, report=lines.append) for name in ("a", "b")
    )
    first.acquire()
    assert first.lost is None
    assert is_sure(first)
    assert quick_cluster.group(group).state == "dead", "the drained group is left alone"
    (member,) = quick_cluster.group(lock_group(group)).members
    assert member.client_id == first.client_id
    assert took_s(first.release) < RELEASED_WITHIN_S
    assert not quick_cluster.group(lock_group(group)).members
    second.acquire()
    assert lines == [], "neither waits"


def test_a_second_drain_is_refused_at_once_with_the_name_of_the_first(
    lock: MakeLock, group: str
) -> None:
    first = lock("a", session_s=60.0)
    first.acquire()
    eventually(lambda: boottime_s() - first.confirmed_s < 1, "the coordinator confirms the lock")
    lines: list[str] = []
    second = lock("b", session_s=60.0, report=lines.append)
    begun_s = time.monotonic()
    with pytest.raises(LockHeld, match=group) as raised:
        second.acquire()
    assert time.monotonic() - begun_s < SOON_S
    holder = f"another drain (a on {socket.gethostname()}) holds the lock on group {group}"
    assert str(raised.value) == f"{holder} and is running"
    assert "`drainer ps` names its plan" in (raised.value.hint or "")
    (line,) = lines
    assert line.startswith(holder)
    assert "to see whether it is alive" in line
    assert first.lost is None


def test_a_drain_of_another_topic_of_the_group_is_seen_to_be_alive(
    lock: MakeLock, quick_cluster: Cluster, bootstrap: str, group: str, topic: Topic
) -> None:
    other = Topic(bootstrap, f"{topic.name}-2")
    first = GroupLock(quick_cluster, group, other.name, "a", session_s=LONG_SESSION_S)
    first.acquire()
    try:
        second = lock("b")
        begun_s = time.monotonic()
        with pytest.raises(LockHeld, match="and is running") as raised:
            second.acquire()
        assert time.monotonic() - begun_s < SOON_S
        assert raised.value.drains == ["a"]
    finally:
        first.release()


def test_a_drain_of_another_topic_that_had_the_lock_during_a_sleep_is_noticed(
    lock: MakeLock, quick_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That drain is gone by then. Only its number is left."""
    slept_s, commits = 0.0, quick_cluster.commits
    monkeypatch.setattr(lock_module, "boottime_s", lambda: boottime_s() + slept_s)
    own = lock("a")
    own.acquire()
    monkeypatch.setattr(quick_cluster, "commits", lambda *of: commits(*of) | {("other", 0, 7)})
    slept_s = SESSION_TIMEOUT_MS / 1000 + 1
    eventually(lambda: own.lost is not None, "the lock is lost")
    assert "which is gone by now" in str(own.lost)


def test_a_silent_holder_is_not_said_to_run(
    lock: MakeLock, topic: Topic, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "SILENT_MOST_S", 1.0)
    join_as(topic, group, "drainer-other@db1", session_ms=round(1000 * LONG_SESSION_S)).close()
    with pytest.raises(LockHeld, match="has shown no sign of life for 1s") as raised:
        lock("a").acquire()
    assert "`drainer stop" not in (raised.value.hint or "")


def test_a_wait_for_a_lock_ends_when_it_is_no_longer_wanted(
    lock: MakeLock, topic: Topic, group: str
) -> None:
    def ensure_wanted() -> None:
        raise Signalled("stopped by ann")

    join_as(topic, group, "drainer-other@db1", session_ms=round(1000 * LONG_SESSION_S)).close()
    unwanted = lock("a", ensure_wanted=ensure_wanted)
    with pytest.raises(Signalled):
        unwanted.acquire()


def test_a_holder_that_stands_still_keeps_others_out_for_the_session_of_its_engine(
    lock: MakeLock,
) -> None:
    """The session counts from its last answer, whatever the newcomer's own session is."""
    lines: list[str] = []
    first, second = lock("a", session_s=2.5), lock("b", report=lines.append)
    first.acquire()
    eventually(lambda: first.confirmed_s > 0, "the coordinator confirms the lock")
    first.linger(True)
    first.release()
    second.acquire()
    assert 2.5 < boottime_s() - first.confirmed_s < 2.5 + 4
    assert "another drain (a on " in lines[0]


def test_a_resumed_drain_takes_its_own_lock_over_at_once(
    lock: MakeLock, group: str, topic: Topic
) -> None:
    resumed = lock("a", session_s=LONG_SESSION_S)
    earlier = (resumed.client_id, resumed.instance_id, round(1000 * LONG_SESSION_S))
    join_as(topic, group, *earlier).close()
    assert took_s(resumed.acquire) < SOON_S
    assert resumed.lost is None


def test_a_drain_notices_when_one_of_its_own_name_takes_its_place(
    lock: MakeLock, group: str, topic: Topic
) -> None:
    fenced, other = lock("a"), lock("a")
    fenced.acquire()
    other.acquire()
    eventually(lambda: fenced.lost is not None, "the earlier one notices")
    assert isinstance(fenced.lost, LockLost)
    assert not is_sure(fenced)
    assert took_s(fenced.release) < RELEASED_WITHIN_S


def test_a_client_that_is_fenced_is_replaced_if_no_other_drain_took_the_lock(
    lock: MakeLock, quick_cluster: Cluster, group: str, topic: Topic
) -> None:
    """librdkafka fences itself when a coordinator that stood still answers its join twice."""
    own = lock("a")
    own.acquire()
    twin = join_as(topic, group, own.client_id, own.instance_id)
    eventually(lambda: not is_sure(own), "the lock is not sure of itself")
    twin.close()
    eventually(lambda: is_sure(own), "the lock is sure again")
    assert own.lost is None
    (member,) = quick_cluster.group(lock_group(group)).members
    assert member.client_id == own.client_id


def test_a_lock_that_was_not_confirmed_in_time_is_not_trusted_before_a_check(
    lock: MakeLock,
    interposed: type[Interposed],
    checks: Callable[..., list[bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lock may have been lost and had again, beside another one, without a notice."""
    own = lock("a")
    own.acquire()
    sure = checks(own)
    with monkeypatch.context() as patched:
        patched.setattr(lock_module, "REPLACE_AFTER_S", 3600.0)  # with a new client it checks too
        interposed.silent = True
        eventually(lambda: bool(sure), "it checks that it is alone")
    interposed.silent = False
    assert sure[0] is False
    eventually(lambda: is_sure(own), "the lock is sure again")
    assert own.lost is None


def test_a_lock_outlives_a_broker_that_stands_still(
    own_broker: Broker, own_cluster: Cluster, topic_name: str, group: str
) -> None:
    topic = Topic(own_broker.bootstrap_servers, topic_name)
    own = GroupLock(own_cluster, group, topic.name, "a")
    own.acquire()
    over_s = 2 * SESSION_TIMEOUT_MS / 1000  # by then the broker has given its place up
    try:
        own_broker.pause()
        try:
            eventually(lambda: not is_sure(own), "the lock is not sure of itself")
            eventually(lambda: boottime_s() - own.confirmed_s > over_s, "its session is over")
        finally:
            own_broker.resume()
        eventually(lambda: is_sure(own), "the lock is sure again")
        assert own.lost is None
    finally:
        own.release()


def test_without_the_right_to_it_a_lock_is_refused_or_lost(
    lock: MakeLock,
    quick_cluster: Cluster,
    group: str,
    topic: Topic,
    interposed: type[Interposed],
) -> None:
    own = lock("a")
    own.acquire()

    interposed.answer = Message(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    with pytest.raises(Refused, match="may not hold the lock") as caught:
        GroupLock(quick_cluster, f"{group}-2", topic.name, "b").acquire()
    assert lock_group(f"{group}-2") in (caught.value.hint or "")
    eventually(lambda: own.lost is not None, "the lock is lost")
    assert isinstance(own.lost, LockLost), "nothing may be committed then"
    assert own.lost.exit_code == 4
    assert "may not hold the lock" in str(own.lost)
    assert lock_group(group) in (own.lost.hint or "")


def test_of_some_at_the_same_moment_one_takes_it_and_never_two(
    lock: MakeLock, quick_cluster: Cluster, group: str
) -> None:
    locks = [lock(name) for name in "abc"]
    start = threading.Barrier(len(locks))
    holding: list[GroupLock] = []
    refused: list[LockHeld] = []

    def take(one: GroupLock) -> None:
        start.wait()
        try:
            one.acquire()
            holding.append(one)
        except LockHeld as error:
            refused.append(error)

    with ThreadPoolExecutor(len(locks)) as pool:
        list(pool.map(take, locks))
    (holder,) = holding
    assert len(refused) == 2
    assert holder.lost is None
    (member,) = quick_cluster.group(lock_group(group)).members
    assert member.client_id == holder.client_id


def test_one_that_found_no_holder_before_there_was_one_gives_way(
    lock: MakeLock, quick_cluster: Cluster, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, late = lock("b"), lock("a")  # "a" would come first by name
    empty = quick_cluster.group(lock_group(group))

    def too_early(*_: object) -> GroupInfo:
        early.undo()
        holder.acquire()
        return empty

    with monkeypatch.context() as early:
        early.setattr(quick_cluster, "group", too_early)
        with pytest.raises(LockHeld, match=group) as raised:
            late.acquire()
    assert "another drain (b on " in str(raised.value)
    assert "a on " not in str(raised.value)
    eventually(lambda: is_sure(holder), "the holder is sure again")
    assert holder.lost is None


def test_no_other_drain_is_named_where_the_coordinator_knows_of_none(
    lock: MakeLock, quick_cluster: Cluster, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that has just moved may know of none."""
    monkeypatch.setattr(lock_module, "EXPIRY_MARGIN_S", 0.5 - SESSION_TIMEOUT_MS / 1000)
    empty = quick_cluster.group(lock_group(group))
    monkeypatch.setattr(quick_cluster, "group", lambda *_: empty)
    with pytest.raises(BrokerUnreachable, match="has no members"):
        lock("a").acquire()


def test_a_machine_that_slept_is_not_sure_of_its_lock_until_it_has_checked(
    lock: MakeLock, checks: Callable[..., list[bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the lock goes on then, and the monotonic one of the process does not."""
    slept_s = 0.0
    monkeypatch.setattr(lock_module, "boottime_s", lambda: boottime_s() + slept_s)
    own = lock("a")
    own.acquire()
    sure = checks(own)
    slept_s = SESSION_TIMEOUT_MS / 1000 + 1

    eventually(lambda: bool(sure), "it checks that it is alone")
    assert not sure[0]
    eventually(lambda: is_sure(own), "the lock is sure again")
    assert own.lost is None


def test_a_coordinator_that_stands_still_is_silent_and_one_that_refuses_is_not(
    own_broker: Broker,
    own_cluster: Cluster,
    interposed: type[Interposed],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lock_module, "SILENT_S", SILENT_S)
    own_cluster.create_topic("silence", 1)
    held = GroupLock(own_cluster, "g-silence", "silence", "a")
    held.acquire()
    try:
        assert held.silence is None
        interposed.silent = True
        eventually(lambda: boottime_s() - held.confirmed_s > SILENT_S + 1, "none is confirmed")
        assert held.silence is None, "the coordinator answers"
        interposed.silent = False
        eventually(lambda: is_sure(held), "it is confirmed")
        own_broker.pause()
        try:
            eventually(lambda: held.silence is not None, "the silence is noticed")
            name, since_s = held.silence or ("", 0.0)
            assert own_cluster.settings.bootstrap_servers in name
            assert SILENT_S <= boottime_s() - since_s < 10.0
        finally:
            own_broker.resume()
        eventually(lambda: held.silence is None, "it answers again")
    finally:
        held.release()
