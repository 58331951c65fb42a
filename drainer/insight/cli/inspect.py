"""``drainer inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from drainer.cli.connecting import Kafka, connect
from drainer.cli.engines import Engines
from drainer.cli.groups import command, only, option, options, without
from drainer.cli.options import How, HowLong, Limits, Report, Rules, What
from drainer.core.codec import builtins
from drainer.engine.preview import EngineName
from drainer.engine.status import RuleStatus
from drainer.errors import Refused, UsageError
from drainer.insight.cli.estimating import ask, estimate_seconds
from drainer.insight.inspect import SAMPLE_MESSAGES, SAMPLE_MOST, InspectRequest
from drainer.insight.inspect import inspect as look_at
from drainer.insight.view.inspect import (
    show_inspection,
    show_rules_asked,
    write_inspection_report,
)
from drainer.insight.view.reading import ReadingView
from drainer.loader import load_handler
from drainer.message import SubMessage
from drainer.operations.start import Request
from drainer.policy.rules.rule_filter import TOO_MANY_KEYS, RuleFilter
from drainer.spark.settings import EVERY_CORE, SparkLook, java_for_spark
from drainer.view.preview import show_cap
from drainer.view.terminal import Terminal

if TYPE_CHECKING:
    from drainer.insight.spark.inspect import OnSpark


@options("What to drain")
class Looked(What):
    """The backlog that is looked at."""

    group: str = option("--group", help="Consumer group whose backlog it is; it may be active.")
    handler: str | None = option(  # type: ignore[assignment]
        "--handler",
        default=None,
        help="Whose split tells how the work is spread; nothing is handled. Named as for run.",
    )


@options()
class Reading:
    """How much of it is read."""

    sample: int = option(
        "--sample",
        default=SAMPLE_MESSAGES,
        min=1,
        max=SAMPLE_MOST,
        help="Messages to read, evenly over the backlog. More make the shares more certain.",
    )
    full: bool = option(
        "--full",
        default=False,
        help="Read the whole backlog instead of a sample. Ctrl-C ends it.",
    )
    seed: int = option("--seed", default=0, help="Another one, other places to read.")


@options("What it runs on")
class Readers(Engines):
    """Who reads."""

    engine: EngineName = option(
        "--engine",
        default=EngineName.AUTO,
        help="Who reads with --full: this process, or Spark for what is too much for one. auto"
        " takes Spark when a master is named.",
    )
    tasks: int | None = option(
        "--tasks",
        default=None,
        metavar="N",
        help="How many of Spark's tasks read and split, each a range of one partition. Default: as"
        " many as pay, and at least one a core.",
    )

    def look(self, *, full: bool) -> SparkLook | None:
        """Where on Spark the whole backlog is read; None for this process, which reads samples.

        Raises Refused when there is no Java.
        """
        named = self.engine is EngineName.AUTO and self.master is not None
        if not full or not (self.engine is EngineName.SPARK or named):
            return None
        master = EVERY_CORE if self.master is None else self.master.strip()
        look = SparkLook(master, self.spark_conf, self.tasks)
        java_for_spark()
        return look


@command
def inspect(
    what: Annotated[Looked, without("order")],
    kafka: Kafka,
    reading: Reading,
    rules: Annotated[Rules, without("over_limit")],
    how_long: Annotated[HowLong, without("deadline")],
    how: Annotated[How, only("concurrency")],
    readers: Annotated[Readers, only("engine", "master", "spark_conf", "tasks")],
    limits: Limits,
    report: Report,
    terminal: Terminal,
) -> None:
    """Look at a backlog: how bad it is, why, and how long it will be there.

    Reads only: nothing is handled or committed, and the group may be active. With a handler, whose
    split is called and nothing else, it tells how the work is spread over sub-keys, and names a hot
    one; and what rules would leave out. With a latency, too, it warns when retention would delete
    the head of the backlog before a drain ends.

    Examples:

    - `drainer inspect --topic orders --group indexer -b localhost:9092`
    - `drainer inspect --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --full`
    - `drainer inspect --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --full --engine spark`
    - `drainer inspect --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --skip "payload.kind == 'set_email'"`
    """  # noqa: E501 - an example has to be on one line to be copied
    spark = readers.look(full=reading.full)
    asked = rules.over()
    if asked.limit_per_key is not None and not reading.full:
        raise UsageError(
            "what a limit would leave out shows only when all is read", hint="add --full"
        )
    rule_filter = RuleFilter(asked)

    def rule(sub: SubMessage) -> str | None:
        if rule_filter.full:
            raise Refused(TOO_MANY_KEYS, hint="Leave it out: a drain with it would halt.")
        return rule_filter.skips(sub)

    look = InspectRequest(
        topic=what.topic,
        group=what.group,
        handler=load_handler(what.handler) if what.handler else None,
        partitions=what.partitions,
        from_=what.from_,
        until=what.until,
        messages=None if reading.full else reading.sample,
        seed=reading.seed,
        rule=rule if asked else None,
    )
    asking = ask(how_long, how.settings(), None)
    if asking.latency is not None and look.handler is None:
        raise UsageError(
            "how long a drain takes shows only in what the handler's split makes",
            hint="name it with --handler; count has the default one, a sub-message a message",
        )
    settings = kafka.settings()
    survey_all: OnSpark | None = None
    if spark is not None:
        # PySpark is imported only where it is wanted: that takes its time.
        from drainer.insight.spark import inspect as on_spark  # noqa: PLC0415

        file = None if kafka.client_config is None else str(kafka.client_config.absolute())
        connection = on_spark.Connection(kafka.bootstrap_server, file, kafka.client_properties)
        survey_all = on_spark.OnSpark(
            spark, connection, look.handler, asked, terminal.say, verbose=terminal.debug
        )
    with connect(settings) as cluster, ReadingView(terminal) as view:
        found = look_at(cluster, look, view.update, survey_all)
        seconds = None
        if asking.latency is not None and look.handler is not None and found.messages:
            request = Request(
                topic=what.topic,
                group=what.group,
                handler=look.handler,
                partitions=what.partitions,
                from_=what.from_,
                until=what.until,
                rules=asked,
                limits=limits,
            )
            seconds = estimate_seconds(terminal, cluster, request, asking)
    show_inspection(terminal, found, seconds)
    cap = None
    if limits is not None and found.messages and found.bytes:
        cap = limits.cap(found.bytes / found.messages)
        show_cap(terminal, cap, found.messages)
    status = RuleStatus.of(rule_filter) if survey_all is None else survey_all.rule_status
    if asked:
        show_rules_asked(terminal, asked, found, status)
    if terminal.json:
        told: dict[str, object] = {"undecided": dict(status.undecided), "why": dict(status.why)}
        told["drain_seconds"] = seconds
        if cap is not None:
            told["cap"] = builtins(cap)
        terminal.data({**found.as_json(), **told})
    write_inspection_report(terminal, report, found, seconds)
