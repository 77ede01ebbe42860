/* The hot path of spans, in C: what `hotloop.ticks` does in Python, at a fraction of the cost.

   A thread's log is an array of (code, ns) pairs that grows and is emptied by the recorder. Everything here runs
   under the interpreter's lock, so appending needs no other. Built where a compiler is there; never needed.  */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <time.h>

#ifdef Py_GIL_DISABLED
#error "without the interpreter's lock, hotloop uses its Python twin"
#endif

#define FIRST_PAIRS 4096
#define KEPT_PAIRS 65536
#define MAX_DEPTH 60

typedef struct {
    int64_t code, value;
} Pair;

typedef struct {
    PyObject_HEAD
    Pair *pairs;
    Py_ssize_t used, room;
    unsigned long ident;
    PyObject *name;
} Log;

typedef struct {
    PyObject_HEAD
    int64_t code;
    int64_t counted;
} Core;

static PyTypeObject *log_type;
static PyObject *logs;          /* the list handed out by listen() */
static PyObject *fake_clock;    /* of tests; NULL is the machine's */
static uint64_t generation = 1; /* of the logs: a thread's pointer into older ones is not followed */

static _Thread_local struct {
    uint64_t generation;
    Log *log;
} own;

/* ---- time ------------------------------------------------------------------------------------------------ */

static inline int64_t
machine_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t
asked_ns(void)
{
    PyObject *told = PyObject_CallNoArgs(fake_clock);
    int64_t ns = told ? PyLong_AsLongLong(told) : -1;
    Py_XDECREF(told);
    return ns;
}

static inline int64_t
read_ns(void)
{
    return fake_clock == NULL ? machine_ns() : asked_ns();
}

/* ---- a thread's log -------------------------------------------------------------------------------------- */

static Log *
open_log(void)
{
    Log *log = PyObject_New(Log, log_type);
    if (log == NULL)
        return NULL;
    Py_INCREF(log_type);
    log->pairs = NULL;
    log->used = log->room = 0;
    log->ident = PyThread_get_thread_ident();
    log->name = NULL;
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "current_thread", NULL) : NULL;
    log->name = thread ? PyObject_GetAttrString(thread, "name") : NULL;
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    if (log->name == NULL || PyList_Append(logs, (PyObject *)log) < 0) {
        Py_DECREF(log);
        return NULL;
    }
    /* The list keeps it: a pointer without a reference is enough, for as long as the generation is this one. */
    own.log = log;
    own.generation = generation;
    Py_DECREF(log);
    return log;
}

static int
grow(Log *log)
{
    Py_ssize_t room = log->room ? 2 * log->room : FIRST_PAIRS;
    Pair *pairs = PyMem_Realloc(log->pairs, room * sizeof(Pair));
    if (pairs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    log->pairs = pairs;
    log->room = room;
    return 0;
}

static inline int
append(int64_t code, int64_t value)
{
    Log *log = own.log;
    if (own.generation != generation && (log = open_log()) == NULL)
        return -1;
    if (log->used == log->room && grow(log) < 0)
        return -1;
    log->pairs[log->used].code = code;
    log->pairs[log->used].value = value;
    log->used++;
    return 0;
}

static PyObject *
log_take(Log *log, PyObject *Py_UNUSED(ignored))
{
    PyObject *taken = PyBytes_FromStringAndSize((char *)log->pairs, log->used * sizeof(Pair));
    if (taken == NULL)
        return NULL;
    log->used = 0;
    if (log->room > KEPT_PAIRS) {
        PyMem_Free(log->pairs);
        log->pairs = NULL;
        log->room = 0;
    }
    return taken;
}

static Py_ssize_t
log_length(Log *log)
{
    return log->used;
}

static PyObject *
log_events(Log *log, void *Py_UNUSED(closure))
{
    PyObject *events = PyList_New(2 * log->used);
    for (Py_ssize_t i = 0; events != NULL && i < 2 * log->used; i++) {
        PyObject *value = PyLong_FromLongLong(((int64_t *)log->pairs)[i]);
        if (value == NULL)
            Py_CLEAR(events);
        else
            PyList_SET_ITEM(events, i, value);
    }
    return events;
}

static void
log_dealloc(Log *log)
{
    PyTypeObject *type = Py_TYPE(log);
    PyMem_Free(log->pairs);
    Py_XDECREF(log->name);
    PyObject_Free(log);
    Py_DECREF(type);
}

static PyMethodDef log_methods[] = {
    {"take", (PyCFunction)log_take, METH_NOARGS, "Take all that was written, as bytes of int64 pairs."},
    {NULL},
};
static PyMemberDef log_members[] = {
    {"ident", T_ULONG, offsetof(Log, ident), READONLY, "The thread's number."},
    {"name", T_OBJECT, offsetof(Log, name), READONLY, "The thread's name."},
    {NULL},
};
static PyGetSetDef log_getset[] = {
    {"events", (getter)log_events, NULL, "What is waiting, as a flat list; for looking at.", NULL},
    {NULL},
};
static PyType_Slot log_slots[] = {
    {Py_tp_doc, "The events of one thread."}, {Py_tp_dealloc, log_dealloc},   {Py_tp_methods, log_methods},
    {Py_tp_members, log_members},             {Py_tp_getset, log_getset},     {Py_sq_length, log_length},
    {0, NULL},
};
static PyType_Spec log_spec = {
    "hotloop._ticks.Log", sizeof(Log), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, log_slots,
};

/* ---- a span ---------------------------------------------------------------------------------------------- */

static PyObject *
core_idle(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n))
{
    Py_RETURN_NONE;
}

