"""Spark's daemon, which forks its Python workers, with all imported that they need.

So it is imported once, and not in each of them. PySpark itself comes from the folder from which the
driver has it. Spark puts a zip file of it before that, whose 18 directories a worker reads again
for each task, for 0.3 s.
"""

import gc
import sys
from importlib.machinery import PathFinder

_unzipped = [path for path in sys.path if not path.endswith("pyspark.zip")]
if PathFinder.find_spec("pyspark", _unzipped) is not None:
    sys.path[:] = _unzipped

from pyspark import daemon, worker  # noqa: E402, F401

from drainer.spark import jobs  # noqa: E402, F401

if __name__ == "__main__":
    gc.freeze()  # workers collect garbage after each task
    daemon.manager()
