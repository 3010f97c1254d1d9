/* The load client: opens WebSocket connections and counts what arrives, without decoding it.
 *
 * usage: drain PORT COUNT NET PATH [DIALECT]. Connection i comes from 127.0.NET.(1 + i / 50), offers diem.v1.json and sends
 * no Origin. Prints "ready" when all are open. Commands on standard input, one a line:
 *   say TEXT            every connection sends TEXT as one message; '#' stands for the connection's number
 *   tell NUMBER TEXT    one connection does
 *   wait UPDATES REPLIES   prints "UPDATES REPLIES OPEN" as soon as both totals are reached, or after 30 s
 *   stall               reads no more
 *   sweep MS            sweeps so often, also while nothing is waited for (at first: every 50 ms)
 * The end of the input ends the process.
 *
 * With a DIALECT of the table below it speaks with servers of others, too, and updates are counted where they are in a
 * message. All connections are opened at once, and again within a second whenever the server has closed or refused them.
 * PATH may then be @FILE, which has a path for each connection, one a line. Further commands:
 *   join TEXT           as `say`, and every connection that is opened later sends it first
 *   forget MARK         from now on notes which connections receive MARK
 *   state               prints "OPEN HAVE LAST_OPEN LAST_HAVE REFUSED": connections open, and with MARK; seconds from
 *                       `forget` until the last of each; connections that could not be opened
 *
 * It sleeps between sweeps over its sockets instead of waiting for them: a client that waits on the same machine is
 * woken by every frame at the server's expense, which no client on another machine would be.
 */
#define _GNU_SOURCE
#include "client.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>

enum { PEEK = 11, MAX_INPUT = 1 << 16, SWEEP_MS = 1, PATIENCE_S = 30, MAX_MARK = 32, MAX_JOINED = 4, AT_ONCE = 64 };

enum state { CLOSED, DIALLED, ASKED, OPEN };

struct client {
    int fd;
    unsigned have;               /* bytes of head that are there */
    uint32_t left;               /* bytes of the frame that are not in head */
    unsigned char head[10 + PEEK];
    /* with a dialect */
    enum state state;
    double due;                  /* when it is opened again */
    char answer[12];             /* the beginning of the answer to the handshake */
    unsigned answered, ending;   /* bytes of it, and of its end */
    unsigned tail_length;        /* the last bytes of the payload that is being received */
    char tail[MAX_MARK];
    int has_mark;
};

/* What marks an update in a message; a ping within a message (behind the line break that each begins with), and its pong. */
struct dialect {
    const char *name, *protocol, *update, *ping, *pong;
};

static const struct dialect DIALECTS[] = {
    {"diem", DIEM_PROTOCOL, "{\"type\":\"update\"", NULL, NULL},
    {"centrifugo", "Sec-WebSocket-Protocol: centrifuge-json\r\n", "\"pub\":{", "\n{}", "{}"},
    {"plain", "", "{\"type\":\"update\"", NULL, NULL},
};

static const struct dialect *dialect;
static struct client *clients;
static int count, open_, stalled, idle_ms = 50;
static long updates, replies, want_updates, want_replies;
static double patience;
static int port, net, poller, ready, marked;
static long refused;
static char **paths, *joined[MAX_JOINED], mark[MAX_MARK + 1];
static int path_count, joined_count;
static double forgotten, last_open, last_marked;

static unsigned payload_at(const struct client *client, uint32_t *length) {
    unsigned code = client->head[1] & 127, start = code < 126 ? 2 : code == 126 ? 4 : 10;
    *length = start == 2 ? code : 0;
    for (unsigned at = 2; at < start; at++) *length = *length << 8 | client->head[at];
    return start;
}

static unsigned needed(const struct client *client) {
    uint32_t length;
    if (client->have < 2) return 2;
    unsigned start = payload_at(client, &length);
    if (client->have < start || dialect) return start;
    return start + (length < PEEK ? length : PEEK);
}

static void frame_begun(struct client *client) {
    uint32_t length;
    unsigned start = payload_at(client, &length);
    if ((client->head[0] & 15) == 9)
        pong(client->fd);
    else if (dialect) {
        client->tail[0] = '\n';
        client->tail_length = client->head[0] == 0x81 || client->head[0] == 0x82;
    } else if (client->head[0] == 0x81 && length >= PEEK) {
        const unsigned char *type = client->head + start + 9; /* behind {"type":" */
        if (!memcmp(type, "up", 2)) updates++;
        else if (!memcmp(type, "su", 2) || !memcmp(type, "un", 2)) replies++;
    }
    client->left = length - (client->have - start);
    client->have = 0;
}

