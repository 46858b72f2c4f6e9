"""The backlog quotas of a level of policies: by type, so not one field like all others."""

from dataclasses import replace

from anabranch.admin import policy_values as values
from anabranch.admin.endpoints import Call, Endpoint, Handler
from anabranch.admin.policy_rows import Level, without
from anabranch.security import Right


def quota_endpoints(level: Level, get: Handler) -> list[Endpoint]:
    """The three rows of quotas; how they are shown is each level's own."""

    async def put(call: Call) -> None:
        quota, kind = values.quota(call), values.quota_type(call)
        await level.change_by(
            call, lambda old: replace(old, backlog_quotas={**old.backlog_quotas, kind: quota})
        )

    async def clear(call: Call) -> None:
        kind = values.quota_type(call)
        await level.change_by(
            call, lambda old: replace(old, backlog_quotas=without(old.backlog_quotas, kind))
        )

    def row(method: str, page: str, serve: Handler, words: str) -> Endpoint:
        path = f"{level.path}/{page}"
        return Endpoint(method, path, Right.ADMINISTER, serve, f"{words} of a {level.words}")

    return [
        row("GET", "backlogQuotaMap", get, "Backlog quotas"),
        row("POST", "backlogQuota", put, "Set a backlog quota"),
        row("DELETE", "backlogQuota", clear, "Clear a backlog quota"),
    ]
