/* The hot path of spans, in C: what `hotloop.spans.hot_path` does in Python, at a fraction of the cost.

   A thread's log is an array of (code, ns) pairs that grows and is emptied by the recorder. Everything here runs
   under the interpreter's lock, so appending needs no other. Built where a compiler is there; never needed.  */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Before Python 3.13 a pending call from another thread is only seen when the main thread takes the interpreter's lock
   again, unless it is told to look for one. Whether the lock is free, later versions do not tell. */
#if PY_VERSION_HEX < 0x030D0000
#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED /* that header defines it anew */
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#undef Py_BUILD_CORE
#define TELL_MAIN_THREAD() _Py_atomic_store_relaxed(&PyInterpreterState_Main()->ceval.eval_breaker, 1)
#if PY_VERSION_HEX < 0x030C0000
#define LOCK_IS_FREE() (!_Py_atomic_load_relaxed(&_PyRuntime.ceval.gil.locked))
#else
#define LOCK_IS_FREE() (!_Py_atomic_load_relaxed(&PyInterpreterState_Main()->ceval.gil->locked))
#endif
#else
#define TELL_MAIN_THREAD() ((void)0)
#define LOCK_IS_FREE() 0
#endif

#ifdef Py_GIL_DISABLED
#error "without the interpreter's lock, hotloop uses its Python twin"
#endif

#define FIRST_PAIRS 4096
#define KEPT_PAIRS 65536
#define FULL_PAIRS 32768 /* a log so full takes no new spans: they are only counted until it is emptied */
#define COUNTER_BASE (1 << 24) /* as in hotloop.spans.registry: codes from here on are counters */
#define LOOK_BACK 6            /* counters after the last span in which an amount is looked for, to be added to */
#define MAX_DEPTH 60
#define MAX_SIGHTS 512  /* stacks seen and not yet written down */
#define MAX_PLACES 8192 /* frames of them */

typedef struct {
    int64_t code, value;
} Pair;

typedef struct {
    PyObject_HEAD
    Pair *pairs;
    Py_ssize_t used, room;
    Py_ssize_t skipped; /* spans now open that were begun while the log was full; what is in them is skipped, too */
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
    log->used = log->room = log->skipped = 0;
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

static inline Log *
own_log(void)
{
    return own.generation == generation ? own.log : open_log();
}

static inline int
append(Log *log, int64_t code, int64_t value)
{
    if (log == NULL)
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
    "hotloop.spans._hot_path.Log", sizeof(Log), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, log_slots,
};

/* What is counted again before the next span begins or ends is added to what is there. */
static int
add(int64_t code, int64_t amount)
{
    Log *log = own_log();
    for (Py_ssize_t i = log ? log->used - 1 : -1, last = i - LOOK_BACK; code >= COUNTER_BASE && i >= 0 && i > last; i--) {
        if (log->pairs[i].code < COUNTER_BASE)
            break;
        if (log->pairs[i].code == code) {
            log->pairs[i].value += amount;
            return 0;
        }
    }
    return append(log, code, amount);
}

/* ---- a span ---------------------------------------------------------------------------------------------- */

/* A function of the module and not a method: a `with` statement would make a bound method of it each time. */
static PyObject *
idle(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n))
{
    Py_RETURN_NONE;
}

