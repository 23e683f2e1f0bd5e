import java.util.HexFormat;
import java.util.Random;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Writes ../data/java_partitions.csv: where Kafka's own producer sends keys. Run with the broker's archives:
 *  java -cp "lib/*" Partitions.java > java_partitions.csv */
public class Partitions {
    public static void main(String[] arguments) {
        Random random = new Random(17);
        System.out.println("# " + BuiltInPartitioner.class.getProtectionDomain().getCodeSource().getLocation().getPath().replaceAll(".*/", ""));
        System.out.println("key_hex,of_5,of_8,of_96");
        for (int i = 0; i < 600; i++) {
            byte[] key = new byte[1 + i % 40];
            random.nextBytes(key);
            System.out.println(HexFormat.of().formatHex(key)
                + "," + BuiltInPartitioner.partitionForKey(key, 5)
                + "," + BuiltInPartitioner.partitionForKey(key, 8)
                + "," + BuiltInPartitioner.partitionForKey(key, 96));
        }
    }
}
