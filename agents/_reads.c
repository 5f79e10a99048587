/* The two loops that a stream's every chunk passes through, compiled: `reads.py` says what they do, and does without
 * them where there is no compiler. Functions only, no state, no threads. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <string.h>

#define CHUNK_DIGITS 7  /* of a chunk's size, hexadecimal: up to 256 MB */
#define COUNT_DIGITS 9  /* of a count, decimal */

static int hex_value(unsigned char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The size of the chunk whose header begins at `*at`, which then stands behind the header; 0 where it is no plain one,
 * or the last. */
static Py_ssize_t chunk_size(const char *data, Py_ssize_t len, Py_ssize_t *at)
{
    Py_ssize_t size = 0, i = *at;
    for (int digit; i < len && i - *at <= CHUNK_DIGITS && (digit = hex_value((unsigned char)data[i])) >= 0; i++)
        size = size * 16 + digit;
    if (i == *at || i - *at > CHUNK_DIGITS || len - i < 2 || data[i] != '\r' || data[i + 1] != '\n') return 0;
    *at = i + 2;
    return size;
}

static bool is_chunks(const char *data, Py_ssize_t len)
{
    Py_ssize_t at = 0;
    while (at < len) {
        Py_ssize_t size = chunk_size(data, len, &at);
        if (size == 0 || len - at < size + 2 || data[at + size] != '\r' || data[at + size + 1] != '\n') return false;
        at += size + 2;
    }
    return len > 0;
}

/* whole_chunks(data: bytes, t: int, pieces: list) -> bool */
static PyObject *whole_chunks(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 3 || !PyBytes_CheckExact(args[0]) || !PyList_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "whole_chunks(data: bytes, t: int, pieces: list)");
        return NULL;
    }
    const char *data = PyBytes_AS_STRING(args[0]);
    Py_ssize_t len = PyBytes_GET_SIZE(args[0]), at = 0;
    if (!is_chunks(data, len)) Py_RETURN_FALSE;
    while (at < len) {
        Py_ssize_t size = chunk_size(data, len, &at);
        PyObject *body = PyBytes_FromStringAndSize(data + at, size);
        PyObject *piece = body ? PyTuple_Pack(2, args[1], body) : NULL;
        int failed = piece ? PyList_Append(args[2], piece) : -1;
        Py_XDECREF(body);
        Py_XDECREF(piece);
        if (failed) return NULL;
        at += size + 2;
    }
    Py_RETURN_TRUE;
}

/* What an event must look like, and what was found in the events so far. */
typedef struct {
    PyObject *opening, *literals, *fixed;
    Py_ssize_t completion;
    long long total;
    PyObject *tokens;
    char *text;
    Py_ssize_t text_len, text_room;
} Reading;

/* The length of a JSON string's inside (RFC 8259, 7) from here to its closing quote; -1 where there is none. */
static Py_ssize_t inside(const char *data, const char *end)
{
    const char *at = data;
    while (at < end) {
        unsigned char c = (unsigned char)*at;
        if (c == '"') return at - data;
        if (c < 0x20) return -1;
        if (c != '\\') {
            at++;
            continue;
        }
        if (end - at < 2 || at[1] == 0 || !strchr("\"\\/bfnrtu", at[1])) return -1;
        if (at[1] == 'u') {
            if (end - at < 6) return -1;
            for (int i = 2; i < 6; i++)
                if (hex_value((unsigned char)at[i]) < 0) return -1;
            at += 4;
        }
        at += 2;
    }
    return -1;
}

/* The count at `*at`, which then stands behind it; -1 where it is none. */
static long long count_at(const char **at, const char *end)
{
    const char *start = *at;
    long long value = 0;
    while (*at < end && **at >= '0' && **at <= '9' && *at - start <= COUNT_DIGITS) value = value * 10 + (*(*at)++ - '0');
    Py_ssize_t digits = *at - start;
    return digits == 0 || digits > COUNT_DIGITS || (digits > 1 && *start == '0') ? -1 : value;
}

static bool skip(const char **at, const char *end, PyObject *literal)
{
    Py_ssize_t len = PyBytes_GET_SIZE(literal);
    if (end - *at < len || memcmp(*at, PyBytes_AS_STRING(literal), (size_t)len)) return false;
    *at += len;
    return true;
}

