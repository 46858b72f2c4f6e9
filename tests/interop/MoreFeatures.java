import com.google.protobuf.Timestamp;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.schema.GenericRecord;

/**
 * SERVICE_URL NAME WEB_URL. What producers, consumers and schemas can do beside letters and types; prints
 * what it saw, one line each. The server deduplicates, and keeps acknowledgements within batches.
 */
public class MoreFeatures {
    static final int WAIT_S = 30;
    static PulsarClient client;
    static String topic;
    static String webUrl;

    public static class Order {
        public String item;
        public int count;

        public Order() {
        }

        Order(String item, int count) {
            this.item = item;
            this.count = count;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Order order && item.equals(order.item) && count == order.count;
        }

        @Override
        public int hashCode() {
            return count;
        }
    }

    static void say(String line) {
        System.out.println(line);
    }

    static Consumer<byte[]> subscribe(String name, SubscriptionType type) throws Exception {
        return client.newConsumer().topic(name).subscriptionName("s").subscriptionType(type).subscribe();
    }

    static <T> Message<T> next(Consumer<T> consumer) throws Exception {
        return consumer.receive(WAIT_S, TimeUnit.SECONDS);
    }

    static void compression() throws Exception {
        List<String> seen = new ArrayList<>();
        for (CompressionType type : CompressionType.values()) {
            for (boolean batched : new boolean[] {false, true}) {
                String name = topic + "-" + type + "-" + batched;
                byte[] value = (type + " ").repeat(500).getBytes();
                int whole = 0;
                try (Consumer<byte[]> consumer = subscribe(name, SubscriptionType.Exclusive);
                        Producer<byte[]> producer = client.newProducer().topic(name).compressionType(type)
                                .enableBatching(batched).batchingMaxPublishDelay(1, TimeUnit.SECONDS).create()) {
                    for (int each = 0; each < 10; each++) {
                        producer.sendAsync(value);
                    }
                    producer.flush();
                    for (int each = 0; each < 10; each++) {
                        whole += Arrays.equals(next(consumer).getValue(), value) ? 1 : 0;
                    }
                }
                seen.add(type + "=" + whole);
            }
        }
        say("compression " + seen);
    }

    static void chunks() throws Exception {
        String name = topic + "-chunks";
        byte[] value = new byte[12_000_000];
        new java.util.Random(7).nextBytes(value);
        try (Consumer<byte[]> consumer = subscribe(name, SubscriptionType.Shared);
                Producer<byte[]> producer = client.newProducer().topic(name).enableChunking(true)
                        .enableBatching(false).create()) {
            producer.newMessage().key("k").property("p", "v").value(value).send();
            producer.send("small".getBytes());
            Message<byte[]> large = next(consumer);
            Message<byte[]> small = next(consumer);
            consumer.acknowledge(large);
            say("chunks [" + Arrays.equals(large.getValue(), value) + ", " + large.getKey() + ", "
                    + large.getProperty("p") + ", " + new String(small.getValue()) + "]");
        }
    }

    static void encryption() throws Exception {
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        KeyPair pair = generator.generateKeyPair();
        CryptoKeyReader keys = new CryptoKeyReader() {
            public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
                return info("PUBLIC", pair.getPublic().getEncoded());
            }

            public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
                return info("PRIVATE", pair.getPrivate().getEncoded());
            }

