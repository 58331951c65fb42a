"""A look at the executors before anything is handled: can they do what will be asked of them?

It goes through Spark as a wave does, so it also brings up what Spark makes at first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from drainer.errors import Refused, StateRefused
from drainer.kafka.cluster import Cluster
from drainer.kafka.loss import recreated
from drainer.spark.failure import carrying
from drainer.spark.python_worker import HandlerSpec, python_worker
from drainer.spark.rows import ROW_SCHEMA
from drainer.spark.state import State


@dataclass(frozen=True, slots=True)
class Checking:
    """Opens the handler in a task, asks the cluster for the topic, and writes to the state; the row
    it gives names what it wrote.

    Raises Refused or UsageError, through Spark, when the task can't do one of these.
    """

    handler: HandlerSpec
    topic_id: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        with carrying():
            spec = self.handler
            state = State.open(spec.state, spec.drain_id)
            if state.control() is None:
                raise elsewhere(state, "the driver writes to {}, and a task sees nothing of it")
            with python_worker().at_work(spec):
                pass
            with Cluster.connect(spec.client) as cluster:
                if cluster.topic(spec.topic).topic_id != self.topic_id:
                    raise recreated(spec.topic)
            name = state.probe(spec.epoch)
        row = dict.fromkeys(ROW_SCHEMA.names) | {"claim": 0, "value": name.encode()}
        yield pa.RecordBatch.from_pylist([row] * len(numbers), schema=ROW_SCHEMA)


def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What handles the rows of the look: it does nothing."""
    count = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"claim": ["none"], "outcome": [str(count)]})


def insist_on_probes(state: State, names: list[str]) -> None:
    """Raises StateRefused when what tasks wrote is not seen here."""
    if not names:
        raise Refused("Spark ran no task", hint="has the cluster any executor for this drain?")
    for name in names:
        if not state.has(name):
            raise elsewhere(state, "the tasks write to {}, and this process sees nothing of it")


def elsewhere(state: State, what: str) -> StateRefused:
    """What to tell of a state that is not the same place for all."""
    return StateRefused(
        f"{what.format(state.uri)}: it is not the same place everywhere",
        hint="name one that all of them and this machine reach with --state: s3://, gs://,"
        " hdfs://, or a folder that is mounted everywhere",
    )
