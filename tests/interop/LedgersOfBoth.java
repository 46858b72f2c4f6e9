import java.nio.charset.StandardCharsets;
import java.util.Enumeration;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/** Reads the ledgers DIGEST=ID that it is given, then writes one of each digest and one more that it leaves open. */
public class LedgersOfBoth {
    private static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(args[0]);
        BookKeeper client = new BookKeeper(conf);
        for (int at = 1; at < args.length; at++) {
            String[] named = args[at].split("=");
            BookKeeper.DigestType digest = BookKeeper.DigestType.valueOf(named[0]);
            LedgerHandle ledger = client.openLedger(Long.parseLong(named[1]), digest, PASSWORD);
            Enumeration<LedgerEntry> entries = ledger.readEntries(0, ledger.getLastAddConfirmed());
            while (entries.hasMoreElements()) {
                String payload = new String(entries.nextElement().getEntry(), StandardCharsets.UTF_8);
                System.out.println("read " + named[0] + " " + payload);
            }
        }
        for (String name : new String[] {"CRC32C", "CRC32", "MAC", "DUMMY", "OPEN"}) {
            String digest = name.equals("OPEN") ? "CRC32C" : name;
            LedgerHandle ledger = client.createLedger(3, 2, 2, BookKeeper.DigestType.valueOf(digest), PASSWORD);
            for (int number = 0; number < 20; number++) {
                ledger.addEntry(("java " + number).getBytes(StandardCharsets.UTF_8));
            }
            if (!name.equals("OPEN")) {
                ledger.close();
            }
            System.out.println("wrote " + name + " " + ledger.getId());
        }
        Runtime.getRuntime().halt(0);
    }
}
