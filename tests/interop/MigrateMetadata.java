import java.util.EnumSet;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.pulsar.client.admin.MetadataMigration;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.common.migration.MigrationPhase;
import org.apache.pulsar.common.migration.MigrationState;

/** Replaces a metadata store with the admin client: WEB_URL TARGET. Prints one line for each step. */
public class MigrateMetadata {
    private static final long LONG_MS = 120_000;

    public static void main(String[] args) throws Exception {
        String target = args[1];
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(args[0]).build()) {
            MetadataMigration migration = admin.metadataMigration();
            MigrationState before = migration.status().get();
            say("before", before.getPhase() + " " + before.getTargetUrl());
            say("elsewhere", refused(migration, "oxia://127.0.0.1:1/elsewhere"));
            admin.namespaces().createNamespace("public/before");
            migration.start(target).get();
            say("twice", refused(migration, target));
            Set<MigrationPhase> seen = EnumSet.noneOf(MigrationPhase.class);
            long end = System.currentTimeMillis() + LONG_MS;
            MigrationState state = migration.status().get();
            int made = 0;
            while (System.currentTimeMillis() < end && isUnderWay(state.getPhase())) {
                seen.add(state.getPhase());
                admin.namespaces().createNamespace("public/meanwhile-" + made++);
                state = migration.status().get();
            }
            seen.removeAll(EnumSet.of(MigrationPhase.PREPARATION, MigrationPhase.COPYING));
            say("others", seen);
            say("after", state.getPhase() + " " + state.getTargetUrl().equals(target));
            admin.namespaces().createNamespace("public/after");
            say("namespaces", admin.namespaces().getNamespaces("public").size() - made);
        }
    }

    private static boolean isUnderWay(MigrationPhase phase) {
        return phase != MigrationPhase.COMPLETED && phase != MigrationPhase.FAILED;
    }

    private static int refused(MetadataMigration migration, String target) throws Exception {
        try {
            migration.start(target).get();
            return 0;
        } catch (ExecutionException error) {
            return ((PulsarAdminException) error.getCause()).getStatusCode();
        }
    }

    private static void say(String what, Object value) {
        System.out.println("### " + what + " " + value);
    }
}
