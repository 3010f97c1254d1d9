"""``diem check`` and ``diem topics``: the guidelines of the thesis (section 7.2) as an audit of a running cluster.

Reading order: ``facts`` (input and results of the rules), ``collect`` (facts of a running cluster), ``rules_cluster``,
``rules_topics`` and ``rules_clients`` (one function per guideline), ``report`` (table of rules, audit, output),
``tools`` (command lines of Kafka's tools). The commands are in ``tools.commands.check``.

A new rule is a function and a ``Rule`` in the tuple of its subject's module; a fact that it needs comes from
``collect``, and a new group of rules needs a row in ``report.TABLE``.
"""
