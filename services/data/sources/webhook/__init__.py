"""Webhooks: deliveries of other services to ``POST /v1/hooks/NAME`` as changes of endpoints.

Reading order: ``signatures`` (who sent a delivery), ``table`` (``[[source]]``), ``source``; ``services.data.api.hooks``
has the requests.
"""
