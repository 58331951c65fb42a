"""What the commands do, without a terminal: look, decide, and set the engine going."""
