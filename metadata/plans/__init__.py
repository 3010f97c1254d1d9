"""Plans: target homes of endpoints, and the migration of the running system to them (docs/internals.md section 5).

Reading order: ``plan`` (its JSON), ``steps`` (the phases of a migration, pure), ``plan_store`` (plans on disk),
``plan_service`` (accept, start, roll back), ``migration_driver`` (writes the steps), ``api`` (HTTP).
"""
