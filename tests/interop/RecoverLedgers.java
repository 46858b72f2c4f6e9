// Recovers the ledgers that it is told to, with BookKeeper's own client: "recover ID" on its standard
// input is answered with where the ledger ends, a digest of its entries, and from when to when that
// took. "make COUNT" leaves so many of its own open; "confirmed ID" asks what is known to be
// confirmed of a ledger that is left to its writer. The second argument is how often its writers
// tell that, in milliseconds, or 0.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Enumeration;
import java.util.HexFormat;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

public class RecoverLedgers {
    private static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);
    private static final int ENTRIES = 50;
    private static BookKeeper client;

    public static void main(String[] arguments) throws Exception {
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMetadataServiceUri(arguments[0]);
        settings.setExplictLacInterval(Integer.parseInt(arguments[1]));
        client = new BookKeeper(settings);
        System.out.println("ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("make")) {
                make(Integer.parseInt(words[1]));
            } else if (words[0].equals("recover")) {
                recover(Long.parseLong(words[1]));
            } else {
                long id = Long.parseLong(words[1]);
                LedgerHandle ledger = client.openLedgerNoRecovery(id, DigestType.CRC32C, PASSWORD);
                System.out.println("confirmed " + id + " " + ledger.readExplicitLastConfirmed());
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void make(int ledgers) throws Exception {
        for (int made = 0; made < ledgers; made++) {
            LedgerHandle ledger = client.createLedger(3, 3, 2, DigestType.CRC32C, PASSWORD);
            for (int number = 0; number < ENTRIES; number++) {
                ledger.addEntry(("java " + number).getBytes(StandardCharsets.UTF_8));
            }
            System.out.println("made " + ledger.getId() + " " + ENTRIES);
        }
    }

    private static void recover(long id) throws Exception {
        long begun = System.nanoTime();
        LedgerHandle ledger = client.openLedger(id, DigestType.CRC32C, PASSWORD);
        long over = System.nanoTime();
        long last = ledger.getLastAddConfirmed();
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        if (last >= 0) {
            Enumeration<LedgerEntry> entries = ledger.readEntries(0, last);
            while (entries.hasMoreElements()) {
                byte[] payload = entries.nextElement().getEntry();
                digest.update(ByteBuffer.allocate(4).putInt(payload.length).array());
                digest.update(payload);
            }
        }
        String entries = HexFormat.of().formatHex(digest.digest());
        System.out.println("recovered " + id + " " + last + " " + ledger.getLength() + " " + entries
                + " " + begun + " " + over);
    }
}
