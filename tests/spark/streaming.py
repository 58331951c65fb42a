"""A query that appends the batch, partition and offset of each record to a file, until killed.

With ``--rest`` it reads what is there, and ends.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from drainer.spark import register, spark_session


def main(bootstrap: str, topic: str, folder: Path, *, rest: bool) -> None:
    spark = spark_session("local[2]", "stream", {"spark.local.dir": str(folder / "blocks")})
    register(spark)

    def write(frame: DataFrame, number: int) -> None:
        with (folder / "log").open("a", buffering=1) as log:
            for row in frame.select("partition", "offset").collect():
                log.write(f"{number} {row.partition} {row.offset}\n")

    reader = spark.readStream.format("drainer").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    writer = reader.option("maxOffsetsPerTrigger", "20").load().writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    (writer.trigger(availableNow=True) if rest else writer).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), rest="--rest" in sys.argv)
