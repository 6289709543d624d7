// A stand-in for Oracle's client library, for tests. See doc.go of package
// standin. Written from the behaviour that ODPI-C's own source shows; no header
// of Oracle's is used. Numbers in the code are those that ODPI-C passes.
#ifndef CLIENT_H
#define CLIENT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define TRACE trace(__func__)

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

// Results of calls.
enum { OK = 0, NODATA = 100, ERR = -1, BAD_HANDLE = -2 };

// Types of handles and descriptors.
enum { T_ENV = 1, T_ERROR = 2, T_SVC = 3, T_STMT = 4, T_BIND = 5, T_DEFINE = 6, T_DESCRIBE = 7,
       T_SERVER = 8, T_SESSION = 9, D_LOB = 50, D_PARAM = 53 };

// Types of values: integer in C, NUMBER; everything else is bytes.
enum { SQLT_INT = 3, SQLT_VNU = 6 };

// Modes of execution and of binding.
enum { COMMIT_ON_SUCCESS = 0x20, DATA_AT_EXEC = 2 };

enum { CHARSET_AL32UTF8 = 873, MAX_NAME = 130, MAX_BINDS = 96, MAX_COLUMNS = 32 };

// Growable bytes, and a reader of a frame.
typedef struct { u8 *p; size_t n, cap; } buffer;
typedef struct { const u8 *p; size_t n, at; } reader;

void put8(buffer *b, u8 v);
void put32(buffer *b, u32 v);
void put64(buffer *b, u64 v);
void put_bytes(buffer *b, const void *d, size_t n);
u8 get8(reader *r);
u16 get16(reader *r);
u32 get32(reader *r);
u64 get64(reader *r);
const u8 *get_bytes(reader *r, u32 *n);

// Handles. Each begins with its type.
typedef struct { u32 type, code; char message[2048]; int recoverable; } error_handle;
typedef struct { u32 type; int fd, normal; char address[256], db[64]; pthread_mutex_t writing; } server_handle;
typedef struct { u32 type; char user[MAX_NAME], password[MAX_NAME], module[64], action[64], info[128]; int in_transaction; } session_handle;
typedef struct { u32 type; server_handle *server; session_handle *session; u32 call_timeout, cache; } service_handle;

typedef struct bound {
    u32 type; char name[MAX_NAME]; int position; void *value; int64_t size; u16 of; int16_t *null; u32 *length; u16 *code;
    u32 most, *count; struct bound *next;
} bound;
typedef struct define {
    u32 type, position; void *value; u64 size; u16 of; int16_t *null; u32 *length; u16 *code; struct define *next;
} define;
typedef struct { u32 type; char name[MAX_NAME]; u16 of, size; int16_t precision; int8_t scale; } column;
typedef struct {
    u32 type; service_handle *service; char *sql; u32 sql_length; u16 kind;
    char names[MAX_BINDS][MAX_NAME]; int name_count; bound *binds; define *defines;
    u64 row_count; u32 fetched, column_count; column columns[MAX_COLUMNS];
    buffer reply; reader rows; u32 row_total, next_row;
} statement_handle;

// Operations of the wire; the first byte of a request.
enum { OP_LOGIN = 'L', OP_PING = 'P', OP_EXECUTE = 'X', OP_COMMIT = 'C', OP_ROLLBACK = 'R', OP_BREAK = 'B', OP_LOB = 'T' };

void trace(const char *function);
int fail(void *error, u32 code, const char *message);
// call makes one round trip. After OK, the reader stands behind the status byte
// of the reply, whose bytes are in out. It frees the request.
int call(service_handle *s, void *error, buffer *request, buffer *out, reader *r);
int call_simply(service_handle *s, void *error, u8 op);
int send_break(service_handle *s);
int dial(server_handle *s, void *error);
void hang_up(server_handle *s);
void free_statement(statement_handle *s);

// NUMBER: a length byte, an exponent of base 100, and digits of base 100.
void number_from_int(int64_t v, u8 *out);
int64_t number_to_int(const u8 *number);

#endif
