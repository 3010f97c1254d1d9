"""Client tokens: signed rights of a client to read endpoints, verified without contacting their issuer.

Reading order: ``claims`` (the rights), ``key_set`` (the issuers' keys, RFC 7517), ``verifier`` (RFC 7519 and 8725),
``errors``; all pure. ``key_source`` keeps a verifier's keys current, from files and URLs.
"""
