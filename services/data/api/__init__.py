"""The REST interface: data and catalogue to everybody, writes to holders of the write key, and the built page."""

from services.data.api.app import Api, ApiOptions

__all__ = ["Api", "ApiOptions"]
