/* Counts the calls that a thread makes, by place in the source, in windows of some milliseconds.

   A place is a code object and an instruction in it. Only counts are kept: how long a call takes is known from stack
   samples. Between windows nothing is watched, so calls cost nothing. On Python 3.11 a window is a profile function of the
   thread; on later versions, which would instrument all code for one, it is a tool of sys.monitoring. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <stdint.h>
#include <unistd.h>
#include "../../spans/hot_path.h"
#include "windows.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
#define SUPPORTED 1
#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED /* defined again by the headers below */
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#else
#define SUPPORTED 0
#endif

#if SUPPORTED
#define SLOTS 8192 /* a power of two */

typedef struct {
    PyCodeObject *caller; /* owned; NULL: the slot is free */
    PyObject *callee;     /* owned: a code object, or the name of a native function */
    void *key;            /* of the callee: its code, or its definition */
    int instruction;
    int64_t calls;
} Slot;

static Slot slots[SLOTS];
static int used;
static int64_t lost;
static PyThreadState *counted; /* the thread of a window that is open */
static int interrupted;        /* whether it ended early */

/* The name of a native function: "numpy.array", "list.append". Names are plain look-ups: no code of the script runs. */
static PyObject *
name_of(PyObject *function, PyObject *self)
{
    if (Py_IS_TYPE(function, &PyMethodDescr_Type))
        return PyUnicode_FromFormat("%s.%s", Py_TYPE(self)->tp_name, ((PyMethodDescrObject *)function)->d_method->ml_name);
    if (!PyCFunction_Check(function))
        return PyUnicode_FromString(Py_TYPE(function)->tp_name);
    PyCFunctionObject *native = (PyCFunctionObject *)function;
    PyObject *module = native->m_module;
    self = native->m_self;
    if (self != NULL && PyModule_Check(self))
        return PyUnicode_FromFormat("%s.%s", PyModule_GetName(self) ? PyModule_GetName(self) : "?", native->m_ml->ml_name);
    if (self != NULL && PyType_Check(self))
        return PyUnicode_FromFormat("%s.%s", ((PyTypeObject *)self)->tp_name, native->m_ml->ml_name);
    if (self != NULL)
        return PyUnicode_FromFormat("%s.%s", Py_TYPE(self)->tp_name, native->m_ml->ml_name);
    if (module != NULL && PyUnicode_Check(module))
        return PyUnicode_FromFormat("%U.%s", module, native->m_ml->ml_name);
    return PyUnicode_FromString(native->m_ml->ml_name);
}

/* Count a call of a native function, with the object whose method it is, or of a code object. */
static void
count(PyCodeObject *caller, int instruction, void *key, PyObject *callee, PyObject *self)
{
    uint64_t hash = ((uintptr_t)caller >> 4) * 0x9E3779B97F4A7C15ull ^ (uint64_t)instruction * 0xC2B2AE3D27D4EB4Full;
    hash ^= ((uintptr_t)key >> 4) * 0x165667B19E3779F9ull;
    Slot *slot = &slots[(hash ^ hash >> 32) % SLOTS];
    while (slot->caller != NULL) {
        if (slot->caller == caller && slot->instruction == instruction && slot->key == key) {
            slot->calls++;
            return;
        }
        slot = slot + 1 < slots + SLOTS ? slot + 1 : slots;
    }
    if (used >= SLOTS / 2) {
        lost++;
        return;
    }
    PyObject *kept = PyCode_Check(callee) ? Py_NewRef(callee) : name_of(callee, self);
    if (kept == NULL) {
        PyErr_Clear();
        return;
    }
    *slot = (Slot){(PyCodeObject *)Py_NewRef(caller), kept, key, instruction, 1};
    used++;
}

/* ---- watching calls: `watch` returns 0 if something else watches the program, -1 with an exception if it fails ---- */

