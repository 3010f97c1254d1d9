/* Clients that display data: they count what arrives, some of them take the time, and on request they fetch.
 *
 * usage: viewers PORT COUNT NET PATH SAMPLED FETCHERS HTTP_PORT COMPRESSED. Connection i comes from
 * 127.0.NET.(1 + i / 50). If COMPRESSED is 1, they offer permessage-deflate as browsers do. SAMPLED of them, evenly
 * spread, record when frames and bodies were complete. Prints "ready" when all are open.
 * Commands on standard input, one a line:
 *   say TEXT            every connection sends TEXT as one message; '#' stands for the connection's number
 *   tell NUMBER TEXT    one connection does
 *   fetch off           from now on, an update without data is only counted
 *   fetch latest        each client that gets one requests GET /v1/data/ENDPOINT of HTTP_PORT
 *   fetch version       the same with ?version=N of the update
 *   wait UPDATES FETCHED REPLIES   prints the counts as soon as these totals are reached, or after 30 s:
 *                       "UPDATES INLINE FETCHED REFUSED REPLIES UPDATE_BYTES FETCHED_BYTES OPEN"
 *   samples             prints their number, then one line each: "ENDPOINT VERSION KIND SECONDS", by CLOCK_MONOTONIC.
 *                       KIND is u (update without data), d (with data) or f (body)
 * The end of the input ends the process.
 *
 * Requests go over FETCHERS persistent connections, each with one request at a time; the others wait in a queue.
 *
 * Between sweeps over its sockets it sleeps: a client that waits on the same machine is woken by every frame at the
 * server's expense, which no client on another machine would be.
 */
#define _GNU_SOURCE
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

enum {
    PEEK = 160,           /* bytes of a payload that hold endpoint and version */
    MAX_NAME = 64,        /* of an endpoint */
    MAX_PLAIN = 512,      /* longest update without data */
    MAX_HEAD = 4096,      /* of a response */
    MAX_INPUT = 1 << 16,
    SWEEP_MS = 1,
    IDLE_MS = 50,
    PATIENCE_S = 30,
};

enum fetching { OFF, LATEST, VERSION };

struct update {
    char name[MAX_NAME];
    long version;
};

struct client {
    int fd, sampled;
    unsigned have;        /* bytes of head that are there */
    uint32_t length;      /* of the frame that is being read, 0 between frames */
    uint32_t left;        /* bytes of it that need not be looked at */
    char kind;            /* u, d, or 0 for other frames */
    struct update update;
    unsigned char head[4 + PEEK + 1];
};

struct request {
    struct client *client;
    struct update update;
};

struct fetcher {
    int fd, index;
    struct request request; /* client is NULL while idle */
    unsigned have;
    int status, closes, repeated;
    long left;            /* bytes of the body to come; -1: the head is not complete */
    char head[MAX_HEAD + 1];
};

struct sample {
    struct update update;
    char kind;
    double at;
};

/* In epoll's data: clients by their address, fetchers with the lowest bit set. */
static struct client *clients;
static struct fetcher *fetchers;
static struct request *queue;
static struct sample *samples;
static size_t queue_first, queue_end, queue_room, sample_count, sample_room;
static struct fetcher **idle;
static int count, fetcher_count, idle_count, open_, net, http_port, poller;
static enum fetching fetching;
static long updates, with_data, fetched, refused, replies, update_bytes, fetched_bytes;
static long want_updates, want_fetched, want_replies;
static double patience;

static void *grown(void *array, size_t *room, size_t size) {
    *room = *room ? 2 * *room : 4096;
    if (!(array = realloc(array, *room * size))) die("realloc");
    return array;
}

static void record(const struct update *update, char kind) {
    if (sample_count == sample_room) samples = grown(samples, &sample_room, sizeof *samples);
    samples[sample_count++] = (struct sample){.update = *update, .kind = kind, .at = now()};
}

/* Fetching */

static void dial_http(struct fetcher *fetcher) {
    /* Behind the addresses of the WebSocket connections. */
    fetcher->fd = dial(http_port, net, 1 + (count + fetcher->index) / PER_ADDRESS + 1);
    fcntl(fetcher->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)(uintptr_t)fetcher | 1};
    epoll_ctl(poller, EPOLL_CTL_ADD, fetcher->fd, &event);
}

static void send_request(struct fetcher *fetcher) {
    char text[512];
    fetcher->have = 0;
    fetcher->left = -1;
    if (fetcher->fd < 0) dial_http(fetcher);
    int length = snprintf(text, sizeof text, "GET /v1/data%s", fetcher->request.update.name);
    if (fetching == VERSION)
        length += snprintf(text + length, sizeof text - (size_t)length, "?version=%ld", fetcher->request.update.version);
    length += snprintf(text + length, sizeof text - (size_t)length,
                       " HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: application/json\r\n\r\n", http_port);
    put(fetcher->fd, text, (size_t)length);
}

