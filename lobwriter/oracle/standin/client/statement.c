// Statements: prepare, bind, execute, fetch.
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- NUMBER

void number_from_int(int64_t v, u8 *out) {
    u8 digits[12];
    int n = 0, negative = v < 0, low = 0;
    u64 rest = negative ? 0 - (u64)v : (u64)v;
    if (!rest) {
        out[0] = 1;
        out[1] = 0x80;
        return;
    }
    for (; rest; rest /= 100) digits[n++] = (u8)(rest % 100);
    while (digits[low] == 0) low++;
    u8 *p = out + 1;
    *p++ = negative ? (u8)(62 - (n - 1)) : (u8)(193 + (n - 1));
    for (int i = n - 1; i >= low; i--) *p++ = negative ? (u8)(101 - digits[i]) : (u8)(digits[i] + 1);
    if (negative) *p++ = 102;
    out[0] = (u8)(p - out - 1);
}
int64_t number_to_int(const u8 *number) {
    int n = number[0];
    if (n <= 1 && number[1] == 0x80) return 0;
    int positive = number[1] & 0x80, exponent = positive ? number[1] - 193 : 62 - number[1];
    u64 v = 0;
    for (int i = 0; i <= exponent; i++) {
        int digit = 0;
        if (i + 2 <= n && !(!positive && number[i + 2] == 102)) digit = positive ? number[i + 2] - 1 : 101 - number[i + 2];
        v = v * 100 + (u64)digit;
    }
    return positive ? (int64_t)v : -(int64_t)v;
}
API int OCINumberFromInt(void *e, const void *v, unsigned n, unsigned sign, void *number) { TRACE; (void)e; (void)n; (void)sign; number_from_int(*(const int64_t *)v, number); return OK; }
API int OCINumberToInt(void *e, const void *number, unsigned n, unsigned sign, void *v) { TRACE; (void)e; (void)n; (void)sign; *(int64_t *)v = number_to_int(number); return OK; }
API int OCINumberToReal(void *e, const void *number, unsigned n, void *v) { TRACE; (void)e; (void)n; *(double *)v = (double)number_to_int(number); return OK; }
API int OCINumberFromReal(void *e, const void *v, unsigned n, void *number) { TRACE; (void)e; (void)n; number_from_int((int64_t)*(const double *)v, number); return OK; }

// ---- prepare

static int is_name(int c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || c == '$' || c == '#'; }
static char upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 32) : c; }

static u16 kind_of(const char *sql) {
    static const struct { const char *word; u16 kind; } kinds[] = {
        {"select", 1}, {"with", 1}, {"update", 2}, {"delete", 3}, {"insert", 4}, {"create", 5}, {"drop", 6},
        {"alter", 7}, {"begin", 8}, {"declare", 9}, {"call", 10}, {"merge", 16}, {"rollback", 17}, {"commit", 21}};
    sql += strspn(sql, " \n\t\r(");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].word);
        if (!strncasecmp(sql, kinds[i].word, n) && !is_name((u8)sql[n])) return kinds[i].kind;
    }
    return 0;
}
// skip returns where quoted text or a comment that begins at p ends; p if none
// does.
static const char *skip(const char *p) {
    const char *end = p;
    if (*p == '\'' || *p == '"') end = strchr(p + 1, *p);
    else if (p[0] == '-' && p[1] == '-') end = strchr(p, '\n');
    else if (p[0] == '/' && p[1] == '*') end = strstr(p + 2, "*/");
    return end ? end : p + strlen(p) - 1;
}
static void find_names(statement_handle *s) {
    if (s->kind >= 5 && s->kind <= 7) return; // DDL has no variables; triggers have :NEW
    for (const char *p = s->sql; *p; p++) {
        const char *end = skip(p);
        if (end != p) {
            p = end;
            continue;
        }
        if (*p != ':' || !is_name((u8)p[1])) continue;
        char name[MAX_NAME];
        int n = 0, seen = 0;
        for (p++; is_name((u8)*p) && n < MAX_NAME - 1; p++) name[n++] = upper(*p);
        name[n] = 0;
        p--;
        for (int i = 0; i < s->name_count; i++) seen |= !strcmp(s->names[i], name);
        if (!seen && s->name_count < MAX_BINDS) strcpy(s->names[s->name_count++], name);
    }
}
API int OCIStmtPrepare2(void *service, void **out, void *error, const char *sql, u32 n, const char *key, u32 kn, u32 lang, u32 mode) {
    TRACE; (void)key; (void)kn; (void)lang; (void)mode;
    statement_handle *s = calloc(1, sizeof *s);
    if (!s || !(s->sql = malloc(n + 1))) return fail(error, 4030, "out of process memory");
    s->type = T_STMT;
    s->service = service;
    memcpy(s->sql, sql, n);
    s->sql[n] = 0;
    s->sql_length = n;
    s->kind = kind_of(s->sql);
    find_names(s);
    *out = s;
    return OK;
}
void free_statement(statement_handle *s) {
    for (bound *b = s->binds, *next; b; b = next) { next = b->next; free(b); }
    for (define *d = s->defines, *next; d; d = next) { next = d->next; free(d); }
    free(s->sql);
    free(s->reply.p);
    free(s);
}
API int OCIStmtRelease(void *st, void *error, const char *key, u32 n, u32 mode) { TRACE; (void)error; (void)key; (void)n; (void)mode; free_statement(st); return OK; }
API int OCIStmtGetBindInfo(void *st, void *error, u32 size, u32 start, int32_t *found, char *names[], u8 lengths[], char *iv[], u8 il[], u8 dup[], void **h) {
    TRACE; (void)error;
    statement_handle *s = st;
    if (!s->name_count) return NODATA;
    int n = s->name_count - (int)start + 1;
    *found = n > (int)size ? -s->name_count : s->name_count; // of all names; negative: there are more
    for (int i = 0; i < n && i < (int)size; i++) {
        names[i] = s->names[start - 1 + (u32)i];
        lengths[i] = (u8)strlen(names[i]);
        iv[i] = NULL; il[i] = 0; dup[i] = 0; h[i] = NULL;
    }
    return OK;
}