#if PY_VERSION_HEX < 0x030C0000
static int
on_event(PyObject *Py_UNUSED(nothing), PyFrameObject *frame, int what, PyObject *arg)
{
    _PyInterpreterFrame *here = frame->f_frame;
    if (what == PyTrace_C_CALL) {
        void *key = PyCFunction_Check(arg) ? (void *)((PyCFunctionObject *)arg)->m_ml : (void *)Py_TYPE(arg);
        count(here->f_code, _PyInterpreterFrame_LASTI(here) * (int)sizeof(_Py_CODEUNIT), key, arg, NULL);
    } else if (what == PyTrace_CALL && here->previous != NULL) {
        _PyInterpreterFrame *caller = here->previous;
        if (here->owner != FRAME_OWNED_BY_GENERATOR)
            count(caller->f_code, _PyInterpreterFrame_LASTI(caller) * (int)sizeof(_Py_CODEUNIT), here->f_code,
                  (PyObject *)here->f_code, NULL);
    }
    return 0;
}

static int
prepare(void)
{
    return 0;
}

static int
watch(PyThreadState *state)
{
    return _PyEval_SetProfile(state, on_event, NULL) < 0 ? -1 : 1;
}

static int
unwatch(void)
{
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    while (state != NULL && state != counted)
        state = PyThreadState_Next(state);
    return state == NULL || state->c_profilefunc != on_event ? 0 : _PyEval_SetProfile(state, NULL, NULL);
}
#else
#if PY_VERSION_HEX >= 0x030D0000
#define CURRENT_FRAME(state) ((state)->current_frame)
#define CODE_OF(frame) _PyFrame_GetCode(frame)
#else
#define CURRENT_FRAME(state) ((state)->cframe->current_frame)
#define CODE_OF(frame) ((frame)->f_code)
#endif

enum { TOOL = 4, TOOLS = 6 }; /* ours has no conventional use */
enum { START, CALLS, EVENTS };
static const int event_bits[EVENTS] = {1, 16}; /* PY_START and CALL */
static PyObject *monitoring, *callbacks[EVENTS], *replaced[EVENTS];
static int watching;

/* Call a function of sys.monitoring; NULL with an exception if that fails. */
#define MONITORING(...) PyObject_CallMethod(monitoring, __VA_ARGS__)

static int
unwatch(void)
{
    if (!watching)
        return 0;
    watching = 0;
    /* The events first: code would stay instrumented, and slow. */
    PyObject *off = MONITORING("set_events", "ii", TOOL, 0), *freed = off ? MONITORING("free_tool_id", "i", TOOL) : NULL;
    int failed = freed == NULL;
    Py_XDECREF(off);
    Py_XDECREF(freed);
    for (int i = 0; i < EVENTS; i++) {
        PyObject *theirs = replaced[i] ? replaced[i] : Py_None;
        PyObject *ours = failed ? NULL : MONITORING("register_callback", "iiO", TOOL, event_bits[i], theirs);
        failed = failed || ours == NULL;
        Py_XDECREF(ours);
        Py_CLEAR(replaced[i]);
    }
    return failed ? -1 : 0;
}

static int
watch(PyThreadState *Py_UNUSED(state))
{
    for (int i = 0; i < TOOLS; i++) {
        PyObject *tool = MONITORING("get_tool", "i", i);
        Py_XDECREF(tool);
        if (tool != Py_None)
            return tool == NULL ? -1 : 0;
    }
    PyObject *done = MONITORING("use_tool_id", "is", TOOL, "hotloop");
    watching = done != NULL;
    int bits = 0;
    for (int i = 0; i < EVENTS && done != NULL; bits |= event_bits[i++]) {
        Py_DECREF(done);
        done = MONITORING("register_callback", "iiO", TOOL, event_bits[i], callbacks[i]);
        replaced[i] = Py_NewRef(done ? done : Py_None);
    }
    Py_XDECREF(done);
    done = done ? MONITORING("set_events", "ii", TOOL, bits) : NULL;
    if (done == NULL) {
        PyObject *kind, *error, *trace;
        PyErr_Fetch(&kind, &error, &trace);
        unwatch();
        PyErr_Restore(kind, error, trace);
        return -1;
    }
    Py_DECREF(done);
    return 1;
}

