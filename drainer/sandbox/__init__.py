"""A real Kafka on this machine, for demos, scenarios and tests: one broker.

Nothing here speaks to Kafka as a client does, and nothing prints: progress goes to a callback.
"""

from drainer.sandbox.sandbox import SandboxState, down, up

__all__ = ["SandboxState", "down", "up"]
