"""What clusters and brokers have in Pulsar and not here: load shedding, transactions, a JVM.

As in `unserved`: the pages are there, show that nothing is set, and refuse to set anything.
"""

from typing import Final

from anabranch.admin.clusters import existing_cluster
from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.refusals import RestRefused
from anabranch.admin.unserved import refused
from anabranch.security import Right

_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_TRANSACTIONS: Final = "/admin/v3/transactions"


async def _no_domains(call: Call) -> object:
    """Groups of brokers that fail together: none."""
    await existing_cluster(call)
    return {}


async def _no_domain(call: Call) -> object:
    await existing_cluster(call, status=412)
    domain, cluster = call.names["name"], call.names["cluster"]
    raise RestRefused(404, f"Domain {domain} for cluster {cluster} does not exist")


async def _no_policies(call: Call) -> object:
    """Which namespaces are kept on which brokers: none are."""
    await existing_cluster(call, status=412)
    words = f"NamespaceIsolationPolicies for cluster {call.names['cluster']} does not exist"
    raise RestRefused(404, words)


async def _never_moved(call: Call) -> object:
    """Where the clients of a cluster are sent: nobody has ever sent them anywhere."""
    await existing_cluster(call)
    raise RestRefused(404, "Cluster does not exist")


async def _existing_here(call: Call) -> None:
    await existing_cluster(call, status=412)


def _of_clusters() -> list[Endpoint]:
    isolation = "namespaceIsolationPolicies"
    rows = [
        refused(method, f"{_CLUSTER}/{page}", what, _existing_here, Right.SUPERUSER)
        for method, page, what in (
            ("POST", "failureDomains/{name}", "naming brokers that fail together"),
            ("POST", f"{isolation}/{{name}}", "keeping namespaces on some brokers"),
            ("POST", "peers", "naming clusters with the same data"),
            ("POST", "migrate", "moving a cluster"),
        )
    ]
    for page, serve, words in (
        ("failureDomains", _no_domains, "Brokers that fail together: none"),
        ("failureDomains/{name}", _no_domain, "Brokers that fail together: none"),
        (isolation, _no_policies, "Namespaces kept on some brokers: none"),
        (f"{isolation}/brokers", _no_policies, "Brokers kept for some namespaces: none"),
        (f"{isolation}/brokers/{{broker}}", _no_policies, "Namespaces kept on a broker: none"),
        (f"{isolation}/{{name}}", _no_policies, "Namespaces kept on some brokers: none"),
        ("migrate", _never_moved, "Where a cluster has moved: nowhere"),
    ):
        rows.append(Endpoint("GET", f"{_CLUSTER}/{page}", Right.SUPERUSER, serve, words))
    for page, gone in (
        ("failureDomains/{name}", _no_domain),
        (f"{isolation}/{{name}}", _no_policies),
    ):
        path = f"{_CLUSTER}/{page}"
        rows.append(Endpoint("DELETE", path, Right.SUPERUSER, gone, "There is none to take back"))
    return rows


# --- brokers ---------------------------------------------------------------------------------


async def _not_dynamic(call: Call) -> object:
    verb = "delete" if call.origin.method == "DELETE" else "update"
    raise RestRefused(412, f"Can't {verb} non-dynamic configuration")


async def _no_beans(_: Call) -> object:
    return []


async def _no_allocator(call: Call) -> object:
    raise RestRefused(406, f"there is no allocator {call.names['name'][:80]!r}")


async def _nothing_to_check(_: Call) -> None:
    """Whoever is let in may know."""


def _of_brokers() -> list[Endpoint]:
    brokers, stats = "/admin/v2/brokers", "/admin/v2/broker-stats"
    superuser = Right.SUPERUSER
    stopping = "stopping a broker from afar"
    return [
        Endpoint("POST", f"{brokers}/configuration/{{key}}/{{value}}", superuser, _not_dynamic,
                 "Refused: settings stay as they are"),
        Endpoint("DELETE", f"{brokers}/configuration/{{key}}", superuser, _not_dynamic,
                 "Refused: settings stay as they are"),
        Endpoint("GET", f"{stats}/mbeans", superuser, _no_beans, "Beans of a JVM: none"),
        Endpoint("GET", f"{stats}/allocator-stats/{{name}}", superuser, _no_allocator,
                 "Allocators of a JVM: none"),
        refused("POST", f"{brokers}/shutdown", stopping, _nothing_to_check, superuser),
    ]  # fmt: skip


# --- what places bundles, and transactions -----------------------------------------------------

_QUOTAS: Final = "/admin/v2/resource-quotas"
_OF_A_BUNDLE: Final = f"{_QUOTAS}/{{tenant}}/{{namespace}}/{{bundle}}"
_GROUP: Final = "/admin/v2/resourcegroups/{group}"
_TRANSACTION: Final = "{mostBits}/{leastBits}"
_OF_TOPIC: Final = "{tenant}/{namespace}/{topic}"
_TRANSACTION_PAGES: Final = (
    ("GET", "coordinators"),
    ("GET", "coordinatorStats"),
    ("GET", "coordinatorInternalStats/{coordinator}"),
    ("GET", f"transactionInBufferStats/{_OF_TOPIC}/{_TRANSACTION}"),
    ("GET", f"transactionInPendingAckStats/{_OF_TOPIC}/{{subscription}}/{_TRANSACTION}"),
    ("GET", f"transactionBufferStats/{_OF_TOPIC}"),
    ("GET", f"transactionBufferInternalStats/{_OF_TOPIC}"),
    ("GET", f"pendingAckStats/{_OF_TOPIC}/{{subscription}}"),
    ("GET", f"pendingAckInternalStats/{_OF_TOPIC}/{{subscription}}"),
    ("GET", f"positionStatsInPendingAck/{_OF_TOPIC}/{{subscription}}/{{ledger}}/{{entry}}"),
    ("GET", f"transactionMetadata/{_TRANSACTION}"),
    ("GET", "slowTransactions/{timeout}"),
    ("POST", "transactionCoordinator/replicas"),
    ("POST", f"abortTransaction/{_TRANSACTION}"),
)


async def _no_transactions(_: Call) -> object:
    raise RestRefused(503, "This Broker is not configured with transactionCoordinatorEnabled=true.")


async def _no_groups(_: Call) -> object:
    return []


async def _no_group(_: Call) -> object:
    raise RestRefused(404, "ResourceGroup does not exist")


def _of_all() -> list[Endpoint]:
    superuser = Right.SUPERUSER
    rows = [
        Endpoint(method, f"{_TRANSACTIONS}/{page}", Right.KNOWN, _no_transactions,
                 "Refused: transactions are not served")
        for method, page in _TRANSACTION_PAGES
    ]  # fmt: skip
    rows += [
        refused(method, path, "weighing of bundles", _nothing_to_check, superuser)
        for path, methods in ((_QUOTAS, ("GET", "POST")), (_OF_A_BUNDLE, ("GET", "POST", "DELETE")))
        for method in methods
    ]
    return [
        *rows,
        Endpoint("GET", "/admin/v2/resourcegroups", superuser, _no_groups, "Groups: none"),
        Endpoint("GET", _GROUP, superuser, _no_group, "There are no groups"),
        Endpoint("DELETE", _GROUP, superuser, _no_group, "There are no groups"),
        refused("PUT", _GROUP, "sharing by groups", _nothing_to_check, superuser),
    ]


UNSERVED_CLUSTER_ENDPOINTS: Final = (*_of_clusters(), *_of_brokers(), *_of_all())
