/* The recorder's end of the channel: takes what a recorded process writes (`../../spans/channel.h`). */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <errno.h>
#include <stddef.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "../../spans/channel.h"

#define CROWDED_PAIRS 6000 /* a log this full wakes the recorder */
#define POLL_NS 10000000

typedef struct {
    PyObject_HEAD
    Channel *channel;
    int64_t (*pairs)[2];
} Reader;

static int
reader_init(Reader *self, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *path;
    struct stat found;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path))
        return -1;
    int file = open(PyBytes_AS_STRING(path), O_RDWR | O_CLOEXEC);
    int known = file >= 0 && fstat(file, &found) == 0;
    void *memory = known && found.st_size >= (off_t)sizeof(Channel)
        ? mmap(NULL, sizeof(Channel), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (memory == MAP_FAILED || ((Channel *)memory)->magic != CHANNEL_MAGIC) {
        if (known)
            PyErr_Format(PyExc_ValueError, "%s is not a channel of this version", PyBytes_AS_STRING(path));
        else
            PyErr_SetFromErrnoWithFilename(PyExc_OSError, PyBytes_AS_STRING(path));
        if (memory != MAP_FAILED)
            munmap(memory, sizeof(Channel));
        memory = NULL;
    }
    if (file >= 0)
        close(file);
    Py_DECREF(path);
    self->pairs = memory ? PyMem_Malloc(LOG_PAIRS * sizeof *self->pairs) : NULL;
    self->channel = memory;
    if (memory && self->pairs == NULL)
        PyErr_NoMemory();
    return self->pairs ? 0 : -1;
}

