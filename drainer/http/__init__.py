"""The handler ``http``: a service in any language handles the sub-messages."""
