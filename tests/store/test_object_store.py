"""An object store: a real server that speaks S3."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from drainer.errors import StateLost
from drainer.spark.state.state import open_objects
from s3 import S3
from store.stores import names_in

pytestmark = pytest.mark.long

CREATE = """
import sys
from drainer.spark.state.state import open_objects
objects = open_objects(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    name = line.strip()
    print(name, objects.create(name, sys.argv[2].encode()), flush=True)
"""


def test_what_was_put_is_listed_and_removed_page_by_page(s3: S3) -> None:
    objects = open_objects(s3.uri("pages"))
    names = [f"d/{number % 3}/{number:08d}" for number in range(1100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: objects.put(name, name.encode()), names))
    objects.put("dd/x", b".")

    assert names_in(objects, "d") == sorted(names)
    assert objects.children("d") == ["0", "1", "2"]
    assert objects.get(names[7]) == names[7].encode()

    before = len(s3.requests())
    objects.remove("d")
    assert names_in(objects) == ["dd/x"]
    # Two pages are listed and removed, and three folders of what is left are listed.
    assert len(s3.requests()) - before <= 7
    objects.remove("dd/x")
    objects.remove("dd/x")
    assert names_in(objects) == objects.children("dd") == []


def test_of_several_processes_that_create_one_object_one_does(s3: S3) -> None:
    uri = s3.uri("race")
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", CREATE, uri, f"process {number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for number in range(4)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for number in range(30):
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{number}\n")
            answers = [racer.stdout.readline().split() for racer in racers if racer.stdout]
            won = [n for n, answer in enumerate(answers) if answer == [str(number), "True"]]
            assert len(won) == 1
            assert open_objects(uri).get(str(number)) == f"process {won[0]}".encode()
    finally:
        for racer in racers:
            racer.communicate()


def test_a_bucket_that_is_missing_is_no_empty_one(s3: S3) -> None:
    objects = open_objects(s3.uri("x").replace("s3://drains", "s3://another"))
    for call in (lambda: objects.get("x"), lambda: objects.children("x")):
        with pytest.raises(StateLost, match="bucket does not exist"):
            call()


def test_a_store_that_does_not_answer_is_out_of_reach_soon(s3: S3) -> None:
    objects = open_objects("s3://drains/x?region=us-east-1&endpoint=http://127.0.0.1:9")
    with pytest.raises(StateLost, match="can't be read"):
        objects.get("x")
