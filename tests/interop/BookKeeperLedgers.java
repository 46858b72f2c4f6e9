// Writes ledgers with BookKeeper's own client: one with each digest, one that stays open, and then
// as many empty ones as asked for. Prints what it made.

import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

public class BookKeeperLedgers {
    private static final byte[] PASSWORD = "passwd".getBytes(StandardCharsets.UTF_8);
    private static BookKeeper client;
    private static int bookies;

    public static void main(String[] arguments) throws Exception {
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMetadataServiceUri(arguments[0]);
        bookies = Integer.parseInt(arguments[1]);
        client = BookKeeper.newBuilder(settings).build();
        for (DigestType digest : DigestType.values()) {
            WriteHandle ledger = make(digest);
            System.out.println("ledger " + digest + " " + ledger.getId());
            ledger.append("first".getBytes(StandardCharsets.UTF_8));
            ledger.append(new byte[0]);
            ledger.append(new byte[100_000]);
            ledger.close();
        }
        WriteHandle open = make(DigestType.CRC32C);
        open.append("kept open".getBytes(StandardCharsets.UTF_8));
        System.out.println("open " + open.getId());
        System.out.println("ready");
        for (int made = 0; made < Integer.parseInt(arguments[2]); made++) {
            System.out.println("made " + make(DigestType.DUMMY).getId());
        }
        System.out.println("done");
        System.out.flush();
        // Without closing anything, as a client that dies.
        Runtime.getRuntime().halt(0);
    }

    private static WriteHandle make(DigestType digest) throws Exception {
        return client.newCreateLedgerOp()
                .withEnsembleSize(bookies).withWriteQuorumSize(bookies).withAckQuorumSize(1)
                .withDigestType(digest).withPassword(PASSWORD)
                .withCustomMetadata(Map.of("application", "java".getBytes(StandardCharsets.UTF_8)))
                .execute().get();
    }
}
