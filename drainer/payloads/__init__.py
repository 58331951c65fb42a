"""Payloads whose schema is in a registry: Avro, Protobuf and JSON Schema, as Confluent's clients
write them."""

from drainer.extensions import ensure_installed

ensure_installed("registry", "a schema registry")
