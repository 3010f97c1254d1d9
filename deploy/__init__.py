"""The command line `diem`: runs one process, or all of a scaling mode on this machine, and looks at what runs."""
