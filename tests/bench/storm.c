/* Clients that come back after an outage by the rules of docs/protocol.md 1.4, as browsers do.
 *
 * usage: storm PORT COUNT NET PATH ENDPOINT RATE. Connection i comes from 127.0.NET.(1 + i / 50), dials first after i / RATE
 * seconds and subscribes to ENDPOINT. Whenever all are subscribed, a line "LOST T50 T99 T100 ATTEMPTS REFUSED" follows: when the
 * latest connection was lost (0 the first time), when so many percent were subscribed again, by CLOCK_MONOTONIC, and how many
 * were dialled and answered with something else than a WebSocket since all were subscribed before. The end of the input ends the process.
 */
#define _GNU_SOURCE
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

enum { WAITING, CONNECTING, OPEN, SUBSCRIBED };

static const double BASE_S = 0.5, CAP_S = 30, WELCOME_S = 10, SWEEP_S = 0.002;

struct client {
    int fd, number, state, failures;
    double at;      /* of the next dial, or the latest welcome */
    double since;   /* beginning of the outage */
};

static struct client *clients;
static int poller, port, count, net, live;
static const char *path;
static char subscribe[512];
static double lost_at, half_at, most_at;
static long attempts, refused;

static void lose(struct client *client) {
    double t = now(), window = BASE_S;
    if (client->fd >= 0) close(client->fd);
    client->fd = -1;
    if (client->state == SUBSCRIBED) {
        if (live-- == count) attempts = refused = 0;
        lost_at = t;
        client->failures = 0;
        client->since = t;
    }
    for (int i = 0; i < client->failures && window < CAP_S; i++) window *= 2;
    if (window > CAP_S) window = CAP_S;
    double longest = t - client->since > BASE_S ? t - client->since : BASE_S;
    client->failures++;
    client->state = WAITING;
    client->at = t + drand48() * (window < longest ? window : longest);
}

static void dial_later(struct client *client) {
    struct sockaddr_in own = {.sin_family = AF_INET}, server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = client};
    own.sin_addr.s_addr = htonl(0x7f000000u + (uint32_t)net * 256 + 1 + (uint32_t)client->number / PER_ADDRESS);
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int yes = 1;
    attempts++;
    client->state = CONNECTING;
    client->at = now() + WELCOME_S;
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (client->fd < 0) die("socket");
    setsockopt(client->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    if (bind(client->fd, (void *)&own, sizeof own)) die("bind");
    if (connect(client->fd, (void *)&server, sizeof server) && errno != EINPROGRESS) lose(client);
    else epoll_ctl(poller, EPOLL_CTL_ADD, client->fd, &event);
}

static void request(struct client *client) {
    char text[512];
    int length = snprintf(text, sizeof text,
                          "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                          "Sec-WebSocket-Protocol: diem.v1.json\r\n\r\n", path, port);
    if (write(client->fd, text, (size_t)length) != length) lose(client);
}

static void received(struct client *client, const char *data, size_t size) {
    if (client->state == CONNECTING) {
        if (size < 12 || memcmp(data, "HTTP/1.1 101", 12)) {
            refused++;
            lose(client);
            return;
        }
        client->state = OPEN;
        send_text(client->fd, client->number, subscribe);
    }
    if (memmem(data, size, "\x89\x00", 2)) pong(client->fd); /* frames are text but for their heads */
    if (client->state == OPEN && memmem(data, size, "\"subscribed\"", 12)) {
        client->state = SUBSCRIBED;
        live++;
        if (live * 2 == count) half_at = now();
        if (live == count - count / 100) most_at = now();
        if (live == count) {
            printf("%.6f %.6f %.6f %.6f %ld %ld\n", lost_at, half_at, most_at, now(), attempts, refused);
            fflush(stdout);
        }
    }
}

static void sweep(void) {
    static char data[1 << 16];
    struct epoll_event events[256];
    int n;
    while ((n = epoll_wait(poller, events, 256, 0)) > 0)
        for (int i = 0; i < n; i++) {
            struct client *client = events[i].data.ptr;
            if (events[i].events & (EPOLLERR | EPOLLHUP)) {
                lose(client);
                continue;
            }
            if (client->state == CONNECTING && events[i].events == EPOLLOUT) request(client);
            while (client->fd >= 0 && events[i].events & EPOLLIN) {
                ssize_t size = read(client->fd, data, sizeof data);
                if (size > 0) received(client, data, (size_t)size);
                else if (size < 0 && errno == EAGAIN) break;
                else lose(client);
            }
        }
}

int main(int argc, char **argv) {
    char input[64];
    if (argc != 7) return 2;
    port = atoi(argv[1]);
    count = atoi(argv[2]);
    net = atoi(argv[3]);
    path = argv[4];
    snprintf(subscribe, sizeof subscribe, "{\"type\":\"subscribe\",\"id\":1,\"endpoints\":{\"%s\":null}}", argv[5]);
    srand48(net);
    poller = epoll_create1(0);
    clients = calloc((size_t)count, sizeof *clients);
    double began = now();
    for (int i = 0; i < count; i++)
        clients[i] = (struct client){.fd = -1, .number = i, .since = began, .at = began + i / atof(argv[6])};
    for (;;) {
        struct pollfd end = {.fd = 0, .events = POLLIN};
        struct timespec pause = {.tv_nsec = (long)(SWEEP_S * 1e9)};
        /* It sleeps between sweeps: a client on another machine is not woken at the server's expense. */
        nanosleep(&pause, NULL);
        sweep();
        double t = now();
        for (int i = 0; i < count; i++)
            if (clients[i].state < OPEN && clients[i].at <= t) {
                if (clients[i].state == WAITING) dial_later(&clients[i]);
                else lose(&clients[i]);
            }
        if (poll(&end, 1, 0) > 0 && read(0, input, sizeof input) <= 0) return 0;
    }
}