/* Counts TEXT in the payload of which DATA are the next bytes. */
static int occurrences(const struct client *client, const char *text, const unsigned char *data, size_t size) {
    size_t length = strlen(text), old = client->tail_length < length - 1 ? client->tail_length : length - 1;
    char seam[2 * MAX_MARK];
    const void *at;
    int found = 0;
    memcpy(seam, client->tail + client->tail_length - old, old);
    size_t more = size < length - 1 ? size : length - 1;
    memcpy(seam + old, data, more);
    if (memmem(seam, old + more, text, length)) found++;
    for (const unsigned char *from = data; (at = memmem(from, size - (size_t)(from - data), text, length)); found++)
        from = (const unsigned char *)at + length;
    return found;
}

static void payload_received(struct client *client, const unsigned char *data, size_t size) {
    updates += occurrences(client, dialect->update, data, size);
    if (dialect->ping && occurrences(client, dialect->ping, data, size)) send_text(client->fd, 0, dialect->pong);
    if (*mark && !client->has_mark && occurrences(client, mark, data, size)) {
        client->has_mark = 1;
        marked++;
        last_marked = now();
    }
    size_t kept = size < MAX_MARK ? size : MAX_MARK, old = client->tail_length;
    if (old > MAX_MARK - kept) {
        memmove(client->tail, client->tail + old - (MAX_MARK - kept), MAX_MARK - kept);
        old = MAX_MARK - kept;
    }
    memcpy(client->tail + old, data + size - kept, kept);
    client->tail_length = (unsigned)(old + kept);
}

static void received(struct client *client, const unsigned char *data, size_t size) {
    while (size) {
        if (client->left) {
            size_t skip = size < client->left ? size : client->left;
            if (client->tail_length) payload_received(client, data, skip);
            client->left -= (uint32_t)skip;
            data += skip;
            size -= skip;
            continue;
        }
        client->head[client->have++] = *data++;
        size--;
        if (client->have == needed(client)) frame_begun(client);
    }
}

static void closed(struct client *client) {
    close(client->fd);
    if (client->state == OPEN || !dialect) open_--;
    else refused++;
    *client = (struct client){.fd = -1, .due = now() + (double)rand() / RAND_MAX, .has_mark = client->has_mark};
}

static void open_due(void) {
    double time = now();
    int begun = 0;
    for (int i = 0; i < count && begun < AT_ONCE; i++) {
        struct client *client = &clients[i];
        if (client->state != CLOSED || client->due > time) continue;
        begun++;
        client->state = DIALLED;
        client->fd = begin_to_dial(port, net, 1 + i / PER_ADDRESS, SOCK_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = client};
        if (client->fd < 0) closed(client);
        else epoll_ctl(poller, EPOLL_CTL_ADD, client->fd, &event);
    }
}

static void dialled(struct client *client) {
    int number = (int)(client - clients);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    epoll_ctl(poller, EPOLL_CTL_MOD, client->fd, &event);
    ask_for_websocket(client->fd, port, paths[number % path_count], dialect->protocol, "");
    client->state = ASKED;
}

/* Returns the bytes that belong to the answer to the handshake. */
static size_t answer_received(struct client *client, const unsigned char *data, size_t size) {
    for (size_t at = 0; at < size; at++) {
        if (client->answered < sizeof client->answer) client->answer[client->answered++] = (char)data[at];
        client->ending = data[at] == "\r\n\r\n"[client->ending] ? client->ending + 1 : data[at] == '\r';
        if (client->ending < 4) continue;
        if (memcmp(client->answer, "HTTP/1.1 101", 12)) {
            closed(client);
            return size;
        }
        client->state = OPEN;
        open_++;
        last_open = now();
        for (int i = 0; i < joined_count; i++) send_text(client->fd, (int)(client - clients), joined[i]);
        return at + 1;
    }
    return size;
}

