"""Scripts of the Makefile; ``sbom`` is the only one in Python."""
