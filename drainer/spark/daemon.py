"""Spark's daemon, which forks its Python workers, with all imported that they need.

So it is imported once, and not in each of them.
"""

import gc

from pyspark import daemon

from drainer.spark import jobs  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # workers collect garbage after each task
    daemon.manager()