static PyObject *
core_start(Core *self, PyObject *Py_UNUSED(ignored))
{
    Log *log = own_log();
    if (log != NULL && (log->skipped || log->used >= FULL_PAIRS)) {
        log->skipped++;
        self->counted++;
    } else if (append(log, self->code, read_ns()) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
core_finish(Core *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n))
{
    Log *log = own_log();
    if (log != NULL && log->skipped)
        log->skipped--;
    else if (append(log, -self->code, read_ns()) < 0)
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
    "hotloop.spans._hot_path.Core", sizeof(Core), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, core_slots,
};

/* ---- a tally --------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    int64_t code, count, told;
    PyObject *name;
} Tally;

static PyTypeObject *tally_type;

static int
tally_init(Tally *self, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    long long code;
    PyObject *name;
    if (!PyArg_ParseTuple(args, "UL", &name, &code))
        return -1;
    Py_XSETREF(self->name, Py_NewRef(name));
    self->code = code;
    return 0;
}

static PyObject *
tally_bump(Tally *self, PyObject *Py_UNUSED(ignored))
{
    self->count++;
    Py_RETURN_NONE;
}

static PyObject *
tally_read(Tally *self, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromLongLong(self->count);
}

static int64_t
fresh(Tally *self)
{
    int64_t since = self->count - self->told;
    self->told = self->count;
    return since;
}

static PyObject *
tally_fresh(Tally *self, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromLongLong(fresh(self));
}

static void
tally_dealloc(Tally *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->name);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef tally_methods[] = {
    {"bump", (PyCFunction)tally_bump, METH_NOARGS, "Count one more."},
    {"read", (PyCFunction)tally_read, METH_NOARGS, "Return how often it was bumped."},
    {"fresh", (PyCFunction)tally_fresh, METH_NOARGS, "Return how often it was bumped since this was asked last."},
    {NULL},
};
static PyMemberDef tally_members[] = {
    {"code", T_LONGLONG, offsetof(Tally, code), READONLY, "Its number."},
    {"name", T_OBJECT, offsetof(Tally, name), READONLY, "Its name."},
    {NULL},
};
static PyType_Slot tally_slots[] = {
    {Py_tp_doc, "Counts what happens too often to be written down each time."},
    {Py_tp_init, tally_init},
    {Py_tp_dealloc, tally_dealloc},
    {Py_tp_methods, tally_methods},
    {Py_tp_members, tally_members},
    {0, NULL},
};
static PyType_Spec tally_spec = {"hotloop.spans._hot_path.Tally", sizeof(Tally), 0, Py_TPFLAGS_DEFAULT, tally_slots};

/* ---- pauses of the garbage collector --------------------------------------------------------------------- */

/* In C, because a Ctrl-C that arrives while Python code runs in a collector's callback is lost. */
typedef struct {
    PyObject_HEAD
    int64_t count, ns, since;
} Pauses;

static PyObject *
pauses_call(Pauses *self, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *phase, *info;
    if (!PyArg_ParseTuple(args, "UO", &phase, &info))
        return NULL;
    if (PyUnicode_CompareWithASCIIString(phase, "start") == 0)
        self->since = machine_ns();
    else if (self->since) {
        self->count++;
        self->ns += machine_ns() - self->since;
        self->since = 0;
    }
    Py_RETURN_NONE;
}

static PyMemberDef pauses_members[] = {
    {"count", T_LONGLONG, offsetof(Pauses, count), READONLY, "How many there were."},
    {"ns", T_LONGLONG, offsetof(Pauses, ns), READONLY, "How long they took together."},
    {NULL},
};
static PyType_Slot pauses_slots[] = {
    {Py_tp_doc, "A callback for gc.callbacks that measures the collector's pauses."},
    {Py_tp_call, pauses_call},
    {Py_tp_members, pauses_members},
    {0, NULL},
};
static PyType_Spec pauses_spec = {"hotloop.spans._hot_path.Pauses", sizeof(Pauses), 0, Py_TPFLAGS_DEFAULT, pauses_slots};

/* ---- a step of an environment ---------------------------------------------------------------------------- */

/* How many steps are open in this thread, and whether the innermost has called no other. */
static _Thread_local struct {
    int depth, leaf;
} steps;

static PyObject *
open_step(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    steps.leaf = 1;
    return PyLong_FromLong(steps.depth++);
}

static PyObject *
close_step(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    steps.leaf = 0;
    steps.depth -= steps.depth > 0;
    Py_RETURN_NONE;
}

static PyObject *
is_leaf(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(steps.leaf);
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *fn, *spans, *tally, *dict;
    int64_t episodes, vector_steps, env_steps, frames;
} Step;

static PyTypeObject *live_class, *counted_class; /* of spans; while there are none, nothing is recorded */

/* What a step was, where that is plain from what it returned: one environment's (obs, reward, bool, bool, info). */
static int
plain_tally(Step *self, PyObject *out, int leaf, int outermost)
{
    if (!PyTuple_Check(out) || PyTuple_GET_SIZE(out) != 5)
        return 0;
    PyObject *reward = PyTuple_GET_ITEM(out, 1);
    PyObject *terminated = PyTuple_GET_ITEM(out, 2), *truncated = PyTuple_GET_ITEM(out, 3);
    if (!(PyFloat_Check(reward) || PyLong_Check(reward)) || !PyBool_Check(terminated) || !PyBool_Check(truncated))
        return 0;
    int ended = terminated == Py_True || truncated == Py_True;
    if (outermost
        && ((ended && add(self->episodes, 1) < 0) || add(self->vector_steps, 1) < 0 || add(self->env_steps, 1) < 0))
        return -1;
    return leaf && add(self->frames, 1) < 0 ? -1 : 1;
}

static int
count_step(Step *self, PyObject *env, PyObject *out, int leaf, int outermost)
{
    int done = plain_tally(self, out, leaf, outermost);
    if (done)
        return done < 0 ? -1 : 0;
    PyObject *told = PyObject_CallFunction(self->tally, "OOOO", env, out, leaf ? Py_True : Py_False,
                                           outermost ? Py_True : Py_False);
    Py_XDECREF(told);
    return told == NULL ? -1 : 0;
}

static PyObject *
timed_step(Step *self, Core *each, int live, PyObject *const *args, size_t n, PyObject *names)
{
    if (live) {
        PyObject *started = core_start(each, NULL);
        if (started == NULL)
            return NULL;
        Py_DECREF(started);
    } else
        each->counted++;
    int depth = steps.depth++;
    steps.leaf = 1;
    PyObject *out = PyObject_Vectorcall(self->fn, args, n, names);
    if (out != NULL && (steps.leaf || depth == 0) && count_step(self, args[0], out, steps.leaf, depth == 0) < 0)
        Py_CLEAR(out);
    steps.depth = depth;
    steps.leaf = 0;
    if (live) {
        PyObject *kind, *error, *trace;
        PyErr_Fetch(&kind, &error, &trace);
        PyObject *finished = core_finish(each, NULL, 0);
        if (finished == NULL)
            Py_CLEAR(out);
        Py_XDECREF(finished);
        if (kind != NULL)
            PyErr_Restore(kind, error, trace);
    }
    return out;
}

static PyObject *
step_call(PyObject *callable, PyObject *const *args, size_t n, PyObject *names)
{
    Step *self = (Step *)callable;
    if (PyVectorcall_NARGS(n) < 1)
        return PyObject_Vectorcall(self->fn, args, n, names);
    PyObject *cls = (PyObject *)Py_TYPE(args[0]);
    PyObject *each = PyDict_GetItemWithError(self->spans, cls);
    if (each != NULL)
        Py_INCREF(each);
    else if (PyErr_Occurred() || (each = PyObject_GetItem(self->spans, cls)) == NULL)
        return NULL;
    int live = live_class != NULL && each != Py_None && PyType_IsSubtype(Py_TYPE(each), live_class);
    int counted = !live && counted_class != NULL && Py_IS_TYPE(each, counted_class);
    PyObject *out = live || counted ? timed_step(self, (Core *)each, live, args, n, names)
                                    : PyObject_Vectorcall(self->fn, args, n, names);
    Py_DECREF(each);
    return out;
}

static PyObject *
step_get(PyObject *self, PyObject *owner, PyObject *Py_UNUSED(cls))
{
    return owner == NULL || owner == Py_None ? Py_NewRef(self) : PyMethod_New(self, owner);
}

static PyObject *
step_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *fn, *spans, *tally;
    long long codes[4];
    if (!PyArg_ParseTuple(args, "OO!O(LLLL)", &fn, &PyDict_Type, &spans, &tally, codes, codes + 1, codes + 2, codes + 3))
        return NULL;
    Step *self = (Step *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = step_call;
    self->fn = Py_NewRef(fn), self->spans = Py_NewRef(spans), self->tally = Py_NewRef(tally);
    self->episodes = codes[0], self->vector_steps = codes[1], self->env_steps = codes[2], self->frames = codes[3];
    return (PyObject *)self;
}

static int
step_traverse(Step *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->fn);
    Py_VISIT(self->spans);
    Py_VISIT(self->tally);
    Py_VISIT(self->dict);
    return 0;
}

