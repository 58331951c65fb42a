"""Shows how near the time left that a running drain prints is to the truth."""
