"""What is known of an emitted file: checks, parity, latency, profiles, and the report about
them.
"""
