"""Takes drains on Spark through a bad night, chapter by chapter, on a broker of its own.

After each chapter it prints what was lost, out of order or repeated. It ends with exit code 1 if a
law was broken.
"""

from scenarios.chaos.night import play
from scenarios.spark_chaos.chapters import CHAPTERS

if __name__ == "__main__":
    play("python -m scenarios.spark_chaos", __doc__, CHAPTERS, on_spark=True)
