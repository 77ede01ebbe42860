/* Counts the calls that a thread makes, by place in the source, in windows of some milliseconds.

   A place is a code object and an instruction in it. Only counts are kept: how long a call takes is known from stack
   samples. Between windows no profile function is set, so calls cost nothing. Python 3.11 only: later versions would
   instrument all code for it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
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

/* The name of a native function: "numpy.array", "list.append". Names are plain look-ups: no code of the script runs. */
static PyObject *
name_of(PyObject *function)
{
    if (!PyCFunction_Check(function))
        return PyUnicode_FromString(Py_TYPE(function)->tp_name);
    PyCFunctionObject *native = (PyCFunctionObject *)function;
    PyObject *self = native->m_self, *module = native->m_module;
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

static void
count(PyCodeObject *caller, int instruction, void *key, PyObject *callee, int is_native)
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
    PyObject *kept = is_native ? name_of(callee) : Py_NewRef(callee);
    if (kept == NULL) {
        PyErr_Clear();
        return;
    }
    *slot = (Slot){(PyCodeObject *)Py_NewRef(caller), kept, key, instruction, 1};
    used++;
}

static int
on_event(PyObject *Py_UNUSED(nothing), PyFrameObject *frame, int what, PyObject *arg)
{
    _PyInterpreterFrame *here = frame->f_frame;
    if (what == PyTrace_C_CALL) {
        void *key = PyCFunction_Check(arg) ? (void *)((PyCFunctionObject *)arg)->m_ml : (void *)Py_TYPE(arg);
        count(here->f_code, _PyInterpreterFrame_LASTI(here) * (int)sizeof(_Py_CODEUNIT), key, arg, 1);
    } else if (what == PyTrace_CALL && here->previous != NULL) {
        _PyInterpreterFrame *caller = here->previous;
        if (here->owner != FRAME_OWNED_BY_GENERATOR)
            count(caller->f_code, _PyInterpreterFrame_LASTI(caller) * (int)sizeof(_Py_CODEUNIT), here->f_code,
                  (PyObject *)here->f_code, 0);
    }
    return 0;
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
    /* A debugger or profiler of the script's own is not disturbed. */
    if (state == NULL || counted != NULL || state->c_profilefunc != NULL || state->c_tracefunc != NULL)
        Py_RETURN_FALSE;
    if (_PyEval_SetProfile(state, on_event, NULL) < 0)
        return NULL;
    counted = state;
    Py_RETURN_TRUE;
}

static int
end_window(void)
{
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    while (state != NULL && state != counted)
        state = PyThreadState_Next(state);
    counted = NULL;
    if (state == NULL || state->c_profilefunc != on_event)
        return 0;
    return _PyEval_SetProfile(state, NULL, NULL);
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
    int failed = end_window() < 0 || rows == NULL;
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
enum { ROW_FIELDS = 8 };

static int
open_window(void *Py_UNUSED(nothing))
{
    Channel *channel = hot_path->channel();
    PyThreadState *state = PyThreadState_Get();
    if (channel == NULL || channel->stopped_ns || counted != NULL || state->c_profilefunc || state->c_tracefunc)
        return 0;
    memcpy(totals_before, channel->totals, sizeof totals_before);
    if (_PyEval_SetProfile(state, on_event, NULL) < 0)
        PyErr_Clear();
    else
        counted = state;
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
    hot_path = import_hot_path();
    PyObject *capsule = hot_path ? PyCapsule_New(&window, COUNTER_CAPSULE, NULL) : NULL;
    if (module != NULL && (capsule == NULL || PyModule_AddObjectRef(module, "_windows", capsule) < 0))
        Py_CLEAR(module);
    Py_XDECREF(capsule);
#endif
    return module;
}
