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
#include <pthread.h>
#include <stdint.h>
#include "../../spans/hot_path.h"
#include "windows.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#define SUPPORTED 1
#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED /* defined again by the headers below */
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
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
enum { OURS = 2 }; /* in `f_trace_opcodes`: set here, and the frame had no settings of its own before */

typedef struct {
    PyCodeObject *code; /* owned; NULL: the slot is free */
    PyObject *bytes;    /* owned: the instructions as they were compiled */
    int own, sets_trace;
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
static int n_codes, n_ints, open_frames, is_full;
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

/* Call a function of ours while neither signal handlers nor pending calls run, which belong to the script and could raise:
   they run on the main thread only, and for this time no thread is that. */
static PyObject *
call_undisturbed(PyObject *function, PyObject *args)
{
    struct _ceval_state *eval = &PyInterpreterState_Get()->ceval;
    unsigned long main_thread = _PyRuntime.main_thread;
    _PyRuntime.main_thread = 0;
    PyObject *result = args ? PyObject_CallObject(function, args) : NULL;
    _PyRuntime.main_thread = main_thread;
    if (_Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) || _Py_atomic_load_relaxed(&eval->pending.calls_to_do))
        _Py_atomic_store_relaxed(&eval->eval_breaker, 1);
    Py_XDECREF(args);
    return result;
}

/* Whether code may set a trace function: it, or the debugger that it starts, must find frames as they were. */
static int
sets_trace(PyCodeObject *code)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); i++)
        if (_PyUnicode_EqualToASCIIString(PyTuple_GET_ITEM(code->co_names, i), "settrace"))
            return 1;
    return 0;
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
    PyObject *own = call_undisturbed(is_own, PyTuple_Pack(1, code->co_filename));
    PyObject *bytes = own == Py_True ? PyCode_GetCode(code) : NULL;
    int keep = own != NULL && (own != Py_True || bytes != NULL);
    Py_XDECREF(own);
    if (!keep)
        return NULL;
    n_codes++;
    *slot = (Code){(PyCodeObject *)Py_NewRef(code), bytes, bytes != NULL, sets_trace(code)};
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
    if (n_places >= MAX_PLACES / 2 || is_full)
        return -1;
    ByteRing *ring = &hot_path->channel()->messages;
    if (ring_room(ring) < RESERVED_BYTES) {
        is_full = 1;
        return -1;
    }
    PyObject *list = PyTuple_New(n);
    for (int i = 0; list != NULL && i < n; i++)
        PyTuple_SET_ITEM(list, i, Py_NewRef(operands[i] ? operands[i] : Py_None));
    PyObject *args = list ? Py_BuildValue("(iOiiN)", n_places, code->code, instruction, operation, list) : NULL;
    PyObject *done = call_undisturbed(describe, args);
    is_full = done != Py_True;
    Py_XDECREF(done);
    PyErr_Clear();
    if (is_full)
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
    while (operation == EXTENDED_ARG && at + 3 < PyBytes_GET_SIZE(open->code->bytes)) {
        at += 2; /* there is no event for the instruction that it belongs to */
        operation = bytes[at], argument = argument << 8 | bytes[at + 1];
    }
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

/* The value of a local variable, which lies in a cell if functions within this one use it. */
static PyObject *
value_of(PyCodeObject *code, PyObject *local, int i)
{
    int in_cell = _PyLocals_GetKind(code->co_localspluskinds, i) & CO_FAST_CELL;
    return in_cell && local != NULL && PyCell_Check(local) ? PyCell_GET(local) : local;
}

static void
see_call(Open *open, _PyInterpreterFrame *frame)
{
    PyCodeObject *code = frame->f_code;
    int n = code->co_argcount + code->co_kwonlyargcount;
    n = n < MOST_OPERANDS ? n : MOST_OPERANDS;
    PyObject *taken[MOST_OPERANDS];
    for (int i = 0; i < n; i++)
        taken[i] = value_of(code, frame->localsplus[i], i);
    add_row(open, -1, FUNCTION, NULL, taken, n, 0);
}

/* Frames with settings of a debugger are left as they are. */
static void
trace_frame(PyFrameObject *frame, int own)
{
    if (frame->f_trace_lines == 1 && frame->f_trace_opcodes == 0)
        frame->f_trace_opcodes = own ? OURS : 0, frame->f_trace_lines = 0;
}

static void
restore_frame(PyFrameObject *frame)
{
    if (frame->f_trace_lines == 0 && (frame->f_trace_opcodes == 0 || frame->f_trace_opcodes == OURS))
        frame->f_trace_opcodes = 0, frame->f_trace_lines = 1;
}