static int
step_clear(Step *self)
{
    Py_CLEAR(self->fn);
    Py_CLEAR(self->spans);
    Py_CLEAR(self->tally);
    Py_CLEAR(self->dict);
    return 0;
}

static void
step_dealloc(Step *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    step_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef step_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Step, call), READONLY},
    {"__dictoffset__", T_PYSSIZET, offsetof(Step, dict), READONLY},
    {NULL},
};
static PyGetSetDef step_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict},
    {NULL},
};
static PyType_Slot step_slots[] = {
    {Py_tp_doc, "A method in whose place it is, timed and counted as an environment's step."},
    {Py_tp_new, step_new},           {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, step_get},     {Py_tp_traverse, step_traverse},
    {Py_tp_clear, step_clear},       {Py_tp_dealloc, step_dealloc},
    {Py_tp_members, step_members},   {Py_tp_getset, step_getset},
    {0, NULL},
};
static PyType_Spec step_spec = {
    "hotloop.spans._hot_path.Step", sizeof(Step), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, step_slots,
};

static PyObject *
use_classes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyTypeObject *live, *counted;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &live, &PyType_Type, &counted))
        return NULL;
    Py_XSETREF(live_class, (PyTypeObject *)Py_NewRef(live));
    Py_XSETREF(counted_class, (PyTypeObject *)Py_NewRef(counted));
    Py_RETURN_NONE;
}

