"""Tries drainer with the versions of Kafka, Python and its libraries that it supports."""
