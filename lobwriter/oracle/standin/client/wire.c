// The wire: one frame there and one back for each round trip.
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// trace prints each call if STANDIN_TRACE is set.
void trace(const char *function) {
    static int on = -1;
    if (on < 0) on = getenv("STANDIN_TRACE") != NULL;
    if (on) fprintf(stderr, "standin: %s\n", function);
}

int fail(void *error, u32 code, const char *message) {
    error_handle *e = error;
    if (e) {
        e->code = code;
        e->recoverable = 0;
        snprintf(e->message, sizeof e->message, "ORA-%05u: %s\n", code, message);
    }
    return ERR;
}

static void put(buffer *b, const void *d, size_t n) {
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2 + 256;
        b->p = realloc(b->p, b->cap);
        if (!b->p) abort();
    }
    if (n) memcpy(b->p + b->n, d, n);
    b->n += n;
}
void put8(buffer *b, u8 v) { put(b, &v, 1); }
void put32(buffer *b, u32 v) { put(b, &v, 4); }
void put64(buffer *b, u64 v) { put(b, &v, 8); }
void put_bytes(buffer *b, const void *d, size_t n) { put32(b, (u32)n); put(b, d, n); }

// A frame that is too short reads as zeroes.
static const u8 *get(reader *r, size_t n) {
    static const u8 zero[8];
    if (n > r->n - r->at) {
        r->at = r->n;
        return n <= sizeof zero ? zero : NULL;
    }
    const u8 *p = r->p + r->at;
    r->at += n;
    return p;
}
u8 get8(reader *r) { return *get(r, 1); }
u16 get16(reader *r) { u16 v; memcpy(&v, get(r, 2), 2); return v; }
u32 get32(reader *r) { u32 v; memcpy(&v, get(r, 4), 4); return v; }
u64 get64(reader *r) { u64 v; memcpy(&v, get(r, 8), 8); return v; }
const u8 *get_bytes(reader *r, u32 *n) {
    *n = get32(r);
    const u8 *p = get(r, *n);
    if (!p) *n = 0;
    return p;
}

static int send_bytes(int fd, const u8 *p, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return -1;
        p += sent;
        n -= (size_t)sent;
    }
    return 0;
}

static int send_frame(server_handle *s, const buffer *b) {
    u32 n = (u32)b->n;
    pthread_mutex_lock(&s->writing);
    int rc = send_bytes(s->fd, (const u8 *)&n, 4) || send_bytes(s->fd, b->p, b->n);
    pthread_mutex_unlock(&s->writing);
    return rc;
}

// receive returns 0, -1 if the connection is gone, or -2 after a time without a
// byte.
static int receive(server_handle *s, u8 *p, size_t n, int timeout_ms) {
    for (size_t got = 0; got < n;) {
        if (timeout_ms > 0) {
            struct pollfd f = {s->fd, POLLIN, 0};
            int r = poll(&f, 1, timeout_ms);
            if (r == 0) return -2;
            if (r < 0 && errno == EINTR) continue;
        }
        ssize_t r = recv(s->fd, p + got, n - got, 0);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) return -1;
        got += (size_t)r;
    }
    return 0;
}

void hang_up(server_handle *s) {
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
    s->normal = 0;
}

static int lost(server_handle *s, void *error) {
    hang_up(s);
    return fail(error, 3113, "end-of-file on communication channel");
}

int send_break(service_handle *s) {
    buffer b = {0};
    put8(&b, OP_BREAK);
    int rc = s->server->fd < 0 || send_frame(s->server, &b);
    free(b.p);
    return rc;
}

int call(service_handle *service, void *error, buffer *request, buffer *out, reader *r) {
    server_handle *s = service->server;
    int wait = (int)service->call_timeout, timed_out = 0;
    u32 n;
    if (!s || s->fd < 0) {
        free(request->p);
        return fail(error, 3114, "not connected to ORACLE");
    }
    int rc = send_frame(s, request);
    free(request->p);
    if (rc) return lost(s, error);
    rc = receive(s, (u8 *)&n, 4, wait);
    if (rc == -2) { // break the call, and wait as long again for the server to agree
        send_break(service);
        timed_out = 1;
        rc = receive(s, (u8 *)&n, 4, wait);
    }
    if (rc == -2) {
        hang_up(s);
        return fail(error, 12161, "TNS:internal error: partial data received");
    }
    if (rc) return lost(s, error);
    if (n > out->cap) {
        out->p = realloc(out->p, n);
        if (!out->p) abort();
        out->cap = n;
    }
    if (receive(s, out->p, n, 0)) return lost(s, error);
    out->n = n;
    *r = (reader){out->p, n, 0};
    u8 status = get8(r);
    if (timed_out) return fail(error, 3156, "OCI call timed out");
    if (status == 0) return OK;
    u32 code = get32(r), length;
    const u8 *text = get_bytes(r, &length);
    char message[1024];
    snprintf(message, sizeof message, "%.*s", (int)length, text ? (const char *)text : "");
    fail(error, code, message);
    ((error_handle *)error)->recoverable = get8(r);
    return ERR;
}

int call_simply(service_handle *s, void *error, u8 op) {
    buffer request = {0}, reply = {0};
    reader r;
    put8(&request, op);
    int rc = call(s, error, &request, &reply, &r);
    free(reply.p);
    return rc;
}

// dial connects to HOST:PORT/NAME.
int dial(server_handle *s, void *error) {
    char host[200] = "127.0.0.1", port[16] = "1521";
    const char *colon = strchr(s->address, ':'), *slash = strchr(s->address, '/');
    if (colon) {
        snprintf(host, sizeof host, "%.*s", (int)(colon - s->address), s->address);
        snprintf(port, sizeof port, "%.*s", (int)strcspn(colon + 1, "/"), colon + 1);
    }
    snprintf(s->db, sizeof s->db, "%s", slash ? slash + 1 : "STANDIN");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(host, port, &hints, &found)) return fail(error, 12154, "TNS:could not resolve the connect identifier specified");
    int one = 1;
    s->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = connect(s->fd, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (rc) {
        hang_up(s);
        return fail(error, 12541, "TNS:no listener");
    }
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    s->normal = 1;
    return OK;
}
