/* The hot path of spans, in C: what `hotloop.spans.hot_path` does in Python, at a fraction of the cost.

   A thread's log is a ring of (code, ns) pairs in memory that the recorder maps, too (`channel.h`). The recorder empties
   it from its own process. Without a C compiler `hot_path` does the same in Python. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <structmember.h>
#include "channel.h"
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

typedef struct {
    PyObject_HEAD
    int64_t code;
} Core;

static PyTypeObject *log_type;
static PyObject *fake_clock;    /* of tests; NULL is the machine's */
static PyObject *on_change;     /* called when the recorder has changed what is timed */
static Channel *channel;        /* NULL before the first recording */
static Channel *last_channel;   /* of the recording before; what Python still has of it may point there */
static uint64_t generation = 1; /* of the channel: a thread's pointer into an older one is not followed */
static pthread_key_t thread_end;

static _Thread_local struct {
    uint64_t generation;
    LogSlot *log;
    Py_ssize_t skipped; /* spans now open that were begun while the log was full; what is in them is skipped, too */
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

/* ---- the channel ----------------------------------------------------------------------------------------- */

static void *
map_anonymous(void)
{
    return mmap(NULL, sizeof(Channel), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void
forget_channel(void)
{
    if (last_channel != NULL)
        munmap(last_channel, sizeof(Channel));
    last_channel = channel;
}

/* The recorder of a forked child's parent must not get what the child does. */
static void
after_fork(void)
{
    if (channel == NULL)
        return;
    Channel *fresh = map_anonymous();
    if (fresh == MAP_FAILED)
        return;
    forget_channel();
    channel = fresh;
    generation++;
    own.generation = 0;
}

/* ---- a thread's log -------------------------------------------------------------------------------------- */

static void
end_of_thread(void *slot)
{
    LogSlot *log = slot;
    if (own.generation == generation && own.log == log)
        atomic_store_explicit(&log->ended, 1, memory_order_release);
}

/* The name is cut at a whole character. */
static void
copy_name(char *to, PyObject *name)
{
    const char *utf8 = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    size_t n = utf8 ? strlen(utf8) : 0;
    PyErr_Clear();
    while (n >= NAME_BYTES || (n && (utf8[n] & 0xC0) == 0x80))
        n--;
    if (n)
        memcpy(to, utf8, n);
    to[n] = 0;
}

/* Find a slot for this thread: one that no thread has, or whose thread has ended and whose pairs were taken. */
static LogSlot *
free_slot(void)
{
    for (LogSlot *each = channel->logs; each < channel->logs + LOG_SLOTS; each++)
        if (!atomic_load_explicit(&each->serial, memory_order_acquire)
            || (atomic_load_explicit(&each->ended, memory_order_acquire) && !waiting_pairs(each)))
            return each;
    return NULL;
}

/* Returns NULL without an exception if there is no slot: then the thread's spans are counted and not timed. */
static LogSlot *
open_log(void)
{
    own.generation = generation;
    own.log = NULL;
    own.skipped = 0;
    if (channel == NULL)
        return NULL;
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "current_thread", NULL) : NULL;
    PyObject *name = thread ? PyObject_GetAttrString(thread, "name") : NULL;
    LogSlot *log = name ? free_slot() : NULL;
    if (log != NULL) {
        atomic_store(&log->serial, 0);
        copy_name(log->name, name);
        atomic_store(&log->ident, (int64_t)PyThread_get_thread_ident());
        atomic_store(&log->ended, 0);
        atomic_store_explicit(&log->serial, ++channel->serials, memory_order_release);
        pthread_setspecific(thread_end, log);
        own.log = log;
    }
    if (name == NULL)
        own.generation = 0;
    Py_XDECREF(name);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    return log;
}

static inline LogSlot *
own_log(void)
{
    return own.generation == generation ? own.log : open_log();
}

/* Append a pair that is final, and with it all before it; return 0 if there is no room. */
static inline int
append(LogSlot *log, int64_t code, int64_t value, int final)
{
    int64_t at = atomic_load_explicit(&log->written, memory_order_relaxed);
    int64_t taken = atomic_load_explicit(&log->taken, memory_order_acquire);
    if (at - taken >= LOG_PAIRS)
        return 0;
    if (at == taken && at - atomic_load_explicit(&log->origin, memory_order_relaxed) >= RESTART_PAIRS)
        atomic_store_explicit(&log->origin, at, memory_order_relaxed);
    Pair *pair = pair_at(log, at);
    pair->code = code;
    atomic_store_explicit(&pair->value, value, memory_order_relaxed);
    atomic_store_explicit(&log->written, at + 1, memory_order_release);
    if (final)
        atomic_store_explicit(&log->published, at + 1, memory_order_release);
    return 1;
}

static void
add_late(int64_t code, int64_t amount)
{
    if (code >= COUNTER_BASE && code < COUNTER_BASE + MAX_COUNTERS)
        atomic_fetch_add(&channel->late[code - COUNTER_BASE], amount);
}

/* What is counted again before the next span begins or ends is added to what is there. Returns -1 with an exception. */
static int
add(int64_t code, int64_t amount)
{
    if (channel == NULL || channel->paused_ns)
        return 0;
    if (code >= COUNTER_BASE && code < COUNTER_BASE + MAX_COUNTERS)
        channel->totals[code - COUNTER_BASE] += amount;
    LogSlot *log = own_log();
    if (log == NULL)
        return PyErr_Occurred() ? -1 : (add_late(code, amount), 0);
    int64_t at = atomic_load_explicit(&log->written, memory_order_relaxed) - 1;
    int64_t last = atomic_load_explicit(&log->published, memory_order_relaxed);
    if (last < at - LOOK_BACK)
        last = at - LOOK_BACK;
    for (; at >= last; at--) {
        Pair *pair = pair_at(log, at);
        if (pair->code == code) {
            atomic_fetch_add_explicit(&pair->value, amount, memory_order_relaxed);
            return 0;
        }
    }
    if (!append(log, code, amount, 0))
        add_late(code, amount);
    return 0;
}

/* ---- a log as Python sees it, for a recorder in this process ---------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Channel *channel;
    LogSlot *slot;
} Log;

static PyObject *
log_take(Log *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *all = PyBytes_FromStringAndSize(NULL, LOG_PAIRS * sizeof(Pair));
    if (all == NULL)
        return NULL;
    int64_t n = take_pairs(self->slot, (int64_t(*)[2])PyBytes_AS_STRING(all));
    return _PyBytes_Resize(&all, n * (Py_ssize_t)sizeof(Pair)) < 0 ? NULL : all;
}

static Py_ssize_t
log_length(Log *self)
{
    return waiting_pairs(self->slot);
}

static PyObject *
log_events(Log *self, void *Py_UNUSED(closure))
{
    PyObject *events = PyList_New(0);
    int64_t end = atomic_load(&self->slot->written);
    for (int64_t at = atomic_load(&self->slot->taken); events != NULL && at < end; at++) {
        Pair *pair = pair_at(self->slot, at);
        PyObject *code = PyLong_FromLongLong(pair->code), *value = PyLong_FromLongLong(atomic_load(&pair->value));
        if (code == NULL || value == NULL || PyList_Append(events, code) < 0 || PyList_Append(events, value) < 0)
            Py_CLEAR(events);
        Py_XDECREF(code);
        Py_XDECREF(value);
    }
    return events;
}

static PyObject *
log_name(Log *self, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(self->slot->name);
}

static PyObject *
log_ident(Log *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong((unsigned long)atomic_load(&self->slot->ident));
}

static PyObject *
log_serial(Log *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(atomic_load(&self->slot->serial));
}

static PyObject *
log_ended(Log *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong((long)atomic_load(&self->slot->ended));
}

static PyMethodDef log_methods[] = {
    {"take", (PyCFunction)log_take, METH_NOARGS, "Remove and return all events, as bytes of int64 pairs."},
    {NULL},
};
static PyGetSetDef log_getset[] = {
    {"events", (getter)log_events, NULL, "The events not taken yet, as a flat list.", NULL},
    {"ident", (getter)log_ident, NULL, "The thread's number.", NULL},
    {"serial", (getter)log_serial, NULL, "Number of this log, unique in a recording.", NULL},
    {"name", (getter)log_name, NULL, "The thread's name.", NULL},
    {"ended", (getter)log_ended, NULL, "Whether the thread has ended.", NULL},
    {NULL},
};
static PyType_Slot log_slots[] = {
    {Py_tp_doc, "The events of one thread."}, {Py_tp_methods, log_methods}, {Py_tp_getset, log_getset},
    {Py_sq_length, log_length},               {0, NULL},
};
static PyType_Spec log_spec = {
    "hotloop.spans._hot_path.Log", sizeof(Log), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, log_slots,
};

/* ---- a span ---------------------------------------------------------------------------------------------- */

/* A function of the module and not a method: a `with` statement would make a bound method of it each time. */
static PyObject *
idle(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n))
{
    Py_RETURN_NONE;
}

/* The recorder switches spans between being timed and being counted. It runs in another process, so that the switch is
   made here, in a thread that may change Python objects. */
static int
follow_change(void)
{
    channel->change_seen = atomic_load_explicit(&channel->change, memory_order_acquire);
    PyObject *done = on_change ? PyObject_CallNoArgs(on_change) : Py_NewRef(Py_None);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static inline int
has_changed(void)
{
    return channel != NULL && atomic_load_explicit(&channel->change, memory_order_relaxed) != channel->change_seen;
}

static inline void
count_call(int64_t code)
{
    if (channel != NULL && code > 0 && code < MAX_SPANS && !channel->paused_ns)
        channel->counted[code]++;
}

static int
start_span(Core *self)
{
    if (has_changed() && follow_change() < 0)
        return -1;
    LogSlot *log = own_log();
    if (log == NULL) {
        if (PyErr_Occurred())
            return -1;
        count_call(self->code);
        return 0;
    }
    if (own.skipped || waiting_pairs(log) >= FULL_PAIRS) {
        own.skipped++;
        count_call(self->code);
        return 0;
    }
    int64_t now = read_ns();
    if (now < 0)
        return -1;
    append(log, self->code, now, 1);
    return 0;
}

static int
finish_span(Core *self)
{
    LogSlot *log = own_log();
    if (log == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (own.skipped) {
        own.skipped--;
        return 0;
    }
    int64_t now = read_ns();
    if (now < 0)
        return -1;
    append(log, -self->code, now, 1);
    return 0;
}

static PyObject *
core_start(Core *self, PyObject *Py_UNUSED(ignored))
{
    if (start_span(self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
core_finish(Core *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n))
{
    if (finish_span(self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
core_count(Core *self, PyObject *Py_UNUSED(ignored))
{
    count_call(self->code);
    if (has_changed() && follow_change() < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
core_tallied(Core *self, PyObject *Py_UNUSED(ignored))
{
    int64_t code = self->code;
    return PyLong_FromLongLong(channel != NULL && code > 0 && code < MAX_SPANS ? channel->counted[code] : 0);
}

static PyObject *
core_get_within(Core *self, void *Py_UNUSED(closure))
{
    int64_t code = self->code;
    return PyFloat_FromDouble(channel != NULL && code > 0 && code < MAX_SPANS ? channel->within_ns[code] : 0.0);
}

static int
core_set_within(Core *self, PyObject *value, void *Py_UNUSED(closure))
{
    double ns = value ? PyFloat_AsDouble(value) : 0.0;
    if (ns == -1.0 && PyErr_Occurred())
        return -1;
    if (channel != NULL && self->code > 0 && self->code < MAX_SPANS)
        channel->within_ns[self->code] = ns;
    return 0;
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
static PyGetSetDef core_getset[] = {
    {"within_ns", (getter)core_get_within, (setter)core_set_within,
     "Time that a hook's wrapper spent inside the span, if it varies from call to call, as ns in a tight loop.", NULL},
    {NULL},
};
static PyType_Slot core_slots[] = {
    {Py_tp_doc, "What of a span is on the hot path."}, {Py_tp_init, core_init},
    {Py_tp_methods, core_methods},                     {Py_tp_members, core_members},
    {Py_tp_getset, core_getset},                       {0, NULL},
};
static PyType_Spec core_spec = {
    "hotloop.spans._hot_path.Core", sizeof(Core), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, core_slots,
};

/* ---- a tally --------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    int64_t code, index;
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
    self->index = code >= COUNTER_BASE && code < COUNTER_BASE + MAX_COUNTERS ? code - COUNTER_BASE : MAX_COUNTERS;
    return 0;
}

static void
list_tally(int64_t index)
{
    channel->is_tally[index] = 1;
    if (index < MAX_COUNTERS) {
        channel->tallies[channel->n_tallies] = (int16_t)index;
        atomic_fetch_add(&channel->n_tallies, 1);
    }
}

static void
bump_tally(PyObject *tally)
{
    Tally *self = (Tally *)tally;
    if (channel == NULL || channel->paused_ns)
        return;
    if (!channel->is_tally[self->index])
        list_tally(self->index);
    channel->totals[self->index]++;
}

static PyObject *
tally_bump(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    bump_tally(self);
    Py_RETURN_NONE;
}

static PyObject *
tally_read(Tally *self, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromLongLong(channel != NULL ? channel->totals[self->index] : 0);
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
    {"bump", tally_bump, METH_NOARGS, "Count one more."},
    {"read", (PyCFunction)tally_read, METH_NOARGS, "Return the number of calls of `bump` in this recording."},
    {NULL},
};
static PyMemberDef tally_members[] = {
    {"code", T_LONGLONG, offsetof(Tally, code), READONLY, "Its number."},
    {"name", T_OBJECT, offsetof(Tally, name), READONLY, "Its name."},
    {NULL},
};
static PyType_Slot tally_slots[] = {
    {Py_tp_doc, "Counts events that are too frequent to log one by one."},
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
        int64_t ns = machine_ns() - self->since;
        self->count++, self->ns += ns, self->since = 0;
        if (channel != NULL) {
            atomic_fetch_add(&channel->gc_count, 1);
            atomic_fetch_add(&channel->gc_ns, ns);
        }
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
    PyObject *fn, *spans, *tally, *dict, *weak;
    PyTypeObject *last_class; /* kept alive by `spans`, which forgets none */
    PyObject *last_span;
    int64_t episodes, vector_steps, env_steps, frames;
} Step;

static PyTypeObject *live_class, *counted_class; /* of spans; while there are none, nothing is recorded */

/* Numbers that an environment returned: one, or one for each of its environments. */
typedef struct {
    Py_buffer view;
    Py_ssize_t n; /* -1: one number */
    int held;
} Numbers;

/* Read the form of a reward; return 0 if it is not plain. An array is known by its buffer, whoever made it. */
static int
get_array(PyObject *value, Numbers *numbers)
{
    if (!PyObject_CheckBuffer(value))
        return 0;
    if (PyObject_GetBuffer(value, &numbers->view, PyBUF_FORMAT | PyBUF_ND) < 0) {
        PyErr_Clear();
        return 0;
    }
    numbers->held = 1;
    numbers->n = numbers->view.ndim ? numbers->view.shape[0] : -1;
    return numbers->view.ndim <= 1;
}

static int
get_flags(PyObject *value, Numbers *flags)
{
    if (PyBool_Check(value)) {
        flags->n = -1;
        return 1;
    }
    return get_array(value, flags) && strcmp(flags->view.format, "?") == 0;
}

static int
flag(PyObject *value, Numbers *flags, Py_ssize_t i)
{
    return value == NULL ? 0 : flags->held ? ((char *)flags->view.buf)[i] != 0 : value == Py_True;
}

/* What a step was, where that is plain from what it returned, (obs, reward, terminated, truncated, info) or
   (obs, reward, done, ...), of one environment or of a vector of them. Returns 0 if it is not plain. */
static int
plain_tally(Step *self, PyObject *out, int leaf, int outermost)
{
    Py_ssize_t size = PyTuple_Check(out) ? PyTuple_GET_SIZE(out) : 0;
    if (size < 3)
        return 0;
    PyObject *reward = PyTuple_GET_ITEM(out, 1), *terminated = PyTuple_GET_ITEM(out, 2);
    PyObject *truncated = size >= 5 ? PyTuple_GET_ITEM(out, 3) : NULL;
    Numbers rewards = {.n = -1}, ends = {0}, cuts = {.n = -1};
    int plain = (PyFloat_Check(reward) || PyLong_Check(reward) || get_array(reward, &rewards))
        && get_flags(terminated, &ends) && rewards.n == ends.n
        && (truncated == NULL || (get_flags(truncated, &cuts) && cuts.n == ends.n));
    int64_t ended = 0, n = ends.n < 0 ? 1 : ends.n;
    for (int64_t i = 0; plain && outermost && i < n; i++)
        ended += flag(terminated, &ends, i) || flag(truncated, &cuts, i);
    if (rewards.held)
        PyBuffer_Release(&rewards.view);
    if (ends.held)
        PyBuffer_Release(&ends.view);
    if (cuts.held)
        PyBuffer_Release(&cuts.view);
    if (!plain)
        return 0;
    if (outermost
        && ((ended && add(self->episodes, ended) < 0) || add(self->vector_steps, 1) < 0 || add(self->env_steps, n) < 0))
        return -1;
    return leaf && add(self->frames, n) < 0 ? -1 : 1;
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
        if (start_span(each) < 0)
            return NULL;
    } else
        count_call(each->code);
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
    if (Py_TYPE(args[0]) != self->last_class) {
        PyObject *cls = (PyObject *)Py_TYPE(args[0]), *found = PyDict_GetItemWithError(self->spans, cls);
        if (found == NULL) {
            if (PyErr_Occurred() || (found = PyObject_GetItem(self->spans, cls)) == NULL)
                return NULL;
            Py_DECREF(found); /* `spans` keeps what it made */
        }
        self->last_class = Py_TYPE(args[0]), self->last_span = found;
    }
    PyObject *each = Py_NewRef(self->last_span);
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

/* The rest stays: it may be called while the garbage collector takes it apart. */
static int
step_clear(Step *self)
{
    Py_CLEAR(self->dict);
    return 0;
}

static void
step_dealloc(Step *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weak != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    step_clear(self);
    Py_XDECREF(self->fn);
    Py_XDECREF(self->spans);
    Py_XDECREF(self->tally);
    type->tp_free(self);
    Py_DECREF(type);
}

/* What it does not have itself (`__code__`, `__defaults__`, ...) it has from the original. */
static PyObject *
step_get_attribute(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Step *)self)->fn, name);
}

/* Pickled by name, as a function is. */
static PyObject *
step_reduce(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyMethodDef step_methods[] = {
    {"__reduce__", step_reduce, METH_NOARGS, "Pickle by name."},
    {NULL},
};
static PyMemberDef step_members[] = {
    {"fn", T_OBJECT, offsetof(Step, fn), READONLY, "The original."},
    {"spans", T_OBJECT, offsetof(Step, spans), READONLY, "Spans by class."},
    {"tally", T_OBJECT, offsetof(Step, tally), READONLY, "Counts a step that is not plain."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Step, call), READONLY},
    {"__dictoffset__", T_PYSSIZET, offsetof(Step, dict), READONLY},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Step, weak), READONLY},
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
    {Py_tp_methods, step_methods},   {Py_tp_getattro, step_get_attribute},
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
use_channel(Channel *fresh)
{
    if (fresh == MAP_FAILED)
        return PyErr_SetFromErrno(PyExc_OSError);
    forget_channel();
    channel = fresh;
    channel->magic = CHANNEL_MAGIC;
    channel->pid = getpid();
    channel->looking = 1;
    generation++;
    Py_RETURN_NONE;
}

static PyObject *
listen(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return use_channel(map_anonymous());
}

/* Share the channel through an anonymous file in memory. Its number is high, since a script may count on low ones. */
static PyObject *
share(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    int low = memfd_create("hotloop", MFD_CLOEXEC), high = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, LEAST_FILE_NUMBER);
    int file = high < 0 ? low : high;
    if (high >= 0)
        close(low);
    void *memory = file < 0 || ftruncate(file, sizeof(Channel)) < 0
        ? MAP_FAILED : mmap(NULL, sizeof(Channel), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    PyObject *used = use_channel(memory);
    if (used == NULL) {
        if (file >= 0)
            close(file);
        return NULL;
    }
    Py_DECREF(used);
    return PyLong_FromLong(file);
}

static PyObject *
open_logs(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *found = PyList_New(0);
    for (LogSlot *each = channel ? channel->logs : NULL; found && each && each < channel->logs + LOG_SLOTS; each++) {
        if (!atomic_load_explicit(&each->serial, memory_order_acquire))
            continue;
        Log *log = PyObject_New(Log, log_type);
        if (log != NULL)
            log->channel = channel, log->slot = each;
        if (log == NULL || PyList_Append(found, (PyObject *)log) < 0)
            Py_CLEAR(found);
        Py_XDECREF(log);
    }
    return found;
}

/* Send a message to the recorder; return whether there was room for it. */
static PyObject *
send(PyObject *Py_UNUSED(module), PyObject *arg)
{
    Py_buffer text;
    if (PyObject_GetBuffer(arg, &text, PyBUF_SIMPLE) < 0)
        return NULL;
    const void *parts[] = {text.buf};
    int32_t sizes[] = {(int32_t)text.len};
    int sent = channel != NULL && text.len < RING_BYTES && ring_put(&channel->messages, parts, sizes, 1);
    PyBuffer_Release(&text);
    return PyBool_FromLong(sent);
}

static PyObject *
get_on_change(PyObject *Py_UNUSED(module), PyObject *callback)
{
    Py_XSETREF(on_change, callback == Py_None ? NULL : Py_NewRef(callback));
    Py_RETURN_NONE;
}

/* Which spans are only counted, one byte a code, or None once the recorder has ended. */
static PyObject *
counted_only(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (channel == NULL || atomic_load(&channel->has_ended))
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((char *)channel->counted_only, MAX_SPANS);
}

static PyObject *
set_paused(PyObject *Py_UNUSED(module), PyObject *value)
{
    int64_t ns = PyLong_AsLongLong(value);
    if (ns == -1 && PyErr_Occurred())
        return NULL;
    if (channel != NULL)
        channel->paused_ns = ns;
    Py_RETURN_NONE;
}

static int64_t *
field_of(const char *name)
{
    static const struct { const char *name; size_t place; } fields[] = {
#define FIELD(name) {#name, offsetof(Channel, name)}
        FIELD(stopped_ns), FIELD(flush_asked), FIELD(flush_done), FIELD(resting), FIELD(rested_ns), FIELD(recorder_pid), FIELD(finished),
        FIELD(armed), FIELD(has_ended), FIELD(gpu_bytes), FIELD(gpu_busy_percent), FIELD(windows_asked),
    };
    for (size_t i = 0; channel != NULL && i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].name, name) == 0)
            return (int64_t *)((char *)channel + fields[i].place);
    PyErr_Format(PyExc_KeyError, "the channel has no field %s", name);
    return NULL;
}

static PyObject *
get_field(PyObject *Py_UNUSED(module), PyObject *arg)
{
    const char *name = PyUnicode_AsUTF8(arg);
    int64_t *place = name ? field_of(name) : NULL;
    return place ? PyLong_FromLongLong(atomic_load((_Atomic int64_t *)place)) : NULL;
}

static PyObject *
set_field(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *name;
    long long value;
    if (!PyArg_ParseTuple(args, "sL", &name, &value))
        return NULL;
    int64_t *place = field_of(name);
    if (place == NULL)
        return NULL;
    atomic_store((_Atomic int64_t *)place, value);
    Py_RETURN_NONE;
}

static PyObject *
failure(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyUnicode_DecodeUTF8(channel ? channel->failure : "", channel ? strnlen(channel->failure, FAILURE_BYTES) : 0,
                                "replace");
}

static PyObject *
add_device(PyObject *Py_UNUSED(module), PyObject *args)
{
    long long code, ns;
    if (!PyArg_ParseTuple(args, "LL", &code, &ns))
        return NULL;
    if (channel != NULL && code > 0 && code < MAX_SPANS)
        channel->device_ns[code] += ns;
    Py_RETURN_NONE;
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
    return start_span((Core *)span);
}

static int
end_span(PyObject *span)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    int done = finish_span((Core *)span);
    if (kind != NULL)
        PyErr_Restore(kind, error, trace);
    return done;
}

static void
count_span(PyObject *span)
{
    count_call(((Core *)span)->code);
    if (has_changed() && follow_change() < 0)
        PyErr_WriteUnraisable(span);
}

static int
looks_at(PyObject *span)
{
    int64_t code = ((Core *)span)->code;
    if (channel == NULL || code <= 0 || code >= MAX_SPANS || !atomic_load_explicit(&channel->looking, memory_order_relaxed))
        return 0;
    channel->looked[code]++;
    return 1;
}

static Channel *
current_channel(void)
{
    return channel;
}

static int
span_state(PyObject *span)
{
    if (live_class == NULL || span == Py_None)
        return SPAN_IDLE;
    return Py_IS_TYPE(span, counted_class) ? SPAN_COUNTED
        : Py_IS_TYPE(span, live_class) ? SPAN_TIMED
        : PyType_IsSubtype(Py_TYPE(span), live_class) ? SPAN_ON_DEVICE : SPAN_IDLE;
}

static HotPath api = {begin_span, end_span, count_span, looks_at, span_state, bump_tally, add, current_channel};

static PyMethodDef methods[] = {
    {"note_exit_code", note_exit_code, METH_VARARGS, "Have this process write its exit code into a file when it ends."},
    {"idle", (PyCFunction)(void (*)(void))idle, METH_FASTCALL, "Do nothing."},
    {"open_step", open_step, METH_NOARGS, "A step of an environment begins; return how many are open around it."},
    {"close_step", close_step, METH_NOARGS, "A step of an environment ends."},
    {"is_leaf", is_leaf, METH_NOARGS, "Say whether the innermost step has called no other."},
    {"use_classes", use_classes, METH_VARARGS, "Tell which class spans have while they are timed, and only counted."},
    {"note", (PyCFunction)(void (*)(void))note, METH_FASTCALL, "Write a pair into this thread's log."},
    {"listen", listen, METH_NOARGS, "Begin new logs in this process."},
    {"share", share, METH_NOARGS, "Begin new logs in memory that another process can map; return its file descriptor."},
    {"open_logs", open_logs, METH_NOARGS, "Return the logs of all threads."},
    {"send", send, METH_O, "Send a message to the recorder; return whether there was room for it."},
    {"call_on_change", get_on_change, METH_O, "Set what to call when the recorder changes what is timed."},
    {"counted_only", counted_only, METH_NOARGS, "Return which spans are only counted, a byte each; None at the end."},
    {"set_paused", set_paused, METH_O, "Set since when nothing is recorded; 0: go on."},
    {"get", get_field, METH_O, "Return a field of the channel."},
    {"set", set_field, METH_VARARGS, "Set a field of the channel."},
    {"failure", failure, METH_NOARGS, "Return why the recorder failed."},
    {"add_device", add_device, METH_VARARGS, "Add time that the device spent on a span."},
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
    pthread_key_create(&thread_end, end_of_thread);
    pthread_atfork(NULL, NULL, after_fork);
    log_type = (PyTypeObject *)PyType_FromSpec(&log_spec);
    PyObject *core = PyType_FromSpec(&core_spec), *step = PyType_FromSpec(&step_spec);
    PyObject *pauses = PyType_FromSpec(&pauses_spec), *tally = PyType_FromSpec(&tally_spec);
    if (log_type == NULL || core == NULL || step == NULL || PyModule_AddObjectRef(module, "Step", step) < 0 || pauses == NULL
        || PyModule_AddObjectRef(module, "Pauses", pauses) < 0 || tally == NULL
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