static void request_next(struct fetcher *fetcher) {
    if (queue_first == queue_end) {
        queue_first = queue_end = 0;
        fetcher->request.client = NULL;
        idle[idle_count++] = fetcher;
        return;
    }
    fetcher->request = queue[queue_first++];
    fetcher->repeated = 0;
    send_request(fetcher);
}

static void answered(struct fetcher *fetcher, int status) {
    struct request *request = &fetcher->request;
    if (status == 200) fetched++;
    else refused++;
    if (status == 200 && request->client->sampled) record(&request->update, 'f');
    request_next(fetcher);
}

static void disconnect(struct fetcher *fetcher) {
    close(fetcher->fd);
    fetcher->fd = -1;
}

static const char *field(const char *head, const char *name) {
    const char *found = strcasestr(head, name);
    return found ? found + strlen(name) : NULL;
}

static void head_complete(struct fetcher *fetcher, const char *body) {
    const char *length = field(fetcher->head, "\r\ncontent-length: ");
    const char *connection = field(fetcher->head, "\r\nconnection: ");
    if (!length) die("a response without Content-Length");
    fetcher->status = atoi(fetcher->head + 9);
    fetcher->closes = connection && !strncasecmp(connection, "close", 5);
    fetcher->left = atol(length) - (fetcher->head + fetcher->have - body);
}

static void response(struct fetcher *fetcher) {
    static char data[1 << 16];
    ssize_t size = read(fetcher->fd, data, sizeof data);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
        disconnect(fetcher);
        if (!fetcher->request.client) return;
        /* As browsers do where the server has closed an idle connection meanwhile. */
        if (!fetcher->have && !fetcher->repeated++) send_request(fetcher);
        else answered(fetcher, 0);
        return;
    }
    fetched_bytes += size;
    if (!fetcher->request.client) return; /* a reason for a close that follows */
    if (fetcher->left >= 0) {
        fetcher->left -= size;
    } else {
        size_t more = (size_t)size < MAX_HEAD - fetcher->have ? (size_t)size : MAX_HEAD - fetcher->have;
        memcpy(fetcher->head + fetcher->have, data, more);
        fetcher->have += (unsigned)more;
        fetcher->head[fetcher->have] = 0;
        const char *end = strstr(fetcher->head, "\r\n\r\n");
        if (!end) {
            if (fetcher->have == MAX_HEAD) die("a response with a long head");
            return;
        }
        head_complete(fetcher, end + 4);
        fetcher->left -= size - (ssize_t)more;
    }
    if (fetcher->left > 0) return;
    if (fetcher->closes) disconnect(fetcher);
    answered(fetcher, fetcher->status);
}

static void fetch(struct client *client) {
    if (queue_end == queue_room) queue = grown(queue, &queue_room, sizeof *queue);
    queue[queue_end++] = (struct request){.client = client, .update = client->update};
    if (idle_count) request_next(idle[--idle_count]);
}

/* Updates */

static unsigned payload_at(const struct client *client, uint32_t *length) {
    unsigned code = client->head[1] & 127;
    *length = code < 126 ? code : (uint32_t)client->head[2] << 8 | client->head[3];
    return code < 126 ? 2 : 4;
}

static unsigned needed(const struct client *client) {
    uint32_t length;
    if (client->have < 2) return 2;
    if ((client->head[1] & 127) == 127) die("frame too long");
    unsigned start = payload_at(client, &length);
    if (client->have < start) return start;
    return start + (length < PEEK ? length : PEEK);
}

static void read_update(struct client *client, const char *payload) {
    const char *name = strchr(payload, '/'), *end = name ? strchr(name, '"') : NULL;
    const char *version = end ? field(end, "\"version\":") : NULL;
    if (!version || end - name >= MAX_NAME) die("an update without endpoint and version");
    memcpy(client->update.name, name, (size_t)(end - name));
    client->update.name[end - name] = 0;
    client->update.version = atol(version);
}

static void frame_complete(struct client *client) {
    if (client->kind) {
        updates++;
        update_bytes += client->length + (client->length < 126 ? 2 : 4);
        with_data += client->kind == 'd';
        if (client->sampled) record(&client->update, client->kind);
        if (fetching != OFF && client->kind == 'u') fetch(client);
    }
    client->have = 0;
}

static void frame_begun(struct client *client) {
    uint32_t length;
    unsigned start = payload_at(client, &length);
    client->kind = 0;
    client->length = length;
    client->head[client->have] = 0;
    if ((client->head[0] & 15) == 9) pong(client->fd);
    else if (client->head[0] == 0xc1) {
        /* It begins with a stored block, whose text follows its type and length. */
        if (client->head[start]) die("a compressed update without a stored block");
        client->kind = 'd';
        read_update(client, (const char *)client->head + start + 5);
    }
    else if (client->head[0] == 0x81 && length > 11) {
        const char *type = (const char *)client->head + start + 9; /* behind {"type":" */
        if (!memcmp(type, "update", 6)) {
            client->kind = length > MAX_PLAIN ? 'd' : 'u';
            read_update(client, type);
        } else if (!memcmp(type, "subscribed", 10))
            replies++;
    }
    client->left = length - (client->have - start);
    if (!client->left) frame_complete(client);
}

