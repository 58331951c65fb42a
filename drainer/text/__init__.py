"""Makes text safe for people and programs, masks personal data in it, and removes secrets."""
