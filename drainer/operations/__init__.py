"""Operations of the commands, without a terminal: check, prepare, and run the engine."""
