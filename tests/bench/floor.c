/* The floor: what the kernel alone asks for one frame to one client.
 *
 * usage: floor PORT. Accepts every connection with the handshake answer of the drain's fixed key, reads payloads from
 * standard input, one a line, and writes each as an unmasked text frame to every connection, one write() a delivery.
 * An empty line is ignored (it ends a tick, which means nothing here); the end of the input ends the process.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_CLIENTS = 8192, MAX_INPUT = 1 << 16 };

static const char ANSWER[] =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

static int clients[MAX_CLIENTS], count;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void let_in(int listener) {
    char request[4096];
    size_t got = 0;
    int one = 1, client = accept(listener, NULL, NULL);
    if (client < 0 || count == MAX_CLIENTS) die("accept");
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (;;) {
        ssize_t n = read(client, request + got, sizeof request - 1 - got);
        if (n <= 0) die("handshake");
        got += (size_t)n;
        request[got] = 0;
        if (strstr(request, "\r\n\r\n")) break;
    }
    if (write(client, ANSWER, sizeof ANSWER - 1) < 0) die("answer");
    clients[count++] = client;
}

static void deliver(const char *payload, size_t length) {
    static unsigned char frame[4 + MAX_INPUT];
    size_t start = length < 126 ? 2 : 4;
    if (!length) return;
    frame[0] = 0x81;
    frame[1] = length < 126 ? (unsigned char)length : 126;
    if (start == 4) {
        frame[2] = (unsigned char)(length >> 8);
        frame[3] = (unsigned char)length;
    }
    memcpy(frame + start, payload, length);
    for (int i = 0; i < count; i++)
        if (write(clients[i], frame, start + length) != (ssize_t)(start + length)) die("write");
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static char input[MAX_INPUT];
    size_t have = 0;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (argc != 2) return 2;
    address.sin_port = htons((uint16_t)atoi(argv[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1024)) die("listen");
    for (;;) {
        struct pollfd waiting[] = {{.fd = 0, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
        if (poll(waiting, 2, -1) < 0) die("poll");
        if (waiting[1].revents) let_in(listener);
        if (!waiting[0].revents) continue;
        ssize_t n = read(0, input + have, sizeof input - have);
        if (n <= 0) return 0;
        have += (size_t)n;
        char *line = input, *end;
        while ((end = memchr(line, '\n', have - (size_t)(line - input)))) {
            deliver(line, (size_t)(end - line));
            line = end + 1;
        }
        have -= (size_t)(line - input);
        memmove(input, line, have);
    }
}
