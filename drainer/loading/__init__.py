"""Loading of handlers, and of extensions: what is imported on demand."""
