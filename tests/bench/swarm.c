/* Many clients that come and go by the rules of docs/protocol.md 1.4, as browsers do, and an oracle over all of them.
 *
 * usage: swarm PORT COUNT NET PATH RCVBUF. Client i comes from the address i / 50 behind 127.0.NET.1 and is opened by `open`. RCVBUF
 * is the size of receive buffers in bytes, 0 for the system's. Commands on standard input, one a line; those with a `?` print one
 * line of JSON:
 *   subscribe STEM ENDPOINTS EACH DATA  each client subscribes to EACH names of STEM0 .. STEM(ENDPOINTS - 1), in turn; with data if
 *                       DATA is 1. STEM0 is the endpoint that the oracle judges
 *   open COUNT RATE     so many clients, RATE dials a second
 *   churn RATE          so many clients a second leave, each with a close frame, and another one comes in its place
 *   cut                 all connections are reset, and dialled again
 *   slow BYTES          of each connection only so many bytes a second are read; 0: all
 *   newest VERSION AT   the judged endpoint has this version since AT, a time of CLOCK_MONOTONIC. BOUND_S later everyone who has
 *                       been live for as long must have it
 *   state?              counts; those of events begin anew
 *   versions?           of each version: how many clients were live before it and received it, and when the first and last of them
 * The end of the input ends the process.
 *
 * Between sweeps over its sockets it sleeps: a client that waits on the same machine is woken by every frame at the server's
 * expense, which no client on another machine would be.
 */
#define _GNU_SOURCE
#include "client.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>

enum { WAITING, CONNECTING, OPEN, LIVE, LEAVING, UNUSED };
enum { PEEK = 128, NAMES = 100, MAX_NAME = 32, MAX_INPUT = 1 << 14, VERSIONS = 1 << 13, SAMPLES = 1 << 16, CODES = 5000, NEWEST = 256,
       ROUNDS = 16, DIALS = 64 };

static const double BASE_S = 0.5, CAP_S = 30, WELCOME_S = 10, SILENCE_S = 8, STABLE_S = 60, SETTLED_S = 10, BOUND_S = 1, SWEEP_S = 0.002,
                    LOOK_S = 0.004, CHECK_S = 0.25, LEFT_S = 2;

struct client {
    int fd, failures, replies;  /* `subscribed` that are missing */
    unsigned have;              /* bytes of head that are there */
    uint32_t left;              /* bytes of the frame that are not in head */
    double since;               /* beginning of the outage */
    double dialled, live, heard;
    long version;               /* of the judged endpoint */
    unsigned char head[10 + PEEK + 1];
};

/* Apart from the rest, because they are looked at all the time. */
static struct due { double at; int state; } *dues;
static struct client *clients;

static struct seen { long version; int have; double first, last; } versions[VERSIONS];
static struct newest { long version; double at; } newest[NEWEST];
static int version_count, newest_count;

static int next_look, poller, port, count, net, buffer, wanted, live, stale;
static const char *path;
static char stem[MAX_NAME] = "/", judged[MAX_NAME + 32];
static size_t judged_length;
static int endpoints = 1, each = 1, with_data, slow;
static double opened_rate, churn_rate, began_open, began_churn, opened;
static long churned;

static float latencies[SAMPLES];
static long attempts, refused, lost, silent, unanswered, updates, frames, pings, backwards, judgements, latency_count, closes[CODES];
static double time_now, last_live, allowed;

static void dial_again(int number, double delay) {
    struct client *client = &clients[number];
    if (client->fd >= 0) close(client->fd);
    client->fd = -1;
    client->have = client->left = 0;
    dues[number] = (struct due){time_now + delay, WAITING};
}

/* MOST_S: what the server asks for, or negative; LEAST_S: what it asks to wait in any case. */
static void lose(int number, double most_s, double least_s, int is_failure) {
    struct client *client = &clients[number];
    double window = BASE_S, outage;
    if (dues[number].state == LIVE) {
        live--;
        lost++;
        if (time_now - client->live > STABLE_S) client->failures = 0;
        if (time_now - client->live > SETTLED_S) client->since = time_now;
    }
    for (int i = 0; i < client->failures && window < CAP_S; i++) window *= 2;
    outage = time_now - client->since > BASE_S ? time_now - client->since : BASE_S;
    if (window > CAP_S) window = CAP_S;
    if (window > outage) window = outage;
    client->failures += is_failure;
    dial_again(number, least_s + drand48() * (most_s < 0 ? window : most_s));
}

static void fail(int number) { lose(number, -1, 0, 1); }

