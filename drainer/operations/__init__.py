"""The operations behind the commands, without a terminal: check, prepare, and run a drain."""
