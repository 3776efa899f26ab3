"""Precisions, one a file: PRECISION."""