// ---- bind and define

static bound *find_bind(const statement_handle *s, int position) {
    bound *b = s->binds;
    while (b && b->position != position) b = b->next;
    return b;
}
API int OCIBindByName2(void *st, void **out, void *error, const char *name, int32_t n, void *value, int64_t size, u16 of,
                       void *null, u32 *length, u16 *code, u32 most, u32 *count, u32 mode) {
    TRACE;
    statement_handle *s = st;
    char wanted[MAX_NAME];
    int at = 0, position = 0;
    if (*name == ':') { name++; n--; }
    for (; at < n && at < MAX_NAME - 1; at++) wanted[at] = upper(name[at]);
    wanted[at] = 0;
    for (int i = 0; i < s->name_count; i++) if (!strcmp(s->names[i], wanted)) position = i + 1;
    if (!position) return fail(error, 1036, "illegal variable name/number");
    if (mode & DATA_AT_EXEC) return fail(error, 24315, "the stand-in has no long values");
    bound *b = find_bind(s, position);
    if (!b) {
        b = calloc(1, sizeof *b);
        b->type = T_BIND;
        b->next = s->binds;
        s->binds = b;
    }
    strcpy(b->name, wanted);
    b->position = position; b->value = value; b->size = size; b->of = of; b->null = null; b->length = length; b->code = code;
    b->most = most; b->count = count;
    *out = b;
    return OK;
}
API int OCIDefineByPos2(void *st, void **out, void *error, u32 position, void *value, u64 size, u16 of, void *null, u32 *length, u16 *code, u32 mode) {
    TRACE;
    statement_handle *s = st;
    if (mode & DATA_AT_EXEC) return fail(error, 24315, "the stand-in has no long values");
    define *d = s->defines;
    while (d && d->position != position) d = d->next;
    if (!d) {
        d = calloc(1, sizeof *d);
        d->type = T_DEFINE;
        d->next = s->defines;
        s->defines = d;
    }
    d->position = position; d->value = value; d->size = size; d->of = of; d->null = null; d->length = length; d->code = code;
    *out = d;
    return OK;
}
API int OCIParamGet(const void *h, u32 type, void *error, void **out, u32 position) {
    TRACE;
    statement_handle *s = (statement_handle *)h;
    if (type != T_STMT || position < 1 || position > s->column_count) return fail(error, 24334, "no descriptor for this position");
    *out = &s->columns[position - 1];
    return OK;
}

// ---- values: NULL or not, and the bytes; numbers as decimal text

static void put_value(buffer *q, u16 of, const u8 *v, u32 length, int null) {
    char t[32];
    put8(q, (u8)null);
    if (null) put32(q, 0);
    else if (of == SQLT_VNU) put_bytes(q, t, (size_t)sprintf(t, "%lld", (long long)number_to_int(v)));
    else if (of == SQLT_INT) put_bytes(q, t, (size_t)sprintf(t, "%lld", (long long)*(const int64_t *)v));
    else put_bytes(q, v, length);
}
// set_value returns the code of the value: 0, or 1406 if it was cut.
static u16 set_value(u16 of, u8 *v, u64 room, u32 *length, int16_t *null, const u8 *d, u32 n, int is_null) {
    char t[32];
    *null = is_null ? -1 : 0;
    if (is_null) {
        if (length) *length = 0;
        return 0;
    }
    if (of == SQLT_VNU || of == SQLT_INT) {
        snprintf(t, sizeof t, "%.*s", (int)n, (const char *)d);
        int64_t x = strtoll(t, NULL, 10);
        if (of == SQLT_VNU) number_from_int(x, v); else *(int64_t *)v = x;
        return 0;
    }
    u32 m = n > room ? (u32)room : n;
    if (m) memcpy(v, d, m);
    if (length) *length = m;
    return m < n ? 1406 : 0;
}

