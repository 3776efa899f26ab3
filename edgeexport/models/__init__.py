"""Models, one family a file: VARIANTS as a literal for the catalogue, and `model(name)`."""
