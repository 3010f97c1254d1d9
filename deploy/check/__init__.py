"""`diem check` and `diem topics`: the guidelines of the thesis (section 7.2) as an audit of a running cluster."""
