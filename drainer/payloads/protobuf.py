"""Decodes Protobuf by the schemas of a registry, without generated classes."""

from __future__ import annotations

import re
import subprocess
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGKILL, SIGTERM
from tempfile import TemporaryDirectory
from typing import Any

import grpc_tools
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
from confluent_kafka.schema_registry.confluent.types import decimal_pb2 as old_decimal_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from drainer.host.process import bound_to_parent, python_module
from drainer.payloads.body import CONTAINER_BYTES, FREE_BYTES, VALUE_BYTES, Body
from drainer.payloads.registry import Schema
from drainer.split.decoding import Undecodable

MAIN = "drainer/main.proto"
COMPILE_S = 60.0
# The bytes of the library's memory that a message takes, and that each field of its type adds.
MESSAGE_BYTES, FIELD_BYTES = 128, 16
_NUMBER, _SIZED, _GROUP, _END = 0, 2, 3, 4  # Wire types of fields in a body.
_FIXED = {1: 8, 5: 4}  # Wire types of fixed size, with their sizes in bytes.
_FILE_NAME = re.compile(r"[^\0-\x1f:=]+")  # Names that protoc's option -I can map.
_TOOLS = Path(grpc_tools.__file__).parent
# Google's own files, and those that googleapis-common-protos installs beside the tools.
_INCLUDED = [f"-I{_TOOLS / '_proto'}", f"-I{_TOOLS.parent}"]
# Files that Confluent's clients include. Schemas import them without a reference in the registry.
_CONFLUENT = {
    each.DESCRIPTOR.name: FileDescriptorProto.FromString(each.DESCRIPTOR.serialized_pb)
    for each in (meta_pb2, decimal_pb2, variant_pb2, old_decimal_pb2)
}


def protobuf(schema: Schema) -> Callable[[bytes, bytes | None], tuple[Any, int]]:
    """Make a reader that gives messages as dictionaries. Their fields and enums have names.

    A field without presence is always there, if need be with its default. Any other field is there
    only if it is set. Messages in lists and maps have only fields that are set, because a few bytes
    can be very many messages.
    """
    files = compiled({**schema.files(), MAIN: schema}, MAIN)
    # Each schema needs a pool of its own, because its versions have the same names.
    pool = DescriptorPool()
    for file in files.file:
        pool.Add(file)
    main = next(file for file in files.file if file.name == MAIN)
    readers: dict[tuple[int, ...], Callable[[bytes], tuple[Any, int]]] = {}

    def read(body: bytes, after_id: bytes | None) -> tuple[Any, int]:
        indexes, rest = message_indexes(body if after_id is None else after_id)
        found = readers.get(indexes)
        if found is None:
            descriptor = pool.FindMessageTypeByName(_name_at(main, indexes))
            found = readers[indexes] = _reader(pool, descriptor)
        return found(rest if after_id is None else body)

    return read


def _reader(pool: DescriptorPool, descriptor: Descriptor) -> Callable[[bytes], tuple[Any, int]]:
    made, as_dict = GetMessageClass(descriptor), _as_dict(descriptor, {}, True)
    shapes = _Shapes(pool)
    _, shape = shapes.of(descriptor)

    def read(data: bytes) -> tuple[Any, int]:
        body = Body(data)
        if shapes.may_exceed(body):
            _weigh(Body(data), shape, len(data))
        found = as_dict(made.FromString(data), body)
        body.spend(0)
        return found, body.made_bytes

    return read


