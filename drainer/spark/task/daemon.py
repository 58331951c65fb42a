"""PySpark's daemon, which forks Spark's Python workers, with drainer's modules already imported.

Each worker would need half a second of processor time to import them. Spark starts this module by
the setting ``spark.python.daemon.module``.

No thread may exist when the daemon forks. So nothing here imports pyarrow, which starts one.
PySpark before 4.2 imports numpy here, whose OpenBLAS ends its threads before a fork.
"""

# ruff: noqa: F401 - the workers use what this module imports.

from __future__ import annotations

import gc

import pyspark.worker
from pyspark import daemon

import drainer.engine.local
import drainer.operations.letters
import drainer.spark.session.failure
from drainer.spark.task.python_worker import forget_zip_files

if __name__ == "__main__":
    forget_zip_files()
    gc.freeze()  # Workers collect garbage after each task. They need not look at the modules.
    daemon.manager()
