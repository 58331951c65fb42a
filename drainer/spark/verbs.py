"""Verbs for programs on Spark: read messages, split them, and handle the sub-messages.

Each of them takes a DataFrame and returns one, so they can be composed with all that Spark has. A
drain does the same slice by slice, with a lock, a plan and commits around it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import __version__ as version
from pyspark.sql import functions as columns

from drainer.api import AnyHandler, Client, client_settings, handler_of, noting_hints, of_types
from drainer.errors import BadExpression, UsageError, raised_as
from drainer.kafka.cluster import Cluster
from drainer.kafka.dead_letters import check_dead_letter_topic, make_dead_letter_topic
from drainer.kafka.settings import ClientSettings
from drainer.loading.loader import NO_EXTRAS, LoadedHandler
from drainer.model.predicate import Predicate
from drainer.model.settings import DEFAULT_FAILURES, FailureSettings, Limit, OnFailure
from drainer.model.terms import BY_HANDLER, PayloadSettings
from drainer.spark.reading.columns import COLUMNS
from drainer.spark.session.session import Session
from drainer.spark.session.shipping import ship
from drainer.spark.task.journal import begin_journal
from drainer.spark.task.outcomes import OUTCOMES, TableHandler
from drainer.spark.task.table import MESSAGES, SUBS, TableSplitter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
else:
    DataFrame = SparkSession = Any  # For the types of arguments.

_LAZY = (
    "handle() without a journal: each action on its outcomes calls the handler again, and Spark"
    " calls it again for a task that it repeats. Give it journal=…, or run one action only."
)
# The types to which columns of messages are cast. That of partitions is so wide that a number which
# can't be one is refused, instead of cut.
_MESSAGES = {
    **{name: COLUMNS[name][0] for name in MESSAGES},
    **{"partition": "bigint", "timestamp": "timestamp_ltz"},
}
_OPTIONAL = frozenset({"timestamp", "headers"})  # A table of messages may lack these columns.
# The types that a column may have, by the type that it is cast to.
_LIKE = {
    "binary": ("binary", "string"),
    "bigint": ("bigint", "int", "smallint", "tinyint"),
    "timestamp_ltz": ("timestamp", "timestamp_ntz"),
}
_MILLISECONDS = "If it has milliseconds since 1970, select timestamp_millis(timestamp)."
MOST = 2**20  # Higher numbers of tasks or calls must be typing errors.
LETTER_PARTITIONS = 1  # A topic of dead letters that drainer creates has so many.


@noting_hints()
@of_types()
def read(
    spark: SparkSession,
    *,
    topic: str,
    client: Client,
    group: str | None = None,
    from_: str = "earliest",
    until: str = "latest",
    headers: bool = False,
) -> DataFrame:
    """Read a topic as a DataFrame with the columns of Spark's own Kafka source.

    This call fixes the offsets, so all queries on the result read the same. On Spark Connect, each
    query fixes them anew, unless ``from_`` and ``until`` have numbers. Further options are those of
    ``spark.read.format("drainer")``.

    Args:
        client: properties of librdkafka, ``bootstrap.servers`` among them, or the file that has
            them on the driver and on every executor.
        group: the group that brokers see. With ``from_="committed"``, reading begins at its
            committed offsets.
        from_, until: as the options ``startingOffsets`` and ``endingOffsets``.
        headers: whether the rows have headers.

    Raises UsageError if PySpark is older than 4.0, which has no data sources in Python.
    """
    if find_spec("pyspark.sql.datasource") is None:
        raise UsageError(
            f"read() needs PySpark 4.0, and this is {version}",
            hint='Use spark.read.format("kafka") with Spark\'s own source. split() takes its rows.',
        )
    from drainer.spark.reading.source import FORMAT, register  # noqa: PLC0415 - of PySpark 4.0

    register(spark)
    reader = spark.read.format(FORMAT).option("subscribe", topic)
    if isinstance(client, Mapping):
        for name, value in client.items():
            reader = reader.option(f"kafka.{name}", str(value))
    else:
        reader = reader.option("clientConfig", str(client))
    if group is not None:
        reader = reader.option("kafka.group.id", group)
    reader = reader.option("startingOffsets", from_).option("endingOffsets", until)
    return reader.option("includeHeaders", str(headers).lower()).load()


@noting_hints()
@of_types()
def split(
    messages: DataFrame,
    handler: AnyHandler,
    *,
    one_shard: bool = False,
    options: Mapping[str, str] | None = None,
    payloads: PayloadSettings = BY_HANDLER,
    client: Client | None = None,
) -> DataFrame:
    """Split messages into sub-messages, one row for each.

    ``messages`` is any DataFrame with the columns of a Kafka source, such as a table of archived
    messages. ``timestamp`` and ``headers`` may be missing, and key and value may be texts. The
    result has:

    - ``key`` and ``payload``, as text and bytes for people. Filter by them, but don't change them:
      ``sub`` has what ``handle`` gets, unless that is a text and bytes.
    - ``topic``, ``partition``, ``offset`` and ``index``, the place, and ``of``, how many
      sub-messages the message has.
    - ``shard``, a hash of the sub-key. Tables that were split apart have the same shard for a
      sub-key, so their rows can be handled together.
    - ``rejected``, why ``split`` rejects the message, which then is one row. What becomes of it is
      decided by ``handle``.
    - ``timestamp``, ``message_key`` and ``headers`` (packed) of the message, and its
      ``message_value`` if the handler needs that. The value is repeated for each sub-message.

    Args:
        one_shard: whether all sub-messages get the shard -1. Barriers and sub-messages with several
            keys need this, and ``handle`` with ``tasks=1``.
        options: options of the handler, whose ``open`` is called in each task.
        payloads: as for ``drainer.drain``.
        client: the client with the login for a schema registry.

    An action on the result fails if something connects shards, or a message has no partition or
    offset.
    """
    connection = None if client is None else client_settings(client)
    session, loaded = _session(messages), _loaded(handler, payloads, connection, options)
    splitter = TableSplitter(
        ship(session, loaded), one_shard, _needs_values(loaded), dict(options or {}), connection
    )
    chosen = _chosen(messages, _MESSAGES, "Give a DataFrame with the columns of a Kafka source.")
    return _mapped(chosen, splitter.split, SUBS)


@noting_hints()
@of_types()
def handle(  # noqa: PLR0913 - each is a keyword of its own
    subs: DataFrame,
    handler: AnyHandler,
    *,
    concurrency: int = 100,
    tasks: int | None = None,
    options: Mapping[str, str] | None = None,
    failures: FailureSettings | None = None,
    payloads: PayloadSettings = BY_HANDLER,
    client: Client | None = None,
    journal: str | Path | None = None,
) -> DataFrame:
    """Handle sub-messages, and return a row for the outcome of each.

    Sub-messages with the same sub-key are handled one after the other, in the order of offset and
    index; others at once. A row that is repeated is handled once. The result has ``id``, ``key``,
    ``topic``, ``partition``, ``offset`` and ``index`` of the sub-message, ``outcome`` (done,
    skipped, failed, dead), the number of ``attempts``, the ``error`` of the last one that failed,
    the topic of its dead ``letter``, and when its first call ``started`` and the last one
    ``ended``.

    DataFrames are lazy: without a journal, **each action calls the handler again** (``count()``
    and a write: twice; ``show()``: a part), and so does each repetition of a task. With a journal,
    what has an outcome in it is not handled again: later actions read its outcomes, and a repeated
    task goes on behind what was written, so a kill repeats only calls that were in flight and the
    last moment before. Only one query may work with a journal at a time.

    Args:
        subs: what ``split`` returned, or some rows of it; not a stream.
        concurrency: how many calls are in flight at once, in all tasks together.
        tasks: the number of tasks; by default, the number of tasks that can run at once, but no
            more than ``concurrency``. A journal keeps that of its first use. If ``split`` was
            called with ``one_shard``, it has to be 1.
        failures: retries, and what happens to sub-messages that fail. By default, the query fails
            at the first one that is given up. Nothing can be parked. The rate and a number of
            ``max_failures`` are shared out to the tasks, the latter rounded up.
        client: the client that writes dead letters, and with which the handler writes to Kafka.
            A topic of dead letters that does not exist is created.
        journal: a folder, or a URI of an object store or of WebHDFS, that the driver and all
            executors reach.

    Raises:
        UsageError: if an argument makes no sense.
        Refused: if the journal is one of another handler, or dead letters can't be written.
    """
    for name, number in ("concurrency", concurrency), ("tasks", tasks):
        if number is not None:
            _ensure_within(name, number)
    if subs.isStreaming:
        raise UsageError(
            "handle() can't take a stream",
            hint="Call it for each batch: subs.writeStream.foreachBatch(…).",
        )
    connection = None if client is None else client_settings(client)
    session, loaded = _session(subs), _loaded(handler, payloads, connection, options)
    chosen = _chosen(subs, SUBS, "Give what split() returned, or some rows of it.")
    policy, place = _resolved(failures or DEFAULT_FAILURES, loaded, connection), None
    count = tasks or min(session.slots(), concurrency)
    _ensure_enough(concurrency, count)
    if journal is None:
        warnings.warn(_LAZY, stacklevel=4)
    else:
        place, count = begin_journal(str(journal), loaded.absolute_reference, count)
        _ensure_enough(concurrency, count)
    each = TableHandler(
        ship(session, loaded),
        *(concurrency, count, _share(policy, count), dict(options or {})),
        client=connection,
        values=_needs_values(loaded),
        journal=place,
    )
    placed = session.placed(chosen, count, columns.pmod(columns.col("shard"), columns.lit(count)))
    ordered = placed.sortWithinPartitions("topic", "partition", "offset", "index")
    return _mapped(ordered, each.handle, OUTCOMES)


def _session(frame: DataFrame) -> Session:
    return Session.of(frame.sparkSession)


def _loaded(
    handler: AnyHandler,
    payloads: PayloadSettings,
    client: ClientSettings | None,
    options: Mapping[str, str] | None,
) -> LoadedHandler:
    """Load a handler, and ensure that it takes these options."""
    loaded = handler_of(handler, payloads, NO_EXTRAS if client is None else client.extras)
    return loaded.configured(dict(options or {}))


def _ensure_within(name: str, number: int) -> None:
    if not 1 <= number <= MOST:
        raise UsageError(f"{name} is {number}", hint=f"Give 1 to {MOST:,}.")


def _ensure_enough(concurrency: int, tasks: int) -> None:
    if concurrency < tasks:
        raise UsageError(
            f"{tasks} tasks make at least one call each, and concurrency is {concurrency}",
            hint="Raise concurrency, or use fewer tasks. A journal keeps its number of tasks.",
        )


def _needs_values(handler: LoadedHandler) -> bool:
    """Return whether sub-messages need the values of their messages beside their payloads."""
    return handler.split is not None and (
        handler.whole_messages or handler.payloads.key_format is not None
    )


def _chosen(frame: DataFrame, wanted: Mapping[str, str], hint: str) -> DataFrame:
    """Select the columns, with the types that they have in a table of messages or sub-messages.

    Raises UsageError if there is no such column, or its type is another one.
    """
    found = {each.name: each.dataType.simpleString().partition(" ")[0] for each in frame.schema}
    required = wanted.keys() - (_OPTIONAL if wanted is _MESSAGES else ())
    if missing := required - found.keys():
        raise UsageError(f"there is no column {', '.join(sorted(missing))}", hint=hint)
    names = [name for name in wanted if name in found]
    for name in names:
        like: Collection[str] = _LIKE.get(wanted[name], (wanted[name],))
        if found[name] not in like:
            way = _MILLISECONDS if name == "timestamp" else hint
            raise UsageError(
                f"the column {name} is a {found[name]}, and not {' or '.join(like)}", hint=way
            )
    return frame.select(*(columns.col(name).cast(wanted[name]).alias(name) for name in names))


def _resolved(
    failures: FailureSettings, handler: LoadedHandler, client: ClientSettings | None
) -> FailureSettings:
    """Check failure settings, and create the topic of dead letters if it is needed.

    Raises UsageError or Refused.
    """
    if OnFailure.PARK in (failures.on_failure, failures.on_unsplit) or failures.stops_behind_dead:
        raise UsageError(
            "handle() can't park a lane, since only a drain has a plan that keeps it parked",
            hint="Use dead-letter, skip or halt.",
        )
    for option, expression in failures.expressions:
        with raised_as(BadExpression, about=f"{option}: "):
            Predicate(expression)
        if "message.value" in expression and not _needs_values(handler):
            raise UsageError(
                f"{option}: the sub-messages come without message.value",
                hint="Put what it reads into the payload, or set whole_messages on the handler.",
            )
    if failures.writes_letters:
        if failures.dead_letter_topic is None or client is None:
            raise UsageError(
                "dead letters need a topic and a client",
                hint="Set failures.dead_letter_topic, and give handle() a client=….",
            )
        with Cluster.connect(client) as cluster:
            info = check_dead_letter_topic(
                *(cluster, failures.dead_letter_topic), drained="", partitions=LETTER_PARTITIONS
            )
            if not info.exists:
                make_dead_letter_topic(cluster, info)
    return failures


def _share(failures: FailureSettings, tasks: int) -> FailureSettings:
    """Return the failure settings of one of so many tasks."""
    rate, most = failures.rate, failures.max_failures
    if most.count is not None:
        most = Limit(count=-(-most.count // tasks))
    return replace(failures, rate=None if rate is None else rate / tasks, max_failures=most)


def _mapped(
    rows: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: Mapping[str, str],
) -> DataFrame:
    return rows.mapInArrow(function, ", ".join(f"`{name}` {schema[name]}" for name in schema))
