"""Rewrites, one a file, named verb_noun. Recipes put them in order."""
