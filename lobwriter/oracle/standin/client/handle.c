// Handles, attributes, sessions, transactions.
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- process, threads, environment

// From 18 on there are call timeouts; from 21 on ODPI-C asks for attributes that
// are not here.
API void OCIClientVersion(int *a, int *b, int *c, int *d, int *e) { TRACE; *a = 19; *b = 20; *c = *d = *e = 0; }
API void OCIThreadProcessInit(void) { TRACE; }
API int OCIThreadKeyInit(void *h, void *e, void **key, void *destroy) {
    TRACE; (void)h; (void)e;
    pthread_key_t *k = malloc(sizeof *k);
    if (pthread_key_create(k, (void (*)(void *))destroy)) return ERR;
    *key = k;
    return OK;
}
API int OCIThreadKeyGet(void *h, void *e, void *key, void **v) { (void)h; (void)e; *v = pthread_getspecific(*(pthread_key_t *)key); return OK; }
API int OCIThreadKeySet(void *h, void *e, void *key, void *v) { (void)h; (void)e; return pthread_setspecific(*(pthread_key_t *)key, v) ? ERR : OK; }
API int OCIThreadKeyDestroy(void *h, void *e, void **key) {
    TRACE; (void)h; (void)e;
    pthread_key_delete(*(pthread_key_t *)*key);
    free(*key);
    *key = NULL;
    return OK;
}
API int OCIEnvNlsCreate(void **env, u32 mode, void *c, void *m, void *ra, void *f, size_t x, void **u, u16 cs, u16 ncs) {
    TRACE; (void)mode; (void)c; (void)m; (void)ra; (void)f; (void)x; (void)u; (void)cs; (void)ncs;
    u32 *e = calloc(1, 64);
    *e = T_ENV;
    *env = e;
    return OK;
}
API int OCINlsNumericInfoGet(void *env, void *err, int32_t *v, u16 item) { TRACE; (void)env; (void)err; (void)item; *v = 4; return OK; }
API int OCINlsCharSetIdToName(void *env, char *b, size_t n, u16 id) { TRACE; (void)env; (void)id; snprintf(b, n, "AL32UTF8"); return OK; }
API u16 OCINlsCharSetNameToId(void *env, const char *n) { TRACE; (void)env; (void)n; return CHARSET_AL32UTF8; }
API int OCINlsNameMap(void *env, char *b, size_t n, const char *src, u32 f) { TRACE; (void)env; (void)f; snprintf(b, n, "%s", src); return OK; }

// ---- handles

static size_t size_of(u32 type) {
    switch (type) {
    case T_ERROR: return sizeof(error_handle);
    case T_SVC: return sizeof(service_handle);
    case T_STMT: return sizeof(statement_handle);
    case T_SERVER: return sizeof(server_handle);
    case T_SESSION: return sizeof(session_handle);
    default: return 256;
    }
}
static void *new_handle(u32 type) {
    u32 *h = calloc(1, size_of(type));
    if (!h) return NULL;
    *h = type;
    if (type == T_SERVER) {
        ((server_handle *)h)->fd = -1;
        pthread_mutex_init(&((server_handle *)h)->writing, NULL);
    }
    return h;
}
API int OCIHandleAlloc(const void *p, void **h, u32 type, size_t x, void **u) { TRACE; (void)p; (void)x; (void)u; return (*h = new_handle(type)) ? OK : ERR; }
API int OCIHandleFree(void *h, u32 type) {
    TRACE;
    if (!h) return BAD_HANDLE;
    if (type == T_STMT) free_statement(h); else free(h);
    return OK;
}
API int OCIDescriptorAlloc(const void *p, void **h, u32 type, size_t x, void **u) { TRACE; (void)p; (void)x; (void)u; return (*h = new_handle(type)) ? OK : ERR; }
API int OCIDescriptorFree(void *h, u32 type) { TRACE; if (type != D_PARAM) free(h); return OK; }
API int OCIErrorGet(void *h, u32 record, char *state, int32_t *code, char *b, u32 n, u32 type) {
    TRACE; (void)state;
    error_handle *e = h;
    if (type != T_ERROR || record != 1 || !e->code) return NODATA;
    *code = (int32_t)e->code;
    snprintf(b, n, "%s", e->message);
    return OK;
}

// ---- attributes: each has a width of its own

