"""What artifacts are measured beside, a file each: `require()` raises UsageError for what is
missing, `prepare(case)` gives a call to time.
"""
