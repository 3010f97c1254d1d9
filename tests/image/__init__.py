"""The image of ``make image``, with what a cluster does to it: ``make image-test``."""
