"""What the walk with `pulsar-admin` types: commands, and which of them are refused."""

X, P = "persistent://acme/n/x", "persistent://acme/n/p"

NAMESPACE_POLICIES = {
    "retention": "--time 10m --size 5M",
    "message-ttl": "--messageTTL 60",
    "deduplication": "--enable",
    "deduplication-snapshot-interval": "--interval 10",
    "persistence": "-e 3 -w 2 -a 2 -r 1.0",
    "auto-topic-creation": "--enable --type non-partitioned",
    "auto-subscription-creation": "--enable",
    "dispatch-rate": "--msg-dispatch-rate 100",
    "subscription-dispatch-rate": "--msg-dispatch-rate 100",
    "replicator-dispatch-rate": "--msg-dispatch-rate 100",
    "publish-rate": "--msg-publish-rate 100",
    "subscribe-rate": "--subscribe-rate 100",
    "delayed-delivery": "--enable --time 1s",
    "inactive-topic-policies": "--enable-delete-while-inactive --max-inactive-duration 1h "
    "--delete-mode delete_when_no_subscriptions",
    "max-producers-per-topic": "--max-producers-per-topic 5",
    "max-consumers-per-topic": "--max-consumers-per-topic 5",
    "max-consumers-per-subscription": "--max-consumers-per-subscription 5",
    "max-unacked-messages-per-consumer": "--max-unacked-messages-per-topic 5",
    "max-unacked-messages-per-subscription": "--max-unacked-messages-per-subscription 5",
    "max-subscriptions-per-topic": "--max-subscriptions-per-topic 5",
    "max-topics-per-namespace": "--max-topics-per-namespace 50",
    "subscription-expiration-time": "--time 5",
    "compaction-threshold": "--threshold 0",
    "subscription-types-enabled": "--types Shared,Exclusive",
}
NAMESPACE_CHOICES = {
    "schema-autoupdate-strategy": "--compatibility Forward",
    "allowed-clusters": "--clusters standalone",
    "encryption-required": "--disable",
    "subscription-auth-mode": "--subscription-auth-mode None",
    "schema-compatibility-strategy": "--compatibility FORWARD",
    "schema-validation-enforce": "--disable",
    "is-allow-auto-update-schema": "--enable",
}
TOPIC_POLICIES = {
    "retention": "--time 10m --size 5M",
    "message-ttl": "--ttl 60",
    "backlog-quota": "--limit 10M --policy producer_exception",
    "max-producers": "--max-producers 5",
    "max-consumers": "--max-consumers 5",
    "max-consumers-per-subscription": "--max-consumers-per-subscription 5",
    "max-unacked-messages-per-consumer": "--maxNum 5",
    "max-unacked-messages-per-subscription": "--maxNum 5",
    "max-subscriptions-per-topic": "--max-subscriptions-per-topic 5",
    "max-message-size": "--max-message-size 1000",
    "dispatch-rate": "--msg-dispatch-rate 100",
    "subscription-dispatch-rate": "--msg-dispatch-rate 100",
    "publish-rate": "--msg-publish-rate 100",
    "subscribe-rate": "--subscribe-rate 100",
    "persistence": "-e 3 -w 2 -a 2 -r 1.0",
    "deduplication": "--enable",
    "delayed-delivery": "--enable --time 1s",
    "inactive-topic-policies": "--enable-delete-while-inactive --max-inactive-duration 1h "
    "--delete-mode delete_when_no_subscriptions",
    "schema-compatibility-strategy": "--strategy FORWARD",
    "compaction-threshold": "--threshold 0",
    "subscription-types-enabled": "--types Shared,Exclusive",
    "auto-subscription-creation": "--enable",
    "deduplication-snapshot-interval": "--interval 10",
    "replicator-dispatch-rate": "--msg-dispatch-rate 100",
    "replication-clusters": "--clusters standalone",
}
NOT_SERVED = [
    f"topics compact {X}",
    f"topics set-replicated-subscription-status {X} --subscription s --enable",
    f"topics set-shadow-topics {X} --topics {P}",
    f"topics create-shadow-topic persistent://acme/n/shadow --source {X}",
    f"topicPolicies set-offload-policies {X} --driver filesystem",
    f"topicPolicies set-entry-filters-per-topic {X} --entry-filters-name f",
    "namespaces set-anti-affinity-group acme/n --group g",
    "namespaces set-compaction-threshold acme/n --threshold 1M",
    f"topicPolicies set-compaction-threshold {X} --threshold 1M",
    "namespaces set-bookie-affinity-group acme/n --primary-group g",
    "namespaces set-offload-threshold acme/n --size 1M",
    "namespaces set-offload-deletion-lag acme/n --lag 1h",
    "namespaces set-offload-policies acme/n --driver filesystem",
    "namespaces set-entry-filters acme/n --entry-filters-name f",
    "namespaces set-dispatcher-pause-on-ack-state-persistent acme/n",
    "namespaces update-migration-state acme/n --migrated",
    "namespaces split-bundle acme/n --bundle 0x00000000_0x40000000",
    "clusters update-peer-clusters standalone --peer-clusters c2",
    "clusters update-cluster-migration standalone --migrated --broker-url pulsar://c2:6650",
    "clusters create-failure-domain standalone --domain-name d --broker-list b",
    "clusters update-failure-domain standalone --domain-name d --broker-list b",
    "ns-isolation-policy set standalone p --namespaces acme/n --primary b "
    "--auto-failover-policy-type min_available "
    "--auto-failover-policy-params min_limit=1,usage_threshold=80",
    "brokers shutdown --max-concurrent-unload-per-sec 1",
]
"""What comes later: refused as not allowed, and never taken for done."""
TAKEN_BACK = [
    *(f"topics get-shadow-topics {X}", f"topics remove-shadow-topics {X}"),
    f"topics get-replicated-subscription-status {X} --subscription s",
    *(f"topics get-shadow-source {X}", f"topicPolicies get-offload-policies {X}"),
    f"topicPolicies remove-offload-policies {X}",
    f"topicPolicies get-entry-filters-per-topic {X}",
    f"topicPolicies remove-entry-filters-per-topic {X}",
    f"topicPolicies get-dispatcher-pause-on-ack-state-persistent {X}",
    f"topicPolicies remove-dispatcher-pause-on-ack-state-persistent {X}",
    *(f"namespaces delete-{group}-affinity-group acme/n" for group in ("anti", "bookie")),
    *("namespaces clear-offload-deletion-lag acme/n", "namespaces remove-offload-policies acme/n"),
    *("namespaces remove-resource-group acme/n", "namespaces get-entry-filters acme/n"),
    "namespaces remove-entry-filters acme/n",
    "namespaces get-dispatcher-pause-on-ack-state-persistent acme/n",
    "namespaces remove-dispatcher-pause-on-ack-state-persistent acme/n",
    f"topicPolicies delete {X}",
]
"""What goes with it: nothing is set, and taking nothing back is fine."""
ABSENT = [
    "clusters get-cluster-migration standalone",
    "clusters get-failure-domain standalone --domain-name d",
    "clusters delete-failure-domain standalone --domain-name d",
    "namespaces set-resource-group acme/n --resource-group-name g",
    *("ns-isolation-policy list standalone", "ns-isolation-policy get standalone p"),
    *("ns-isolation-policy brokers standalone", "ns-isolation-policy delete standalone p"),
    "ns-isolation-policy broker standalone --broker b",
    "brokers update-dynamic-config --config brokerShutdownTimeoutMs --value 1",
    "brokers delete-dynamic-config --config brokerShutdownTimeoutMs",
    *("transactions coordinators-list", "transactions coordinator-stats"),
    *(f"schemas metadata {X}", "broker-stats allocator-stats default"),
]
"""What Pulsar refuses as well where nothing of it was ever set, or nothing can be."""
OLDER_NAMES = [
    *("namespaces destinations acme/n", f"topics get-backlog-quotas {X}"),
    *(f"topics enable-deduplication {X}", f"topics get-deduplication-enabled {X}"),
    f"topics disable-deduplication {X}",
    *(
        command
        for name, options in (
            ("max-unacked-messages-on-consumer", "--maxNum 5"),
            ("max-unacked-messages-on-subscription", "--maxNum 5"),
            ("maxProducers", "--max-producers 5"),
            ("max-subscriptions", "--max-subscriptions-per-topic 5"),
        )
        for command in (
            f"topics set-{name} {X} {options}",
            f"topics get-{name} {X}",
            f"topics remove-{name} {X}",
        )
    ),
    f"topics get-retention {X}",
    f"topics set-replication-clusters {X} --clusters standalone",
    *(f"topics {verb}-replication-clusters {X}" for verb in ("get", "remove")),
    f"topics set-schema-validation-enforce {X} --enable",
    f"topics get-schema-validation-enforce {X}",
]
"""What has another name by now, and asks the same."""
BEFORE = [
    *("clusters list", "clusters get standalone", "clusters get-peer-clusters standalone"),
    "clusters create c2 --url http://c2:8080 --broker-url pulsar://c2:6650",
    *("clusters update c2 --url http://c2:8081", "clusters delete c2"),
    *("clusters list-failure-domains standalone", "brokers list standalone"),
    *("brokers leader-broker", "brokers healthcheck", "brokers version"),
    *("brokers get-runtime-config", "brokers get-internal-config", "brokers list-dynamic-config"),
    *("brokers get-all-dynamic-config", "brokers backlog-quota-check"),
    "tenants create acme --admin-roles a --allowed-clusters standalone",
    *("tenants get acme", "tenants create acme", "tenants list"),
    "tenants update acme --admin-roles a,b --allowed-clusters standalone",
    *("namespaces create acme/n --bundles 4", "namespaces list acme", "namespaces policies acme/n"),
    *("namespaces bundles acme/n", "namespaces get-clusters acme/n"),
    "namespaces set-clusters acme/n --clusters standalone",
    "namespaces set-backlog-quota acme/n --limit 10M --policy producer_exception",
    *("namespaces get-backlog-quotas acme/n", "namespaces remove-backlog-quota acme/n"),
    "namespaces set-property acme/n -k a -v b",
    *("namespaces get-property acme/n -k a", "namespaces get-properties acme/n"),
    "namespaces set-properties acme/n --properties a=b,c=d",
    *("namespaces remove-property acme/n -k a", "namespaces clear-properties acme/n"),
    "namespaces grant-permission acme/n --role r --actions produce,consume",
    *("namespaces permissions acme/n", "namespaces revoke-permission acme/n --role r"),
    "namespaces grant-subscription-permission acme/n --subscription s --roles r",
    "namespaces subscription-permission acme/n",
    "namespaces revoke-subscription-permission acme/n --subscription s --role r",
    "namespaces get-anti-affinity-namespaces --tenant acme --cluster standalone --group g",
    *("namespaces get-anti-affinity-group acme/n", "namespaces get-bookie-affinity-group acme/n"),
    *("namespaces get-offload-threshold acme/n", "namespaces get-offload-policies acme/n"),
    *("namespaces get-offload-deletion-lag acme/n", "namespaces get-resource-group acme/n"),
    *(f"topics create {X}", f"topics create-partitioned-topic {P} --partitions 2"),
    f"topics update-partitioned-topic {P} --partitions 3",
    *(f"topics get-partitioned-topic-metadata {P}", f"topics create-missed-partitions {P}"),
    *("topics list acme/n", "topics list-partitioned-topics acme/n", "namespaces topics acme/n"),
    *(f"topics lookup {X}", f"topics partitioned-lookup {P}", f"topics bundle-range {X}"),
    f"topics create-subscription {X} --subscription s --messageId earliest",
    f"topics create-subscription {P} --subscription s",
    *(f"topics subscriptions {X}", f"topics subscriptions {P}"),
    *(f"topics update-properties {X} --property a=b", f"topics get-properties {X}"),
    f"topics remove-properties {X} --key a",
    f"topics update-subscription-properties {X} --subscription s --property a=b",
    f"topics get-subscription-properties {X} --subscription s",
    f"topics grant-permission {X} --role r --actions produce",
    *(f"topics permissions {X}", f"topics revoke-permission {X} --role r"),
    f"schemas get {X}",
]
IDS = [
    f"topics get-message-by-id {X} --ledgerId LEDGER --entryId 0",
    f"topics analyze-backlog {X} --subscription s",
    f"topics expire-messages {X} --subscription s --position LEDGER:0",
    f"topics expire-messages-all-subscriptions {X} --expireTime 3600",
    *("namespaces get-topic-positions acme/n --bundle BUNDLE", f"topics unsubscribe {P} -s s"),
]
AFTER = [
    *(f"topics stats {X}", f"topics stats-internal {X}", f"topics info-internal {X}"),
    *(f"topics partitioned-stats {P}", f"topics partitioned-stats-internal {P}"),
    *(f"topics last-message-id {X}", f"topics get-backlog-size {X} --messageId 0:0"),
    f"topics get-message-id {X} --datetime 2020-01-01T00:00:00Z",
    f"topics examine-messages {X} --initialPosition latest --messagePosition 1",
    f"topics peek-messages {X} --subscription s --count 2",
    f"topics skip {X} --subscription s --count 1",
    f"topics expire-messages {X} --subscription s --expireTime 3600",
    f"topics reset-cursor {X} --subscription s --time 10m",
    f"topics clear-backlog {X} --subscription s",
    *(f"topics compaction-status {X}", f"topics offload-status {X}", f"topics trim-topic {X}"),
    *(f"topics truncate {X}", f"topics unload {X}", f"topics unload {P}"),
    *("namespaces clear-backlog acme/n --force", "namespaces clear-backlog acme/n --force --sub s"),
    *("namespaces unload acme/n", "namespaces unload acme/n --bundle 0x00000000_0x40000000"),
    *("namespaces unsubscribe acme/n --sub s", f"topics subscriptions {X}"),
    *(f"topics terminate {X}", f"topics partitioned-terminate {P}", f"topics delete {X}"),
    *(f"topics delete-partitioned-topic {P}", "namespaces delete acme/n", "tenants delete acme"),
    # The last: they close what the tool prints to.
    *("broker-stats load-report", "broker-stats topics", "broker-stats monitoring-metrics"),
    "broker-stats mbeans",
]
REFUSED = {
    *NOT_SERVED,
    *ABSENT,
    "tenants create acme",
    f"topics expire-messages-all-subscriptions {X} --expireTime 3600",
    f"schemas get {X}",
    f"topics expire-messages {X} --subscription s --expireTime 3600",
}
"""What Pulsar refuses as well: what is there, what is not there, what nothing is old enough for."""


