"""Spark's daemon, which forks its Python workers, with all imported that they need.

So it is imported once, and not in each of them. PySpark itself comes from the folder in which it is
installed. Spark puts a zip file of it before that, which has to be compiled, and of which each
worker would read the directory 18 times before its first task, for 0.4 s.
"""

import gc
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from zipimport import zipimporter


def unzipped(path: list[str]) -> list[str]:
    """The path without PySpark's zip file, if the same version is found without it."""
    zipped = [each for each in path if each.endswith("pyspark.zip")]
    others = [each for each in path if each not in zipped]
    found = PathFinder.find_spec("pyspark", others)
    if found is None or found.origin is None:
        return path
    version = Path(found.origin).with_name("version.py").read_bytes()
    same = all(zipimporter(each).get_data("pyspark/version.py") == version for each in zipped)
    return others if same else path


if __name__ == "__main__":
    sys.path[:] = unzipped(sys.path)

    from pyspark import daemon, worker  # noqa: F401

    from drainer.spark.assign import jobs  # noqa: F401
    from drainer.spark.task.python_worker import forget_zip_files

    forget_zip_files()
    gc.freeze()  # workers collect garbage after each task
    daemon.manager()