static void sweep(void) {
    static unsigned char data[1 << 16];
    struct epoll_event events[256];
    int n;
    if (stalled) return;
    while ((n = epoll_wait(poller, events, 256, 0)) > 0)
        for (int i = 0; i < n; i++) {
            struct client *client = events[i].data.ptr;
            if (client->state == DIALLED && events[i].events == EPOLLOUT) dialled(client);
            ssize_t size = read(client->fd, data, sizeof data);
            size_t used = size > 0 && client->state == ASKED ? answer_received(client, data, (size_t)size) : 0;
            if (size > 0) received(client, data + used, (size_t)size - used);
            else if (size == 0 || errno != EAGAIN) closed(client);
        }
}

static void say(int number, const char *text) {
    if (!dialect || clients[number].state == OPEN) send_text(clients[number].fd, number, text);
}

static void command(char *line) {
    int number, at = 0;
    if (!strncmp(line, "say ", 4))
        for (int i = 0; i < count; i++) say(i, line + 4);
    else if (sscanf(line, "tell %d %n", &number, &at) == 1 && at && number >= 0 && number < count)
        say(number, line + at);
    else if (sscanf(line, "wait %ld %ld", &want_updates, &want_replies) == 2)
        patience = now() + PATIENCE_S;
    else if (!strcmp(line, "stall"))
        stalled = 1;
    else if (!strncmp(line, "join ", 5)) {
        if (joined_count == MAX_JOINED) die("joins");
        joined[joined_count++] = strdup(line + 5);
        for (int i = 0; i < count; i++) say(i, line + 5);
    } else if (!strncmp(line, "forget ", 7)) {
        snprintf(mark, sizeof mark, "%s", line + 7);
        forgotten = last_open = last_marked = now();
        refused = marked = 0;
        for (int i = 0; i < count; i++) clients[i].has_mark = 0;
    } else if (!strcmp(line, "state")) {
        printf("%d %d %.4f %.4f %ld\n", open_, marked, last_open - forgotten, last_marked - forgotten, refused);
        fflush(stdout);
    } else if (sscanf(line, "sweep %d", &idle_ms) == 1 && idle_ms > 0)
        ;
    else {
        fprintf(stderr, "unknown command: %.60s\n", line);
        exit(2);
    }
}

static void read_paths(const char *path) {
    char line[2048];
    FILE *file = *path == '@' ? fopen(path + 1, "r") : NULL;
    if (*path == '@' && !file) die(path + 1);
    paths = calloc((size_t)count, sizeof *paths);
    if (!file) paths[path_count++] = strdup(path);
    while (file && path_count < count && fgets(line, sizeof line, file)) paths[path_count++] = strndup(line, strcspn(line, "\n"));
    if (file) fclose(file);
    if (!path_count) die("no path");
}

static void choose_dialect(const char *name) {
    for (unsigned i = 0; i < sizeof DIALECTS / sizeof *DIALECTS; i++)
        if (!strcmp(DIALECTS[i].name, name)) dialect = &DIALECTS[i];
    if (!dialect) die("unknown dialect");
    lossy = 1;
    signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv) {
    static char input[MAX_INPUT];
    size_t have = 0;
    if (argc < 5 || argc > 6) return 2;
    port = atoi(argv[1]);
    count = atoi(argv[2]);
    net = atoi(argv[3]);
    clients = calloc((size_t)count, sizeof *clients);
    poller = epoll_create1(0);
    if (argc == 6) {
        choose_dialect(argv[5]);
        read_paths(argv[4]);
        for (int i = 0; i < count; i++) clients[i].fd = -1;
    }
    for (; !dialect && open_ < count; open_++) {
        clients[open_].fd = open_websocket(open_, port, net, argv[4], "");
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &clients[open_]};
        epoll_ctl(poller, EPOLL_CTL_ADD, clients[open_].fd, &event);
    }
    for (;;) {
        if (open_ == count && !ready) {
            ready = 1;
            puts("ready");
            fflush(stdout);
        }
        struct pollfd waiting = {.fd = 0, .events = POLLIN};
        int said = poll(&waiting, 1, patience != 0 || (dialect && open_ < count) ? SWEEP_MS : idle_ms);
        if (dialect && open_ < count) open_due();
        sweep();
        if (patience != 0 && ((updates >= want_updates && replies >= want_replies) || now() > patience)) {
            printf("%ld %ld %d\n", updates, replies, open_);
            fflush(stdout);
            patience = 0;
        }
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