/* ---- the module ------------------------------------------------------------------------------------------ */

static PyObject *
note(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    if (n != 2) {
        PyErr_Format(PyExc_TypeError, "note() takes a code and an amount, not %zd values", n);
        return NULL;
    }
    int64_t code = PyLong_AsLongLong(args[0]), amount = PyLong_AsLongLong(args[1]);
    if (((code == -1 || amount == -1) && PyErr_Occurred()) || add(code, amount) < 0)
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

/* ---- watching -------------------------------------------------------------------------------------------- */

static volatile int woken, held;
static pthread_mutex_t napping = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t roused;

static void
make_cond(void)
{
    pthread_condattr_t monotonic; /* a clock that is set must not make it wait */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&roused, &monotonic);
}

static void
sleep_until(int64_t ns, int only_while_held)
{
    struct timespec then = {ns / 1000000000, ns % 1000000000};
    pthread_mutex_lock(&napping);
    while (!woken && (held || !only_while_held) && machine_ns() < ns)
        pthread_cond_timedwait(&roused, &napping, &then);
    pthread_mutex_unlock(&napping);
}

static int64_t
cpu_ns_of(unsigned long ident)
{
    clockid_t clock;
    struct timespec t;
    if (pthread_getcpuclockid((pthread_t)ident, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return -1;
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What was seen and has no number yet. Everything here is only touched with the interpreter's lock held. */
typedef struct { PyCodeObject *code; int at; } Place;
typedef struct { int64_t at, cpu; unsigned long ident; Py_ssize_t first, n; } Sight;
typedef struct { int64_t at, code, n; } Bump;

static Place places[MAX_PLACES];
static Sight sights[MAX_SIGHTS];
static Bump bumped[MAX_SIGHTS];
static Py_ssize_t n_places, n_sights, n_bumped, last_places;

static void
see_stack(PyThreadState *thread, int64_t at)
{
    PyFrameObject *frame = PyThreadState_GetFrame(thread);
    if (frame == NULL)
        return;
    Sight *sight = &sights[n_sights++];
    *sight = (Sight){at, cpu_ns_of(thread->thread_id), thread->thread_id, n_places, 0};
    while (frame != NULL && sight->n < MAX_DEPTH && n_places < MAX_PLACES) {
        places[n_places++] = (Place){PyFrame_GetCode(frame), PyFrame_GetLasti(frame)};
        sight->n++;
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
}

/* One look at all threads but the one that watches, and at the tallies. */
static void
look(unsigned long watcher, PyObject *tallies)
{
    int64_t at = machine_ns();
    Py_ssize_t before = n_places;
    PyThreadState *each = PyInterpreterState_ThreadHead(PyThreadState_GetInterpreter(PyThreadState_Get()));
    for (; each != NULL && n_sights < MAX_SIGHTS; each = PyThreadState_Next(each))
        if (each->thread_id != watcher)
            see_stack(each, at);
    last_places = n_places - before;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tallies) && n_bumped < MAX_SIGHTS; i++) {
        Tally *tally = (Tally *)PyList_GET_ITEM(tallies, i);
        int64_t since = Py_IS_TYPE((PyObject *)tally, tally_type) ? fresh(tally) : 0;
        if (since)
            bumped[n_bumped++] = (Bump){at, tally->code, since};
    }
    PyErr_Clear(); /* what could not be seen is left out */
}

static int
is_full(void)
{
    Py_ssize_t room = MAX_PLACES / 4 > 2 * last_places ? MAX_PLACES / 4 : 2 * last_places;
    return n_sights > MAX_SIGHTS / 2 || n_bumped > MAX_SIGHTS / 2 || n_places + room > MAX_PLACES;
}

static inline uint64_t
mixed(uint64_t key, uint64_t word)
{
    key = (key ^ word) * 0x9E3779B97F4A7C15ull;
    return key ^ (key >> 29);
}

/* A stack as a number: of the address of each code object and the instruction it is at. */
static PyObject *
key_of(Sight *sight)
{
    uint64_t key = 0;
    for (Place *place = places + sight->first; place < places + sight->first + sight->n; place++)
        key = mixed(mixed(key, (uintptr_t)place->code), (uint64_t)place->at);
    return PyLong_FromUnsignedLongLong(key);
}

static PyObject *
places_of(Sight *sight)
{
    PyObject *found = PyList_New(sight->n);
    for (Py_ssize_t i = 0; found != NULL && i < sight->n; i++) {
        Place *place = &places[sight->first + i];
        PyObject *row = Py_BuildValue("Oii", place->code, place->at, PyCode_Addr2Line(place->code, place->at));
        if (row == NULL)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, i, row);
    }
    return found;
}

static PyObject *
number_of(Sight *sight, PyObject *numbers, PyObject *name_stack)
{
    PyObject *key = key_of(sight), *known = key ? PyDict_GetItemWithError(numbers, key) : NULL;
    Py_XINCREF(known);
    if (known == NULL && key != NULL && !PyErr_Occurred()) {
        PyObject *stack = places_of(sight);
        known = stack ? PyObject_CallFunctionObjArgs(name_stack, stack, key, NULL) : NULL;
        Py_XDECREF(stack);
    }
    Py_XDECREF(key);
    return known;
}

/* Give what was seen its numbers: appended as (at, ident, stack, cpu), and the tallies as (at, code, fresh). */
static int
write_down(PyObject *numbers, PyObject *name_stack, PyObject *looks, PyObject *bumps)
{
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < n_sights; i++) {
        Sight *sight = &sights[i];
        PyObject *number = number_of(sight, numbers, name_stack);
        PyObject *row = number ? Py_BuildValue("LkNL", sight->at, sight->ident, number, sight->cpu) : NULL;
        failed = row == NULL || PyList_Append(looks, row) < 0;
        Py_XDECREF(row);
    }
    for (Py_ssize_t i = 0; !failed && i < n_bumped; i++) {
        PyObject *row = Py_BuildValue("LLL", bumped[i].at, bumped[i].code, bumped[i].n);
        failed = row == NULL || PyList_Append(bumps, row) < 0;
        Py_XDECREF(row);
    }
    for (Py_ssize_t i = 0; i < n_places; i++)
        Py_DECREF(places[i].code);
    n_places = n_sights = n_bumped = 0;
    return failed ? -1 : 0;
}

