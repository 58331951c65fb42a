"""Requests to a group's coordinator. A child process makes them, because they may end the process.

When the connection to the coordinator drops, librdkafka (2.16) uses the memory of the request after
it has freed it, which ends the process (issues 3663 and 4605; pull request 5397 has the fix).
Reading and writing offsets through a consumer is safe.
"""

from __future__ import annotations

import contextlib
import resource
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, Literal

import orjson
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from drainer.host.forks import keep_from_children
from drainer.host.process import python_module
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings

ANSWER_S = 2.0  # How much longer to wait than the request's own timeout.
START_S = 5.0  # How much longer to wait if the child has to start first.

UNREADABLE_TRIES = 5  # Some metadata is read differently each time (``_commits``).

Operation = Literal["describe", "list", "groups", "commits", "pending"]


class CoordinatorProcess:
    """Makes requests to coordinators in a child process, which the first request starts.

    The child ends with this process. It gets the settings through a pipe, because they may hold
    secrets.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._child: subprocess.Popen[bytes] | None = None
        self._busy = threading.Lock()

    def request(self, what: Operation, group: str, timeout_s: float, *more: Any) -> Any:
        """Make a request about a group. Returns JSON values. Raises KafkaException.

        - ``describe`` returns an object with ``state``, ``members`` and ``operations``. Each member
          has its id, client and host, the id of a static member, and the partitions that it reads.
        - ``list`` returns the names of the groups of this name, of any kind.
        - ``groups`` describes the groups of this name, or all groups if it is empty. Each has
          ``name``, ``state`` and ``members``, which are pairs of a client and the partitions that
          it reads. The state of a streams group or a share group is ``unknown``. A group that could
          not be described has an ``error``.
        - ``commits`` takes further names of groups. It returns all committed offsets of each group,
          each with its topic and partition, or an error code and a text.
        - ``pending`` looks for open transactions that are about to commit offsets for the group. It
          takes a topic and its partitions. It returns pairs of a partition and its committed
          offset, which is negative if there is none, and a list of the partitions for which a
          transaction is about to commit.
        """
        with self._busy:
            try:
                child, start_s = self._started()
                request = [what, group, timeout_s, *more]
                answer = _exchange(child, request, timeout_s + ANSWER_S + start_s)
            except (OSError, ValueError) as error:  # The child has died, or hangs.
                self._end()
                text = f"the process for requests to coordinators ended ({error})"
                raise KafkaException(KafkaError(KafkaError._TRANSPORT, text)) from error
            except BaseException:
                # The child's answer must not be taken for the answer to a later request.
                self._end()
                raise
            if "error" not in answer:
                return answer["found"]
            refusal = KafkaError(*answer["error"])
            if refusal.code() < 0:
                # The error comes from the child's client, which may not find a moved broker.
                self._end()
            raise KafkaException(refusal)

    def close(self) -> None:
        """End the child, unless another thread still waits for its answer."""
        if self._busy.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._busy.release()

    def _started(self) -> tuple[subprocess.Popen[bytes], float]:
        if self._child is not None and self._child.poll() is None:
            return self._child, 0.0
        self._end()
        child = self._child = subprocess.Popen(
            python_module(__name__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # librdkafka prints there why it ends the process.
            start_new_session=True,  # A Ctrl-C in the terminal must not reach the child.
        )
        for pipe in filter(None, (child.stdin, child.stdout)):
            keep_from_children(pipe)  # The child ends when the last copy of the pipe is closed.
        kept = self._settings
        _write(child, [kept.bootstrap_servers, dict(kept.properties), dict(kept.extras)])
        return child, START_S

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None
                    pipe.close()


def _exchange(child: subprocess.Popen[bytes], request: Any, timeout_s: float) -> dict[str, Any]:
    assert child.stdout is not None
    _write(child, request)
    answers = select.poll()
    answers.register(child.stdout, select.POLLIN)
    if not answers.poll(timeout_s * 1000):
        raise TimeoutError("no answer in time")
    answer: dict[str, Any] = orjson.loads(child.stdout.readline())
    return answer


def _write(child: subprocess.Popen[bytes], value: Any) -> None:
    assert child.stdin is not None
    child.stdin.write(orjson.dumps(value) + b"\n")
    child.stdin.flush()


def _serve() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests = map(orjson.loads, sys.stdin.buffer)
    settings = ClientSettings(*next(requests))
    admin = settings.admin(ClientLog())
    for what, group, timeout_s, *more in requests:
        try:
            answer: dict[str, Any] = {"found": _serve_one(admin, what, group, timeout_s, *more)}
        except KafkaException as error:
            answer = {"error": [error.args[0].code(), error.args[0].str()]}
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()


def _serve_one(admin: Any, what: Operation, group: str, timeout_s: float, *more: Any) -> Any:
    if what == "list":
        # list_consumer_groups() leaves out streams groups and share groups. Only this older
        # function, which is deprecated, lists groups of all kinds.
        return [each.id for each in admin.list_groups(group, timeout_s)]
    if what == "groups":
        return _groups(admin, group, timeout_s)
    if what == "commits":
        return _commits(admin, [group, *more], timeout_s)
    if what == "pending":
        return _pending(admin, group, timeout_s, *more)
    answers = admin.describe_consumer_groups(
        [group], request_timeout=timeout_s, include_authorized_operations=True
    )
    found = answers[group].result()
    return {
        "state": found.state.name,
        "members": [
            [
                *(m.member_id, m.client_id, m.host, m.group_instance_id),
                [[p.topic, p.partition] for p in m.assignment.topic_partitions],
            ]
            for m in found.members
        ],
        "operations": [each.name for each in found.authorized_operations or ()],
    }


def _groups(admin: Any, name: str, timeout_s: float) -> list[dict[str, Any]]:
    found = {
        each.id: {"name": each.id, "state": each.state.lower(), "members": []}
        for each in admin.list_groups(name or None, timeout_s)
        if each.protocol_type in ("", "consumer")  # Kafka Connect has groups, too.
    }
    active = [group for group, each in found.items() if each["state"] != "empty"]
    answers = admin.describe_consumer_groups(active, request_timeout=timeout_s) if active else {}
    for group, answer in answers.items():
        try:
            one = answer.result()
        except KafkaException as error:  # Its coordinator may be away, and others are there.
            found[group]["error"] = error.args[0].str()
            continue
        found[group]["state"] = one.state.name.lower().replace("dead", "unknown")
        for member in one.members:
            reads = [[p.topic, p.partition] for p in member.assignment.topic_partitions]
            client = f"{member.client_id} on {member.host.lstrip('/')}"
            found[group]["members"].append([client, reads])
    return [*found.values()]


def _commits(admin: Any, groups: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """Read all committed offsets of groups, with a request for each group, all at the same time.

    librdkafka (2.16) adds leftover bytes to metadata that other clients have committed. If these
    are not UTF-8, the whole answer can't be read, and the next one may be read.
    """
    found: dict[str, Any] = {}
    for _ in range(UNREADABLE_TRIES):
        asked = {
            group: admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=timeout_s
            )[group]
            for group in groups
            if group not in found
        }
        for group, answer in asked.items():
            with contextlib.suppress(UnicodeDecodeError):
                try:
                    places = answer.result().topic_partitions
                    found[group] = [[p.topic, p.partition, p.offset] for p in places]
                except KafkaException as error:
                    found[group] = {"error": [error.args[0].code(), error.args[0].str()]}
    unread = [KafkaError.UNKNOWN, "the metadata of its commits can't be read"]
    return {group: found.get(group, {"error": unread}) for group in groups}


def _pending(
    admin: Any, group: str, timeout_s: float, topic: str, partitions: Sequence[int]
) -> Any:
    places = [TopicPartition(topic, number) for number in partitions]
    whole = [ConsumerGroupTopicPartitions(group, places)]

    def read(*, stable: bool) -> Any:
        answers = admin.list_consumer_group_offsets(
            whole, require_stable=stable, request_timeout=timeout_s
        )
        return answers[group].result().topic_partitions

    pending = KafkaError.UNSTABLE_OFFSET_COMMIT
    unstable = [p.partition for p in read(stable=True) if p.error and p.error.code() == pending]
    return [[p.partition, p.offset] for p in read(stable=False)], unstable


if __name__ == "__main__":
    _serve()
