"""Packages for single fields, on the public interfaces of DIEM, as another package could be: ``energy``."""
