import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.apache.pulsar.client.api.*;

/**
 * Shows who it is in every way there is, and prints who was let in.
 * URL_RSA URL_TLS URL_EC TOKEN_RSA TOKEN_EC FORGED TRUST CERTIFICATE KEY FRESH: the last is a file with a token
 * that is always fresh.
 */
public class ShowWhoYouAre {
    static void tried(String name, String url, Authentication shown, String trust) {
        ClientBuilder builder = PulsarClient.builder().serviceUrl(url).operationTimeout(20, TimeUnit.SECONDS)
                .lookupTimeout(20, TimeUnit.SECONDS);
        if (shown != null) {
            builder.authentication(shown);
        }
        if (trust != null) {
            builder.tlsTrustCertsFilePath(trust);
        }
        try (PulsarClient client = builder.build();
                Producer<byte[]> producer = client.newProducer().topic("java-" + name).create()) {
            producer.send(new byte[] {1});
            System.out.println("### " + name + " is let in");
        } catch (PulsarClientException error) {
            System.out.println("### " + name + " is refused");
        }
    }

    static Authentication basic(String password) throws Exception {
        return AuthenticationFactory.create("org.apache.pulsar.client.impl.auth.AuthenticationBasic",
                "{\"userId\":\"admin\",\"password\":\"" + password + "\"}");
    }

    /** A token that ends soon is asked for again, and the producer goes on. */
    static void refreshed(String url, Path fresh) throws Exception {
        AtomicInteger asked = new AtomicInteger();
        Supplier<String> supplier = () -> {
            asked.incrementAndGet();
            try {
                return Files.readString(fresh);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url)
                .authentication(AuthenticationFactory.token(supplier)).build();
                Producer<byte[]> producer = client.newProducer().topic("java-refreshed").create()) {
            int before = asked.get();
            for (int wait = 0; wait < 300 && asked.get() == before; wait++) {
                Thread.sleep(100);
            }
            producer.send(new byte[] {1});
            System.out.println("### a token is " + (asked.get() > before ? "renewed" : "never asked for"));
        }
    }

    public static void main(String[] given) throws Exception {
        String rsa = given[0], tls = given[1], ec = given[2], trust = given[6];
        tried("RS256", rsa, AuthenticationFactory.token(given[3]), null);
        tried("ES256", ec, AuthenticationFactory.token(given[4]), null);
        tried("forged", rsa, AuthenticationFactory.token(given[5]), null);
        tried("nobody", rsa, null, null);
        tried("basic", rsa, basic("123456"), null);
        tried("wrong-password", rsa, basic("654321"), null);
        tried("tls", tls, AuthenticationFactory.TLS(given[7], given[8]), trust);
        tried("tls-without-certificate", tls, null, trust);
        refreshed(rsa, Path.of(given[9]));
        System.exit(0);
    }
}