/* A call begins, of anything. What is native is counted here. */
static PyObject *
on_call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    if (n < 4)
        Py_RETURN_NONE;
    PyCodeObject *caller = (PyCodeObject *)args[0];
    PyObject *callee = args[2], *self = args[3];
    int is_native = PyCFunction_Check(callee);
    if (is_native && ((PyCFunctionObject *)callee)->m_self == monitoring) { /* the script may use the tool that is ours */
        interrupted = 1;
        if (unwatch() < 0)
            PyErr_Clear();
        Py_RETURN_NONE;
    }
    if (PyThreadState_Get() != counted)
        Py_RETURN_NONE;
    int instruction = (int)PyLong_AsLong(args[1]);
    if (is_native)
        count(caller, instruction, ((PyCFunctionObject *)callee)->m_ml, callee, NULL);
    else if (Py_IS_TYPE(callee, &PyMethodDescr_Type)) {
        PyMethodDescrObject *method = (PyMethodDescrObject *)callee;
        if (PyObject_TypeCheck(self, method->d_common.d_type))
            count(caller, instruction, method->d_method, callee, self);
    }
    Py_RETURN_NONE;
}

/* A Python function begins to run, whoever called it. */
static PyObject *
on_start(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t Py_UNUSED(n))
{
    PyThreadState *state = PyThreadState_Get();
    if (state != counted)
        Py_RETURN_NONE;
    _PyInterpreterFrame *here = CURRENT_FRAME(state), *caller = here->previous;
    if (here->owner == FRAME_OWNED_BY_GENERATOR)
        Py_RETURN_NONE;
    while (caller != NULL && caller->owner == FRAME_OWNED_BY_CSTACK)
        caller = caller->previous;
    if (caller != NULL)
        count(CODE_OF(caller), _PyInterpreterFrame_LASTI(caller) * (int)sizeof(_Py_CODEUNIT), args[0], args[0], NULL);
    Py_RETURN_NONE;
}

static PyMethodDef callback_methods[EVENTS] = {
    {"on_start", (PyCFunction)(void (*)(void))on_start, METH_FASTCALL, NULL},
    {"on_call", (PyCFunction)(void (*)(void))on_call, METH_FASTCALL, NULL},
};

static int
prepare(void)
{
    monitoring = Py_XNewRef(PySys_GetObject("monitoring"));
    for (int i = 0; i < EVENTS; i++)
        callbacks[i] = PyCFunction_New(&callback_methods[i], NULL);
    return monitoring && callbacks[START] && callbacks[CALLS] ? 0 : -1;
}
#endif

/* Return 1 if the calls of a thread are counted now; 0 if not, since a debugger or profiler of the script's own is not
   disturbed; -1 with an exception if that fails. */
static int
begin_window(PyThreadState *state)
{
    if (counted != NULL || state->c_profilefunc != NULL || state->c_tracefunc != NULL)
        return 0;
    interrupted = 0;
    int begun = watch(state);
    if (begun > 0)
        counted = state;
    return begun;
}

static PyObject *
start(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long ident;
    if (!PyArg_ParseTuple(args, "k", &ident))
        return NULL;
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    while (state != NULL && state->thread_id != ident)
        state = PyThreadState_Next(state);
    int begun = state == NULL ? 0 : begin_window(state);
    return begun < 0 ? NULL : PyBool_FromLong(begun);
}

static PyObject *
row_of(Slot *slot)
{
    PyCodeObject *caller = slot->caller;
    int line = PyCode_Addr2Line(caller, slot->instruction);
    if (!PyCode_Check(slot->callee))
        return Py_BuildValue("OOiiOsiL", caller->co_filename, caller->co_qualname, caller->co_firstlineno, line,
                             slot->callee, "", 0, (long long)slot->calls);
    PyCodeObject *callee = (PyCodeObject *)slot->callee;
    return Py_BuildValue("OOiiOOiL", caller->co_filename, caller->co_qualname, caller->co_firstlineno, line,
                         callee->co_qualname, callee->co_filename, callee->co_firstlineno, (long long)slot->calls);
}

static PyObject *
stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *rows = PyList_New(0);
    int failed = unwatch() < 0 || rows == NULL;
    counted = NULL;
    for (Slot *slot = slots; slot < slots + SLOTS; slot++) {
        if (slot->caller == NULL)
            continue;
        PyObject *row = failed ? NULL : row_of(slot);
        failed = failed || row == NULL || PyList_Append(rows, row) < 0;
        Py_XDECREF(row);
        Slot old = *slot;
        *slot = (Slot){NULL};
        Py_DECREF(old.caller);
        Py_DECREF(old.callee);
    }
    used = 0;
    if (failed)
        Py_CLEAR(rows);
    return rows;
}

