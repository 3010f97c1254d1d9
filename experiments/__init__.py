"""Measurements that are run by hand, and by ``make smoke`` in their smallest size: no product, and no test."""