static void dial_now(int number) {
    struct client *client = &clients[number];
    struct sockaddr_in own = {.sin_family = AF_INET}, server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.u32 = (uint32_t)number};
    int yes = 1;
    own.sin_addr.s_addr = htonl(0x7f000000u + (uint32_t)net * 256 + 1 + (uint32_t)number / PER_ADDRESS);
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    attempts++;
    dues[number] = (struct due){time_now + WELCOME_S, CONNECTING};
    client->dialled = client->heard = time_now;
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (client->fd < 0) die("socket");
    setsockopt(client->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    if (buffer) setsockopt(client->fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    if (bind(client->fd, (void *)&own, sizeof own)) die("bind");
    if (connect(client->fd, (void *)&server, sizeof server) && errno != EINPROGRESS) fail(number);
    else epoll_ctl(poller, EPOLL_CTL_ADD, client->fd, &event);
}

static void subscribe(int number) {
    char text[MAX_MESSAGE];
    struct client *client = &clients[number];
    client->replies = 0;
    for (int from = 0; from < each; from += NAMES) {
        int length = snprintf(text, sizeof text, "{\"type\":\"subscribe\",\"id\":1,%s\"endpoints\":{", with_data ? "\"data\":true," : "");
        for (int i = from; i < each && i < from + NAMES; i++) {
            long name = ((long)number * each + i) % endpoints;
            length += snprintf(text + length, sizeof text - (size_t)length, "%s\"%s%ld\":", i > from ? "," : "", stem, name);
            if (!name && client->version) length += sprintf(text + length, "%ld", client->version);
            else length += sprintf(text + length, "null");
        }
        snprintf(text + length, sizeof text - (size_t)length, "}}");
        send_text(client->fd, number, text);
        client->replies++;
    }
}

static void seen(struct client *client, long version) {
    int at = version_count;
    if (version <= client->version) {
        backwards++;
        return;
    }
    client->version = version;
    while (at > 0 && versions[(at - 1) % VERSIONS].version != version && version_count - at < 64) at--;
    if (at == 0 || version_count - at == 64) {
        versions[version_count++ % VERSIONS] = (struct seen){version, 0, time_now, time_now};
        at = version_count;
    }
    struct seen *found = &versions[(at - 1) % VERSIONS];
    if (client->live > found->first) return; /* it came after the version */
    found->have++;
    found->last = time_now;
}

static void closing(int number, const char *payload, uint32_t length) {
    char reason[126] = "";
    int code = length >= 2 ? (unsigned char)payload[0] << 8 | (unsigned char)payload[1] : 1005;
    if (length > 2) memcpy(reason, payload + 2, length - 2 < 125 ? length - 2 : 125);
    const char *retry = strstr(reason, "retry=");
    closes[code < CODES ? code : 0]++;
    lose(number, retry ? atof(retry + 6) / 1000 : -1, 0, code != 1012);
}

static void frame(int number, uint32_t length, unsigned start) {
    static const char UPDATE[] = "{\"type\":\"update\",\"endpoint\":\"";
    struct client *client = &clients[number];
    const char *payload = (const char *)client->head + start, *version;
    client->head[client->have] = 0;
    frames++;
    if ((client->head[0] & 15) == 8) {
        closing(number, payload, length);
        return;
    }
    if ((client->head[0] & 15) == 9) {
        pings++;
        pong(client->fd);
    } else if (!strncmp(payload, UPDATE, sizeof UPDATE - 1)) {
        updates++;
        const char *name = payload + sizeof UPDATE - 1;
        if (!strncmp(name, judged, judged_length) && (version = strstr(name, "\"version\":"))) seen(client, atol(version + 10));
    } else if (!strncmp(payload, "{\"type\":\"subscribed\"", 20) && dues[number].state == OPEN && !--client->replies) {
        dues[number].state = LIVE;
        live++;
        client->live = last_live = time_now;
        if (latency_count < SAMPLES) latencies[latency_count++] = (float)(time_now - client->dialled);
    }
    client->left = length - (client->have - start);
    client->have = 0;
}

/* Returns how many bytes of head are needed; the frame's length is known once its START is there. */
static unsigned needed(const struct client *client, unsigned *start, uint32_t *length) {
    if (client->have < 2) return 2;
    unsigned code = client->head[1] & 127;
    *start = code < 126 ? 2 : code == 126 ? 4 : 10;
    *length = *start == 2 ? code : 0;
    if (client->have < *start) return *start;
    for (unsigned at = 2; at < *start; at++) *length = *length << 8 | client->head[at];
    return *start + (*length < PEEK ? *length : PEEK);
}

static void frames_received(int number, const unsigned char *data, size_t size) {
    struct client *client = &clients[number];
    while (size && client->fd >= 0) {
        unsigned start = 10;
        uint32_t length;
        size_t more;
        if (client->left) {
            more = size < client->left ? size : client->left;
            client->left -= (uint32_t)more;
        } else {
            unsigned missing = needed(client, &start, &length) - client->have;
            more = missing < size ? missing : size;
            memcpy(client->head + client->have, data, more);
            client->have += (unsigned)more;
            if (client->have == needed(client, &start, &length) && client->have >= start) frame(number, length, start);
        }
        data += more;
        size -= more;
    }
}

static void received(int number, char *data, size_t size) {
    if (dues[number].state != CONNECTING) {
        frames_received(number, (const unsigned char *)data, size);
        return;
    }
    data[size] = 0;
    const char *end = memmem(data, size, "\r\n\r\n", 4), *retry = strcasestr(data, "\r\nretry-after:");
    if (end && !memcmp(data, "HTTP/1.1 101", 12)) {
        dues[number] = (struct due){time_now + WELCOME_S, OPEN};
        subscribe(number);
        frames_received(number, (const unsigned char *)end + 4, size - (size_t)(end + 4 - data));
    } else {
        refused++;
        closes[(int)atol(data + 9) % 1000]++;
        lose(number, -1, retry ? atof(retry + 14) : 0, 1);
    }
}

/* Returns whether everything that has arrived was read. */
static int sweep(void) {
    static char data[(1 << 16) + 1];
    struct epoll_event events[512];
    size_t most = slow && slow * allowed < sizeof data ? (size_t)(slow * allowed) : sizeof data - 1;
    int n, rounds = 0;
    do {
        n = epoll_wait(poller, events, 512, 0);
        time_now = now();
        for (int i = 0; i < n; i++) {
            int number = (int)events[i].data.u32;
            struct client *client = &clients[number];
            struct epoll_event reading = {.events = EPOLLIN, .data.u32 = (uint32_t)number};
            if (client->fd < 0) continue;
            if (dues[number].state == CONNECTING && events[i].events == EPOLLOUT) {
                epoll_ctl(poller, EPOLL_CTL_MOD, client->fd, &reading);
                ask_for_websocket(client->fd, port, path, DIEM_PROTOCOL, "");
                continue;
            }
            ssize_t size = read(client->fd, data, most);
            client->heard = time_now;
            if (size > 0 && dues[number].state == LEAVING) continue;
            if (size > 0) received(number, data, (size_t)size);
            else if (size < 0 && errno == EAGAIN) continue;
            else if (dues[number].state == LEAVING) dial_again(number, 0);
            else {
                closes[dues[number].state == LIVE ? 1006 : 0]++; /* 0: before it was live */
                fail(number);
            }
        }
    } while (n == 512 && !slow && ++rounds < ROUNDS);
    return n < 512;
}

static void leave(int number) {
    static const unsigned char frame[] = {0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8};
    struct client *client = &clients[number];
    put(client->fd, frame, sizeof frame);
    live--;
    /* Another one comes in its place. */
    client->version = 0;
    client->failures = 0;
    client->since = time_now;
    dues[number] = (struct due){time_now + LEFT_S, LEAVING};
}

static void cut(void) {
    struct linger reset = {.l_onoff = 1};
    for (int i = 0; i < count; i++)
        if (clients[i].fd >= 0) {
            setsockopt(clients[i].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
            fail(i);
        }
}

/* Dials, and gives up what is not answered. */
static void look(void) {
    double due = began_open > 0 ? (time_now - began_open) * opened_rate : 0;
    for (; opened < wanted && opened < due; opened++)
        if (dues[(int)opened].state == UNUSED) {
            clients[(int)opened].since = time_now;
            dial_again((int)opened, 0);
        }
    for (long left = (long)((time_now - began_churn) * churn_rate); churn_rate > 0 && live && churned < left; churned++) {
        int number = (int)(drand48() * count);
        for (int tries = 0; dues[number].state != LIVE && tries < 100; tries++) number = (int)(drand48() * count);
        if (dues[number].state == LIVE) leave(number);
    }
    if (live >= opened) return;
    /* A few at once: requests must not wait for the dials of others. */
    for (int looked = 0, dials = 0; looked < count && dials < DIALS; looked++) {
        int i = next_look = (next_look + 1) % count;
        if (dues[i].at <= time_now) {
            if (dues[i].state == WAITING) {
                dial_now(i);
                dials++;
            } else if (dues[i].state == LEAVING) dial_again(i, 0);
            else if (dues[i].state == CONNECTING || dues[i].state == OPEN) {
                unanswered++;
                fail(i);
            }
        }
    }
}

static int is_judged(int number) {
    return ((long)number * each) % endpoints == 0 || endpoints - ((long)number * each) % endpoints < each;
}

static void check(void) {
    for (int i = 0; i < count && !slow; i++)
        if (dues[i].state == LIVE && time_now - clients[i].heard > SILENCE_S) {
            silent++;
            fail(i);
        }
    int due = 0;
    while (due < newest_count && newest[due].at + BOUND_S <= time_now) due++;
    if (!due) return;
    struct newest last = newest[due - 1];
    memmove(newest, newest + due, (size_t)(newest_count -= due) * sizeof *newest);
    for (int i = 0; i < count; i++)
        if (dues[i].state == LIVE && is_judged(i) && clients[i].live + BOUND_S <= time_now) {
            judgements++;
            stale += clients[i].version < last.version;
        }
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_state(void) {
    int open = 0;
    const char *comma = "";
    for (int i = 0; i < count; i++) open += clients[i].fd >= 0;
    qsort(latencies, (size_t)latency_count, sizeof *latencies, by_size);
    printf("{\"live\":%d,\"open\":%d,\"last_live\":%.4f,\"attempts\":%ld,\"refused\":%ld,\"lost\":%ld,\"silent\":%ld,\"unanswered\":%ld,"
           "\"updates\":%ld,\"frames\":%ld,\"pings\":%ld,\"backwards\":%ld,\"judgements\":%ld,\"stale\":%d,\"connected\":%ld,\"left\":%ld,"
           "\"latency_p50\":%.4f,\"latency_p99\":%.4f,\"latency_max\":%.4f,\"closes\":{",
           live, open, last_live, attempts, refused, lost, silent, unanswered, updates, frames, pings, backwards, judgements, stale,
           latency_count, churned, latencies[latency_count / 2], latencies[latency_count * 99 / 100],
           latencies[latency_count ? latency_count - 1 : 0]);
    for (int code = 0; code < CODES; code++)
        if (closes[code]) {
            printf("%s\"%d\":%ld", comma, code, closes[code]);
            comma = ",";
        }
    puts("}}");
    fflush(stdout);
    attempts = refused = lost = silent = unanswered = updates = frames = pings = backwards = judgements = stale = latency_count = 0;
    latencies[0] = 0;
    memset(closes, 0, sizeof closes);
}

static void print_versions(void) {
    putchar('[');
    for (int i = version_count > VERSIONS ? version_count - VERSIONS : 0, from = i; i < version_count; i++) {
        struct seen *seen = &versions[i % VERSIONS];
        printf("%s[%ld,%d,%.4f,%.4f]", i > from ? "," : "", seen->version, seen->have, seen->first, seen->last);
    }
    puts("]");
    fflush(stdout);
    version_count = 0;
}

static void command(const char *line) {
    struct newest next;
    if (sscanf(line, "subscribe %31s %d %d %d", stem, &endpoints, &each, &with_data) == 4)
        judged_length = (size_t)snprintf(judged, sizeof judged, "%s0\"", stem);
    else if (sscanf(line, "open %d %lf", &wanted, &opened_rate) == 2) {
        if (wanted > count) wanted = count;
        began_open = opened_rate > 0 ? time_now - opened / opened_rate : 0;
    } else if (sscanf(line, "churn %lf", &churn_rate) == 1) {
        began_churn = time_now;
        churned = 0;
    } else if (!strcmp(line, "cut")) cut();
    else if (sscanf(line, "slow %d", &slow) == 1) ;
    else if (sscanf(line, "newest %ld %lf", &next.version, &next.at) == 2) {
        if (newest_count == NEWEST) die("too many versions at once");
        newest[newest_count++] = next;
    } else if (!strcmp(line, "state?")) print_state();
    else if (!strcmp(line, "versions?")) print_versions();
    else {
        fprintf(stderr, "unknown command: %.60s\n", line);
        exit(2);
    }
}

int main(int argc, char **argv) {
    static char input[MAX_INPUT];
    struct rlimit files;
    size_t have = 0;
    if (argc != 6) return 2;
    port = atoi(argv[1]);
    count = atoi(argv[2]);
    net = atoi(argv[3]);
    path = argv[4];
    buffer = atoi(argv[5]);
    lossy = 1;
    signal(SIGPIPE, SIG_IGN);
    srand48(net);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    poller = epoll_create1(0);
    clients = calloc((size_t)count, sizeof *clients);
    dues = calloc((size_t)count, sizeof *dues);
    for (int i = 0; i < count; i++) {
        clients[i].fd = -1;
        dues[i].state = UNUSED;
        dues[i].at = 1e18;
    }
    double looked = 0, checked = 0, read_at = now();
    int drained = 1;
    for (;;) {
        struct pollfd waiting = {.fd = 0, .events = POLLIN};
        struct timespec pause = {.tv_nsec = (long)(SWEEP_S * 1e9)};
        nanosleep(&pause, NULL);
        time_now = now();
        allowed = time_now - read_at;
        if (!slow || allowed >= 1) {
            read_at = time_now;
            drained = sweep();
        }
        if (time_now - looked >= LOOK_S) {
            looked = time_now;
            look();
        }
        if (drained && time_now - checked >= CHECK_S) {
            checked = time_now;
            check();
        }
        if (poll(&waiting, 1, 0) <= 0) continue;
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
