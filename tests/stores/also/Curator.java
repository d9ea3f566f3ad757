import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Old code with Curator's own lock. It is told by lines what to do, and answers each by a line. */
public class Curator {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], new RetryOneTime(100));
        client.start();
        InterProcessMutex mutex = new InterProcessMutex(client, arguments[1]);
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine();) {
            if (lines.nextLine().equals("take")) {
                System.out.println(mutex.acquire(0, TimeUnit.SECONDS));
            } else {
                mutex.release();
                System.out.println(true);
            }
        }
        client.close();
    }
}
