/* Follows the main thread through its own code, instruction by instruction, in windows of some milliseconds: what each
   instruction works on, and what becomes of its result. From this come the operands of hot places (their types and
   shapes), the callees, and how data flows between them. Values are never read. Python 3.11 only.

   A window is a list of rows of integers: place, frame, number of operands, number of results, and the identities of
   these objects. A place is an instruction of a code object and, where it calls something, what it calls. Places are
   described once, by a function in Python. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <opcode.h>
#include <stdint.h>
#include "../../spans/hot_path.h"
#include "windows.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#define SUPPORTED 1
#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED /* defined again by the headers below */
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#else
#define SUPPORTED 0
#endif

#if SUPPORTED
#define MAX_CODES 2048 /* powers of two */
#define MAX_PLACES 8192
#define MAX_FRAMES 256
#define MAX_INTS 40000
#define MOST_OPERANDS 8
#define CHUNK_INTS 8000
#define MAX_EVENTS 12000 /* they take about a microsecond each, those of libraries included */
enum { FUNCTION = 0 }; /* in place of an operation: a function begins, with these arguments */

typedef struct {
    PyCodeObject *code; /* owned; NULL: the slot is free */
    PyObject *bytes;    /* owned: the instructions as they were compiled */
    int own;
} Code;

typedef struct {
    PyCodeObject *code; /* owned by `codes`; NULL: the slot is free */
    void *callee;
    int instruction;
    int32_t number;
} Place;

typedef struct {
    _PyInterpreterFrame *frame; /* NULL: the slot is free */
    Code *code;
    int32_t serial, results_at, results;
    int after; /* the instruction that follows if an iterator is not exhausted; -1 for any */
} Open;

static Code codes[MAX_CODES];
static Place places[MAX_PLACES];
static Open frames[MAX_FRAMES];
static int64_t rows[MAX_INTS];
static int n_codes, n_ints, open_frames;
static int32_t n_places, n_frames;
static PyThreadState *followed; /* the thread of a window that is open */
static PyObject *is_own, *describe;
static HotPath *hot_path;
static int64_t totals_before[MAX_COUNTERS];
static volatile int64_t events;

static uint64_t
hash_of(const void *a, uint64_t b, const void *c)
{
    uint64_t hash = ((uintptr_t)a >> 4) * 0x9E3779B97F4A7C15ull ^ b * 0xC2B2AE3D27D4EB4Full;
    hash ^= ((uintptr_t)c >> 4) * 0x165667B19E3779F9ull;
    return hash ^ hash >> 32;
}

static Code *
code_of(PyCodeObject *code)
{
    Code *slot = &codes[hash_of(code, 0, NULL) % MAX_CODES];
    for (; slot->code != NULL; slot = slot + 1 < codes + MAX_CODES ? slot + 1 : codes)
        if (slot->code == code)
            return slot;
    if (n_codes >= MAX_CODES / 2)
        return NULL;
    PyObject *own = PyObject_CallOneArg(is_own, code->co_filename);
    PyObject *bytes = own == Py_True ? PyCode_GetCode(code) : NULL;
    int keep = own != NULL && (own != Py_True || bytes != NULL);
    Py_XDECREF(own);
    if (!keep)
        return NULL;
    n_codes++;
    *slot = (Code){(PyCodeObject *)Py_NewRef(code), bytes, bytes != NULL};
    return slot;
}

static Open *
frame_of(_PyInterpreterFrame *frame, int add)
{
    Open *slot = &frames[hash_of(frame, 0, NULL) % MAX_FRAMES];
    for (; slot->frame != NULL; slot = slot + 1 < frames + MAX_FRAMES ? slot + 1 : frames)
        if (slot->frame == frame)
            return slot;
    if (!add || open_frames >= MAX_FRAMES / 2)
        return NULL;
    Code *code = code_of(frame->f_code);
    if (code == NULL || !code->own)
        return NULL;
    open_frames++;
    *slot = (Open){frame, code, ++n_frames};
    return slot;
}

