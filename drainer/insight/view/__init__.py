"""What was found, on a terminal."""
