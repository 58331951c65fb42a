"""The findings, as a page."""
