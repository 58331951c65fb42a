"""A program with the verbs, which defines its handler itself.

It handles a topic in one query, or with ``--stream`` in the micro-batches of a stream that ends
when it has read what is there. The handler appends two lines to the file ``log`` in the folder for
each call: ``+`` when it begins and ``-`` when it ends, with its process and the sub-message's place
and key.
"""

import argparse
import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import orjson
from pyspark.sql import DataFrame, SparkSession

from drainer import Context, Handler, Message, SubMessage
from drainer.spark import handle, read, register, spark_session, split


class Logged(Handler):
    """Makes a sub-message of each key in a JSON list."""

    def open(self, context: Context) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._log = os.open(context.options["log"], flags, 0o600)
        self._pause_s = float(context.options["pause_s"])
        self._pid = os.getpid()

    def split(self, message: Message) -> Iterator[SubMessage]:
        for key in orjson.loads(message.value or b"[]"):
            yield SubMessage(key)

    async def handle(self, sub: SubMessage) -> None:
        message = sub.message
        line = f"{self._pid} {message.partition} {message.offset} {sub.index} {sub.key}\n"
        os.write(self._log, f"+{line}".encode())
        await asyncio.sleep(self._pause_s)
        os.write(self._log, f"-{line}".encode())

    def close(self) -> None:
        os.close(self._log)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "folder"):
        parser.add_argument(name)
    parser.add_argument("--remote")
    parser.add_argument("--journal", required=True, help="its {} stands for the number")
    parser.add_argument("--stream", type=int)
    parser.add_argument("--pause-s", default="0")
    given = parser.parse_args()
    folder = Path(given.folder)
    if given.remote:
        spark = SparkSession.builder.remote(given.remote).getOrCreate()
    else:
        conf = {"spark.local.dir": str(folder / "blocks"), "spark.ui.enabled": "false"}
        spark = spark_session("local[2,4]", "composing", conf)
    options = {"log": str(folder / "log"), "pause_s": given.pause_s}
    log, journals, tables = options["log"], given.journal, str(folder / "outcomes")

    def outcomes(messages: DataFrame, journal: str) -> DataFrame:
        subs = split(messages, Logged, options=options)
        return handle(subs, Logged, concurrency=400, options=options, journal=journal)

    def write(messages: DataFrame, number: int) -> None:
        table = outcomes(messages, journals.format(number))
        table.write.mode("overwrite").parquet(f"{tables}/{number}")

    client = {"bootstrap.servers": given.bootstrap}
    if given.stream is None:
        write(read(spark, topic=given.topic, client=client), 0)
    else:
        register(spark)
        reader = spark.readStream.format("drainer").option("subscribe", given.topic)
        reader = reader.option("kafka.bootstrap.servers", given.bootstrap)
        reader = reader.option("startingOffsets", "earliest")
        messages = reader.option("maxOffsetsPerTrigger", str(given.stream)).load()
        writer = messages.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.parquet(f"{tables}/*")
    print(f"outcomes {rows.count()} {rows.select('id').distinct().count()} of {log}")
    spark.stop()


if __name__ == "__main__":
    main()
