"""HTTP: a service that refuses requests of whoever was overtaken, and clients that say under which lease they ask.

The middlewares are in `.asgi` and `.wsgi`, both called FencingMiddleware.
"""

from .client import FencingAuth, raise_if_stale
from .gate import TooFar
from .request import RESOURCE, SIGNATURE, TOKEN, OtherResource
from .signature import BadSignature, Signer

__all__ = [
    "FencingAuth",
    "raise_if_stale",
    "Signer",
    "BadSignature",
    "TooFar",
    "OtherResource",
    "TOKEN",
    "RESOURCE",
    "SIGNATURE",
]