static int keep_text(Reading *r, const char *text, Py_ssize_t len)
{
    if (r->text_room - r->text_len < len + 1) { /* one byte stays free for the closing quote */
        Py_ssize_t room = 2 * r->text_room + len + 256;
        char *more = PyMem_Realloc(r->text, (size_t)room);
        if (!more) {
            PyErr_NoMemory();
            return -1;
        }
        r->text = more;
        r->text_room = room;
    }
    memcpy(r->text + r->text_len, text, (size_t)len);
    r->text_len += len;
    return 0;
}

/* 1: one more event is taken; 0: it is not alike; -1: an error. */
static int take(Reading *r, PyObject *data)
{
    const char *at = PyBytes_AS_STRING(data), *end = at + PyBytes_GET_SIZE(data);
    if (!skip(&at, end, r->opening)) return 0;
    const char *text = at;
    Py_ssize_t text_len = inside(at, end), numbers = PyTuple_GET_SIZE(r->fixed);
    long long total = -1;
    if (text_len <= 0) return 0;
    at += text_len;
    for (Py_ssize_t i = 0; i <= numbers; i++) {
        if (!skip(&at, end, PyTuple_GET_ITEM(r->literals, i))) return 0;
        if (i == numbers) break;
        PyObject *fixed = PyTuple_GET_ITEM(r->fixed, i);
        const char *number = at;
        long long value = count_at(&at, end);
        if (value < 0) return 0;
        if (fixed != Py_None && (at - number != PyBytes_GET_SIZE(fixed) ||
                                 memcmp(number, PyBytes_AS_STRING(fixed), (size_t)(at - number))))
            return 0;
        if (i == r->completion) total = value;
    }
    if (at != end) return 0;
    long long more = r->completion < 0 ? 1 : total - r->total;
    if (more < 1) return 0;
    PyObject *tokens = PyLong_FromLongLong(more);
    int failed = tokens ? PyList_Append(r->tokens, tokens) : -1;
    Py_XDECREF(tokens);
    if (failed || keep_text(r, text, text_len)) return -1;
    if (r->completion >= 0) r->total = total;
    return 1;
}

static bool all_bytes(PyObject *tuple, bool or_none)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        if (!PyBytes_CheckExact(item) && !(or_none && item == Py_None)) return false;
    }
    return true;
}

static PyObject *take_all(Reading *r, PyObject *pieces, Py_ssize_t first)
{
    if (keep_text(r, "\"", 1)) return NULL;
    for (Py_ssize_t i = first; i < PyList_GET_SIZE(pieces); i++) {
        PyObject *piece = PyList_GET_ITEM(pieces, i);
        if (!PyTuple_CheckExact(piece) || PyTuple_GET_SIZE(piece) != 2 || !PyBytes_CheckExact(PyTuple_GET_ITEM(piece, 1))) {
            PyErr_SetString(PyExc_TypeError, "a piece is a time and bytes");
            return NULL;
        }
        int taken = take(r, PyTuple_GET_ITEM(piece, 1));
        if (taken < 0) return NULL;
        if (taken == 0) break;
    }
    if (PyList_GET_SIZE(r->tokens) == 0) Py_RETURN_NONE;
    r->text[r->text_len] = '"';
    return Py_BuildValue("y#OL", r->text, r->text_len + 1, r->tokens, r->total);
}

/* alike(pieces, first, opening, literals, fixed, completion, before) -> (text, tokens, total) | None */
static PyObject *alike(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *pieces, *result = NULL;
    Py_ssize_t first;
    Reading r = {0};
    if (!PyArg_ParseTuple(args, "O!nSO!O!nL", &PyList_Type, &pieces, &first, &r.opening, &PyTuple_Type, &r.literals,
                          &PyTuple_Type, &r.fixed, &r.completion, &r.total))
        return NULL;
    if (first < 0 || PyTuple_GET_SIZE(r.literals) != PyTuple_GET_SIZE(r.fixed) + 1 || !all_bytes(r.literals, false) ||
        !all_bytes(r.fixed, true) || r.completion >= PyTuple_GET_SIZE(r.fixed)) {
        PyErr_SetString(PyExc_ValueError, "between any two literals stands one number");
        return NULL;
    }
    r.tokens = PyList_New(0);
    if (r.tokens) result = take_all(&r, pieces, first);
    Py_XDECREF(r.tokens);
    PyMem_Free(r.text);
    return result;
}

static PyMethodDef methods[] = {
    {"whole_chunks", (PyCFunction)(void (*)(void))whole_chunks, METH_FASTCALL, NULL},
    {"alike", alike, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "windtunnel.agents._reads", NULL, 0, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__reads(void)
{
    return PyModuleDef_Init(&definition);
}
