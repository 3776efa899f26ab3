"""Platforms that packages are written for, one file each; it is found by its name.

A platform has SUMMARY, LANGUAGE (a key of calls.KEYWORDS), RUNTIME (what it is called where apps
get it), BACKENDS (what that runtime has), DTYPES (what its tensors can be), PIPELINES (those that
it has in its language), GOLDEN (the folder of the golden record in a package), and the functions
`app_id` and `write`; those that can make a file for apps from compiled classes have
`write_compiled`, with its SUFFIX, those whose apps can fetch the program ON_DEMAND.
"""