def message_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes of a message's type in its file, and the bytes that follow them.

    Raises IndexError if the data end within the indexes.
    """
    if data[:1] == b"\0":
        return (0,), data[1:]
    body = Body(data)
    indexes = tuple(body.signed() for _ in range(body.signed()))
    return indexes or (0,), data[body.at :]


def _name_at(file: FileDescriptorProto, indexes: tuple[int, ...]) -> str:
    names, types = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(types):
            raise Undecodable(f"the schema has no message type at {indexes}")
        names.append(types[index].name)
        types = types[index].nested_type
    return ".".join(names)


def compiled(schemas: Mapping[str, Schema], main: str) -> FileDescriptorSet:
    """Compile a file with all that it imports.

    This runs in a child process, because protoc may crash and prints to standard error. Modules of
    the working folder are not imported there.

    Raises Undecodable when the schemas can't be compiled, and OSError or SubprocessError when
    protoc could not run.
    """
    with TemporaryDirectory(prefix="drainer-") as folder:
        described, mapped = FileDescriptorSet(), list[str]()
        described.file.extend(file for name, file in _CONFLUENT.items() if name not in schemas)
        for number, (name, schema) in enumerate(schemas.items()):
            if (file := _described(schema.text)) is not None:
                file.name = name
                described.file.append(file)
                continue
            # The option -I maps the name to a numbered file, so no reference names a file here.
            if not _FILE_NAME.fullmatch(name):
                raise Undecodable(f"it refers to {name!r}, which is not a file's name")
            path = Path(folder, f"{number}.proto")
            path.write_text(schema.text, encoding="utf-8", errors="replace")
            mapped.append(f"-I{name}={path}")
        given, arguments = Path(folder, "given"), Path(folder, "arguments")
        given.write_bytes(described.SerializeToString())
        arguments.write_text("\n".join(mapped), encoding="utf-8", errors="replace")
        command = [
            *python_module("grpc_tools.protoc", f"@{arguments}", *_INCLUDED),
            *(f"--descriptor_set_in={given}", "--include_imports"),
            *("--descriptor_set_out=/dev/stdout", main),
        ]
        try:
            ended = subprocess.run(
                bound_to_parent(command),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMPILE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Undecodable(f"protoc did not end within {COMPILE_S:.0f} s") from None
        # Any other signal means that the schema makes protoc crash.
        if -ended.returncode in (SIGKILL, SIGTERM):
            raise subprocess.SubprocessError(f"protoc was ended by signal {-ended.returncode}")
        if ended.returncode != 0:
            raise Undecodable(
                ended.stderr.decode(errors="replace").strip()[-500:] or "protoc fails"
            )
        return FileDescriptorSet.FromString(ended.stdout)


def _described(text: str) -> FileDescriptorProto | None:
    """Decode a descriptor; return None if the schema is source text, as it usually is.

    Confluent's Python serialiser registers the descriptor, in Base64, in place of the source.
    """
    try:
        return FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (NoBase64, ValueError):
        return None


# The fields that are messages, by number: the bytes that such a message takes, and its own shape.
_Shape = dict[int, tuple[int, Any]]


class _Shapes:
    """Knows which fields are messages themselves, and how much memory these take."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool
        self._known: dict[str, tuple[int, _Shape]] = {}
        # The memory of the largest message in a field that begins with this byte.
        self._sizes: dict[bytes, int] = {}

    def of(self, descriptor: Descriptor) -> tuple[int, _Shape]:
        """Return the bytes that a message of a type takes without its fields, and its shape."""
        name, shape = descriptor.full_name, _Shape()
        if (known := self._known.get(name)) is not None:
            return known
        self._known[name] = MESSAGE_BYTES + FIELD_BYTES * len(descriptor.fields), shape
        for field in (*descriptor.fields, *self._pool.FindAllExtensions(descriptor)):
            if field.message_type is not None:
                size, _ = shape[field.number] = self.of(field.message_type)
                kind = _GROUP if field.type == FieldDescriptor.TYPE_GROUP else _SIZED
                first = (field.number << 3 | kind) & 0x7F
                for byte in (bytes([first]), bytes([first | 0x80])):
                    self._sizes[byte] = max(size, self._sizes.get(byte, 0))
        return self._known[name]

    def may_exceed(self, body: Body) -> bool:
        """Return whether the messages in a body may take too much memory.

        The answer errs on the safe side, because it counts each byte that could begin a message.
        That is far faster than walking through the body, and clears most bodies.
        """
        # Each message takes at least two bytes of the body.
        if body.size * max(self._sizes.values(), default=0) < 2 * FREE_BYTES:
            return False
        return sum(body.data.count(byte) * n for byte, n in self._sizes.items()) > body.left


def _weigh(body: Body, shape: _Shape, end: int) -> None:
    """Count the memory of inner messages before the library makes them. Raises Undecodable."""
    while body.at < end:
        field, kind = divmod(body.number(), 8)
        size = body.number() if kind == _SIZED else _FIXED.get(kind, 0)
        within = shape.get(field)
        if kind == _NUMBER:
            body.number()
        elif kind == _END:
            return
        elif kind == _GROUP or (kind == _SIZED and within is not None):
            of_message, inner = within or (0, {})
            body.spend(of_message)
            _weigh(body, inner, end if kind == _GROUP else min(body.at + size, end))
        else:
            body.at += size


_Convert = Callable[[Any, Body], Any]


def _as_dict(
    descriptor: Descriptor, known: dict[tuple[str, bool], _Convert], whole: bool
) -> _Convert:
    """Make the conversion of messages of a type to dictionaries.

    ``whole`` tells whether fields without presence are there even if they are not set. ``known``
    has the conversions that were made before, and gets the new ones.
    """
    fields: list[tuple[str, bool, _Convert | None]] = []
    required: set[str] = set()

    def as_dict(message: Any, body: Body) -> dict[str, Any]:
        found = {
            name: value if convert is None else convert(value, body)
            for name, has_presence, convert in fields
            if (not has_presence or message.HasField(name))
            and ((value := getattr(message, name)) or has_presence or whole)
        }
        body.left -= CONTAINER_BYTES + 2 * VALUE_BYTES * len(found)
        if required and (missing := required - found.keys()):
            raise Undecodable(f"{descriptor.full_name} has no {min(missing)}, which it requires")
        return found

    # The conversion is registered before those of its fields, because a type may contain itself.
    known[descriptor.full_name, whole] = as_dict
    for field in descriptor.fields:
        fields.append((field.name, field.has_presence, _converter(field, known, whole)))
        if field.is_required:
            required.add(field.name)
    return as_dict


def _converter(
    field: FieldDescriptor, known: dict[tuple[str, bool], _Convert], whole: bool
) -> _Convert | None:
    """Make the conversion of a field's value; None if the value needs none."""
    kind, convert = field.message_type, None
    if kind is not None and kind.GetOptions().map_entry:
        of_value = _converter(kind.fields_by_name["value"], known, False)

        def as_map(found: Any, body: Body) -> dict[Any, Any]:
            body.left -= CONTAINER_BYTES + 2 * VALUE_BYTES * len(found)
            if of_value is None:
                return dict(found)
            return {key: of_value(found[key], body) for key in found}

        return as_map
    if kind is not None:
        whole = whole and not field.is_repeated
        convert = known.get((kind.full_name, whole)) or _as_dict(kind, known, whole)
    elif field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        convert = lambda number, _: names.get(number, number)  # noqa: E731
    if not field.is_repeated:
        return convert

    def as_list(found: Any, body: Body) -> list[Any]:
        body.left -= CONTAINER_BYTES + VALUE_BYTES * len(found)
        return list(found) if convert is None else [convert(each, body) for each in found]

    return as_list
