"""The body of a message while it is read. It limits memory: a few bytes can become very many."""

from __future__ import annotations

from drainer.decoding import Undecodable
from drainer.raw_json import MOST_NESTED

# The values of a body may take so much memory, and so many further bytes for each of its bytes.
FREE_BYTES = 4 * 1024 * 1024
PER_BYTE = 100
# Estimates of what a list or object, a value in it, and a name take in CPython's memory.
CONTAINER_BYTES, VALUE_BYTES, NAME_BYTES = 80, 48, 64
LONGEST_NUMBER = 10  # A number of 64 bits takes at most so many bytes.


class Body:
    """The bytes of a body, the place of the next one, and the memory that is left for values."""

    __slots__ = ("at", "data", "depth", "left", "size")

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.depth = data, 0, 0
        self.size = len(data)
        self.left = FREE_BYTES + PER_BYTE * self.size

    @property
    def made_bytes(self) -> int:
        """The memory that the values take, in bytes."""
        return FREE_BYTES + (PER_BYTE + 1) * self.size - self.left

    def spend(self, size: int) -> None:
        """Count the memory of a value before it is made. Raises Undecodable when it is too much."""
        self.left -= size
        if self.left < 0:
            most = FREE_BYTES + PER_BYTE * self.size
            raise Undecodable(f"{self.size:,} bytes become values of more than {most:,} bytes")

    def enter(self, size: int) -> None:
        """Count the memory of a list or object, and raise ``depth``. The caller lowers it again."""
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise Undecodable(f"it is nested deeper than {MOST_NESTED}")
        self.spend(size)

    def take(self, size: int) -> bytes:
        """Read ``size`` bytes. Raises IndexError when there are fewer."""
        at = self.at
        self.at = end = at + size
        if size < 0 or end > self.size:
            raise IndexError
        return self.data[at:end]

    def number(self) -> int:
        """Read a number of variable length. Raises IndexError when it does not end."""
        value = shift = 0
        for byte in self.data[self.at : self.at + LONGEST_NUMBER]:
            value += (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.at += shift // 7
                return value
        raise IndexError

    def signed(self) -> int:
        """Read a zigzag number of variable length. Raises IndexError when it does not end."""
        byte = self.data[self.at]
        if byte < 0x80:
            self.at += 1
            return byte >> 1 ^ -(byte & 1)
        value = self.number()
        return value >> 1 ^ -(value & 1)
