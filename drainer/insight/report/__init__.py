"""What was found, as a page."""
