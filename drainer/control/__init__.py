"""Running drains of this machine, found and steered from other processes, over Unix sockets."""
