"""An error of a task reaches the driver as it would have in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from drainer.errors import DrainerError, Interrupted, RecordsDeleted, SplitFailed
from drainer.spark.session.failure import Carried, TaskFailure, carrying, failure_of, spark_failures

Batches = Iterator[pa.RecordBatch]


def on_spark(spark: SparkSession, task: Callable[[Batches], Batches]) -> DrainerError:
    with pytest.raises(DrainerError) as caught, spark_failures():
        spark.range(2, numPartitions=1).mapInArrow(task, "id long").collect()
    return caught.value


def test_an_error_of_a_task_has_its_class_text_hint_and_what_led_to_it(
    spark: SparkSession,
) -> None:
    def task(batches: Batches) -> Batches:
        with carrying():
            try:
                int("seven")
            except ValueError as error:
                raise SplitFailed("split failed\nat é \udcff", hint="repair\nit") from error
        yield from batches

    error = on_spark(spark, task)

    assert type(error) is SplitFailed
    assert str(error) == r"split failed\nat é \udcff"
    assert (error.hint, error.exit_code) == (r"repair\nit", 5)
    assert isinstance(error.__cause__, TaskFailure)
    assert "invalid literal for int() with base 10: 'seven'" in str(error.__cause__)


def test_any_other_error_is_reported_in_a_line_with_its_place(spark: SparkSession) -> None:
    def task(batches: Batches) -> Batches:
        yield from batches
        raise KeyError("x")

    error = on_spark(spark, task)

    assert type(error) is DrainerError
    assert str(error).startswith(f"it failed on Spark: KeyError: 'x' ({__file__}:")
    assert "\n" not in str(error)


def test_an_error_that_is_not_of_the_tree_comes_out_as_the_nearest_that_is() -> None:
    class OtherRecords(RecordsDeleted):
        def __init__(self, offset: int) -> None:
            super().__init__(f"gone from {offset} on", hint="too late")

    error = failure_of(
        RuntimeError(f"org.apache.spark.X: Trace\n{Carried(OtherRecords(7))}\n\tat a")
    )

    assert type(error) is RecordsDeleted
    assert (str(error), error.hint) == ("gone from 7 on", "too late")


def test_a_text_that_only_looks_like_one_does_no_harm() -> None:
    carried = Carried(Interrupted('he wrote drainer-error {"class": 3} and drainer-error {'))

    error = failure_of(RuntimeError(str(carried)))

    assert type(error) is Interrupted
    assert str(error) == 'he wrote drainer-error {"class": 3} and drainer-error {'
    assert str(failure_of(RuntimeError("drainer-error {"))) == (
        "it failed on Spark: drainer-error {"
    )


ABORTED = "org.apache.spark.SparkException: Job aborted due to stage failure: "
LOST = "Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0"


@pytest.mark.parametrize(
    ("message", "text", "hint"),
    [
        (
            f"{LOST} (TID 2) (10.0.0.7 executor 1): java.io.IOException: No space left on device\n"
            "\tat java.io.X",
            "Spark: No space left on device",
            "Set spark.local.dir to a larger disk.",
        ),
        (
            f"{LOST} (TID 9) (10.0.0.7 executor 5): ExecutorLostFailure (executor 5 exited caused"
            " by a running task) Reason: Command exited with code 137",
            "Spark lost an executor",
            "spark.executor.memoryOverhead",
        ),
        (
            "ResultStage 3 (collect at jobs.py:184) has failed the maximum allowable number of"
            " times: 4. Most recent failure reason:"
            " org.apache.spark.shuffle.MetadataFetchFailedException:"
            " Missing an output location for shuffle 0 partition 0",
            "Spark lost an executor",
            "spark.executor.memoryOverhead",
        ),
        (
            f"{LOST} (TID 13) (192.0.2.2 executor driver): java.io.IOException: Cannot run program"
            ' "/opt/py/python3": error=2, No such file or directory\n\tat java.base/java.lang.X',
            'Spark\'s workers have no such Python: Cannot run program "/opt/py/python3"',
            "spark.pyspark.python",
        ),
    ],
    ids=["disk", "executor", "shuffle", "python"],
)
def test_a_message_of_spark_is_reduced_to_what_happened_and_what_helps(
    message: str, text: str, hint: str
) -> None:
    error = failure_of(RuntimeError(ABORTED + message))

    assert str(error).startswith(text)
    assert hint in (error.hint or "")


def test_another_drainer_on_an_executor_is_not_taken_for_a_missing_module() -> None:
    def error_of(line: str) -> DrainerError:
        return failure_of(
            RuntimeError(f'Traceback (most recent call last):\n  File "w.py", line 1, in f\n{line}')
        )

    for line in (
        "ModuleNotFoundError: No module named 'drainer.spark.reading.slices'",
        "AttributeError: Can't get attribute 'Slice' on <module 'drainer.spark.api' from 'x'>",
    ):
        assert "lacks drainer, or has another version" in str(error_of(line))
    missing = error_of("ModuleNotFoundError: No module named 'elasticsearch'")
    assert "an executor lacks a module: ModuleNotFoundError: No module named 'elast" in str(missing)
    assert "pyFiles" in (missing.hint or "")


@pytest.mark.parametrize(
    ("printed", "text", "hint"),
    [
        (
            "/opt/py/python3: Error while finding module specification for"
            " 'drainer.spark.task.daemon' (ModuleNotFoundError: No module named 'drainer')",
            "the Python of Spark's workers lacks drainer, or has another version: /opt/py/python3",
            "Install the driver's version there",
        ),
        (
            "/opt/py/python3: No module named drainer.spark.task.daemon",
            "the Python of Spark's workers lacks drainer, or has another version: /opt/py/python3",
            "Install the driver's version there",
        ),
        (
            'Traceback (most recent call last):\n  File "<frozen runpy>", line 198, in _run\n'
            "ModuleNotFoundError: No module named 'msgspec'",
            "an executor lacks a module: ModuleNotFoundError: No module named 'msgspec'",
            "pyFiles",
        ),
    ],
    ids=["none", "older", "dependency"],
)
def test_workers_whose_python_lacks_something_are_reported_by_what_it_is(
    printed: str, text: str, hint: str
) -> None:
    indented = printed.replace("\n", "\n  ")
    error = failure_of(
        RuntimeError(
            f"{ABORTED}{LOST} (TID 0) (192.0.2.2 executor 1): org.apache.spark.SparkException: "
            f"\nError from python worker:\n  {indented}\nPYTHONPATH was:\n  /opt/pyspark.zip\n"
            "org.apache.spark.SparkException: EOFException occurred while reading the port number"
        )
    )

    assert str(error).startswith(text)
    assert hint in (error.hint or "")


def test_a_server_that_is_gone_is_reported_by_what_failed_and_not_by_the_client_s_class() -> None:
    details = "failed to connect to all addresses; last error: Connection refused"
    text = f'<_Rendezvous of RPC:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "{details}"\n>'

    error = failure_of(PySparkException(text))

    assert str(error) == f"the session on the server of Spark Connect is gone: {details}"
