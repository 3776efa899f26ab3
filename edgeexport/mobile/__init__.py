"""Artifacts as libraries for apps: the program, a typed API, and pre- and post-processing in the platform's own language."""
