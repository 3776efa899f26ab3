"""A server package behind Ray Serve: each method and the pipeline over HTTP, requests batched up to
the program's greatest size.
"""

MAX_BODY_BYTES = 256 * 1024 * 1024
"""The largest body of a request, unless the user says another: a batch of 16 clips for MViT is 154
MB.
"""
