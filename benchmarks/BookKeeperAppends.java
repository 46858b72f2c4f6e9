import java.util.Arrays;
import java.util.Enumeration;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/** Appends with a bounded number under way and reads back, one round for each byte that is read; prints one line of figures each. */
public class BookKeeperAppends {
    public static void main(String[] args) throws Exception {
        int entryBytes = Integer.parseInt(args[2]);
        int entries = Integer.parseInt(args[3]);
        int window = Integer.parseInt(args[4]);
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(args[0]);
        conf.setUseV2WireProtocol(args[1].equals("v2"));
        // Without this it holds itself back to 5,000 requests a second.
        conf.setThrottleValue(0);
        byte[] payload = new byte[entryBytes];
        new Random(1).nextBytes(payload);
        try (BookKeeper client = new BookKeeper(conf)) {
            while (System.in.read() >= 0) {
                LedgerHandle ledger = client.createLedger(3, 3, 2, BookKeeper.DigestType.CRC32C, new byte[0]);
                Semaphore room = new Semaphore(window);
                AtomicInteger failed = new AtomicInteger();
                long[] nanos = new long[entries];
                long start = System.nanoTime();
                for (int entry = 0; entry < entries; entry++) {
                    room.acquire();
                    long begun = System.nanoTime();
                    int number = entry;
                    ledger.asyncAddEntry(payload, (code, handle, id, context) -> {
                        nanos[number] = System.nanoTime() - begun;
                        if (code != 0) {
                            failed.incrementAndGet();
                        }
                        room.release();
                    }, null);
                }
                room.acquire(window);
                double seconds = (System.nanoTime() - start) / 1e9;
                ledger.close();
                if (failed.get() > 0) {
                    // The ledger ended there: it cannot be read as a whole.
                    System.out.printf("figures %d 0 0 0 0%n", failed.get());
                    continue;
                }
                Arrays.sort(nanos);
                LedgerHandle reader = client.openLedger(ledger.getId(), BookKeeper.DigestType.CRC32C, new byte[0]);
                long read = 0;
                long readStart = System.nanoTime();
                for (int first = 0; first < entries; first += 100) {
                    Enumeration<LedgerEntry> found = reader.readEntries(first, Math.min(first + 99, entries - 1));
                    while (found.hasMoreElements()) {
                        read += found.nextElement().getEntry().length;
                    }
                }
                double readSeconds = (System.nanoTime() - readStart) / 1e9;
                reader.close();
                System.out.printf("figures %d %.1f %.6f %.6f %.1f%n", failed.get(), entries / seconds,
                        nanos[entries / 2] / 1e9, nanos[(int) (entries * 0.99)] / 1e9, read / readSeconds / 1e6);
            }
        }
        System.exit(0);
    }
}
