"""The OpenAPI description of the web interface, made from the table of endpoints. Pure."""

import re
from collections.abc import Iterable
from typing import Any, Final

from anabranch import __version__
from anabranch.admin.endpoints import Endpoint
from anabranch.security import Right

_NAME: Final = re.compile(r"\{(\w+)\}")


def describe(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Anabranch", "version": __version__},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": paths,
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    open_to_all = endpoint.right is Right.ANYBODY
    return {
        "summary": endpoint.words,
        "description": f"Right: {endpoint.right.value}",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _NAME.findall(endpoint.path)
        ],
        "responses": {
            "2XX": {"description": "done"},
            "default": {
                "description": "refused",
                "content": {
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "properties": {"reason": {"type": "string"}},
                        }
                    }
                },
            },
        },
        "security": [] if open_to_all else [{"token": []}],
    }
