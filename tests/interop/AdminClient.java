import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.TenantInfo;

/** A walk with the admin client: WEB_URL TENANT. Prints one line for each question. */
public class AdminClient {
    public static void main(String[] args) throws Exception {
        String tenant = args[1];
        String namespace = tenant + "/n";
        String topic = "persistent://" + namespace + "/x";
        String parts = "persistent://" + namespace + "/p";
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(args[0]).build()) {
            admin.tenants().createTenant(tenant,
                TenantInfo.builder().adminRoles(Set.of("a")).allowedClusters(Set.of("standalone")).build());
            say("tenant", admin.tenants().getTenantInfo(tenant).getAllowedClusters());
            admin.namespaces().createNamespace(namespace, 4);
            say("bundles", admin.namespaces().getBundles(namespace).getNumBundles());
            admin.namespaces().setRetention(namespace, new RetentionPolicies(10, 5));
            say("retention", admin.namespaces().getRetention(namespace).getRetentionTimeInMinutes());
            admin.topics().createNonPartitionedTopic(topic);
            admin.topics().createPartitionedTopic(parts, 3);
            say("partitions", admin.topics().getPartitionedTopicMetadata(parts).partitions);
            admin.topics().createSubscription(parts, "s", MessageId.earliest);
            say("subscriptions", admin.topics().getSubscriptions(parts));
            say("topics", new TreeSet<>(admin.topics().getList(namespace)).size());
            admin.topicPolicies().setMessageTTL(topic, 60);
            say("ttl", admin.topicPolicies().getMessageTTL(topic));
            say("applied", admin.topicPolicies().getRetention(topic, true).getRetentionSizeInMB());
            admin.topicPolicies().removeMessageTTL(topic);
            say("removed", admin.topicPolicies().getMessageTTL(topic));
            say("stats", admin.topics().getStats(topic).getSubscriptions().size());
            say("together", admin.topics().getPartitionedStats(parts, true).getPartitions().size());
            say("internal", admin.topics().getInternalStats(topic).state);
            say("leader", admin.brokers().getLeaderBroker().getServiceUrl().equals(args[0]));
            admin.namespaces().unload(namespace);
            try {
                admin.topics().getStats(topic + "-that-is-none");
                say("unknown", "found");
            } catch (PulsarAdminException.NotFoundException gone) {
                say("unknown", gone.getStatusCode());
            }
            admin.topics().deletePartitionedTopic(parts);
            admin.topics().delete(topic);
            admin.namespaces().deleteNamespace(namespace);
            admin.tenants().deleteTenant(tenant);
            say("tenants", admin.tenants().getTenants().contains(tenant) ? List.of(tenant) : List.of());
        }
        System.out.flush();
        System.exit(0);
    }

    static void say(String what, Object value) {
        System.out.println("### " + what + " " + value);
    }
}
