import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/** Retry and dead letters, Failover and Key_Shared; prints what it saw, one line each. */
public class LettersAndTypes {
    static PulsarClient client;
    static String topic;

    static void letters() throws Exception {
        String name = topic + "-letters";
        DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(2)
                .retryLetterTopic(name + "-RETRY").deadLetterTopic(name + "-DLQ").build();
        Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(name).subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared).enableRetry(true).deadLetterPolicy(policy).subscribe();
        Consumer<String> dead = client.newConsumer(Schema.STRING).topic(name + "-DLQ").subscriptionName("d").subscribe();
        try (Producer<String> producer = client.newProducer(Schema.STRING).topic(name).create()) {
            producer.send("bad");
            producer.send("good");
        }
        List<String> attempts = new ArrayList<>();
        for (int each = 0; each < 4; each++) {
            Message<String> message = consumer.receive(20, TimeUnit.SECONDS);
            if (message == null) {
                break;
            }
            if (message.getValue().equals("good")) {
                consumer.acknowledge(message);
                continue;
            }
            attempts.add(message.getProperties().getOrDefault("RECONSUMETIMES", "0"));
            consumer.reconsumeLater(message, 300, TimeUnit.MILLISECONDS);
        }
        System.out.println("retries " + attempts);
        Message<String> letter = dead.receive(20, TimeUnit.SECONDS);
        System.out.println("dead letter [" + (letter == null ? "none" : letter.getValue()) + "]");
        consumer.close();
        dead.close();
    }

    static void failover() throws Exception {
        String name = topic + "-failover";
        Set<String> active = ConcurrentHashMap.newKeySet();
        Map<String, Consumer<String>> consumers = new HashMap<>();
        for (String each : List.of("a", "b")) {
            consumers.put(each, client.newConsumer(Schema.STRING).topic(name).subscriptionName("s")
                    .subscriptionType(SubscriptionType.Failover).consumerName(each)
                    .consumerEventListener(new ConsumerEventListener() {
                        public void becameActive(Consumer<?> consumer, int partition) {
                            active.add(each);
                        }

                        public void becameInactive(Consumer<?> consumer, int partition) {
                            active.remove(each);
                        }
                    }).subscribe());
        }
        Thread.sleep(3000);
        int before = active.size();
        String first = active.iterator().next();
        String second = first.equals("a") ? "b" : "a";
        try (Producer<String> producer = client.newProducer(Schema.STRING).topic(name).enableBatching(false).create()) {
            for (int each = 0; each < 6; each++) {
                producer.send("" + each);
            }
        }
        List<String> seen = new ArrayList<>();
        for (int each = 0; each < 6; each++) {
            Message<String> message = consumers.get(first).receive(10, TimeUnit.SECONDS);
            seen.add(message.getValue());
            if (each == 2) {
                consumers.get(first).acknowledgeCumulative(message);
            }
        }
        consumers.get(first).close();
        for (int each = 0; each < 3; each++) {
            seen.add(consumers.get(second).receive(10, TimeUnit.SECONDS).getValue());
        }
        System.out.println("active at first [" + before + "]");
        System.out.println("failover " + seen + " " + active.contains(second));
        consumers.get(second).close();
    }

    static void keys() throws Exception {
        String name = topic + "-keys";
        List<Consumer<String>> consumers = new ArrayList<>();
        for (int each = 0; each < 3; each++) {
            consumers.add(client.newConsumer(Schema.STRING).topic(name).subscriptionName("s")
                    .subscriptionType(SubscriptionType.Key_Shared).receiverQueueSize(10).subscribe());
        }
        try (Producer<String> producer = client.newProducer(Schema.STRING).topic(name)
                .batcherBuilder(BatcherBuilder.KEY_BASED).create()) {
            for (int each = 0; each < 300; each++) {
                producer.newMessage().key("k" + each % 20).value("" + each).sendAsync();
            }
            producer.flush();
        }
        Map<String, Set<Integer>> owners = new HashMap<>();
        Map<String, Integer> last = new HashMap<>();
        int count = 0;
        boolean ordered = true;
        for (int idle = 0; count < 300 && idle < 200; idle++) {
            for (int index = 0; index < 3; index++) {
                Message<String> message;
                while ((message = consumers.get(index).receive(20, TimeUnit.MILLISECONDS)) != null) {
                    int value = Integer.parseInt(message.getValue());
                    ordered &= last.getOrDefault(message.getKey(), -1) < value;
                    last.put(message.getKey(), value);
                    owners.computeIfAbsent(message.getKey(), key -> new HashSet<>()).add(index);
                    consumers.get(index).acknowledge(message);
                    count++;
                }
            }
        }
        boolean single = owners.values().stream().allMatch(having -> having.size() == 1);
        System.out.println("keys [" + count + ", " + owners.size() + ", " + ordered + ", " + single + "]");
    }

    public static void main(String[] arguments) throws Exception {
        topic = arguments[1];
        client = PulsarClient.builder().serviceUrl(arguments[0]).build();
        letters();
        failover();
        keys();
        client.close();
        System.exit(0);
    }
}