/* Later entries that were moved on by a collision move back. */
static void
forget_frame(Open *slot)
{
    open_frames--;
    slot->frame = NULL;
    for (Open *next = slot + 1;; next++) {
        if (next >= frames + MAX_FRAMES)
            next = frames;
        if (next->frame == NULL)
            return;
        Open moved = *next;
        next->frame = NULL;
        Open *to = &frames[hash_of(moved.frame, 0, NULL) % MAX_FRAMES];
        while (to->frame != NULL)
            to = to + 1 < frames + MAX_FRAMES ? to + 1 : frames;
        *to = moved;
    }
}

static int32_t
place_of(Code *code, int instruction, int operation, void *callee, PyObject **operands, int n)
{
    Place *slot = &places[hash_of(code->code, (uint64_t)instruction, callee) % MAX_PLACES];
    for (; slot->code != NULL; slot = slot + 1 < places + MAX_PLACES ? slot + 1 : places)
        if (slot->code == code->code && slot->instruction == instruction && slot->callee == callee)
            return slot->number;
    if (n_places >= MAX_PLACES / 2)
        return -1;
    PyObject *list = PyTuple_New(n);
    for (int i = 0; list != NULL && i < n; i++)
        PyTuple_SET_ITEM(list, i, Py_NewRef(operands[i] ? operands[i] : Py_None));
    PyObject *done = list ? PyObject_CallFunction(describe, "iOiiO", n_places, code->code, instruction, operation, list) : NULL;
    int sent = done != NULL && PyObject_IsTrue(done) == 1;
    Py_XDECREF(done);
    Py_XDECREF(list);
    PyErr_Clear();
    if (!sent)
        return -1;
    *slot = (Place){code->code, callee, instruction, n_places};
    return n_places++;
}

static void
add_row(Open *open, int instruction, int operation, void *callee, PyObject **operands, int n, int results)
{
    open->results = 0;
    if (n_ints + 4 + n + results > MAX_INTS)
        return;
    int32_t place = place_of(open->code, instruction, operation, callee, operands, n);
    if (place < 0)
        return;
    rows[n_ints++] = place, rows[n_ints++] = open->serial, rows[n_ints++] = n, rows[n_ints++] = results;
    for (int i = 0; i < n; i++)
        rows[n_ints++] = (int64_t)(intptr_t)operands[i];
    open->results_at = n_ints, open->results = results, open->after = -1;
    for (int i = 0; i < results; i++)
        rows[n_ints++] = 0;
}

/* What a call depends on, apart from its place: the definition of what is called. */
static void *
key_of(PyObject *callable)
{
    if (PyMethod_Check(callable))
        callable = PyMethod_GET_FUNCTION(callable);
    if (PyCFunction_Check(callable))
        return ((PyCFunctionObject *)callable)->m_ml;
    if (PyFunction_Check(callable))
        return ((PyFunctionObject *)callable)->func_code;
    return PyType_Check(callable) || Py_IS_TYPE(callable, &PyMethodDescr_Type) ? (void *)callable : (void *)Py_TYPE(callable);
}

