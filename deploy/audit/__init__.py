"""The software that DIEM is made of: known vulnerabilities of its locked packages, and their bill of materials.

Reading order: ``locks`` (packages of all lock files), ``sbom`` (CycloneDX, pure), ``advisories`` (asks the services),
``__main__`` (``make audit``, ``make sbom``). Only the repository has the lock files; no service needs this.
"""