            EncryptionKeyInfo info(String kind, byte[] key) {
                String text = Base64.getMimeEncoder(64, "\n".getBytes()).encodeToString(key);
                String pem = "-----BEGIN " + kind + " KEY-----\n" + text + "\n-----END " + kind + " KEY-----\n";
                return new EncryptionKeyInfo(pem.getBytes(), null);
            }
        };
        String name = topic + "-encrypted";
        try (Consumer<byte[]> consumer = client.newConsumer().topic(name).subscriptionName("s")
                .cryptoKeyReader(keys).subscribe();
                Consumer<byte[]> blind = client.newConsumer().topic(name).subscriptionName("blind")
                        .cryptoFailureAction(ConsumerCryptoFailureAction.CONSUME).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(name).cryptoKeyReader(keys)
                        .addEncryptionKey("k").create()) {
            producer.send("secret".getBytes());
            Message<byte[]> read = next(consumer);
            Message<byte[]> sealed = next(blind);
            say("encrypted [" + new String(read.getValue()) + ", "
                    + new String(sealed.getData()).contains("secret") + ", "
                    + sealed.getEncryptionCtx().get().getKeys().keySet() + "]");
        }
    }

    static String refusal(ThrowingCall call) {
        try {
            call.run();
            return "none";
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }

    interface ThrowingCall {
        void run() throws Exception;
    }

    static ProducerBuilder<byte[]> producer(String name, ProducerAccessMode mode) {
        return client.newProducer().topic(name).accessMode(mode);
    }

    static void accessModes() throws Exception {
        String name = topic + "-modes";
        Producer<byte[]> first = producer(name, ProducerAccessMode.Exclusive).create();
        String second = refusal(() -> producer(name, ProducerAccessMode.Exclusive).create());
        String shared = refusal(() -> producer(name, ProducerAccessMode.Shared).create());
        CompletableFuture<Producer<byte[]>> waiting =
                producer(name, ProducerAccessMode.WaitForExclusive).createAsync();
        Thread.sleep(500);
        boolean waited = !waiting.isDone();
        first.close();
        Producer<byte[]> waiter = waiting.get(WAIT_S, TimeUnit.SECONDS);
        Producer<byte[]> fencing = producer(name, ProducerAccessMode.ExclusiveWithFencing).create();
        String fenced = refusal(() -> waiter.send("late".getBytes()));
        fencing.send("on".getBytes());
        say("modes [" + second + ", " + shared + ", " + waited + ", " + fenced + "]");
        boolean rises = first.getProducerName() != null && fencing.getLastSequenceId() >= 0;
        say("fencing producer sends [" + rises + "]");
        fencing.close();
    }

    static void deduplication() throws Exception {
        String name = topic + "-dedup";
        List<String> seen = new ArrayList<>();
        try (Consumer<byte[]> consumer = subscribe(name, SubscriptionType.Exclusive)) {
            for (int life = 0; life < 2; life++) {
                try (Producer<byte[]> producer = client.newProducer().topic(name).producerName("p")
                        .enableBatching(false).sendTimeout(0, TimeUnit.SECONDS).create()) {
                    seen.add("" + producer.getLastSequenceId());
                    for (long id : new long[] {3, 5, 5, 4, 7}) {
                        producer.newMessage().sequenceId(id).value((life + ":" + id).getBytes()).send();
                    }
                }
            }
            try (Producer<byte[]> producer = client.newProducer().topic(name).create()) {
                producer.send("end".getBytes());
            }
            for (String value = ""; !value.equals("end"); seen.add(value)) {
                value = new String(next(consumer).getValue());
            }
        }
        say("deduplicated " + seen);
    }

    static void delays() throws Exception {
        String name = topic + "-delays";
        try (Consumer<byte[]> consumer = subscribe(name, SubscriptionType.Shared);
                Producer<byte[]> producer = client.newProducer().topic(name).enableBatching(false).create()) {
            long began = System.currentTimeMillis();
            producer.newMessage().deliverAfter(3, TimeUnit.SECONDS).value("late".getBytes()).send();
            producer.newMessage().deliverAt(began + 1500).value("later".getBytes()).send();
            producer.send("now".getBytes());
            List<String> order = new ArrayList<>();
            List<Boolean> intime = new ArrayList<>();
            for (long due : new long[] {0, 1500, 3000}) {
                order.add(new String(next(consumer).getValue()));
                // Both servers look at the clock in steps.
                intime.add(System.currentTimeMillis() - began >= due - 100);
            }
            say("delayed " + order + " " + intime);
        }
    }

    static void partitions() throws Exception {
        String name = "persistent://public/default/" + topic + "-partitions";
        HttpRequest request = HttpRequest.newBuilder(URI.create(webUrl + "/admin/v2/persistent/public/default/"
                + topic + "-partitions/partitions")).header("Content-Type", "application/json")
                .PUT(HttpRequest.BodyPublishers.ofString("3")).build();
        int status = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).statusCode();
        Set<String> used = new TreeSet<>();
        Map<String, Set<String>> ofKey = new java.util.HashMap<>();
        try (Consumer<byte[]> consumer = subscribe(name, SubscriptionType.Shared);
                Producer<byte[]> producer = client.newProducer().topic(name).enableBatching(false)
                        .messageRoutingMode(MessageRoutingMode.RoundRobinPartition).create()) {
            for (int each = 0; each < 30; each++) {
                producer.newMessage().value(("" + each).getBytes()).send();
                producer.newMessage().key("k" + each % 5).value(("" + each).getBytes()).send();
            }
            Set<MessageId> ids = new HashSet<>();
            for (int each = 0; each < 60; each++) {
                Message<byte[]> message = next(consumer);
                used.add(message.getTopicName().replaceAll(".*-partition-", ""));
                ids.add(message.getMessageId());
                if (message.hasKey()) {
                    ofKey.computeIfAbsent(message.getKey(), key -> new HashSet<>()).add(message.getTopicName());
                }
                consumer.acknowledge(message);
            }
            boolean single = ofKey.values().stream().allMatch(having -> having.size() == 1);
            say("partitions [" + status + ", " + client.getPartitionsForTopic(name).get().size() + ", " + used
                    + ", " + ids.size() + ", " + single + "]");
        }
    }

    static void nonPersistent() throws Exception {
        String name = "non-persistent://public/default/" + topic + "-light";
        try (Consumer<byte[]> consumer = subscribe(name, SubscriptionType.Shared);
                Producer<byte[]> producer = client.newProducer().topic(name).create()) {
            producer.send("passes".getBytes());
            say("non-persistent [" + new String(next(consumer).getValue()) + "]");
        }
    }

    static Consumer<byte[]> batchConsumer(String name) throws Exception {
        return client.newConsumer().topic(name).subscriptionName("s").subscriptionType(SubscriptionType.Shared)
                .enableBatchIndexAcknowledgment(true).isAckReceiptEnabled(true).subscribe();
    }

    /** What was acknowledged of a batch stays so when the consumer comes again. */
    static void batchIndexes() throws Exception {
        String name = topic + "-indexes";
        List<String> rest = new ArrayList<>();
        try (Producer<byte[]> producer = client.newProducer().topic(name).batchingMaxMessages(10)
                .batchingMaxPublishDelay(10, TimeUnit.SECONDS).create()) {
            try (Consumer<byte[]> consumer = batchConsumer(name)) {
                for (int each = 0; each < 10; each++) {
                    producer.sendAsync(("" + each).getBytes());
                }
                producer.flush();
                for (int each = 0; each < 10; each++) {
                    Message<byte[]> message = next(consumer);
                    if (each % 3 == 0) {
                        consumer.acknowledgeAsync(message).get(WAIT_S, TimeUnit.SECONDS);
                    }
                }
            }
            try (Consumer<byte[]> again = batchConsumer(name)) {
                for (Message<byte[]> message; (message = again.receive(3, TimeUnit.SECONDS)) != null;) {
                    rest.add(new String(message.getValue()));
                }
            }
        }
        say("rest of the batch " + rest);
    }

    static <T> String through(String name, Schema<T> schema, T value) throws Exception {
        String of = topic + "-schema-" + name;
        try (Consumer<T> consumer = client.newConsumer(schema).topic(of).subscriptionName("s").subscribe();
                Producer<T> producer = client.newProducer(schema).topic(of).create()) {
            producer.send(value);
            Message<T> message = next(consumer);
            boolean same = value instanceof byte[] bytes ? Arrays.equals(bytes, (byte[]) message.getValue())
                    : value.equals(message.getValue());
            return name + "=" + same;
        }
    }

    static String asRecord(String name, Schema<Order> schema) throws Exception {
        String of = topic + "-auto-" + name;
        try (Consumer<GenericRecord> consumer = client.newConsumer(Schema.AUTO_CONSUME()).topic(of)
                .subscriptionName("s").subscribe();
                Producer<Order> producer = client.newProducer(schema).topic(of).create()) {
            producer.send(new Order("tea", 2));
            GenericRecord record = next(consumer).getValue();
            return name + "=" + record.getField("item") + record.getField("count");
        }
    }

    static void schemas() throws Exception {
        List<String> seen = new ArrayList<>();
        Timestamp moment = Timestamp.newBuilder().setSeconds(7).setNanos(8).build();
        seen.add(through("avro", Schema.AVRO(Order.class), new Order("tea", 2)));
        seen.add(through("json", Schema.JSON(Order.class), new Order("rice", 3)));
        seen.add(through("protobuf", Schema.PROTOBUF(Timestamp.class), moment));
        seen.add(through("native", Schema.PROTOBUF_NATIVE(Timestamp.class), moment));
        seen.add(through("bytes", Schema.BYTES, new byte[] {1, 2, 0, 3}));
        say("more schemas " + seen);
        say("records " + List.of(asRecord("avro", Schema.AVRO(Order.class)), asRecord("json", Schema.JSON(Order.class))));
        String wrong = refusal(() -> client.newProducer(Schema.INT32).topic(topic + "-schema-avro").create().close());
        say("another schema [" + wrong + "]");
    }

    public static void main(String[] arguments) throws Exception {
        topic = arguments[1];
        webUrl = arguments[2];
        client = PulsarClient.builder().serviceUrl(arguments[0]).build();
        compression();
        chunks();
        encryption();
        accessModes();
        deduplication();
        delays();
        partitions();
        nonPersistent();
        batchIndexes();
        schemas();
        client.close();
        System.exit(0);
    }
}
