"""Takes drains through a bad night, in which they are killed, stopped and starved, and reports what
was lost."""
