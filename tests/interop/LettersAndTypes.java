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
        // Who is active is decided anew for a while after somebody has come: until it stays the same.
        Set<String> told = Set.of();
        for (int same = 0, wait = 0; wait < 300 && same < 30; wait++, Thread.sleep(100)) {
            same = active.size() == 1 && active.equals(told) ? same + 1 : 0;
            told = Set.copyOf(active);
        }
        int before = told.size();
        String first = told.iterator().next();
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
        // The client tells its listener on a thread of its own: a message may be received sooner.
        for (int wait = 0; wait < 100 && !active.contains(second); wait++) {
            Thread.sleep(100);
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

    /** A consumer of a pattern hears of a new topic from the broker, long before it would look for one. */
    static void watched() throws Exception {
        String pattern = "persistent://public/default/" + topic + "-watched-.*";
        Consumer<String> consumer = client.newConsumer(Schema.STRING).topicsPattern(pattern)
                .subscriptionName("s").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .patternAutoDiscoveryPeriod(1, TimeUnit.HOURS).subscribe();
        List<String> seen = new ArrayList<>();
        for (String each : List.of("a", "b")) {
            try (Producer<String> producer = client.newProducer(Schema.STRING).topic(topic + "-watched-" + each).create()) {
                producer.send(each);
            }
            Message<String> message = consumer.receive(60, TimeUnit.SECONDS);
            seen.add(message == null ? "nothing" : message.getValue());
        }
        System.out.println("watched " + seen);
        consumer.close();
    }

    static <T> String through(String name, Schema<T> schema, T value) throws Exception {
        String of = topic + "-schema-" + name;
        try (Consumer<T> consumer = client.newConsumer(schema).topic(of).subscriptionName("s").subscribe();
                Producer<T> producer = client.newProducer(schema).topic(of).create()) {
            producer.send(value);
            Message<T> message = consumer.receive(20, TimeUnit.SECONDS);
            return name + "=" + (message != null && value.equals(message.getValue()));
        }
    }

    static void schemas() throws Exception {
        List<String> seen = new ArrayList<>();
        seen.add(through("bool", Schema.BOOL, true));
        seen.add(through("int8", Schema.INT8, (byte) 8));
        seen.add(through("int16", Schema.INT16, (short) 16));
        seen.add(through("int32", Schema.INT32, 32));
        seen.add(through("int64", Schema.INT64, 64L));
        seen.add(through("float", Schema.FLOAT, 1.5f));
        seen.add(through("double", Schema.DOUBLE, 2.5));
        seen.add(through("instant", Schema.INSTANT, java.time.Instant.ofEpochSecond(1)));
        seen.add(through("date", Schema.LOCAL_DATE, java.time.LocalDate.of(2026, 1, 2)));
        seen.add(through("pair", Schema.KeyValue(Schema.STRING, Schema.INT32),
                new org.apache.pulsar.common.schema.KeyValue<>("k", 1)));
        System.out.println("schemas " + seen);
    }

    /** Whoever wants transactions from a server that has none is told so when it builds its client. */
    static void transactions(String url) {
        try {
            PulsarClient.builder().serviceUrl(url).enableTransaction(true).build().newTransaction().build().get();
            System.out.println("transactions [begun]");
        } catch (Exception error) {
            String words = String.valueOf(error);
            // The second is what the client says of a server whose coordinator's topic has no partitions.
            boolean off = words.contains("Transactions are not enabled")
                    || words.contains("doesn't enable the transaction coordinator");
            System.out.println("transactions [" + (off ? "off" : words) + "]");
        }
    }

    public static void main(String[] arguments) throws Exception {
        topic = arguments[1];
        client = PulsarClient.builder().serviceUrl(arguments[0]).build();
        letters();
        failover();
        keys();
        watched();
        schemas();
        transactions(arguments[0]);
        client.close();
        System.exit(0);
    }
}
