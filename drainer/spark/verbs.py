"""Verbs for programs on Spark: read messages, split them, and handle the sub-messages.

Each of them takes a DataFrame and returns one, so they can be composed with all that Spark has. A
drain does the same slice by slice, with a lock, a plan and commits around it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as columns

from drainer.api import AnyHandler, Client, client_settings, handler_of, noting_hints, of_types
from drainer.errors import UsageError
from drainer.loading.loader import LoadedHandler
from drainer.model.option import Concurrency
from drainer.model.settings import DEFAULT_FAILURES, FailureSettings, LocalSettings
from drainer.model.terms import BY_HANDLER, PayloadSettings
from drainer.spark.reading.source import FORMAT, register
from drainer.spark.session.session import Session
from drainer.spark.session.shipping import Shipped, ship
from drainer.spark.task.journal import begin_journal
from drainer.spark.task.table import MESSAGES, OUTCOMES, SUBS, TableHandler, TableSplitter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
else:
    DataFrame = SparkSession = Any  # For the types of arguments.

SHARDS = 1024  # More than most clusters have slots, so that any number of tasks gets equal parts.
_LAZY = (
    "handle() without a journal: each action on its outcomes calls the handler again, and Spark"
    " calls it again for a task that it repeats. Give it journal=…, or run one action only."
)
_shipped: dict[tuple[int, str], Shipped] = {}  # What each session has got, by the handler.


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

    The offsets are fixed by this call, so all queries on the result read the same. Further options
    are those of ``spark.read.format("drainer")``.

    Args:
        client: properties of librdkafka, ``bootstrap.servers`` among them, or the file that has
            them on the driver and on every executor.
        group: the group that brokers see. With ``from_="committed"``, reading begins at its
            committed offsets.
        from_, until: as the options ``startingOffsets`` and ``endingOffsets``.
        headers: whether the rows have headers.
    """
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
    shards: int = SHARDS,
    options: Mapping[str, str] | None = None,
    payloads: PayloadSettings = BY_HANDLER,
) -> DataFrame:
    """Split messages into sub-messages, one row for each.

    ``messages`` is any DataFrame with the columns of a Kafka source, such as a table of archived
    messages; ``headers`` may be missing. The result has:

    - ``key`` and ``payload``, as text and bytes for people. Filter by them, but don't change them:
      ``sub`` has what ``handle`` gets, unless that is a text and bytes.
    - ``topic``, ``partition``, ``offset`` and ``index``, the place, and ``of``, how many
      sub-messages the message has.
    - ``shard``, a hash of the sub-key. All of a sub-key have the same shard.
    - ``timestamp``, ``message_key``, ``headers`` of the message, and its ``message_value`` if the
      handler needs that.

    Args:
        shards: the number of shards. Barriers and sub-messages with several keys need 1.
        options: options of the handler.
        payloads: as for ``drainer.drain``.

    An action on the result raises SplitFailed if ``split`` rejects a message, and UsageError if
    something connects shards.
    """
    session, loaded = _session(messages), handler_of(handler, payloads)
    if missing := set(MESSAGES[:5]) - set(messages.columns):
        raise UsageError(
            f"the messages have no column {', '.join(sorted(missing))}",
            hint="Give a DataFrame with the columns of a Kafka source.",
        )
    splitter = TableSplitter(_ship(session, loaded), shards, _values(loaded), options or {})
    names = [name for name in MESSAGES if name in messages.columns]
    return _mapped(messages.select(*names), splitter.split, SUBS)


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
    journal: str | None = None,
) -> DataFrame:
    """Handle sub-messages, and return a row for the outcome of each.

    Sub-messages with the same sub-key are handled one after the other, in the order of offset and
    index; others at once. The result has ``id``, ``key``, ``topic``, ``partition``, ``offset`` and
    ``index`` of the sub-message, ``outcome`` (done, skipped, failed, dead), the number of
    ``attempts``, the ``error`` of the last one that failed, the topic of its dead ``letter``, and
    when its first call ``started`` and the last one ``ended``.

    DataFrames are lazy: without a journal, **each action calls the handler again** (``count()``
    and a write: twice; ``show()``: a part), and so does each repetition of a task. With a journal,
    everything is handled once: later actions read its outcomes, and a repeated task goes on behind
    what was written, so a kill repeats only calls that were in flight and the last moment before.

    Args:
        subs: what ``split`` returned, or some rows of it.
        concurrency: how many calls are in flight at once, in all tasks together.
        tasks: the number of tasks; by default, the number of tasks that can run at once. A journal
            keeps that of its first use.
        failures: retries, and what happens to sub-messages that fail. By default, the query fails
            at the first one that is given up. A rate and limits are shared out to the tasks.
        client: the client that writes dead letters, as for ``drainer.drain``.
        journal: a folder or URI of an object store that all executors reach, for this table alone.

    Raises:
        UsageError: if an argument makes no sense.
        Refused: if the journal is one of another handler.
    """
    session, loaded = _session(subs), handler_of(handler, payloads)
    failures = failures or DEFAULT_FAILURES
    if failures.letters_topic is not None and client is None:
        raise UsageError("dead letters need a client", hint="Give handle() a client=….")
    count = tasks or session.slots()
    if journal is None:
        warnings.warn(_LAZY, stacklevel=3)
    else:
        count = begin_journal(journal, loaded.absolute_reference, count)
    calls = Concurrency.of(concurrency).most_for(threads=not loaded.is_async)
    each = TableHandler(
        _ship(session, loaded),
        LocalSettings(concurrency=max(1, calls // count), options=dict(options or {})),
        failures if failures.rate is None else replace(failures, rate=failures.rate / count),
        client=None if client is None else client_settings(client),
        values=_values(loaded),
        journal=journal,
    )
    place = columns.pmod(columns.col("shard"), columns.lit(count))
    placed = session.placed(subs.select(*SUBS), count, place)
    ordered = placed.sortWithinPartitions("topic", "partition", "offset", "index")
    return _mapped(ordered, each.handle, OUTCOMES)


def _session(frame: DataFrame) -> Session:
    return Session.of(frame.sparkSession)


def _ship(session: Session, handler: LoadedHandler) -> Shipped:
    # In a stream, each batch calls this, and the code has to be sent only once.
    key = id(session.spark), handler.absolute_reference
    if handler.absolute_reference.startswith("__main__") or key not in _shipped:
        _shipped[key] = ship(session, handler)
    return _shipped[key]


def _values(handler: LoadedHandler) -> bool:
    return handler.whole_messages or handler.split is None


def _mapped(
    rows: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: Mapping[str, str],
) -> DataFrame:
    return rows.mapInArrow(function, ", ".join(f"`{name}` {schema[name]}" for name in schema))
