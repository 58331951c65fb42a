"""Formats of a schema registry: what Confluent's serialisers wrote, read without their classes."""

from __future__ import annotations

import pickle
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from drainer.errors import Halted, Refused, UsageError
from drainer.kafka.settings import ClientSettings
from drainer.loading.loader import load_handler
from drainer.message import Message, Origin, SubMessage
from drainer.model.sub_messages import Payloads
from drainer.model.terms import PayloadSettings
from drainer.payloads import formats
from drainer.payloads.formats import framed, registry_decoder
from drainer.payloads.protobuf import compiled, message_indexes
from drainer.payloads.registry import RegistryAway, waiting
from drainer.payloads.registry import registry as registry_at
from drainer.split.decoding import Decode, Decoding, Undecodable
from drainer.text.raw_json import meaning
from drainer.text.secret import redact
from payloads.registry import AT, Registry, Serialisers, running

ORIGIN = Origin("t", "id", 0)
ORDER = {"id": "o-1", "at": AT, "to": {"zip": "1010"}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running() as registry:
        yield registry.url


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running() as registry:
        yield registry


def decode(name: str, url: str) -> Decode:
    return registry_decoder(name, False, url, {})


@pytest.mark.parametrize("in_headers", [False, True], ids=["in the payload", "in headers"])
def test_each_format_is_read_as_confluents_serialisers_wrote_it(url: str, in_headers: bool) -> None:
    write = Serialisers(url, "orders", in_headers=in_headers)
    wrote: list[tuple[str, Any, dict[str, Any]]] = [
        ("avro", write.avro, ORDER),
        ("json-schema", write.json, {"id": "o-1", "docs": [{"id": 1}]}),
    ]
    for name, serialise, value in wrote:
        data = serialise(value)
        assert bool(write.headers) == in_headers
        assert meaning(decode(name, url)(data, write.headers, "orders")) == value
    data = write.protobuf({"id": "o-1"})
    found = decode("protobuf", url)(data, write.headers, "orders")
    assert found == {"fields": {"id": {"string_value": "o-1"}}}


def test_subjects_and_versions_are_mixed_in_one_topic(url: str) -> None:
    write, read = Serialisers(url, "mixed"), decode("avro", url)
    new = {"name": "note", "type": "string", "default": ""}
    values = [write.avro(ORDER), write.avro({**ORDER, "note": "late"}, new), write.avro(ORDER)]
    assert [read(each, [], "mixed") for each in values] == [ORDER, {**ORDER, "note": "late"}, ORDER]


def test_protobuf_is_read_by_the_registrys_text(url: str) -> None:
    number = Serialisers(url, "text").protobuf_text()
    schema = registry_at(url, {}).schema(number)
    pool = DescriptorPool()
    for file in compiled({**schema.files(), "o.proto": schema}, "o.proto").file:
        pool.Add(file)
    made: Any = GetMessageClass(pool.FindMessageTypeByName("t.Order"))
    order = made(id="o", a="x", kinds=[1, 0, 7], raw=b"\1", big=2**60, docs=[{"id": "d"}])
    getattr(order.to, "in").zip = "10"
    order.m["k"], order.at.seconds, order.by_name["k"].id = 5, 3, "z"
    frame = b"\0" + struct.pack(">I", number)
    found = decode("protobuf", url)(frame + b"\2\2" + order.SerializeToString(), [], "text")
    assert found == {
        **{"id": "o", "a": "x", "kinds": ["BIG", "NONE", 7], "raw": b"\1", "big": 2**60},
        **{"docs": [{"id": "d"}], "to": {"zip": "", "in": {"zip": "10"}}},
        **{
            "m": {"k": 5},
            "at": {"seconds": 3, "nanos": 0},
            "by_name": {"k": {"id": "z"}},
        },
    }
    nested = pool.FindMessageTypeByName("t.Order.Doc")
    data = GetMessageClass(nested)(id="d").SerializeToString()
    assert decode("protobuf", url)(frame + b"\4\2\0" + data, [], "text") == {"id": "d", "v": 0.0}


@given(st.lists(st.integers(0, 2**31), min_size=1), st.binary())
def test_the_place_of_a_message_type_is_read_back(indexes: list[int], body: bytes) -> None:
    data = bytearray()
    for number in [len(indexes), *indexes]:
        left = number << 1
        while left > 0x7F:
            data.append(left & 0x7F | 0x80)
            left >>= 7
        data.append(left)
    assert message_indexes(bytes(data) + body) == (tuple(indexes), body)
    assert message_indexes(b"\0" + body) == ((0,), body)
    with pytest.raises(IndexError):
        message_indexes(b"\xff" * 10**6)  # which was the square of that in time


@given(st.binary(), st.none() | st.binary())
def test_any_bytes_are_framed_or_undecodable(data: bytes, header: bytes | None) -> None:
    try:
        _, body, _ = framed(data, [("h", header)], "h")
    except Undecodable:
        return
    assert data.endswith(body)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("avro", b"\0\0\0\0\x63abc", "schema 99 is not in the registry"),
        ("avro", b"{}", "no schema's id is where"),
        ("protobuf", b"\0\0\0\0\1\0", "schema 1 is AVRO, not PROTOBUF"),
        ("avro", b"\0\0\0\0\1\x08ab", "not of schema 1"),
    ],
)
def test_what_can_not_be_decoded_is_the_messages_fault(
    registry: Registry, name: str, data: bytes, why: str
) -> None:
    Serialisers(registry.url, "orders").avro(ORDER)
    read = decode(name, registry.url)
    for _ in range(2):
        with pytest.raises(Undecodable, match=why):
            read(data, [], "orders")
    assert registry.requests[f"/schemas/ids/{data[4] if len(data) > 4 else 0}"] <= 1, "it remembers"