static PyObject *
core_start(Core *self, PyObject *Py_UNUSED(ignored))
{
    if (append(self->code, read_ns()) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
core_finish(Core *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n))
{
    if (append(-self->code, read_ns()) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
core_count(Core *self, PyObject *Py_UNUSED(ignored))
{
    self->counted++;
    Py_RETURN_NONE;
}

static PyObject *
core_tallied(Core *self, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromLongLong(self->counted);
}

static int
core_init(Core *self, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    long long code;
    if (!PyArg_ParseTuple(args, "L", &code))
        return -1;
    self->code = code;
    return 0;
}

static PyMethodDef core_methods[] = {
    {"idle", (PyCFunction)(void (*)(void))core_idle, METH_FASTCALL, "Do nothing."},
    {"start", (PyCFunction)core_start, METH_NOARGS, "Note that it begins now."},
    {"finish", (PyCFunction)(void (*)(void))core_finish, METH_FASTCALL, "Note that it ends now."},
    {"tally", (PyCFunction)core_count, METH_NOARGS, "Count a call that is not timed."},
    {"tallied", (PyCFunction)core_tallied, METH_NOARGS, "Return how many calls were counted without being timed."},
    {NULL},
};
static PyMemberDef core_members[] = {
    {"code", T_LONGLONG, offsetof(Core, code), READONLY, "Its number."},
    {NULL},
};
static PyType_Slot core_slots[] = {
    {Py_tp_doc, "What of a span is on the hot path."}, {Py_tp_init, core_init},
    {Py_tp_methods, core_methods},                     {Py_tp_members, core_members},
    {0, NULL},
};
static PyType_Spec core_spec = {
    "hotloop._ticks.Core", sizeof(Core), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, core_slots,
};

/* ---- the module ------------------------------------------------------------------------------------------ */

static PyObject *
note(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    if (n != 2) {
        PyErr_Format(PyExc_TypeError, "note() takes a code and an amount, not %zd values", n);
        return NULL;
    }
    int64_t code = PyLong_AsLongLong(args[0]), amount = PyLong_AsLongLong(args[1]);
    if ((code == -1 || amount == -1) && PyErr_Occurred())
        return NULL;
    if (append(code, amount) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
listen(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *fresh = PyList_New(0);
    if (fresh == NULL)
        return NULL;
    generation++;
    Py_XSETREF(logs, fresh);
    return Py_NewRef(fresh);
}

static PyObject *
use_clock(PyObject *Py_UNUSED(module), PyObject *clock)
{
    Py_XSETREF(fake_clock, clock == Py_None ? NULL : Py_NewRef(clock));
    Py_RETURN_NONE;
}

/* One thread's stack as bytes: the address of each code object and the instruction it is at, innermost first. */
static PyObject *
stack_key(PyFrameObject *frame)
{
    uintptr_t words[2 * MAX_DEPTH];
    int depth = 0;
    Py_INCREF(frame);
    while (frame != NULL && depth < MAX_DEPTH) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        words[2 * depth] = (uintptr_t)code;
        words[2 * depth + 1] = (uintptr_t)PyFrame_GetLasti(frame);
        depth++;
        Py_DECREF(code); /* the frame keeps it */
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return PyBytes_FromStringAndSize((char *)words, 2 * depth * sizeof(uintptr_t));
}

static PyObject *
stacks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *found = PyList_New(0);
    PyThreadState *self = PyThreadState_Get();
    PyThreadState *each = found ? PyInterpreterState_ThreadHead(PyThreadState_GetInterpreter(self)) : NULL;
    for (; each != NULL; each = PyThreadState_Next(each)) {
        PyFrameObject *frame = each == self ? NULL : PyThreadState_GetFrame(each);
        if (frame == NULL)
            continue;
        PyObject *key = stack_key(frame);
        PyObject *row = key ? Py_BuildValue("kNN", each->thread_id, frame, key) : NULL;
        if (row == NULL || PyList_Append(found, row) < 0) {
            Py_XDECREF(row);
            Py_DECREF(found);
            return NULL;
        }
        Py_DECREF(row);
    }
    return found;
}

static PyMethodDef methods[] = {
    {"note", (PyCFunction)(void (*)(void))note, METH_FASTCALL, "Write a pair into this thread's log."},
    {"listen", listen, METH_NOARGS, "Begin new logs; return the list in which each thread's will appear."},
    {"use_clock", use_clock, METH_O, "Read time from a function, for tests; None for the machine's clock."},
    {"stacks", stacks, METH_NOARGS, "Return (ident, frame, key) of all other threads; equal stacks have equal keys."},
    {NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_ticks", "The hot path of spans, in C. See hotloop.ticks.", -1, methods,
};

PyMODINIT_FUNC
PyInit__ticks(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    log_type = (PyTypeObject *)PyType_FromSpec(&log_spec);
    PyObject *core = PyType_FromSpec(&core_spec);
    logs = PyList_New(0);
    if (log_type == NULL || core == NULL || logs == NULL || PyModule_AddObjectRef(module, "Log", (PyObject *)log_type) < 0
        || PyModule_AddObjectRef(module, "Core", core) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    Py_DECREF(core);
    return module;
}
