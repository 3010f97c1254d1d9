/* The load client: opens WebSocket connections and counts what arrives, without decoding it.
 *
 * usage: drain PORT COUNT NET PATH. Connection i comes from 127.0.NET.(1 + i / 50), offers diem.v1.json and sends no
 * Origin. Prints "ready" when all are open. Commands on standard input, one a line:
 *   say TEXT            every connection sends TEXT as one message; '#' stands for the connection's number
 *   tell NUMBER TEXT    one connection does
 *   wait UPDATES REPLIES   prints "UPDATES REPLIES OPEN" as soon as both totals are reached, or after 30 s
 *   stall               reads no more
 *   sweep MS            sweeps so often, also while nothing is waited for (at first: every 50 ms)
 * The end of the input ends the process.
 *
 * It sleeps between sweeps over its sockets instead of waiting for them: a client that waits on the same machine is
 * woken by every frame at the server's expense, which no client on another machine would be.
 */
#define _GNU_SOURCE
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

enum { PEEK = 11, MAX_INPUT = 1 << 16, SWEEP_MS = 1, PATIENCE_S = 30 };

struct client {
    int fd;
    unsigned have;               /* bytes of head that are there */
    uint32_t left;               /* bytes of the frame that need not be looked at */
    unsigned char head[4 + PEEK];
};

static struct client *clients;
static int count, open_, stalled, idle_ms = 50;
static long updates, replies, want_updates, want_replies;
static double patience;

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

static void frame_begun(struct client *client) {
    uint32_t length;
    unsigned start = payload_at(client, &length);
    if ((client->head[0] & 15) == 9)
        pong(client->fd);
    else if (client->head[0] == 0x81 && length >= PEEK) {
        const unsigned char *type = client->head + start + 9; /* behind {"type":" */
        if (!memcmp(type, "up", 2)) updates++;
        else if (!memcmp(type, "su", 2) || !memcmp(type, "un", 2)) replies++;
    }
    client->left = length - (client->have - start);
    client->have = 0;
}

static void received(struct client *client, const unsigned char *data, size_t size) {
    while (size) {
        if (client->left) {
            size_t skip = size < client->left ? size : client->left;
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

static void sweep(int poller) {
    static unsigned char data[1 << 16];
    struct epoll_event events[256];
    int n;
    if (stalled) return;
    while ((n = epoll_wait(poller, events, 256, 0)) > 0)
        for (int i = 0; i < n; i++) {
            struct client *client = events[i].data.ptr;
            ssize_t size = read(client->fd, data, sizeof data);
            if (size > 0) received(client, data, (size_t)size);
            else if (size == 0 || errno != EAGAIN) {
                close(client->fd);
                client->fd = -1;
                open_--;
            }
        }
}

static void command(char *line) {
    int number, at = 0;
    if (!strncmp(line, "say ", 4))
        for (int i = 0; i < count; i++) send_text(clients[i].fd, i, line + 4);
    else if (sscanf(line, "tell %d %n", &number, &at) == 1 && at && number >= 0 && number < count)
        send_text(clients[number].fd, number, line + at);
    else if (sscanf(line, "wait %ld %ld", &want_updates, &want_replies) == 2)
        patience = now() + PATIENCE_S;
    else if (!strcmp(line, "stall"))
        stalled = 1;
    else if (sscanf(line, "sweep %d", &idle_ms) == 1 && idle_ms > 0)
        ;
    else {
        fprintf(stderr, "unknown command: %.60s\n", line);
        exit(2);
    }
}

int main(int argc, char **argv) {
    static char input[MAX_INPUT];
    size_t have = 0;
    if (argc != 5) return 2;
    count = open_ = atoi(argv[2]);
    clients = calloc((size_t)count, sizeof *clients);
    int poller = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        clients[i].fd = open_websocket(i, atoi(argv[1]), atoi(argv[3]), argv[4], "");
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &clients[i]};
        epoll_ctl(poller, EPOLL_CTL_ADD, clients[i].fd, &event);
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct pollfd waiting = {.fd = 0, .events = POLLIN};
        int said = poll(&waiting, 1, patience != 0 ? SWEEP_MS : idle_ms);
        sweep(poller);
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
