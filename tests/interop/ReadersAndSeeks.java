import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/** Reads and seeks with the Java client and prints what it saw: SERVICE_URL TOPIC. */
public class ReadersAndSeeks {
    static final int SECONDS = 20;
    static PulsarClient client;
    static String topic;

    static List<String> rest(Reader<String> reader) throws Exception {
        List<String> values = new ArrayList<>();
        while (reader.hasMessageAvailable()) {
            values.add(reader.readNext(SECONDS, TimeUnit.SECONDS).getValue());
        }
        reader.close();
        return values;
    }

    static ReaderBuilder<String> reader() {
        return client.newReader(Schema.STRING).topic(topic);
    }

    static List<Message<String>> messages(Consumer<String> consumer, int count) throws Exception {
        List<Message<String>> messages = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            Message<String> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
            if (message == null) {
                break;
            }
            messages.add(message);
        }
        return messages;
    }

    static List<String> receive(Consumer<String> consumer, int count) throws Exception {
        return messages(consumer, count).stream().map(Message::getValue).toList();
    }

    static List<MessageId> publish() throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        try (Producer<String> batched = client.newProducer(Schema.STRING).topic(topic)
                .batchingMaxMessages(10).batchingMaxPublishDelay(10, TimeUnit.SECONDS).create()) {
            for (int n = 0; n < 10; n++) {
                sent.add(batched.sendAsync("b" + n));
            }
            batched.flush();
        }
        List<MessageId> ids = new ArrayList<>();
        for (CompletableFuture<MessageId> each : sent) {
            ids.add(each.get());
        }
        try (Producer<String> single = client.newProducer(Schema.STRING).topic(topic)
                .enableBatching(false).create()) {
            for (int n = 0; n < 3; n++) {
                Thread.sleep(5);
                ids.add(single.send("s" + n));
            }
        }
        return ids;
    }

    static void readers(List<MessageId> ids) throws Exception {
        System.out.println("earliest " + rest(reader().startMessageId(MessageId.earliest).create()));
        System.out.println("latest " + rest(reader().startMessageId(MessageId.latest).create()));
        System.out.println("latest inclusive " + rest(reader().startMessageId(MessageId.latest)
                .startMessageIdInclusive().create()));
        System.out.println("in batch " + rest(reader().startMessageId(ids.get(6)).create()));
        System.out.println("in batch inclusive " + rest(reader().startMessageId(ids.get(6))
                .startMessageIdInclusive().create()));
        System.out.println("an hour ago " + rest(reader()
                .startMessageFromRollbackDuration(1, TimeUnit.HOURS).create()));
    }

    static void consumer(List<MessageId> ids) throws Exception {
        Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(topic)
                .subscriptionName("s").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .isAckReceiptEnabled(true).enableBatchIndexAcknowledgment(true)
                .startMessageIdInclusive().subscribe();
        long lastTime = 0;
        for (int n = 0; n < 13; n++) {
            Message<String> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
            lastTime = message.getPublishTime();
            consumer.acknowledgeAsync(message).get(SECONDS, TimeUnit.SECONDS);
        }
        System.out.println("acknowledged with receipts");
        consumer.seek(ids.get(7));
        System.out.println("seek into batch " + receive(consumer, 6));
        consumer.seek(lastTime);
        System.out.println("seek to time " + receive(consumer, 1));
        consumer.seek(MessageId.earliest);
        List<Message<String>> all = messages(consumer, 13);
        System.out.println("seek to earliest " + all.stream().map(Message::getValue).toList());
        consumer.acknowledgeCumulativeAsync(all.get(4)).get(SECONDS, TimeUnit.SECONDS);
        consumer.close();
        consumer = client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s")
                .subscribe();
        System.out.println("after a cumulative receipt " + receive(consumer, 8));
        consumer.close();
    }

    public static void main(String[] arguments) throws Exception {
        topic = arguments[1];
        try (PulsarClient opened = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            client = opened;
            List<MessageId> ids = publish();
            readers(ids);
            consumer(ids);
        }
    }
}