/* Who looks? A thread that asks for the interpreter's lock gets it where the program gives it away: in an operation of
   torch's, never in a loop in Python between two of them, which would then seem to take no time. So it takes the lock only
   if that is free at the moment. Else the main thread is asked to look itself, which it does at its next call or turn of a
   loop; if it has not come to that by the next tick, because it has begun to wait, the watching thread looks. Nobody waits
   for an answer: to wake a thread costs more than a look. */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static enum { NOTHING, ASKED, LOOKING } asked;
static int queued;  /* a pending call has not run yet */
static int crowded; /* like `asked` and `queued`, under `asking` */
static unsigned long asker;
static PyObject *asked_tallies; /* owned */
static Py_ssize_t asked_most;

static int
is_crowded(Py_ssize_t most)
{
    Py_ssize_t waiting = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(logs); i++)
        waiting += ((Log *)PyList_GET_ITEM(logs, i))->used;
    return waiting > most;
}

static int
look_if_asked(void *from_queue)
{
    pthread_mutex_lock(&asking);
    int wanted = asked == ASKED;
    if (wanted)
        asked = LOOKING;
    if (from_queue != NULL)
        queued = 0;
    pthread_mutex_unlock(&asking);
    if (!wanted)
        return 0;
    if (!held) {
        PyObject *tallies = Py_NewRef(asked_tallies); /* a finalizer run by a collection in here may end the watch */
        look(asker, tallies);
        Py_DECREF(tallies);
    }
    pthread_mutex_lock(&asking);
    crowded = is_full() || is_crowded(asked_most);
    asked = NOTHING;
    pthread_mutex_unlock(&asking);
    return 0;
}

