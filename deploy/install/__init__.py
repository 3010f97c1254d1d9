"""Scripts of the Makefile; ``chart_modes`` is the only one in Python."""
