"""Code that runs in a task: the handler, its engine, and the fence around its calls."""