/* Ask for a look, without the interpreter's lock; return whether that is left to the main thread. */
static int
ask(void)
{
    pthread_mutex_lock(&asking);
    int left = !asked && !crowded && !LOCK_IS_FREE(), again = left && !queued;
    if (!asked)
        asked = ASKED;
    if (again)
        queued = 1;
    pthread_mutex_unlock(&asking);
    if (again && Py_AddPendingCall(look_if_asked, &asked) < 0) {
        pthread_mutex_lock(&asking);
        queued = left = 0;
        pthread_mutex_unlock(&asking);
    }
    if (left)
        TELL_MAIN_THREAD();
    return left;
}

static PyObject *
watch(PyObject *Py_UNUSED(module), PyObject *args)
{
    long long until, tick;
    PyObject *numbers, *name_stack, *tallies;
    if (!PyArg_ParseTuple(args, "LLnO!OO!", &until, &tick, &asked_most, &PyDict_Type, &numbers, &name_stack, &PyList_Type,
                          &tallies))
        return NULL;
    Py_XSETREF(asked_tallies, Py_NewRef(tallies)); /* kept after this ends: a look may still be under way */
    PyObject *looks = PyList_New(0), *bumps = PyList_New(0);
    int failed = looks == NULL || bumps == NULL;
    int64_t next = tick ? machine_ns() + tick : until;
    asker = PyThread_get_thread_ident();
    while (!failed && !woken && machine_ns() < until) {
        int going = 1;
        Py_BEGIN_ALLOW_THREADS
        while (going && !woken && machine_ns() < until) {
            int64_t target = next < until ? next : until;
            sleep_until(target, 0);
            sleep_until(until, 1); /* so that who holds us does not feel us */
            if (!tick || target != next)
                going = 0;
            else if (woken || held)
                next = machine_ns() + tick;
            else {
                going = ask();
                next = next + tick > machine_ns() ? next + tick : machine_ns();
            }
        }
        Py_END_ALLOW_THREADS
        look_if_asked(NULL);
        if (asked == NOTHING) { /* a collection in the middle of the main thread's look may have let us in */
            failed = write_down(numbers, name_stack, looks, bumps) < 0;
            pthread_mutex_lock(&asking);
            crowded = 0;
            pthread_mutex_unlock(&asking);
        }
        if (!failed && is_crowded(asked_most))
            break;
    }
    pthread_mutex_lock(&asking);
    if (asked == ASKED)
        asked = NOTHING;
    pthread_mutex_unlock(&asking);
    woken = 0;
    if (failed) {
        Py_XDECREF(looks);
        Py_XDECREF(bumps);
        return NULL;
    }
    return Py_BuildValue("NN", looks, bumps);
}

/* In a forked child: the thread that watched is not there, whatever it was doing. */
static void
forget(void)
{
    static const pthread_mutex_t fresh_mutex = PTHREAD_MUTEX_INITIALIZER;
    asking = napping = fresh_mutex;
    make_cond();
    asked = NOTHING;
    queued = crowded = 0;
    n_places = n_sights = n_bumped = 0;
}

