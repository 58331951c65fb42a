"""Kafka rights: each command of the table in docs/howto/permissions.md is tried with exactly the
rights there.

For each right of a command there is a user who has all of its rights but that one, and one who has
no more than is needed. No command may print or leave the password that they all log in with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without a word
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from drainer.errors import Refused, RightMissing
from drainer.kafka.answers import Right as Operation
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.topic import delete_test_topics, find_test_topics
from drainer.probe.probe import rights_by_command
from scenarios.brokers import Broker
from scenarios.fill import create_topic, fill
from scenarios.trust.case import TRY_S, Ended, Stage, ensure, wait_until

PASSWORD = "rights-hush"
LEAST, LACKING = "least", "lacking"
WAIT_S = 30.0
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
HANDLERS = """
import pathlib
import time

import drainer

class Fine(drainer.Handler):
    async def handle(self, sub): ...

class Bad(drainer.Handler):
    def open(self, context):
        self.fixed = "fixed" in context.options

    async def handle(self, sub):
        if sub.message.offset == 7 and not self.fixed:
            raise ValueError("no")

class Waits(Fine):
    def open(self, context):
        folder = pathlib.Path(context.options["folder"])
        (folder / "open").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
"""


@dataclass(frozen=True, slots=True)
class Right:
    """One right, such as ``READ``, ``group``, ``drainer.lock.GROUP``. ``drainer.limits.*`` stands
    for all names that begin so."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        if self.begins:
            return f"{self.operation} on {self.kind}s that begin with {self.begins}"
        return f"{self.operation} on {self.kind} {self.name}"

    @property
    def begins(self) -> str:
        """The beginning of all names that the right is for, if it is for several."""
        return self.name.removesuffix("*") if self.name.endswith("*") else ""

    def of(self, names: Mapping[str, str]) -> Right:
        """Return the right with the names of an attempt in place of TOPIC and the others."""
        return replace(self, name=_named(self.name, names))


