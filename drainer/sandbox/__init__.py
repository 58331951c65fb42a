"""A real Kafka of one broker on this machine, for demos, scenarios and tests.

Nothing here is a Kafka client, and nothing prints: progress goes to a callback.
"""

from drainer.sandbox.sandbox import SandboxState, down, up

__all__ = ["SandboxState", "down", "up"]
