"""Targets, one a file: TARGET, a literal that is read without running the file, and `recipe`."""