def rights_of(command: str) -> list[Right]:
    """Return the least rights of a command, by the page on permissions."""
    return [Right(*each) for each in rights_by_command()[command]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A command of the table as it is tried.

    Attributes:
        command: the command in the table.
        words: what is typed, with the handlers of this module beside it.
        code: the exit code with the least rights.
        before: commands that somebody with all rights runs first, each with its exit code.
        topics: the topics that there are beside TOPIC.
    """

    command: str
    words: str
    code: int = 0
    before: Sequence[tuple[str, int]] = ()
    topics: Sequence[str] = ()


_WHAT = "--topic TOPIC --group GROUP"
_RUN = f"run {_WHAT} --handler h.py"
_HALTS = (f"{_RUN}:Bad --retries 0 --plan PLAN --yes", 5)
_IN_TOPIC = (f"{_RUN}:Bad --retries 0 --plan kafka://PLANS/p --yes", 5)
_RESUME = "resume PLAN --handler h.py:Bad --set fixed=1 --yes"
_DIES = f"{_RUN}:Bad --retries 0 --on-failure dead-letter --yes"
_PRODUCE = f"run {_WHAT} --handler produce --set topic=TO --yes"
_DEAD = "--dead-letter-topic DEAD"
_ON_SPARK = (
    "--master local[2] -o json --report report.html"
    " --spark-conf spark.eventLog.enabled=true"
    " --spark-conf spark.eventLog.compress=false --spark-conf spark.eventLog.dir=file:FOLDER"
)
_SMALL = (
    "--consumer-groups 1 --partitions 2 --max-rate 0.2MB/s --max-producers 4 --trials 2"
    " --bytes 1KiB --warm-up 1s --window 6s"
)

ATTEMPTS = (
    Attempt("lag", "lag --group GROUP --for 100ms"),
    Attempt("inspect", f"inspect {_WHAT}"),
    Attempt("estimate", f"estimate {_WHAT} --handler count --latency 1ms"),
    Attempt("run", f"{_RUN}:Fine --yes"),
    Attempt("run --no-commit", f"{_RUN}:Fine --from earliest --no-commit --yes"),
    Attempt("run --engine spark", f"{_HALTS[0]} --engine spark {_ON_SPARK}", 5),
    Attempt("run --on-failure dead-letter", _DIES, 6),
    Attempt("run --handler produce", _PRODUCE, topics=("TO",)),
    Attempt("run --plan kafka://PLANS", f"{_RUN}:Fine --plan kafka://PLANS --yes"),
    Attempt("plan show kafka://PLANS/NAME", "plan show kafka://PLANS/p --yes", 0, (_IN_TOPIC,)),
    Attempt("resume", _RESUME, 0, (_HALTS,)),
    Attempt("resume --engine spark", f"{_RESUME} --engine spark {_ON_SPARK}", 0, (_HALTS,)),
    Attempt("redrive", f"redrive {_DEAD} --handler h.py:Fine --yes", 0, ((_DIES, 6),)),
    Attempt("dead list", f"dead list {_DEAD}", 0, ((_DIES, 6),)),
    Attempt("dead show", f"dead show 0:0 {_DEAD}", 0, ((_DIES, 6),)),
    Attempt("certify", "certify h.py:Fine --topic TOPIC"),
    Attempt("plan verify", "plan verify PLAN", 0, (_HALTS,)),
    Attempt("plan undo", "plan undo PLAN --yes", 0, (_HALTS,)),
    Attempt("limits", f"limits {_SMALL} --yes {_ON_SPARK}"),
)


def strict_broker(folder: Path, properties: Mapping[str, str] | None = None) -> Broker:
    """Provide a broker where users may do what they are granted, and where a client without a login
    may do anything."""
    most = max(len(rights) for rights in rights_by_command().values())
    users = [LEAST, *(f"{LACKING}-{number}" for number in range(2 * most))]
    return Broker(
        folder,
        sasl_users=dict.fromkeys(users, PASSWORD),
        properties={**AUTHORIZER, **(properties or {})},
        die_with_parent=True,
    )


def try_rights(stage: Stage, attempt: Attempt) -> str:
    """Ensure that every user who lacks one right is refused with its name, and changes nothing.

    A user who has only DESCRIBE in place of READ or DELETE must be refused as well. A user who has
    all of the rights, and no more, must be served.
    """
    names = _prepare(stage, attempt)
    needed = [right.of(names) for right in rights_of(attempt.command)]
    lacking = [(right, [other for other in needed if other != right]) for right in needed]
    lacking += [
        (right, [replace(o, operation="DESCRIBE") if o == right else o for o in needed])
        for right in needed
        if right.operation in ("READ", "DELETE")
    ]
    for number, (_, granted) in enumerate(lacking):
        grant(stage.broker, f"{LACKING}-{number}", granted)
    before = _kept(stage, names)
    for number, (right, _) in enumerate(lacking):
        refused = _give(stage, attempt.words, names, f"{LACKING}-{number}", 3)
        ensure(f"{right} is missing" in refused.err, f"without {right}: {refused.err}")
        ensure("hint: " in refused.err, f"without {right}: no hint")
        ensure(f"Grant {right.operation}" in refused.err, f"without {right}: {refused.err}")
        if "is still there" in refused.err:
            # Brokers report that a topic may not be deleted only once there is one.
            with Cluster.connect(ClientSettings.load(stage.bootstrap), 60) as cluster:
                delete_test_topics(cluster, find_test_topics(cluster))
        ensure(_kept(stage, names) == before, f"without {right}: something was touched")
    _ensure_service(stage, attempt, names, needed)
    return f"{len(needed)} rights are enough, and each that is missing is named"


def try_right_of_tasks(stage: Stage) -> None:
    """Ensure that tasks on Spark name the right if they may no longer read the topic, although the
    driver could."""
    words = f"{_RUN}:Waits --set folder=FOLDER --yes --engine spark {_ON_SPARK}"
    names = _prepare(stage, Attempt("run --engine spark", words))
    needed = [right.of(names) for right in rights_of("run --engine spark")]
    reads = next(right for right in needed if right.kind == "topic")
    grant(stage.broker, LEAST, needed)
    before = _kept(stage, names)
    with ThreadPoolExecutor() as pool, login(stage.broker, LEAST) as least:
        given = pool.submit(_give, stage, words, names, LEAST, 3)
        wait_until(
            lambda: given.done() or (stage.folder / "open").exists(), "no task has begun", TRY_S
        )
        take(stage.broker, reads.name)
        wait_until(lambda: not _has(least, reads), f"the broker leaves {reads}", TRY_S)
        (stage.folder / "go").touch()
        refused = given.result()
    ensure(
        f"error: this user may not read topic {reads.name}: {reads} is" in refused.err,
        refused.err,
    )
    ensure("in a task on Spark" in refused.err, f"it is not of a task: {refused.err}")
    ensure(_kept(stage, names) == before, "something was touched")
    ensure(not [*stage.folder.glob("*.plan*")], "a plan is left behind")


def try_least_rights(stage: Stage, attempt: Attempt, without: str = "") -> str:
    """Serve a user who has the rights of the table and no more. Return the command's output."""
    names = _prepare(stage, attempt)
    rights = rights_of(attempt.command)
    needed = [right.of(names) for right in rights if right.operation != without]
    return _ensure_service(stage, attempt, names, needed)


def _ensure_service(
    stage: Stage, attempt: Attempt, names: Mapping[str, str], needed: Sequence[Right]
) -> str:
    grant(stage.broker, LEAST, needed)
    served = _give(stage, attempt.words, names, LEAST, attempt.code)
    _, left_behind = _kept(stage, names)
    ensure(not left_behind, f"{left_behind} is left behind")
    return served.out + served.err


def grant(broker: Broker, user: str, rights: Sequence[Right]) -> None:
    """Grant rights to a user, and wait until the broker knows."""
    if not rights:
        return
    bindings = [
        AclBinding(
            ResourceType[right.kind.upper()],
            right.begins or right.name,
            ResourcePatternType.PREFIXED if right.begins else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[right.operation],
            AclPermissionType.ALLOW,
        )
        for right in rights
    ]
    with Cluster.connect(ClientSettings.load(broker.bootstrap_servers)) as cluster:
        for future in cluster.admin.create_acls(bindings).values():
            future.result(WAIT_S)
    seen = [right for right in rights if right.operation != "CREATE"]
    with login(broker, user) as cluster:
        wait_until(
            lambda: all(_has(cluster, right) for right in seen),
            f"the broker does not know the rights of {user}",
        )


def take(broker: Broker, name: str | None = None) -> None:
    """Take all rights from everybody, or only the rights to what has this name."""
    anything = cast(str, None)  # as the filter takes it, and its types do not
    taken = AclBindingFilter(
        ResourceType.ANY,
        name or anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    with Cluster.connect(ClientSettings.load(broker.bootstrap_servers)) as cluster:
        cluster.admin.delete_acls([taken])[taken].result(WAIT_S)


@contextmanager
def login(broker: Broker, user: str) -> Iterator[Cluster]:
    """Return a connection as this user."""
    settings = ClientSettings.load(broker.sasl_bootstrap_servers, None, _properties(user))
    with Cluster.connect(settings, 60) as cluster:
        yield cluster


def _has(cluster: Cluster, right: Right) -> bool:
    operation, name = cast(Operation, right.operation), right.begins or right.name
    try:
        if right.kind == "topic":
            cluster.topic(name, operation)
        else:
            cluster.group(name, right=operation)
    except RightMissing:
        return False
    except Refused:
        return True  # The topic may be seen, and is not there yet.
    return True


def _properties(user: str) -> list[str]:
    return [
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=PLAIN",
        f"sasl.username={user}",
        f"sasl.password={PASSWORD}",
    ]


def _prepare(stage: Stage, attempt: Attempt) -> dict[str, str]:
    names = {each: stage.name() for each in ("TOPIC", "GROUP", "TO", "PLANS")}
    names |= {"DEAD": f"{names['TOPIC']}.{names['GROUP']}.dead", "PLAN": "drain.plan.json"}
    names |= {"FOLDER": str(stage.folder)}
    (stage.folder / "h.py").write_text(HANDLERS)
    # Otherwise a user who lacks a right to test topics might have it from another attempt.
    take(stage.broker)
    with Cluster.connect(ClientSettings.load(stage.bootstrap), 60) as cluster:
        for topic in ("TOPIC", *attempt.topics):
            create_topic(cluster.settings, names[topic])
        fill(cluster.settings, names["TOPIC"], [(b"key-%d" % (n % 5), b"{}", 0) for n in range(30)])
        cluster.alter_committed(names["GROUP"], names["TOPIC"], {0: 0})
    for words, code in attempt.before:
        _give(stage, words, names, None, code)
    return names


def _give(
    stage: Stage, words: str, names: Mapping[str, str], user: str | None, code: int | None
) -> Ended:
    where = ["-b", stage.bootstrap]
    if user is not None:
        config = stage.folder / f"{user}.properties"
        config.write_text("\n".join(_properties(user)))
        where = ["-b", stage.broker.sasl_bootstrap_servers, "--client-config", str(config)]
    # With debug, the password must not be in a traceback either.
    env = {"DRAINER_DEBUG": "1"}
    given = stage.drainer(*_named(words, names).split(), *where, code=code, env=env)
    files = (path for path in stage.folder.rglob("*") if path.is_file())
    holding = [
        p for p in files if p.suffix != ".properties" and PASSWORD.encode() in p.read_bytes()
    ]
    ensure(PASSWORD not in given.out + given.err, f"{words}: it prints the password")
    ensure(not holding, f"{words}: the password is in {holding}")
    return given


def _named(text: str, names: Mapping[str, str]) -> str:
    return re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[0]], text)


def _kept(stage: Stage, names: Mapping[str, str]) -> tuple[object, Mapping[str, int]]:
    """Return the committed offsets of the group, and the topics of ``drainer limits``."""
    with Cluster.connect(ClientSettings.load(stage.bootstrap), 60) as cluster:
        return cluster.committed(names["GROUP"], names["TOPIC"], [0]), find_test_topics(cluster)