// ---- execute and fetch

static int put_binds(buffer *q, statement_handle *s, u32 iterations, void *error) {
    put32(q, (u32)s->name_count);
    for (int i = 1; i <= s->name_count; i++) {
        bound *b = find_bind(s, i);
        if (!b) return fail(error, 1008, "not all variables bound");
        put_bytes(q, b->name, strlen(b->name));
        put32(q, b->of);
        put32(q, b->most);
        u32 n = b->most ? *b->count : (iterations ? iterations : 1);
        put32(q, n);
        for (u32 k = 0; k < n; k++)
            put_value(q, b->of, (u8 *)b->value + (int64_t)k * b->size, b->length ? b->length[k] : (u32)b->size, b->null && b->null[k] == -1);
    }
    return OK;
}
static void take_binds(reader *r, statement_handle *s) {
    for (u32 left = get32(r); left > 0; left--) {
        bound *b = find_bind(s, (int)get32(r));
        u32 n = get32(r);
        if (b && b->most) *b->count = n > b->most ? b->most : n;
        for (u32 k = 0; k < n; k++) {
            int null = get8(r);
            u32 length;
            const u8 *d = get_bytes(r, &length);
            if (!b || (b->most && k >= b->most)) continue;
            u16 code = set_value(b->of, (u8 *)b->value + (int64_t)k * b->size, (u64)b->size, b->length ? &b->length[k] : NULL, &b->null[k], d, length, null);
            if (b->code) b->code[k] = code;
        }
    }
}
static void take_columns(reader *r, statement_handle *s) {
    s->column_count = get32(r);
    if (s->column_count > MAX_COLUMNS) s->column_count = MAX_COLUMNS;
    for (u32 i = 0; i < s->column_count; i++) {
        column *c = &s->columns[i];
        u32 n;
        const u8 *name = get_bytes(r, &n);
        c->type = T_DESCRIBE;
        snprintf(c->name, sizeof c->name, "%.*s", (int)n, (const char *)name);
        c->of = get16(r);
        c->size = get16(r);
        c->precision = (int16_t)get16(r);
        c->scale = 0;
    }
    s->row_total = get32(r);
    s->rows = *r;
}
API int OCIStmtExecute(void *service, void *st, void *error, u32 iterations, u32 offset, const void *si, void *so, u32 mode) {
    TRACE; (void)offset; (void)si; (void)so;
    service_handle *svc = service;
    statement_handle *s = st;
    session_handle *who = svc->session;
    buffer q = {0};
    put8(&q, OP_EXECUTE);
    put32(&q, mode);
    put32(&q, iterations);
    put_bytes(&q, who->module, strlen(who->module));
    put_bytes(&q, who->action, strlen(who->action));
    put_bytes(&q, who->info, strlen(who->info));
    put_bytes(&q, s->sql, s->sql_length);
    if (put_binds(&q, s, iterations, error)) {
        free(q.p);
        return ERR;
    }
    reader r;
    int rc = call(svc, error, &q, &s->reply, &r);
    s->column_count = s->row_total = s->next_row = s->fetched = 0;
    if (s->kind != 1) who->in_transaction = rc || !(mode & COMMIT_ON_SUCCESS);
    if (rc) return rc;
    s->row_count = get64(&r);
    take_binds(&r, s);
    take_columns(&r, s);
    return OK;
}
API int OCIStmtFetch2(void *st, void *error, u32 want, u16 o, int32_t so, u32 mode) {
    TRACE; (void)error; (void)o; (void)so; (void)mode;
    statement_handle *s = st;
    u32 k = 0;
    for (; k < want && s->next_row < s->row_total; k++, s->next_row++)
        for (u32 c = 1; c <= s->column_count; c++) {
            int null = get8(&s->rows);
            u32 n;
            const u8 *d = get_bytes(&s->rows, &n);
            define *f = s->defines;
            while (f && f->position != c) f = f->next;
            if (!f) continue;
            u16 code = set_value(f->of, (u8 *)f->value + (u64)k * f->size, f->size, f->length ? &f->length[k] : NULL, &f->null[k], d, n, null);
            if (f->code) f->code[k] = code;
        }
    s->fetched = k;
    s->row_count += k;
    return k < want ? NODATA : OK;
}