/* The objects that an instruction takes from the stack and is about, the callee of a call first. */
static void
see_instruction(Open *open, _PyInterpreterFrame *frame, int at, int depth)
{
    const uint8_t *bytes = (const uint8_t *)PyBytes_AS_STRING(open->code->bytes);
    if (at + 1 >= PyBytes_GET_SIZE(open->code->bytes))
        return;
    int operation = bytes[at], argument = bytes[at + 1];
    if (at >= 2 && bytes[at - 2] == EXTENDED_ARG)
        argument |= bytes[at - 1] << 8;
    PyObject **top = &frame->localsplus[frame->stacktop], *taken[MOST_OPERANDS] = {NULL};
    int n = 0, first = 0, results = 1;
    void *callee = NULL;
    switch (operation) {
    case CALL: {
        int method = depth >= argument + 2 && top[-argument - 2] != NULL;
        n = argument + 1 + method, first = n;
        if (depth < n)
            return;
        callee = key_of(top[-n]);
        break;
    }
    case CALL_FUNCTION_EX:
        n = first = 2 + (argument & 1);
        if (depth < n)
            return;
        callee = key_of(top[-n]);
        break;
    case BINARY_OP: case BINARY_SUBSCR: case COMPARE_OP: case CONTAINS_OP:
        n = first = 2;
        break;
    case UNARY_NEGATIVE: case UNARY_NOT: case UNARY_INVERT: case GET_ITER: case LOAD_ATTR: case FOR_ITER:
        n = first = 1;
        break;
    case STORE_SUBSCR:
        n = first = 3, results = 0;
        break;
    case STORE_ATTR:
        n = first = 2, results = 0;
        break;
    case RETURN_VALUE: case YIELD_VALUE:
        n = first = 1, results = 0;
        break;
    case UNPACK_SEQUENCE:
        n = first = 1, results = argument < MOST_OPERANDS ? argument : MOST_OPERANDS;
        break;
    case BUILD_TUPLE: case BUILD_LIST: case BUILD_SET: case BUILD_SLICE:
        n = first = argument;
        break;
    case BUILD_MAP:
        n = first = 2 * argument;
        break;
    case LIST_APPEND: case SET_ADD: case LIST_EXTEND: case SET_UPDATE: case DICT_UPDATE:
        if (depth < argument + 1)
            return;
        taken[0] = top[-argument - 1], taken[1] = top[-1];
        add_row(open, at, operation, NULL, taken, 2, 0);
        return;
    default:
        return;
    }
    if (n == 0 || depth < n)
        return;
    int kept = n < MOST_OPERANDS ? n : MOST_OPERANDS;
    for (int i = 0; i < kept; i++)
        taken[i] = top[i - first];
    add_row(open, at, operation, callee, taken, kept, results);
    if (operation == FOR_ITER)
        open->after = at + 2;
}

/* Note what the last instruction of a frame left on its stack. */
static void
see_results(Open *open, _PyInterpreterFrame *frame, int at, int depth)
{
    if (open->results && depth >= open->results && (open->after < 0 || open->after == at))
        for (int i = 0; i < open->results; i++)
            rows[open->results_at + i] = (int64_t)(intptr_t)frame->localsplus[frame->stacktop - 1 - i];
    open->results = 0;
}

static void
see_call(Open *open, _PyInterpreterFrame *frame)
{
    PyCodeObject *code = frame->f_code;
    int n = code->co_argcount + code->co_kwonlyargcount;
    n = n < MOST_OPERANDS ? n : MOST_OPERANDS;
    PyObject *taken[MOST_OPERANDS];
    for (int i = 0; i < n; i++)
        taken[i] = frame->localsplus[i];
    add_row(open, -1, FUNCTION, NULL, taken, n, 0);
}

static void
trace_frame(PyFrameObject *frame, int on, int own)
{
    frame->f_trace_opcodes = (char)(on && own);
    frame->f_trace_lines = (char)!on;
}

static void
trace_open_frames(int on)
{
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame != NULL) {
        Code *code = on ? code_of(frame->f_frame->f_code) : NULL;
        PyErr_Clear();
        trace_frame(frame, on, code != NULL && code->own);
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
}

static int
on_event(PyObject *Py_UNUSED(nothing), PyFrameObject *frame, int what, PyObject *Py_UNUSED(arg))
{
    _PyInterpreterFrame *here = frame->f_frame;
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    Open *open = frame_of(here, what != PyTrace_RETURN);
    if (what == PyTrace_CALL) {
        trace_frame(frame, 1, open != NULL);
        if (open != NULL && here->owner != FRAME_OWNED_BY_GENERATOR)
            see_call(open, here);
    } else if (open != NULL && what == PyTrace_OPCODE) {
        int at = _PyInterpreterFrame_LASTI(here) * (int)sizeof(_Py_CODEUNIT);
        int depth = here->stacktop - here->f_code->co_nlocalsplus;
        see_results(open, here, at, depth);
        see_instruction(open, here, at, depth);
    } else if (open != NULL && what == PyTrace_RETURN)
        forget_frame(open);
    PyErr_Clear();
    PyErr_Restore(kind, error, trace);
    if ((++events > MAX_EVENTS || n_ints > MAX_INTS - 32) && followed != NULL) {
        _PyEval_SetTrace(followed, NULL, NULL);
        events = -1;
    }
    return 0;
}

