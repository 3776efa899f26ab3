"""Targets, one a file:

TARGET and PRECISIONS as literals for the catalogue, and `recipe(precision)`.
"""