def test_a_schema_that_comes_later_is_found(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "FAULT_S", -1.0)
    read: Any = decode("avro", registry.url)
    late = b"\0\0\0\0\1\2a"
    with pytest.raises(Undecodable, match="is not in the registry"):
        read(late, [], "t")
    registry.answer("POST", "/subjects/late/versions", {"schemaType": "AVRO", "schema": '"string"'})
    read.prepare(late, [], waiting(0.0))
    assert read(late, [], "t") == "a"


def test_a_module_in_the_working_folder_does_not_run(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "grpc_tools").mkdir()
    for name in ("grpc_tools/__init__.py", "grpc_tools/protoc.py", "os.py", "ctypes.py"):
        (tmp_path / name).write_text(f"open({str(ran)!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    assert protobuf_reader(registry, 'syntax = "proto3"; message M {}')(b"") == {}
    assert not ran.exists()


def test_what_this_machine_can_not_do_is_no_fault_of_a_message(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message M {}'}
    registry.answer("POST", "/subjects/m/versions", body)
    read = decode("protobuf", registry.url)
    with monkeypatch.context() as without:
        without.setattr(tempfile, "tempdir", "/nowhere")
        with pytest.raises(Halted, match="can't make a reader"):
            read(b"\0\0\0\0\1\0", [], "m")
    assert read(b"\0\0\0\0\1\0", [], "m") == {}


def test_a_schema_is_requested_once_however_often_others_need_it(registry: Registry) -> None:
    for level in range(25):
        named = [{"name": n, "subject": f"s{level - 1}", "version": 1} for n in ("a", "b")]
        body: dict[str, Any] = {"schemaType": "AVRO", "schema": f'"int"{" " * level}'}
        body |= {"references": named} if level else {}
        registry.answer("POST", f"/subjects/s{level}/versions", body)
    assert len(registry_at(registry.url, {}).schema(25).files()) == 2
    assert max(registry.requests.values()) == 1


@pytest.mark.parametrize(
    "names",
    [
        ["../../bad.proto"],
        ["a", "a/b.proto"],
        *(
            pytest.param([name], marks=pytest.mark.long)
            for name in ("x" * 300, ".", "", "/etc", "a\ud83d")
        ),
    ],
)
def test_names_of_references_are_never_names_of_files(registry: Registry, names: list[str]) -> None:
    body = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3";'}
    registry.answer("POST", "/subjects/bad/versions", body)
    references = [{"name": name, "subject": "bad", "version": 1} for name in names]
    for imported in ("", f'import "{names[-1]}";'):
        text = f'syntax = "proto3"; {imported} message M {{}}'
        main = {**body, "schema": text, "references": references}
        registry.answer("POST", f"/subjects/main{imported}/versions", main)
    read = decode("protobuf", registry.url)
    for number in (2, 3):
        try:
            assert read(b"\0\0\0\0" + bytes([number, 0]), [], "main") == {}
        except Undecodable:  # a fault of the schema, whichever it is
            assert names != ["a", "a/b.proto"]


def test_a_reference_that_protoc_can_not_be_given_is_the_schemas_fault(registry: Registry) -> None:
    body = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3";'}
    registry.answer("POST", "/subjects/bad/versions", body)
    for number, name in enumerate(["a:b", "a=b", "a\nb"], 2):
        references = [{"name": name, "subject": "bad", "version": 1}]
        main = {**body, "schema": f"{body['schema']} //{number}", "references": references}
        registry.answer("POST", "/subjects/main/versions", main)
        with pytest.raises(Undecodable, match="which is not a file's name"):
            decode("protobuf", registry.url)(b"\0\0\0\0" + bytes([number, 0]), [], "main")


def test_an_answer_without_a_schema_is_none(registry: Registry) -> None:
    registry.answer("POST", "/subjects/s/versions", {"schemaType": "AVRO", "schema": None})
    with pytest.raises(RegistryAway, match="the answer has no schema"):
        registry_at(registry.url, {}).schema(1, waiting(0.0))
    needs = [{"name": "s", "subject": "t", "version": 1}]
    registry.answer("POST", "/subjects/t/versions", {"schema": '"int"', "references": needs})
    with pytest.raises(Undecodable, match="needs itself"):
        registry_at(registry.url, {}).schema(2, waiting(0.0))


def test_an_empty_schema_or_a_long_chain_is_no_fault_of_the_registry(registry: Registry) -> None:
    registry.answer("POST", "/subjects/s/versions", {"schemaType": "AVRO", "schema": ""})
    for level in range(1_100):
        named = [{"name": "n", "subject": f"s{level - 1}", "version": 1}] if level else []
        body = {"schemaType": "AVRO", "schema": f'"int"{" " * level}', "references": named}
        registry.answer("POST", f"/subjects/s{level}/versions", body)
    nowhere = [{"name": "n", "subject": "nowhere", "version": 1}]
    registry.answer("POST", "/subjects/n/versions", {"schema": '"int" ', "references": nowhere})
    read: Any = decode("avro", registry.url)
    for number, why in ((1, "can't be used"), (1_101, "needs too many others")):
        data = b"\0" + struct.pack(">I", number)
        read.prepare(data, [], lambda *_: pytest.fail("it waits for the registry"))
        with pytest.raises(Undecodable, match=why):
            read(data, [], "t")
    assert len(pickle.dumps(registry_at(registry.url, {}).schema(140))) > 140, "it goes to Spark"


CONNECT = """syntax = "proto3"; package shop;
import "confluent/meta.proto"; import "confluent/type/decimal.proto";
import "confluent/types/decimal.proto"; import "confluent/type/variant.proto";
message Order {
  int64 id = 1 [(confluent.field_meta).doc = "the id"];
  confluent.type.Decimal total = 2 [(confluent.field_meta) = {
    params: [{ key: "precision", value: "8" }, { key: "scale", value: "2" }] }];
}"""
OLD = """syntax = "proto2";
message Old {
  required int64 id = 1; optional Old in = 2; repeated Old list = 3; map<string, Old> map = 4;
  optional group Extra = 5 { required string s = 1; }
}"""


def protobuf_reader(registry: Registry, text: str) -> Callable[[bytes], Any]:
    """A reader of bodies of the first message of a schema."""
    body = {"schemaType": "PROTOBUF", "schema": text}
    found = registry.answer("POST", "/subjects/m/versions", body)[1]
    read = decode("protobuf", registry.url)
    return lambda body: read(b"\0" + struct.pack(">I", found["id"]) + b"\0" + body, [], "m")


def test_what_confluents_clients_bring_along_can_be_imported(registry: Registry) -> None:
    read = protobuf_reader(registry, CONNECT)
    total = {"value": b"\x05\xdc", "precision": 8, "scale": 2}
    assert read(b"\x08\x05\x12\x08\x0a\x02\x05\xdc\x10\x08\x18\x02") == {"id": 5, "total": total}
    assert read(b"\x08\x05") == {"id": 5}


def test_a_message_without_a_field_that_it_requires_is_undecodable(registry: Registry) -> None:
    read = protobuf_reader(registry, OLD)
    assert read(b"\x08\x01\x1a\x02\x08\x02") == {"id": 1, "list": [{"id": 2}], "map": {}}
    for body in (b"", b"\x12\x00", b"\x12\x00\x08\x01", b"\x1a\x00\x08\x01", b"\x22\x00\x08\x01"):
        with pytest.raises(Undecodable, match="Old has no id, which it requires"):
            read(body)
    with pytest.raises(Undecodable, match=r"Old\.Extra has no s, which it requires"):
        read(b"\x08\x01\x2b\x2c")


def test_messages_in_lists_have_only_what_is_set(registry: Registry) -> None:
    text = (
        'syntax = "proto3"; message M { repeated M in = 1; map<int32, M> by = 2; int32 n = 3;'
        " M one = 4; optional int32 o = 5; repeated string s = 6; }"
    )
    read = protobuf_reader(registry, text)
    default = {"in": [], "by": {}, "n": 0, "s": []}
    assert read(b"") == default
    assert read(b"\x22\x02\x18\x07") == {**default, "one": {**default, "n": 7}}
    inner = b"\x18\x07\x28\x00"
    found = read(b"\x0a\x00\x0a\x04" + inner + b"\x12\x08\x08\x05\x12\x04" + inner)
    assert found == {**default, "in": [{}, {"n": 7, "o": 0}], "by": {5: {"n": 7, "o": 0}}}


FIELDS = " ".join(f"string f{n} = {n};" for n in range(2, 32))
MANY = {
    "lists": (f'syntax = "proto3"; message M {{ repeated M m = 1; {FIELDS} }}', b"\x0a\0"),
    "a longer number": (
        f'syntax = "proto3"; message M {{ repeated M m = 1; {FIELDS} }}',
        b"\x8a\x80\x80\x80\0\0",
    ),
    "a second byte": (
        f'syntax = "proto3"; message M {{ repeated M m = 99; {FIELDS} }}',
        b"\x9a\6\0",
    ),
    "groups": (
        f'syntax = "proto2"; message M {{ repeated group G = 1 {{ {FIELDS} }} }}'.replace(
            "string", "optional string"
        ),
        b"\x0b\x0c",
    ),
    "extensions": (
        'syntax = "proto2"; message M { extensions 100 to 200; }'
        f" message X {{ {FIELDS} }} extend M {{ repeated X x = 100; }}".replace(
            "string", "optional string"
        ),
        b"\xa2\6\0",
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_a_few_bytes_are_not_more_messages_than_memory_has(registry: Registry, name: str) -> None:
    text, element = MANY[name]
    read = protobuf_reader(registry, text)
    read(element * 10)
    with pytest.raises(Undecodable, match="bytes become values of more than"):
        read(element * 200_000)


def test_texts_that_look_like_messages_are_none(registry: Registry) -> None:
    text, _ = MANY["lists"]
    read = protobuf_reader(registry, text)
    size = 1_000_000
    found = read(b"\x12" + b"\xc0\x84\x3d" + b"\n" * size)  # which also is the list's tag
    assert found["f2"] == "\n" * size


def test_what_is_decoded_counts_in_the_buffer(registry: Registry) -> None:
    schema = '{"type": "array", "items": "boolean"}'
    registry.answer("POST", "/subjects/b/versions", {"schema": schema})
    decoding = Decoding(decode("avro", registry.url), None)
    payloads = Payloads()
    sizes = []
    for number in range(100):  # of which few are measured
        count = 10_000 if number % 50 else 0
        body = b"\xa0\x9c\x01" + bytes(count) + b"\0" if count else b"\0"
        message = decoding.decoded(Message(ORIGIN, number, None, b"\0\0\0\0\1" + body))
        sizes.append(payloads.bytes_of(message, [SubMessage(None, len(message.decoded))]))
        assert len(message.decoded) == count
    assert sum(sizes) > 98 * 10_000 * 8


@pytest.mark.parametrize("status", [404, 401, 503])
def test_a_registry_that_gives_no_schema_is_away(registry: Registry, status: int) -> None:
    registry.status = status  # 404 is also what a wrong path gives
    shown: list[str] = []

    def wait(seconds: float, why: str) -> bool:
        shown.append(why)
        return len(shown) < 3

    with pytest.raises(RegistryAway):
        registry_at(registry.url, {}).schema(1, wait)
    assert f"the registry {registry.url} does not answer" in shown[0]
    assert len(shown) == 3


def test_a_registry_that_has_answered_for_other_messages_refuses_no_drain(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "CHECK_S", 0.1)
    write, decoding = (
        Serialisers(registry.url, "orders"),
        Decoding(decode("avro", registry.url), None),
    )
    old, new = write.avro(ORDER), write.avro({**ORDER, "n": 1}, {"name": "n", "type": "int"})
    registry.away.add(new[4])
    messages = [Message(ORIGIN, n, None, data) for n, data in enumerate((old, new, new))]
    (right,), (wrong,) = decoding.check(messages)
    assert "values decode by schema" in right
    assert "can't be decoded now: the registry" in wrong
    with pytest.raises(Refused, match="does not answer"):
        decoding.check(messages[1:])


def test_waiting_ends() -> None:
    assert not waiting(0.0)(0.0, "")


def test_a_registry_is_named_without_its_login_and_secrets_are_not_shown() -> None:
    avro = PayloadSettings(value_format="avro")
    with pytest.raises(UsageError, match="no schema registry"):
        load_handler("count", avro)
    for end in ("u:hidden@h", "u@h", "h/?apikey=x", "h/?token=x", "h/?X-Api-Key=x", "h/?sig=x"):
        url = f"http://{end}"
        with pytest.raises(UsageError, match="--registry may have a secret"):
            load_handler("count", PayloadSettings(value_format="avro", registry=url))
    with pytest.raises(UsageError, match="nonsense") as caught:
        load_handler(
            "count", avro, {"schema.registry.url": "http://h", "schema.registry.nonsense": "1"}
        )
    assert "basic.auth.user.info" in (caught.value.hint or "")
    secrets = {"schema.registry.url": "http://u:hidden1@h"}
    settings = ClientSettings(
        "b", {}, {**secrets, "schema.registry.basic.auth.user.info": "v:hidden2"}
    )
    assert "hidden" not in redact(f"{settings} http://u:hidden1@h v:hidden2 hidden1")
    with pytest.raises(RegistryAway) as away:
        registry_at(
            None, {"schema.registry.url": "http://u:hidden1@127.0.0.1:1/?key=hidden3"}
        ).schema(1, lambda *_: False)
    assert "hidden" not in str(away.value)