static int
open_window(void *Py_UNUSED(nothing))
{
    Channel *channel = hot_path->channel();
    PyThreadState *state = PyThreadState_Get();
    if (channel == NULL || channel->stopped_ns || describe == NULL || followed != NULL || state->c_profilefunc
        || state->c_tracefunc)
        return 0;
    memcpy(totals_before, channel->totals, sizeof totals_before);
    memset(frames, 0, sizeof frames);
    n_ints = open_frames = 0;
    events = 0;
    trace_open_frames(1);
    if (_PyEval_SetTrace(state, on_event, NULL) < 0)
        PyErr_Clear();
    else
        followed = state;
    return 0;
}

static int
close_window(void *Py_UNUSED(nothing))
{
    Channel *channel = hot_path->channel();
    if (followed == NULL || channel == NULL)
        return 0;
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    if (followed->c_tracefunc == on_event && _PyEval_SetTrace(followed, NULL, NULL) < 0)
        PyErr_Clear();
    followed = NULL;
    trace_open_frames(0);
    int64_t amounts[MAX_COUNTERS];
    for (int i = 0; i < MAX_COUNTERS; i++)
        amounts[i] = channel->totals[i] - totals_before[i];
    for (int at = 0; at < n_ints; at += CHUNK_INTS) {
        int n = n_ints - at < CHUNK_INTS ? n_ints - at : CHUNK_INTS;
        const void *parts[] = {"E", rows + at};
        int32_t sizes[] = {1, n * (int32_t)sizeof rows[0]};
        ring_put(&channel->messages, parts, sizes, 2);
    }
    int64_t whole = n_ints;
    const void *parts[] = {"O", &whole, amounts};
    int32_t sizes[] = {1, sizeof whole, sizeof amounts};
    ring_put(&channel->messages, parts, sizes, 3);
    PyErr_Clear();
    PyErr_Restore(kind, error, trace);
    return 0;
}

static PyObject *
use(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *own, *describer;
    if (!PyArg_ParseTuple(args, "OO", &own, &describer))
        return NULL;
    Py_XSETREF(is_own, Py_NewRef(own));
    Py_XSETREF(describe, Py_NewRef(describer));
    for (Code *each = codes; each < codes + MAX_CODES; each++) {
        Py_CLEAR(each->code);
        Py_CLEAR(each->bytes);
    }
    memset(places, 0, sizeof places);
    n_codes = n_places = n_frames = 0;
    Py_RETURN_NONE;
}

static PyObject *
open_now(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    open_window(NULL);
    Py_RETURN_NONE;
}

static PyObject *
close_now(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    close_window(NULL);
    Py_RETURN_NONE;
}

static Window window = {open_window, close_window, 500000000, &events};

static PyMethodDef methods[] = {
    {"use", use, METH_VARARGS,
     "use(is_own, describe): begin anew. is_own(file); describe(number, code, instruction, operation, operands) is called "
     "for each new place, and returns whether it was sent."},
    {"open", open_now, METH_NOARGS, "Open a window now."},
    {"close", close_now, METH_NOARGS, "Close it."},
    {NULL},
};
#else
static PyMethodDef methods[] = {{NULL}};
#endif

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_observer", "Follows the main thread in windows. See hotloop.profiling.recorder.observed.", -1,
    methods,
};

PyMODINIT_FUNC
PyInit__observer(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddIntConstant(module, "SUPPORTED", SUPPORTED) < 0)
        Py_CLEAR(module);
#if SUPPORTED
    hot_path = import_hot_path();
    PyObject *capsule = hot_path ? PyCapsule_New(&window, OBSERVER_CAPSULE, NULL) : NULL;
    if (module != NULL && (capsule == NULL || PyModule_AddObjectRef(module, "_windows", capsule) < 0))
        Py_CLEAR(module);
    Py_XDECREF(capsule);
#endif
    return module;
}
