"""Finds and steers the running drains of this machine from other processes, by Unix sockets."""
