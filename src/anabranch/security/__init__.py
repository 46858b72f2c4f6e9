"""Who somebody is (authentication) and what they may do (authorization), for wire and web alike.

Nothing here reads files or the network: keys come in as bytes, documents through `Directory`.
"""

from anabranch.security.authentication import Authentication, Evidence
from anabranch.security.authorization import Authorization
from anabranch.security.identity import Caller, Identity
from anabranch.security.rights import Resource, Right

__all__ = [
    "Authentication",
    "Authorization",
    "Caller",
    "Evidence",
    "Identity",
    "Resource",
    "Right",
]