REFUSED_HERE_ALONE = {
    "broker-stats allocator-stats default",
    "ns-isolation-policy delete standalone p",
    "ns-isolation-policy broker standalone --broker b",
    "brokers update-dynamic-config --config brokerShutdownTimeoutMs --value 1",
    "brokers delete-dynamic-config --config brokerShutdownTimeoutMs",
    f"schemas metadata {X}",
    f"topics expire-messages {X} --subscription s --expireTime 3600",
}
"""Of those, what a real Pulsar does: it has what is not served here, or says nothing of a lack."""
REFUSED_BY_PULSAR_ALONE = {
    f"topics get-shadow-topics {X}",
    "namespaces get-bookie-affinity-group acme/n",
    "namespaces get-anti-affinity-namespaces --tenant acme --cluster standalone --group g",
    # It looks for the subscription at each topic of the namespace, and not all have it.
    "namespaces clear-backlog acme/n --force --sub s",
}
"""What was never set is an empty answer here, and an error there."""
NOW_AND_THEN_BY_PULSAR = {f"topics expire-messages-all-subscriptions {X} --expireTime 3600"}
"""A real Pulsar refuses it in some runs, and does it in others."""


def policies(noun: str, whose: str, table: dict[str, str], verbs: tuple[str, ...]) -> list[str]:
    return [
        f"{noun} {verb}-{name} {whose}{f' {options}' if verb == 'set' else ''}"
        for name, options in table.items()
        for verb in verbs
    ]
