/* The hot path of spans, in C: what `hotloop.spans.hot_path` does in Python, at a fraction of the cost.

   A thread's log is an array of (code, ns) pairs that grows and is emptied by the recorder. Everything here runs
   under the interpreter's lock, so appending needs no other. Built where a compiler is there; never needed.  */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include "hot_path.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef Py_GIL_DISABLED
#error "without the interpreter's lock, hotloop uses its Python twin"
#endif

#define FIRST_PAIRS 4096
#define KEPT_PAIRS 65536
#define FULL_PAIRS 32768 /* a log so full takes no new spans: they are only counted until it is emptied */
#define COUNTER_BASE (1 << 24) /* as in hotloop.spans.registry: codes from here on are counters */
#define LOOK_BACK 6            /* counters after the last span in which an amount is looked for, to be added to */
#define CROWDED_PAIRS 12288 /* a log with so many wakes the recorder, which empties it */

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

/* ---- waiting --------------------------------------------------------------------------------------------- */

/* Where the recorder's thread waits, without the interpreter's lock, until a moment, wake(), or a log that is crowded. */
static volatile int woken;
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
rouse(void)
{
    pthread_mutex_lock(&napping);
    woken = 1;
    pthread_cond_signal(&roused);
    pthread_mutex_unlock(&napping);
}

/* In a forked child the thread that waited does not exist. */
static void
after_fork(void)
{
    static const pthread_mutex_t fresh_mutex = PTHREAD_MUTEX_INITIALIZER;
    napping = fresh_mutex;
    make_cond();
    woken = 0;
}

static PyObject *
wait_until(PyObject *Py_UNUSED(module), PyObject *until)
{
    long long ns = PyLong_AsLongLong(until);
    if (ns == -1 && PyErr_Occurred())
        return NULL;
    struct timespec then = {ns / 1000000000, ns % 1000000000};
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&napping);
    while (!woken && machine_ns() < ns)
        pthread_cond_timedwait(&roused, &napping, &then);
    woken = 0;
    pthread_mutex_unlock(&napping);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *
wake(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    rouse();
    Py_RETURN_NONE;
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
    if (++log->used == CROWDED_PAIRS)
        rouse();
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

static PyObject *
tally_address(Tally *self, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(&self->count);
}

static PyGetSetDef tally_getset[] = {
    {"address", (getter)tally_address, NULL, "Where its count is in memory, for the stack reader.", NULL},
    {NULL},
};
static PyType_Slot tally_slots[] = {
    {Py_tp_doc, "Counts what happens too often to be written down each time."},
    {Py_tp_init, tally_init},
    {Py_tp_dealloc, tally_dealloc},
    {Py_tp_methods, tally_methods},
    {Py_tp_members, tally_members},
    {Py_tp_getset, tally_getset},
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

/* ---- for other extensions -------------------------------------------------------------------------------- */

static int
begin_span(PyObject *span)
{
    PyObject *done = core_start((Core *)span, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
end_span(PyObject *span)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyObject *done = core_finish((Core *)span, NULL, 0);
    Py_XDECREF(done);
    if (kind != NULL)
        PyErr_Restore(kind, error, trace);
    return done == NULL ? -1 : 0;
}

static void
count_span(PyObject *span)
{
    ((Core *)span)->counted++;
}

static int
span_state(PyObject *span)
{
    if (live_class == NULL || span == Py_None)
        return SPAN_IDLE;
    return Py_IS_TYPE(span, counted_class) ? SPAN_COUNTED
        : Py_IS_TYPE(span, live_class) || PyType_IsSubtype(Py_TYPE(span), live_class) ? SPAN_TIMED : SPAN_IDLE;
}

static HotPath api = {begin_span, end_span, count_span, span_state, add};

static PyMethodDef methods[] = {
    {"note_exit_code", note_exit_code, METH_VARARGS, "Have this process write its exit code into a file when it ends."},
    {"wait", wait_until, METH_O, "Wait until a moment, until woken, or until a log is crowded."},
    {"wake", wake, METH_NOARGS, "End the wait that is going on, or the next one."},
    {"idle", (PyCFunction)(void (*)(void))idle, METH_FASTCALL, "Do nothing."},
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
    pthread_atfork(NULL, NULL, after_fork);
    log_type = (PyTypeObject *)PyType_FromSpec(&log_spec);
    PyObject *core = PyType_FromSpec(&core_spec), *step = PyType_FromSpec(&step_spec);
    PyObject *pauses = PyType_FromSpec(&pauses_spec), *tally = PyType_FromSpec(&tally_spec);
    logs = PyList_New(0);
    if (log_type == NULL || core == NULL || step == NULL || PyModule_AddObjectRef(module, "Step", step) < 0 || pauses == NULL
        || PyModule_AddObjectRef(module, "Pauses", pauses) < 0 || logs == NULL || tally == NULL
        || PyModule_AddObjectRef(module, "Tally", tally) < 0 || PyModule_AddObjectRef(module, "Log", (PyObject *)log_type) < 0
        || PyModule_AddObjectRef(module, "Core", core) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    Py_DECREF(core);
    Py_DECREF(step);
    Py_DECREF(pauses);
    Py_DECREF(tally);
    PyObject *capsule = PyCapsule_New(&api, HOT_PATH_CAPSULE, NULL);
    if (capsule == NULL || PyModule_AddObjectRef(module, "_api", capsule) < 0)
        Py_CLEAR(module);
    return module;
}