/* ---- windows that the recorder wants, opened and closed by the main thread ------------------------------- */

static HotPath *hot_path;
static int64_t totals_before[MAX_COUNTERS];
enum { MOST_ROW_BYTES = 300, ROW_FIELDS = 8 };

static int
open_window(void *Py_UNUSED(nothing))
{
    Channel *channel = hot_path->channel();
    PyThreadState *state = PyThreadState_Get();
    if (channel == NULL || channel->stopped_ns || channel->pid != getpid()) /* the recording of a parent */
        return 0;
    memcpy(totals_before, channel->totals, sizeof totals_before);
    if (begin_window(state) < 0)
        PyErr_Clear();
    return 0;
}

/* Send a row of text fields, separated by zero bytes. */
static void
send_row(Channel *channel, PyObject *row)
{
    const void *parts[2 * ROW_FIELDS + 1] = {"K"};
    int32_t sizes[2 * ROW_FIELDS + 1] = {1};
    PyObject *encoded[ROW_FIELDS] = {NULL};
    int n = 0;
    for (; n < ROW_FIELDS; n++) {
        PyObject *text = PyObject_Str(PyTuple_GET_ITEM(row, n));
        encoded[n] = text ? PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass") : NULL;
        Py_XDECREF(text);
        if (encoded[n] == NULL)
            break;
        parts[2 * n + 1] = "", sizes[2 * n + 1] = 1;
        parts[2 * n + 2] = PyBytes_AS_STRING(encoded[n]), sizes[2 * n + 2] = (int32_t)PyBytes_GET_SIZE(encoded[n]);
    }
    if (n == ROW_FIELDS)
        ring_put(&channel->messages, parts, sizes, 2 * ROW_FIELDS + 1);
    PyErr_Clear();
    for (n = 0; n < ROW_FIELDS; n++)
        Py_XDECREF(encoded[n]);
}

static int
close_window(void *Py_UNUSED(nothing))
{
    Channel *channel = hot_path->channel();
    if (counted == NULL || channel == NULL)
        return 0;
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    int64_t amounts[MAX_COUNTERS];
    for (int i = 0; i < MAX_COUNTERS; i++)
        amounts[i] = channel->totals[i] - totals_before[i];
    PyObject *rows = stop(NULL, NULL);
    /* Part of a window would be wrong. */
    if (interrupted
        || (rows != NULL && ring_room(&channel->messages) < RESERVED_BYTES + PyList_GET_SIZE(rows) * MOST_ROW_BYTES))
        Py_CLEAR(rows);
    for (Py_ssize_t i = 0; rows != NULL && i < PyList_GET_SIZE(rows); i++)
        send_row(channel, PyList_GET_ITEM(rows, i));
    if (rows != NULL) {
        const void *parts[] = {"W", amounts};
        int32_t sizes[] = {1, sizeof amounts};
        ring_put(&channel->messages, parts, sizes, 2);
    }
    Py_XDECREF(rows);
    PyErr_Clear();
    PyErr_Restore(kind, error, trace);
    return 0;
}

static volatile int64_t few_events;
static Window window = {open_window, close_window, 10000000, &few_events};

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, "start(ident): count a thread's calls; False if something else profiles it."},
    {"stop", stop, METH_NOARGS,
     "Return what was counted: (file, function, first line, line, callee, its file or \"\", its first line, calls)."},
    {NULL},
};
#else
static PyMethodDef methods[] = {{NULL}};
#endif

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_call_counter", "Counts calls in windows. See hotloop.profiling.recorder.call_counts.", -1, methods,
};

PyMODINIT_FUNC
PyInit__call_counter(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddIntConstant(module, "SUPPORTED", SUPPORTED) < 0)
        Py_CLEAR(module);
#if SUPPORTED
    if (module != NULL && prepare() < 0)
        Py_CLEAR(module);
    hot_path = import_hot_path();
    PyObject *capsule = hot_path ? PyCapsule_New(&window, COUNTER_CAPSULE, NULL) : NULL;
    if (module != NULL && (capsule == NULL || PyModule_AddObjectRef(module, "_windows", capsule) < 0))
        Py_CLEAR(module);
    Py_XDECREF(capsule);
#endif
    return module;
}
