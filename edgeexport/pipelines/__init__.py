"""Real input to real output: one file a pipeline, with OPTIONS and `run`."""