static void
reader_dealloc(Reader *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (self->channel != NULL)
        munmap(self->channel, sizeof(Channel));
    PyMem_Free(self->pairs);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
take_logs(Reader *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *found = PyList_New(0);
    for (LogSlot *each = self->channel->logs; found && each < self->channel->logs + LOG_SLOTS; each++) {
        long long serial = atomic_load_explicit(&each->serial, memory_order_acquire);
        int64_t n = serial ? take_pairs(each, self->pairs) : 0;
        if (n == 0)
            continue;
        PyObject *row = Py_BuildValue("LLNy#", serial, (long long)atomic_load(&each->ident),
                                      PyUnicode_DecodeUTF8(each->name, strnlen(each->name, NAME_BYTES), "replace"),
                                      (char *)self->pairs, (Py_ssize_t)(n * sizeof *self->pairs));
        if (row == NULL || PyList_Append(found, row) < 0)
            Py_CLEAR(found);
        Py_XDECREF(row);
    }
    return found;
}

static PyObject *
take_samples(Reader *self, PyObject *Py_UNUSED(ignored))
{
    SampleRing *ring = &self->channel->samples;
    int64_t at = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    int64_t end = atomic_load_explicit(&ring->written, memory_order_acquire);
    PyObject *all = PyBytes_FromStringAndSize(NULL, (end - at) * (Py_ssize_t)sizeof ring->rows[0]);
    char *to = all ? PyBytes_AS_STRING(all) : NULL;
    for (; all != NULL && at < end; at++, to += sizeof ring->rows[0])
        memcpy(to, ring->rows[at % SAMPLE_ROWS], sizeof ring->rows[0]);
    if (all != NULL)
        atomic_store_explicit(&ring->taken, end, memory_order_release);
    return all;
}

static void
copy_out(ByteRing *ring, int64_t at, void *to, int64_t bytes)
{
    int64_t place = at % RING_BYTES, run = RING_BYTES - place < bytes ? RING_BYTES - place : bytes;
    memcpy(to, ring->bytes + place, (size_t)run);
    memcpy((char *)to + run, ring->bytes, (size_t)(bytes - run));
}

static PyObject *
take_records(ByteRing *ring)
{
    int64_t at = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    int64_t end = atomic_load_explicit(&ring->written, memory_order_acquire);
    PyObject *found = PyList_New(0);
    while (found != NULL && at < end) {
        int32_t size;
        copy_out(ring, at, &size, sizeof size);
        if (size < 0 || at + (int64_t)sizeof size + size > end)
            break; /* damaged: nothing behind it can be read */
        PyObject *record = PyBytes_FromStringAndSize(NULL, size);
        if (record != NULL)
            copy_out(ring, at + (int64_t)sizeof size, PyBytes_AS_STRING(record), size);
        if (record == NULL || PyList_Append(found, record) < 0)
            Py_CLEAR(found);
        Py_XDECREF(record);
        at += (int64_t)sizeof size + size;
    }
    if (found != NULL)
        atomic_store_explicit(&ring->taken, end, memory_order_release);
    return found;
}

static PyObject *
take_definitions(Reader *self, PyObject *Py_UNUSED(ignored))
{
    return take_records(&self->channel->definitions);
}

static PyObject *
take_messages(Reader *self, PyObject *Py_UNUSED(ignored))
{
    return take_records(&self->channel->messages);
}

static PyObject *
take_late(Reader *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *found = PyList_New(0);
    for (int i = 0; found != NULL && i < MAX_COUNTERS; i++) {
        long long amount = atomic_load(&self->channel->late[i]) ? atomic_exchange(&self->channel->late[i], 0) : 0;
        PyObject *row = amount ? Py_BuildValue("iL", COUNTER_BASE + i, amount) : NULL;
        if (amount && (row == NULL || PyList_Append(found, row) < 0))
            Py_CLEAR(found);
        Py_XDECREF(row);
    }
    return found;
}

/* ---- arrays and single fields ----------------------------------------------------------------------------- */

static PyObject *
copy_array(Reader *self, PyObject *arg)
{
    static const struct { const char *name; size_t place, bytes; } arrays[] = {
#define ARRAY(name) {#name, offsetof(Channel, name), sizeof(((Channel *)0)->name)}
        ARRAY(counted), ARRAY(looked), ARRAY(device_ns), ARRAY(within_ns), ARRAY(totals), ARRAY(is_tally),
    };
    const char *name = PyUnicode_AsUTF8(arg);
    for (size_t i = 0; name != NULL && i < sizeof arrays / sizeof *arrays; i++)
        if (strcmp(arrays[i].name, name) == 0)
            return PyBytes_FromStringAndSize((char *)self->channel + arrays[i].place, (Py_ssize_t)arrays[i].bytes);
    return name ? PyErr_Format(PyExc_KeyError, "the channel has no array %s", name) : NULL;
}

static _Atomic int64_t *
field_of(Reader *self, const char *name)
{
    static const struct { const char *name; size_t place; } fields[] = {
#define FIELD(name) {#name, offsetof(Channel, name)}
        FIELD(pid), FIELD(stopped_ns), FIELD(paused_ns), FIELD(flush_asked), FIELD(flush_done), FIELD(resting), FIELD(rested_ns),
        FIELD(gc_count), FIELD(gc_ns), FIELD(gpu_bytes), FIELD(gpu_busy_percent), FIELD(sampler_cpu_ns),
        FIELD(samples_lost), FIELD(samples_torn), FIELD(recorder_pid), FIELD(has_ended), FIELD(armed), FIELD(finished),
        FIELD(looking), FIELD(tick_ns), FIELD(windows_asked),
    };
    for (size_t i = 0; name != NULL && i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].name, name) == 0)
            return (_Atomic int64_t *)((char *)self->channel + fields[i].place);
    if (name != NULL)
        PyErr_Format(PyExc_KeyError, "the channel has no field %s", name);
    return NULL;
}

static PyObject *
get_field(Reader *self, PyObject *arg)
{
    _Atomic int64_t *place = field_of(self, PyUnicode_AsUTF8(arg));
    return place ? PyLong_FromLongLong(atomic_load(place)) : NULL;
}

static PyObject *
set_field(Reader *self, PyObject *args)
{
    const char *name;
    long long value;
    if (!PyArg_ParseTuple(args, "sL", &name, &value))
        return NULL;
    _Atomic int64_t *place = field_of(self, name);
    if (place == NULL)
        return NULL;
    atomic_store(place, value);
    if (place == &self->channel->has_ended)
        atomic_fetch_add(&self->channel->change, 1);
    Py_RETURN_NONE;
}

static PyObject *
count_only(Reader *self, PyObject *arg)
{
    Py_buffer flags;
    if (PyObject_GetBuffer(arg, &flags, PyBUF_SIMPLE) < 0)
        return NULL;
    memset(self->channel->counted_only, 0, MAX_SPANS);
    memcpy(self->channel->counted_only, flags.buf, flags.len < MAX_SPANS ? (size_t)flags.len : MAX_SPANS);
    PyBuffer_Release(&flags);
    atomic_fetch_add(&self->channel->change, 1);
    Py_RETURN_NONE;
}

