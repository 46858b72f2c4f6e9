"""Replacing the metadata store: Pulsar's two requests, and ours with every verb.

Each says by `?store=configuration` that it is about the configuration store.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from anabranch.admin.endpoints import Call, Endpoint, Handler
from anabranch.admin.refusals import RestRefused
from anabranch.migrations.engine.operation import Operation
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.status import Status
from anabranch.migrations.engine.steps import Plan
from anabranch.migrations.engine.table import Verb
from anabranch.security import Right

_PULSARS: Final = "/admin/v2/metadata/migration"
_OURS: Final = "/admin/v2/anabranch/migrations/metadata"
_PARAMETERS: Final = {
    "target": str,
    "nodes_per_s": (int, float),
    "drop_acls": bool,
    "bulk": str,
    "accept_foreign_risk": bool,
}
"""What a start may say, and of which type."""
_WHY_CHARS_MAX: Final = 500
_METADATA: Final = "metadata"
_CONFIGURATION: Final = "configuration"


async def pulsars_start(call: Call) -> None:
    """Start as Pulsar's tools ask for it: the target in the query, or in a body."""
    target = call.query.get("target", "")
    body = call.json()
    if not target and body is not None:
        target = body.get("targetUrl", "") if isinstance(body, dict) else ""
    if not isinstance(target, str) or not target:
        raise RestRefused(400, "say where to: ?target=URL, or a body with targetUrl")
    await _operation(call).start({"target": target}, _who(call))


async def pulsars_status(call: Call) -> object:
    """The phase in Pulsar's words, and the target."""
    return _in_pulsars_words(await _operation(call).status())


async def plan(call: Call) -> object:
    """What a start would do, and what stands against it."""
    return _shown_plan(await _operation(call).plan(_parameters(call)))


async def start(call: Call) -> object:
    """Begin; it goes on by itself."""
    return _shown(await _operation(call).start(_parameters(call), _who(call)))


async def status(call: Call) -> object:
    """All that is known of the newest attempt."""
    found = await _operation(call).status()
    return {**found.as_json(), "lines": list(found.lines())}


def _in_pulsars_words(status: Status) -> dict[str, str | None]:
    target = None if status.state is None else status.state.announced.parameters.get("target")
    return {"phase": status.outward.value, "targetUrl": target}


def _verb(verb: Verb) -> Handler:
    async def ask(call: Call) -> object:
        body = _fields(call, {"why": str})
        why = str(body.get("why", ""))
        if len(why) > _WHY_CHARS_MAX:
            raise RestRefused(400, f"a reason has at most {_WHY_CHARS_MAX} characters")
        return _shown(await _operation(call).ask(verb, _who(call), why))

    return ask


def _operation(call: Call) -> Operation:
    """The operation on the store that `?store=` names, which is the metadata store by default."""
    store = call.query.get("store", _METADATA)
    if store == _METADATA:
        operation, why = call.served.metadata_migration, "it is the server's own"
    elif store == _CONFIGURATION:
        operation = call.served.configuration_migration
        why = "clusters, tenants and policies are in the metadata store, and go where that goes"
    else:
        raise RestRefused(400, f"store is {_METADATA} or {_CONFIGURATION}, not {store[:80]!r}")
    if operation is None:
        raise RestRefused(
            405,
            f"the {store} store of this server cannot be replaced: {why}, or the "
            "setting metadata_migration_targets names no other",
        )
    return operation


def _who(call: Call) -> str:
    return "somebody" if call.caller is None else call.caller.role


def _parameters(call: Call) -> dict[str, str]:
    fields = _fields(call, _PARAMETERS)
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.items()
    }


def _fields(call: Call, known: Mapping[str, Any]) -> dict[str, Any]:
    body = call.json()
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise RestRefused(400, "the body has to be a JSON object")
    for name, value in body.items():
        if name not in known:
            raise RestRefused(400, f"{name[:80]!r} is not known here: {', '.join(known)} are")
        expected = known[name]
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise RestRefused(400, f"{name} cannot be {str(value)[:80]!r}")
    return body


def _shown(state: State) -> dict[str, Any]:
    return {**asdict(state.announced), "paused": state.paused, "error": state.error}


def _shown_plan(plan: Plan) -> dict[str, Any]:
    return {
        "parameters": dict(plan.parameters),
        "figures": dict(plan.figures),
        "notes": list(plan.notes),
        "blockers": [asdict(blocker) for blocker in plan.blockers],
    }


METADATA_MIGRATION_ENDPOINTS: Final = (
    Endpoint("POST", f"{_PULSARS}/start", Right.SUPERUSER, pulsars_start, "Replace the store"),
    Endpoint("GET", f"{_PULSARS}/status", Right.SUPERUSER, pulsars_status, "How far that is"),
    Endpoint("GET", _OURS, Right.SUPERUSER, status, "Replacing the metadata store: all about it"),
    Endpoint("POST", f"{_OURS}/plan", Right.SUPERUSER, plan, "What a start would do"),
    Endpoint("POST", f"{_OURS}/start", Right.SUPERUSER, start, "Replace the metadata store"),
    *(
        Endpoint("POST", f"{_OURS}/{verb.value}", Right.SUPERUSER, _verb(verb), words)
        for verb, words in (
            (Verb.PAUSE, "Stop for a while"),
            (Verb.RESUME, "Go on"),
            (Verb.ABORT, "Give up, and stay with the source"),
            (Verb.ROLLBACK, "Go back to the source after the switch"),
            (Verb.FINALIZE, "Stay with the target: there is no way back"),
        )
    ),
)