static void received(struct client *client, const unsigned char *data, size_t size) {
    while (size) {
        size_t more;
        if (client->left) {
            more = size < client->left ? size : client->left;
            client->left -= (uint32_t)more;
            if (!client->left) frame_complete(client);
        } else {
            unsigned missing = needed(client) - client->have;
            more = size < missing ? size : missing;
            memcpy(client->head + client->have, data, more);
            client->have += (unsigned)more;
            if (client->have >= 2 && client->have == needed(client)) frame_begun(client);
        }
        data += more;
        size -= more;
    }
}

static void sweep(void) {
    static unsigned char data[1 << 16];
    struct epoll_event events[256];
    int n;
    while ((n = epoll_wait(poller, events, 256, 0)) > 0)
        for (int i = 0; i < n; i++) {
            uint64_t of = events[i].data.u64;
            if (of & 1) {
                response((struct fetcher *)(uintptr_t)(of & ~(uint64_t)1));
                continue;
            }
            struct client *client = (struct client *)(uintptr_t)of;
            ssize_t size = read(client->fd, data, sizeof data);
            if (size > 0) received(client, data, (size_t)size);
            else if (size == 0 || errno != EAGAIN) {
                close(client->fd);
                client->fd = -1;
                open_--;
            }
        }
}

/* Commands */

static void print_counts(void) {
    printf("%ld %ld %ld %ld %ld %ld %ld %d\n", updates, with_data, fetched, refused, replies, update_bytes,
           fetched_bytes, open_);
    fflush(stdout);
    patience = 0;
}

static void print_samples(void) {
    printf("%zu\n", sample_count);
    for (size_t i = 0; i < sample_count; i++)
        printf("%s %ld %c %.6f\n", samples[i].update.name, samples[i].update.version, samples[i].kind, samples[i].at);
    fflush(stdout);
    sample_count = 0;
}

static void command(char *line) {
    int number, at = 0;
    if (!strncmp(line, "say ", 4))
        for (int i = 0; i < count; i++) send_text(clients[i].fd, i, line + 4);
    else if (sscanf(line, "tell %d %n", &number, &at) == 1 && at && number >= 0 && number < count)
        send_text(clients[number].fd, number, line + at);
    else if (sscanf(line, "wait %ld %ld %ld", &want_updates, &want_fetched, &want_replies) == 3)
        patience = now() + PATIENCE_S;
    else if (!strcmp(line, "fetch off")) fetching = OFF;
    else if (!strcmp(line, "fetch latest")) fetching = LATEST;
    else if (!strcmp(line, "fetch version")) fetching = VERSION;
    else if (!strcmp(line, "samples")) print_samples();
    else {
        fprintf(stderr, "unknown command: %.60s\n", line);
        exit(2);
    }
}

static int reached(void) {
    return updates >= want_updates && fetched + refused >= want_fetched && replies >= want_replies;
}

int main(int argc, char **argv) {
    static char input[MAX_INPUT];
    size_t have = 0;
    const char *offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    if (argc != 9) return 2;
    count = open_ = atoi(argv[2]);
    net = atoi(argv[3]);
    int sampled = atoi(argv[5]);
    fetcher_count = atoi(argv[6]);
    http_port = atoi(argv[7]);
    poller = epoll_create1(0);
    clients = calloc((size_t)count, sizeof *clients);
    fetchers = calloc((size_t)fetcher_count, sizeof *fetchers);
    idle = calloc((size_t)fetcher_count, sizeof *idle);
    for (int i = 0; i < count; i++) {
        clients[i].fd = open_websocket(i, atoi(argv[1]), net, argv[4], atoi(argv[8]) ? offer : "");
        clients[i].sampled = (long)i * sampled / count != (long)(i + 1) * sampled / count;
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)(uintptr_t)&clients[i]};
        epoll_ctl(poller, EPOLL_CTL_ADD, clients[i].fd, &event);
        /* Thousands of handshakes take longer than servers wait for an answer to a ping. */
        if (i % PER_ADDRESS == PER_ADDRESS - 1) sweep();
    }
    for (int i = 0; i < fetcher_count; i++) {
        fetchers[i].fd = -1;
        fetchers[i].index = i;
        idle[idle_count++] = &fetchers[i];
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct pollfd waiting = {.fd = 0, .events = POLLIN};
        int said = poll(&waiting, 1, patience != 0 ? SWEEP_MS : IDLE_MS);
        sweep();
        if (patience != 0 && (reached() || now() > patience)) print_counts();
        if (said <= 0) continue;
        ssize_t n = read(0, input + have, sizeof input - 1 - have);
        if (n <= 0) return 0;
        have += (size_t)n;
        char *line = input, *end;
        while ((end = memchr(line, '\n', have - (size_t)(line - input)))) {
            *end = 0;
            command(line);
            line = end + 1;
        }
        have -= (size_t)(line - input);
        memmove(input, line, have);
    }
}
