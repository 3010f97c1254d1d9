"""Lock files, and what writes those of jars and joins them as a bill of materials; not in the wheel."""
