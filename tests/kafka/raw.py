"""Records that no Python client writes, by the C library that confluent_kafka brings along."""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

_TOPIC, _VALUE, _MSGFLAGS, _HEADERS = 1, 4, 7, 10  # rd_kafka_vtype_t
_COPY = 2


class _Memory(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Content(ctypes.Union):
    _fields_ = (
        ("text", ctypes.c_char_p),
        ("number", ctypes.c_int),
        ("memory", _Memory),
        ("pointer", ctypes.c_void_p),
        ("padding", ctypes.c_char * 64),
    )


class _Argument(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("content", _Content))


def produce_with_header(bootstrap: str, topic: str, value: bytes, name: bytes) -> None:
    """Writes one record with a header of this name, which need not be UTF-8."""
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    (library,) = folder.glob("librdkafka*")
    c = ctypes.CDLL(str(library))
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_ssize_t
    for function, result, arguments in (
        (c.rd_kafka_conf_new, pointer, ()),
        (c.rd_kafka_conf_set, ctypes.c_int, (pointer, text, text, text, size)),
        (c.rd_kafka_new, pointer, (ctypes.c_int, pointer, text, size)),
        (c.rd_kafka_headers_new, pointer, (size,)),
        (c.rd_kafka_header_add, ctypes.c_int, (pointer, text, size, text, size)),
        (c.rd_kafka_produceva, pointer, (pointer, pointer, size)),
        (c.rd_kafka_flush, ctypes.c_int, (pointer, ctypes.c_int)),
        (c.rd_kafka_destroy, None, (pointer,)),
    ):
        function.restype, function.argtypes = result, arguments
    conf = c.rd_kafka_conf_new()
    reason = ctypes.create_string_buffer(500)
    assert c.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap.encode(), reason, 500) == 0
    producer = c.rd_kafka_new(0, conf, reason, 500)
    assert producer, reason.value
    headers = c.rd_kafka_headers_new(1)
    assert c.rd_kafka_header_add(headers, name, len(name), b"1", 1) == 0
    given = (_Argument * 4)()
    given[0].kind, given[0].content.text = _TOPIC, topic.encode()
    copied = ctypes.create_string_buffer(value, len(value))
    given[1].kind = _VALUE
    given[1].content.memory = _Memory(ctypes.addressof(copied), len(value))
    given[2].kind, given[2].content.number = _MSGFLAGS, _COPY
    given[3].kind, given[3].content.pointer = _HEADERS, headers
    assert not c.rd_kafka_produceva(producer, given, 4)
    assert c.rd_kafka_flush(producer, 30_000) == 0
    c.rd_kafka_destroy(producer)
