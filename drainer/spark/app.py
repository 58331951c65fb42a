"""The application for ``spark-submit``: drainer's command line, on the master that was named there.

It is used as in ``spark-submit … "$(python -P -m drainer.spark.app)" run --topic …``. Without
``spark-submit``, it prints its path.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    # The folder of a script comes first on the path, and this folder has names that modules of a
    # handler may have.
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != HERE]
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        sys.stdout.write(f"{Path(__file__).resolve()}\n")
        return
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a path is printed without it

    from drainer.cli import main as command  # noqa: PLC0415
    from drainer.spark.session.start import IMPORTS_NOTHING_HERE  # noqa: PLC0415

    spark = SparkSession.builder.config(map=IMPORTS_NOTHING_HERE).getOrCreate()
    os.environ["DRAINER_ENGINE"] = "spark"
    os.environ["DRAINER_SPARK_MASTER"] = str(spark.conf.get("spark.master"))
    try:
        command()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