/* Call a function for each frame of this thread, from the innermost; stop when it returns 0. Return whether none did. */
static int
each_frame(int (*visit)(PyFrameObject *))
{
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    int all = 1;
    while (frame != NULL && all) {
        all = visit(frame);
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    PyErr_Clear();
    return all;
}

static int
may_be_followed(PyFrameObject *frame)
{
    return !sets_trace(frame->f_frame->f_code);
}

static int
begin_frame(PyFrameObject *frame)
{
    Code *code = code_of(frame->f_frame->f_code);
    PyErr_Clear();
    trace_frame(frame, code != NULL && code->own);
    return 1;
}

static int
end_frame(PyFrameObject *frame)
{
    restore_frame(frame);
    return 1;
}

static int on_event(PyObject *, PyFrameObject *, int, PyObject *);

/* Follow the thread no longer. What was seen so far is sent when the window is closed. */
static void
end_following(void)
{
    PyThreadState *state = PyThreadState_Get();
    if (state->c_tracefunc == on_event && _PyEval_SetTrace(state, NULL, NULL) < 0)
        PyErr_Clear();
    each_frame(end_frame);
    events = -1;
}

static int
on_event(PyObject *Py_UNUSED(nothing), PyFrameObject *frame, int what, PyObject *Py_UNUSED(arg))
{
    _PyInterpreterFrame *here = frame->f_frame;
    Channel *channel = hot_path->channel();
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    int over = followed != PyThreadState_Get() || channel->stopped_ns || channel->paused_ns;
    Code *begun = what == PyTrace_CALL && !over ? code_of(here->f_code) : NULL;
    over = over || (begun != NULL && begun->sets_trace);
    Open *open = over ? NULL : frame_of(here, what != PyTrace_RETURN);
    if (what == PyTrace_RETURN)
        restore_frame(frame);
    if (what == PyTrace_CALL && !over) {
        trace_frame(frame, open != NULL);
        if (open != NULL && here->owner != FRAME_OWNED_BY_GENERATOR)
            see_call(open, here);
    } else if (open != NULL && what == PyTrace_OPCODE) {
        int at = _PyInterpreterFrame_LASTI(here) * (int)sizeof(_Py_CODEUNIT);
        int depth = here->stacktop - here->f_code->co_nlocalsplus;
        see_results(open, here, at, depth);
        see_instruction(open, here, at, depth);
    } else if (open != NULL && what == PyTrace_EXCEPTION)
        open->results = 0;
    else if (open != NULL && what == PyTrace_RETURN)
        forget_frame(open);
    if (over || ++events > MAX_EVENTS || n_ints > MAX_INTS - 32)
        end_following();
    PyErr_Clear();
    PyErr_Restore(kind, error, trace);
    return 0;
}

static int
open_window(void *Py_UNUSED(nothing))
{
    Channel *channel = hot_path->channel();
    PyThreadState *state = PyThreadState_Get();
    if (channel == NULL || channel->stopped_ns || channel->paused_ns || describe == NULL || followed != NULL
        || state->c_profilefunc || state->c_tracefunc || !each_frame(may_be_followed))
        return 0;
    memcpy(totals_before, channel->totals, sizeof totals_before);
    memset(frames, 0, sizeof frames);
    n_ints = open_frames = is_full = 0;
    events = 0;
    followed = state;
    each_frame(begin_frame);
    if (_PyEval_SetTrace(state, on_event, NULL) < 0) {
        PyErr_Clear();
        each_frame(end_frame);
        followed = NULL;
    }
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
    end_following();
    followed = NULL;
    events = 0; /* else the next window would be closed at once */
    int64_t amounts[MAX_COUNTERS];
    for (int i = 0; i < MAX_COUNTERS; i++)
        amounts[i] = channel->totals[i] - totals_before[i];
    ByteRing *ring = &channel->messages;
    int fits = ring_room(ring) >= RESERVED_BYTES + n_ints * (int64_t)sizeof rows[0];
    for (int at = 0; at < n_ints && fits; at += CHUNK_INTS) {
        int n = n_ints - at < CHUNK_INTS ? n_ints - at : CHUNK_INTS;
        const void *parts[] = {"E", rows + at};
        int32_t sizes[] = {1, n * (int32_t)sizeof rows[0]};
        ring_put(ring, parts, sizes, 2);
    }
    int64_t whole = n_ints;
    const void *parts[] = {"O", &whole, amounts};
    int32_t sizes[] = {1, sizeof whole, sizeof amounts};
    ring_put(ring, parts, sizes, 3);
    PyErr_Clear();
    PyErr_Restore(kind, error, trace);
    return 0;
}

/* In a forked child nobody closes the window: the next event ends it. */
static void
after_fork(void)
{
    followed = NULL;
}

static PyObject *
use(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *own, *describer;
    if (!PyArg_ParseTuple(args, "OO", &own, &describer))
        return NULL;
    if (followed != NULL) /* of a recording that has ended */
        end_following();
    followed = NULL;
    Py_XSETREF(is_own, Py_NewRef(own));
    Py_XSETREF(describe, Py_NewRef(describer));
    for (Code *each = codes; each < codes + MAX_CODES; each++) {
        Py_CLEAR(each->code);
        Py_CLEAR(each->bytes);
    }
    memset(frames, 0, sizeof frames);
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
    pthread_atfork(NULL, NULL, after_fork);
#endif
    return module;
}