static int text(void *p, u32 *size, const char *s) {
    *(const char **)p = s;
    if (size) *size = (u32)strlen(s);
    return OK;
}
static int server_attribute(const server_handle *s, void *p, u32 *size, u32 a) {
    switch (a) {
    case 31: *(u16 *)p = CHARSET_AL32UTF8; return OK;
    case 143: *(u32 *)p = (u32)s->normal; return OK;
    case 391: case 392: case 393: return text(p, size, s->db);
    case 399: return text(p, size, "");
    case 436: case 495: *(u8 *)p = 0; return OK;
    }
    return ERR;
}
static int service_attribute(const service_handle *s, void *p, u32 a) {
    switch (a) {
    case 6: *(void **)p = s->server; return OK;
    case 7: *(void **)p = s->session; return OK;
    case 176: *(u32 *)p = s->cache; return OK;
    case 500: *(u8 *)p = 128; return OK;
    case 531: *(u32 *)p = s->call_timeout; return OK;
    }
    return ERR;
}
static int session_attribute(const session_handle *s, void *p, u32 *size, u32 a) {
    switch (a) {
    case 224: return text(p, size, s->user);
    case 288: case 462: return text(p, size, "");
    case 471: *(u32 *)p = 300; return OK;
    case 484: *(int *)p = s->in_transaction; return OK;
    }
    return ERR;
}
static int statement_attribute(const statement_handle *s, void *p, u32 *size, u32 a) {
    switch (a) {
    case 9: *(u32 *)p = (u32)s->row_count; return OK;
    case 18: *(u32 *)p = s->column_count; return OK;
    case 24: *(u16 *)p = s->kind; return OK;
    case 73: *(u32 *)p = 0; return OK;
    case 129: *(u16 *)p = 0; return OK;
    case 144:
        *(const char **)p = s->sql;
        if (size) *size = s->sql_length;
        return OK;
    case 190: *(u32 *)p = (u32)s->name_count; return OK;
    case 197: *(u32 *)p = s->fetched; return OK;
    case 218: *(u8 *)p = 0; return OK;
    case 457: *(u64 *)p = s->row_count; return OK;
    case 504: return text(p, size, "standin000000");
    }
    return ERR;
}
static int column_attribute(const column *c, void *p, u32 *size, u32 a) {
    switch (a) {
    case 1: case 286: *(u16 *)p = c->size; return OK;
    case 2: *(u16 *)p = c->of; return OK;
    case 4: return text(p, size, c->name);
    case 5: *(int16_t *)p = c->precision; return OK;
    case 6: *(int8_t *)p = c->scale; return OK;
    case 7: *(u8 *)p = 1; return OK;
    case 32: *(u8 *)p = 1; return OK;
    case 534: case 623: *(u8 *)p = 0; return OK;
    }
    return ERR;
}
API int OCIAttrGet(const void *h, u32 type, void *p, u32 *size, u32 a, void *error) {
    TRACE;
    if (!h) return BAD_HANDLE;
    int rc = ERR;
    switch (type) {
    case T_ENV: *(u16 *)p = CHARSET_AL32UTF8; return OK;
    case T_ERROR:
        if (a == 472) *(int *)p = ((const error_handle *)h)->recoverable; else *(u32 *)p = 0;
        return OK;
    case T_BIND: *(u32 *)p = 0; return OK;
    case T_SERVER: rc = server_attribute(h, p, size, a); break;
    case T_SVC: rc = service_attribute(h, p, a); break;
    case T_SESSION: rc = session_attribute(h, p, size, a); break;
    case T_STMT: rc = statement_attribute(h, p, size, a); break;
    case T_DESCRIBE: rc = column_attribute(h, p, size, a); break;
    }
    if (rc == OK) return OK;
    char m[80];
    snprintf(m, sizeof m, "the stand-in has no attribute %u of handle type %u", a, type);
    return fail(error, 24315, m);
}

static void copy(char *to, size_t room, const void *p, u32 n) { snprintf(to, room, "%.*s", (int)n, p ? (const char *)p : ""); }