static PyObject *
wake(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    pthread_mutex_lock(&napping);
    woken = 1;
    pthread_cond_signal(&roused);
    pthread_mutex_unlock(&napping);
    Py_RETURN_NONE;
}

static PyObject *
hold(PyObject *Py_UNUSED(module), PyObject *on)
{
    pthread_mutex_lock(&napping);
    held = PyObject_IsTrue(on);
    pthread_cond_signal(&roused);
    pthread_mutex_unlock(&napping);
    Py_RETURN_NONE;
}

/* Python code that runs at exit cannot know the exit code: `sys.exit(3)` leaves no trace. The C library passes it to the
   functions registered with on_exit, after the interpreter is gone. */
#ifdef __GLIBC__
static struct { char *path; off_t position; pid_t pid; } exit_note;

static void
write_exit_code(int status, void *Py_UNUSED(ignored))
{
    if (exit_note.path == NULL || exit_note.pid != getpid()) /* a forked child ends here, too */
        return;
    char digits[16];
    int length = snprintf(digits, sizeof digits, "%11d", status & 0xff);
    int file = open(exit_note.path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return;
    if (pwrite(file, digits, length, exit_note.position) != length) {
        /* The provisional exit code stays. */
    }
    close(file);
}
#endif

static PyObject *
note_exit_code(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *path;
    long long position;
    if (!PyArg_ParseTuple(args, "yL", &path, &position))
        return NULL;
#ifdef __GLIBC__
    int first = exit_note.path == NULL;
    free(exit_note.path);
    exit_note.path = strdup(path);
    exit_note.position = (off_t)position;
    exit_note.pid = getpid();
    if (first && on_exit(write_exit_code, NULL) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
#endif
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"note_exit_code", note_exit_code, METH_VARARGS, "Have this process write its exit code into a file when it ends."},
    {"watch", watch, METH_VARARGS, "Look at all threads every tick until a moment; see hotloop.spans.hot_path.pure_watch."},
    {"wake", wake, METH_NOARGS, "End the watch that is going on, or the next one."},
    {"idle", (PyCFunction)(void (*)(void))idle, METH_FASTCALL, "Do nothing."},
    {"hold", hold, METH_O, "Look no more, or again."},
    {"open_step", open_step, METH_NOARGS, "A step of an environment begins; return how many are open around it."},
    {"close_step", close_step, METH_NOARGS, "A step of an environment ends."},
    {"is_leaf", is_leaf, METH_NOARGS, "Say whether the innermost step has called no other."},
    {"use_classes", use_classes, METH_VARARGS, "Tell which class spans have while they are timed, and only counted."},
    {"note", (PyCFunction)(void (*)(void))note, METH_FASTCALL, "Write a pair into this thread's log."},
    {"listen", listen, METH_NOARGS, "Begin new logs; return the list in which each thread's will appear."},
    {"use_clock", use_clock, METH_O, "Read time from a function, for tests; None for the machine's clock."},
    {NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_hot_path", "The hot path of spans, in C. See hotloop.spans.hot_path.", -1, methods,
};

PyMODINIT_FUNC
PyInit__hot_path(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    make_cond();
    pthread_atfork(NULL, NULL, forget);
    log_type = (PyTypeObject *)PyType_FromSpec(&log_spec);
    tally_type = (PyTypeObject *)PyType_FromSpec(&tally_spec);
    PyObject *core = PyType_FromSpec(&core_spec), *step = PyType_FromSpec(&step_spec);
    PyObject *pauses = PyType_FromSpec(&pauses_spec);
    logs = PyList_New(0);
    if (log_type == NULL || core == NULL || step == NULL || PyModule_AddObjectRef(module, "Step", step) < 0 || pauses == NULL
        || PyModule_AddObjectRef(module, "Pauses", pauses) < 0 || logs == NULL || tally_type == NULL
        || PyModule_AddObjectRef(module, "Tally", (PyObject *)tally_type) < 0 || PyModule_AddObjectRef(module, "Log", (PyObject *)log_type) < 0
        || PyModule_AddObjectRef(module, "Core", core) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    Py_DECREF(core);
    Py_DECREF(step);
    Py_DECREF(pauses);
    return module;
}
