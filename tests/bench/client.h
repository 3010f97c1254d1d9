/* What the load clients have in common: opening a WebSocket connection, and sending text on it.
 *
 * Connections come from loopback addresses of their own, offer diem.v1.json and send no Origin.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_MESSAGE = 4096, PER_ADDRESS = 50 };

static const char DIEM_PROTOCOL[] = "Sec-WebSocket-Protocol: diem.v1.json\r\n";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int lossy; /* writes to connections that have just closed are no errors */

static void put(int fd, const void *data, size_t length) {
    if (write(fd, data, length) != (ssize_t)length && !lossy) die("write");
}

/* Begins to connect to a port of this machine from 127.0.NET.HOST; KIND is SOCK_NONBLOCK or 0. -1 if that fails at once. */
static int begin_to_dial(int port, int net, int host, int kind) {
    struct sockaddr_in own = {.sin_family = AF_INET}, server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    own.sin_addr.s_addr = htonl(0x7f000000u + (uint32_t)net * 256 + (uint32_t)host);
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | kind, 0);
    if (fd < 0 || bind(fd, (void *)&own, sizeof own)) die("socket");
    if (connect(fd, (void *)&server, sizeof server) && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

static int dial(int port, int net, int host) {
    int fd = begin_to_dial(port, net, host, 0);
    if (fd < 0) die("connect");
    return fd;
}

static void ask_for_websocket(int fd, int port, const char *path, const char *protocol, const char *fields) {
    char text[2048];
    int length = snprintf(text, sizeof text,
                          "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                          "%s%s\r\n", path, port, protocol, fields);
    if (length >= (int)sizeof text) die("path too long");
    put(fd, text, (size_t)length);
}

/* Opens connection NUMBER, 50 from each address; it does not block from then on. FIELDS are further header fields. */
static inline int open_websocket(int number, int port, int net, const char *path, const char *fields) {
    char text[2048];
    size_t got = 0;
    int fd = dial(port, net, 1 + number / PER_ADDRESS);
    ask_for_websocket(fd, port, path, DIEM_PROTOCOL, fields);
    /* Byte by byte, so that frames behind the answer stay in the socket. */
    while (got < 4 || memcmp(text + got - 4, "\r\n\r\n", 4)) {
        if (got == sizeof text || read(fd, text + got, 1) != 1) die("handshake");
        got++;
    }
    if (strncmp(text, "HTTP/1.1 101", 12)) {
        fprintf(stderr, "refused: %.40s\n", text);
        exit(1);
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* Sends TEXT as one message; '#' stands for NUMBER, a vertical tab for a line break. */
static void send_text(int fd, int number, const char *text) {
    unsigned char frame[8 + MAX_MESSAGE];
    size_t length = 0;
    if (fd < 0) return;
    unsigned char *payload = frame + 8;
    for (; *text; text++) {
        if (length > MAX_MESSAGE - 12) die("message too long");
        if (*text == '#') length += (size_t)sprintf((char *)payload + length, "%d", number);
        else payload[length++] = *text == '\v' ? '\n' : (unsigned char)*text;
    }
    memset(frame, 0, 8); /* a mask of zeros: the payload stays as it is */
    unsigned char *start = length < 126 ? frame + 2 : frame;
    start[0] = 0x81;
    start[1] = 0x80 | (length < 126 ? (unsigned char)length : 126);
    if (length >= 126) {
        start[2] = (unsigned char)(length >> 8);
        start[3] = (unsigned char)length;
    }
    put(fd, start, (size_t)(payload + length - start));
}

static void pong(int fd) {
    static const unsigned char frame[] = {0x8a, 0x80, 0, 0, 0, 0};
    put(fd, frame, sizeof frame);
}

#endif