static PyObject *
fail(Reader *self, PyObject *arg)
{
    const char *text = PyUnicode_AsUTF8(arg);
    if (text == NULL)
        return NULL;
    strncpy(self->channel->failure, text, FAILURE_BYTES - 1);
    Py_RETURN_NONE;
}

/* ---- waiting ---------------------------------------------------------------------------------------------- */

static int64_t
now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Whether a process needs the recorder at once: a log or a ring is crowded, or it waits for an answer. */
static int
is_urgent(Channel *channel)
{
    if (atomic_load(&channel->resting))
        return 0;
    if (atomic_load(&channel->flush_asked) != atomic_load(&channel->flush_done))
        return 1;
    if (atomic_load(&channel->stopped_ns) && !atomic_load(&channel->finished))
        return 1;
    for (ByteRing *ring = &channel->definitions; ring <= &channel->messages; ring++)
        if (atomic_load(&ring->written) - atomic_load(&ring->taken) > RING_BYTES / 4)
            return 1;
    if (atomic_load(&channel->samples.written) - atomic_load(&channel->samples.taken) > SAMPLE_ROWS / 2)
        return 1;
    for (LogSlot *each = channel->logs; each < channel->logs + LOG_SLOTS; each++)
        if (waiting_pairs(each) > CROWDED_PAIRS)
            return 1;
    return 0;
}

static PyObject *
wait_until(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *readers;
    long long until;
    if (!PyArg_ParseTuple(args, "O!L", &PyList_Type, &readers, &until))
        return NULL;
    for (;;) {
        int64_t left = until - now_ns();
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(readers); i++)
            if (is_urgent(((Reader *)PyList_GET_ITEM(readers, i))->channel))
                left = 0;
        if (left <= 0)
            Py_RETURN_NONE;
        struct timespec rest = {0, left < POLL_NS ? left : POLL_NS};
        Py_BEGIN_ALLOW_THREADS
        nanosleep(&rest, NULL);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return NULL;
    }
}

static PyMethodDef reader_methods[] = {
    {"take_logs", (PyCFunction)take_logs, METH_NOARGS, "Return and remove new events: (serial, ident, name, pairs)."},
    {"take_samples", (PyCFunction)take_samples, METH_NOARGS, "Return and remove new stack samples."},
    {"take_definitions", (PyCFunction)take_definitions, METH_NOARGS, "Return and remove new code objects and stacks."},
    {"take_messages", (PyCFunction)take_messages, METH_NOARGS, "Return and remove new messages."},
    {"take_late", (PyCFunction)take_late, METH_NOARGS, "Return and remove amounts that found no room in a log."},
    {"array", (PyCFunction)copy_array, METH_O, "Return a copy of an array as bytes."},
    {"get", (PyCFunction)get_field, METH_O, "Return a field."},
    {"set", (PyCFunction)set_field, METH_VARARGS, "Set a field."},
    {"count_only", (PyCFunction)count_only, METH_O, "Set which spans are only counted, one byte a code."},
    {"fail", (PyCFunction)fail, METH_O, "Leave a message on why recording failed."},
    {NULL},
};
static PyType_Slot reader_slots[] = {
    {Py_tp_doc, "The channel of a recorded process, from the path of its memory."},
    {Py_tp_init, reader_init},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {0, NULL},
};
static PyType_Spec reader_spec = {
    "hotloop.profiling.recorder._channel.Reader", sizeof(Reader), 0, Py_TPFLAGS_DEFAULT, reader_slots,
};

static PyMethodDef methods[] = {
    {"wait", wait_until, METH_VARARGS, "wait(readers, until_ns): until then, or until one needs the recorder."},
    {NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_channel", "The recorder's end of the channel.", -1, methods,
};

PyMODINIT_FUNC
PyInit__channel(void)
{
    PyObject *module = PyModule_Create(&definition);
    PyObject *reader = PyType_FromSpec(&reader_spec);
    if (module != NULL && (reader == NULL || PyModule_AddObjectRef(module, "Reader", reader) < 0))
        Py_CLEAR(module);
    Py_XDECREF(reader);
    return module;
}
