"""The REST interface: data and catalogue for readers, writes for holders of the write key, and the built page.

Reading order: ``app`` (routes), ``guard``, ``cors`` and ``cost`` (middleware), ``reads``, ``door`` (what may be
written), ``data``, ``bulk`` and ``write_stream`` (writes), ``catalogue``, ``history``, ``tokens``, ``status`` and
``page`` (resources), ``retained`` (reads of a served topic), ``rendered`` (versions ready to send), ``fast_reads`` and
``fast_writes`` (the same without routes), ``requests`` (headers), ``problems`` (errors as answers). ``keys`` is a
separate application on the internal listener; ``openapi.json`` describes the interface, ``asyncapi.json`` that of the
WebSocket servers.
"""

from services.data.api.app import Api, ApiOptions, make_api

__all__ = ["Api", "ApiOptions", "make_api"]
