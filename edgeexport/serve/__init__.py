"""A server package behind Ray Serve: each method and the pipeline over HTTP, requests batched up to the program's greatest size."""
