"""Photos and sounds as tensors, and samples that are made where nobody gave any."""
