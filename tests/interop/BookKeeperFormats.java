// Makes packets and ledger metadata with BookKeeper's own classes, as each line of the input asks.

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Optional;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;
import org.apache.bookkeeper.proto.LedgerMetadataFormat;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.util.ByteBufList;

public class BookKeeperFormats {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                answer = HEX.formatHex(answer(line.split(" ", -1)));
            } catch (Exception refused) {
                answer = "refused";
            }
            System.out.println("answer " + answer);
        }
    }

    private static byte[] answer(String[] words) throws Exception {
        switch (words[0]) {
            case "key":
                return DigestManager.generateMasterKey(HEX.parseHex(words[1]));
            case "packet":
                ByteBuf payload = Unpooled.wrappedBuffer(HEX.parseHex(words[7]));
                return all((ByteBufList) digests(words).computeDigestAndPackageForSending(
                        Long.parseLong(words[4]), Long.parseLong(words[5]),
                        Long.parseLong(words[6]), payload, null, 0));
            case "confirmed":
                return all(digests(words).computeDigestAndPackageForSendingLac(
                        Long.parseLong(words[4])));
            case "metadata":
                LedgerMetadataSerDe format = new LedgerMetadataSerDe();
                return format.serialize(format.parseConfig(
                        HEX.parseHex(words[2]), Long.parseLong(words[1]), Optional.empty()));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static DigestManager digests(String[] words) throws Exception {
        return DigestManager.instantiate(
                Long.parseLong(words[3]), HEX.parseHex(words[2]),
                LedgerMetadataFormat.DigestType.valueOf(words[1]),
                ByteBufAllocator.DEFAULT, false);
    }

    private static byte[] all(ByteBufList parts) {
        ByteBuf joined = ByteBufList.coalesce(parts);
        byte[] bytes = new byte[joined.readableBytes()];
        joined.readBytes(bytes);
        return bytes;
    }
}