API int OCIAttrSet(void *h, u32 type, void *p, u32 n, u32 a, void *error) {
    TRACE; (void)error;
    if (!h) return BAD_HANDLE;
    if (type == T_SVC) {
        service_handle *s = h;
        if (a == 6) s->server = p;
        if (a == 7) s->session = p;
        if (a == 176) s->cache = *(u32 *)p;
        if (a == 531) s->call_timeout = *(u32 *)p;
    } else if (type == T_SESSION) {
        session_handle *s = h;
        if (a == 22) copy(s->user, sizeof s->user, p, n);
        if (a == 23) copy(s->password, sizeof s->password, p, n);
        if (a == 366) copy(s->module, sizeof s->module, p, n);
        if (a == 367) copy(s->action, sizeof s->action, p, n);
        if (a == 368) copy(s->info, sizeof s->info, p, n);
    }
    return OK;
}

// ---- sessions and transactions

API int OCIServerAttach(void *server, void *error, const char *connect, int32_t n, u32 mode) {
    TRACE; (void)mode;
    server_handle *s = server;
    copy(s->address, sizeof s->address, connect, (u32)n);
    return dial(s, error);
}
API int OCIServerDetach(void *server, void *error, u32 mode) { TRACE; (void)error; (void)mode; hang_up(server); return OK; }
API int OCISessionBegin(void *service, void *error, void *session, u32 credentials, u32 mode) {
    TRACE; (void)mode;
    service_handle *svc = service;
    session_handle *s = svc->session = session;
    buffer q = {0}, o = {0};
    reader r;
    put8(&q, OP_LOGIN);
    put32(&q, credentials); // 1: user and password; 2: external
    put_bytes(&q, s->user, strlen(s->user));
    put_bytes(&q, s->password, strlen(s->password));
    put_bytes(&q, svc->server->db, strlen(svc->server->db));
    int rc = call(svc, error, &q, &o, &r);
    free(o.p);
    return rc;
}
API int OCISessionEnd(void *service, void *error, void *session, u32 mode) { TRACE; (void)session; (void)mode; (void)service; (void)error; return OK; }
API int OCIServerRelease2(void *h, void *error, char *b, u32 n, u8 type, u32 *version, u32 mode) {
    TRACE; (void)h; (void)error; (void)type; (void)mode;
    if (b) snprintf(b, n, "a stand-in for Oracle Database 19.20");
    *version = 19u << 24 | 20u << 16;
    return OK;
}
API int OCIContextGetValue(void *h, void *e, const char *k, u8 n, void **v) { TRACE; (void)h; (void)e; (void)k; (void)n; *v = NULL; return OK; }
API int OCIContextSetValue(void *h, void *e, u16 d, const char *k, u8 n, void *v) { TRACE; (void)h; (void)e; (void)d; (void)k; (void)n; (void)v; return OK; }
API int OCIMemoryAlloc(void *h, void *e, void **m, u16 d, u32 n, u32 f) { TRACE; (void)h; (void)e; (void)d; (void)f; return (*m = calloc(1, n)) ? OK : ERR; }
API int OCIMemoryFree(void *h, void *e, void *m) { TRACE; (void)h; (void)e; free(m); return OK; }
API int OCIPing(void *service, void *error, u32 mode) { TRACE; (void)mode; return call_simply(service, error, OP_PING); }
static int end_transaction(service_handle *s, void *error, u8 op) {
    int rc = call_simply(s, error, op);
    if (!rc) s->session->in_transaction = 0;
    return rc;
}
API int OCITransCommit(void *service, void *error, u32 flags) { TRACE; (void)flags; return end_transaction(service, error, OP_COMMIT); }
API int OCITransRollback(void *service, void *error, u32 flags) { TRACE; (void)flags; return end_transaction(service, error, OP_ROLLBACK); }
API int OCIBreak(void *service, void *error) { TRACE; return send_break(service) ? fail(error, 3114, "not connected to ORACLE") : OK; }

// ---- LOBs: only to be seen. Whoever asks for a temporary LOB is counted by the
// server, and refused.

API int OCILobTrim2(void *service, void *error, void *locator, u64 n) { TRACE; (void)service; (void)error; (void)locator; (void)n; return BAD_HANDLE; }
API int OCILobCreateTemporary(void *service, void *error, void *locator, u16 cs, u8 form, u8 type, int cache, u16 duration) {
    TRACE; (void)locator; (void)cs; (void)form; (void)type; (void)cache; (void)duration;
    return call_simply(service, error, OP_LOB);
}
