/* Hashes, words and texts of the emulated model, compiled: `loops.py` says what they do, and numpy does without them
 * where there is no compiler. Functions only, no state, no threads. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define CHUNK 256          /* words drawn together */
#define SIGNED 128         /* every second of them may be a sign */
#define BLOCKS 112         /* of four numbers: a word for each place, whether it is a sign, half a one for which */
#define SIXTY_BITS ((UINT64_C(1) << 60) - 1)
#define ODD UINT64_C(0x9E3779B97F4A7C15)

/* chain_hashes(tokens: uint32[n], block_size: int, parent: int, mix: uint64[>= block_size]) -> list[int] */
static PyObject *chain_hashes(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer tokens, mix;
    Py_ssize_t size;
    unsigned long long parent;
    if (!PyArg_ParseTuple(args, "y*nKy*", &tokens, &size, &parent, &mix)) return NULL;
    PyObject *hashes = NULL;
    if (size < 1 || mix.len < size * (Py_ssize_t)sizeof(uint64_t)) {
        PyErr_SetString(PyExc_ValueError, "a factor is needed for each token of a block");
        goto done;
    }
    const uint32_t *token = tokens.buf;
    const uint64_t *factor = mix.buf;
    Py_ssize_t full = tokens.len / (Py_ssize_t)sizeof(uint32_t) / size;
    hashes = PyList_New(full);
    uint64_t hash = parent;
    for (Py_ssize_t i = 0; hashes && i < full; i++, token += size) {
        uint64_t content = 0;
        for (Py_ssize_t j = 0; j < size; j++) content += token[j] * factor[j];
        hash = (hash * ODD + content) & SIXTY_BITS;
        PyObject *number = PyLong_FromUnsignedLongLong(hash);
        if (!number) Py_CLEAR(hashes);
        else PyList_SET_ITEM(hashes, i, number);
    }
done:
    PyBuffer_Release(&tokens);
    PyBuffer_Release(&mix);
    return hashes;
}

/* Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), as in numpy.random. */
static void philox(const uint64_t counter[4], uint64_t key0, uint64_t key1, uint64_t out[4])
{
    uint64_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
    for (int i = 0; i < 10; i++) {
        __uint128_t first = (__uint128_t)UINT64_C(0xD2E7470EE14C6C93) * a;
        __uint128_t second = (__uint128_t)UINT64_C(0xCA5A826395121157) * c;
        a = (uint64_t)(second >> 64) ^ b ^ key0;
        b = (uint64_t)second;
        c = (uint64_t)(first >> 64) ^ d ^ key1;
        d = (uint64_t)first;
        key0 += UINT64_C(0x9E3779B97F4A7C15);
        key1 += UINT64_C(0xBB67AE8584CAA73B);
    }
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}

typedef struct {
    const int64_t *guide, *words, *signs;
    const uint64_t *bounds;
    Py_ssize_t last, signs_count;  /* the last word */
    int shift;                     /* from 64 bits to a place in the guide */
    uint64_t sign_bits;            /* a number below says that a sign stands there */
} Inventory;

static void draw_chunk(const Inventory *of, const uint64_t *bits, int64_t *out)
{
    for (int i = 0; i < CHUNK; i++) {
        int64_t below = of->guide[bits[i] >> of->shift];
        below += of->bounds[below < of->last ? below : of->last] <= bits[i];
        out[i] = of->words[below < of->last ? below : of->last];
    }
    if (!of->signs_count) return;
    const uint64_t *which = bits + CHUNK + SIGNED;
    for (int i = 0, taken = 0; i < SIGNED; i++) {
        if (bits[CHUNK + i] >= of->sign_bits) continue;
        uint32_t half = (uint32_t)(taken % 2 ? which[taken / 2] >> 32 : which[taken / 2]);
        taken++;
        out[2 * i + 1] = of->signs[(int64_t)(half * ((double)of->signs_count / 4294967296.0))];
    }
}

/* draw(key0, key1, first_chunk, sign_bits, guide: int64[2^n], bounds: uint64[w], words: int64[w], signs: int64[s],
 *      out: int64[256 * chunks]) */
static PyObject *draw(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer guide, bounds, words, signs, out;
    unsigned long long key0, key1, chunk, sign_bits;
    if (!PyArg_ParseTuple(args, "KKKKy*y*y*y*w*", &key0, &key1, &chunk, &sign_bits, &guide, &bounds, &words, &signs, &out))
        return NULL;
    PyObject *answer = NULL;
    size_t steps = (size_t)guide.len / sizeof(int64_t);
    int bits_of_steps = 0;
    while (steps >> bits_of_steps > 1) bits_of_steps++;
    if (bits_of_steps < 1 || steps != (size_t)1 << bits_of_steps || words.len != bounds.len || !words.len) {
        PyErr_SetString(PyExc_ValueError, "the guide has 2^n steps, and each word its bound");
        goto done;
    }
    Inventory of = {
        guide.buf, words.buf, signs.buf, bounds.buf, words.len / (Py_ssize_t)sizeof(int64_t) - 1,
        signs.len / (Py_ssize_t)sizeof(int64_t), 64 - bits_of_steps, sign_bits,
    };
    int64_t *at = out.buf;
    for (Py_ssize_t left = out.len / (Py_ssize_t)sizeof(int64_t); left >= CHUNK; left -= CHUNK, at += CHUNK, chunk++) {
        uint64_t numbers[4 * BLOCKS], counter[4] = {chunk << 32, 0, 0, 0};
        for (int i = 0; i < BLOCKS; i++) {
            counter[0]++;
            philox(counter, key0, key1, numbers + 4 * i);
        }
        draw_chunk(&of, numbers, at);
    }
    answer = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&guide);
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&words);
    PyBuffer_Release(&signs);
    PyBuffer_Release(&out);
    return answer;
}

/* speak(ids: int64[n], pieces: list[str | None], ends: int64[n + 1]) -> str | None */
static PyObject *speak(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer ids, ends;
    PyObject *pieces, *said = NULL, *text = NULL, *nothing = NULL;
    if (!PyArg_ParseTuple(args, "y*O!w*", &ids, &PyList_Type, &pieces, &ends)) return NULL;
    Py_ssize_t count = ids.len / (Py_ssize_t)sizeof(int64_t);
    const int64_t *id = ids.buf;
    int64_t *end = ends.buf;
    if (ends.len != ids.len + (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "there is one end more than there are ids");
        goto done;
    }
    said = PyList_New(count);
    end[0] = 0;
    for (Py_ssize_t i = 0; said && i < count; i++) {
        PyObject *piece = id[i] >= 0 && id[i] < PyList_GET_SIZE(pieces) ? PyList_GET_ITEM(pieces, id[i]) : Py_None;
        if (!PyUnicode_Check(piece)) {  /* it was never asked for */
            text = Py_NewRef(Py_None);
            goto done;
        }
        end[i + 1] = end[i] + PyUnicode_GET_LENGTH(piece);
        PyList_SET_ITEM(said, i, Py_NewRef(piece));
    }
    nothing = said ? PyUnicode_FromStringAndSize("", 0) : NULL;
    text = nothing ? PyUnicode_Join(nothing, said) : NULL;
done:
    Py_XDECREF(nothing);
    Py_XDECREF(said);
    PyBuffer_Release(&ids);
    PyBuffer_Release(&ends);
    return text;
}

static PyMethodDef methods[] = {
    {"chain_hashes", chain_hashes, METH_VARARGS, NULL},
    {"draw", draw, METH_VARARGS, NULL},
    {"speak", speak, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_loops", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__loops(void) { return PyModuleDef_Init(&definition); }
