import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

/** Asks for a URL by the JDK's own client, and says how long that took. */
class Get {
    public static void main(String[] words) throws Exception {
        var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        var request = HttpRequest.newBuilder(URI.create(words[0])).build();
        long begin = System.nanoTime();
        var answer = client.send(request, BodyHandlers.ofByteArray());
        System.out.printf("%d bytes in %d us%n", answer.body().length, (System.nanoTime() - begin) / 1000);
        System.exit(answer.statusCode() == 200 ? 0 : 1);
    }
}
