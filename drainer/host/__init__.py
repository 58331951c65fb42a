"""The machine that a drain runs on: its processes, its files, its errors and its Java."""
