"""Figures and tables of the thesis and of the sizing paper (docs/sizing.md section 5).

Reading order: ``program`` (that of the paper, with its two algorithms), ``rules`` (the benchmark that it
compares with), ``tables`` (the numbers), ``figures`` (drawn with matplotlib).
"""
