/* Counts and times every call of one thread, by call path: what calls_twin.py does, at a tenth of its cost.

   A node is a function below its caller's node. The clock is read when a callback begins and when it ends, and
   what lies between is taken off all later readings, so that the tracer's own work is in no function's time. What
   the interpreter needs to get here is not, and is calibrated by the caller. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define MOST_NODES 200000
#define MOST_DEPTH 20000

typedef struct {
    int32_t parent, function;
    int64_t calls, total_ns;
} Node;

typedef struct {
    int32_t node;
    int64_t since_ns;
} Open;

typedef struct {
    PyObject_HEAD
    PyObject *describe;  /* gives a native function its name */
    PyObject *known;     /* list: code objects, or what `describe` returned */
    Node *nodes;
    void **keys;         /* of each function: its code, or its method definition */
    int64_t *slots;      /* hash of (parent, key) to node; 0 is empty */
    Open *open;
    int32_t n_nodes, room, n_functions, function_room, depth, mask, lost;
    int64_t spent_ns, begun_ns, wall_ns, events;
} Tracer;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t mix(int32_t parent, void *key) {
    uint64_t h = ((uint64_t)(uintptr_t)key >> 4) * 0x9E3779B97F4A7C15ull + (uint64_t)(parent + 1) * 0xC2B2AE3D27D4EB4Full;
    return h ^ (h >> 29);
}

static int function_of(Tracer *self, void *key, PyObject *object, int native) {
    for (int i = self->n_functions - 1; i >= 0; i--)
        if (self->keys[i] == key) return i;
    if (self->n_functions == self->function_room) {
        int room = self->function_room ? 2 * self->function_room : 256;
        void **keys = realloc(self->keys, room * sizeof(void *));
        if (!keys) return -1;
        self->keys = keys;
        self->function_room = room;
    }
    PyObject *entry = native ? PyObject_CallOneArg(self->describe, object) : Py_NewRef(object);
    if (!entry || PyList_Append(self->known, entry) < 0) {
        Py_XDECREF(entry);
        PyErr_Clear();
        return -1;
    }
    Py_DECREF(entry);
    self->keys[self->n_functions] = key;
    return self->n_functions++;
}

static int grow(Tracer *self) {
    int room = self->room ? 2 * self->room : 4096;
    Node *nodes = realloc(self->nodes, room * sizeof(Node));
    if (!nodes) return -1;
    self->nodes = nodes;
    int64_t *slots = calloc(4 * (size_t)room, sizeof(int64_t));
    if (!slots) return -1;
    free(self->slots);
    self->slots = slots;
    self->room = room;
    self->mask = 4 * room - 1;
    for (int i = 1; i < self->n_nodes; i++) {
        uint64_t at = mix(nodes[i].parent, self->keys[nodes[i].function]) & self->mask;
        while (slots[at]) at = (at + 1) & self->mask;
        slots[at] = i;
    }
    return 0;
}

/* The node of a function below another; the one above where there is no room. */
static int32_t node_of(Tracer *self, int32_t parent, void *key, PyObject *object, int native) {
    uint64_t at = mix(parent, key) & self->mask;
    for (; self->slots[at]; at = (at + 1) & self->mask) {
        Node *node = &self->nodes[self->slots[at]];
        if (node->parent == parent && self->keys[node->function] == key) return (int32_t)self->slots[at];
    }
    if (self->n_nodes >= MOST_NODES || (self->n_nodes == self->room && grow(self) < 0)) {
        self->lost++;
        return -1;
    }
    int function = function_of(self, key, object, native);
    if (function < 0) {
        self->lost++;
        return -1;
    }
    at = mix(parent, key) & self->mask;
    while (self->slots[at]) at = (at + 1) & self->mask;
    self->slots[at] = self->n_nodes;
    self->nodes[self->n_nodes] = (Node){parent, function, 0, 0};
    return self->n_nodes++;
}

static void enter(Tracer *self, void *key, PyObject *object, int native, int64_t at, int64_t calls) {
    if (self->depth >= MOST_DEPTH) {
        self->lost++;
        return;
    }
    int32_t node = node_of(self, self->open[self->depth - 1].node, key, object, native);
    if (node < 0) return;
    self->nodes[node].calls += calls;
    self->open[self->depth++] = (Open){node, at};
}

/* Ends the innermost open call of this function, and what it left open. One that began before is not ours. */
static void leave(Tracer *self, void *key, int64_t at) {
    int i = self->depth - 1;
    while (i > 0 && self->keys[self->nodes[self->open[i].node].function] != key) i--;
    if (i == 0) return;
    while (self->depth > i) {
        Open *last = &self->open[--self->depth];
        self->nodes[last->node].total_ns += at - last->since_ns;
    }
}

static int on_event(PyObject *object, PyFrameObject *frame, int what, PyObject *arg) {
    Tracer *self = (Tracer *)object;
    int64_t in = now_ns(), at = in - self->spent_ns;
    switch (what) {
    case PyTrace_CALL:
    case PyTrace_RETURN: {
        PyCodeObject *code = PyFrame_GetCode(frame);
        if (what == PyTrace_CALL) enter(self, code, (PyObject *)code, 0, at, 1);
        else leave(self, code, at);
        Py_DECREF(code);
        break;
    }
    case PyTrace_C_CALL:
        if (PyCFunction_Check(arg)) enter(self, ((PyCFunctionObject *)arg)->m_ml, arg, 1, at, 1);
        break;
    case PyTrace_C_RETURN:
    case PyTrace_C_EXCEPTION:
        if (PyCFunction_Check(arg)) leave(self, ((PyCFunctionObject *)arg)->m_ml, at);
        break;
    }
    self->events++;
    self->spent_ns += now_ns() - in;
    return 0;
}

static PyObject *start(Tracer *self, PyObject *codes) {
    if (!PyTuple_Check(codes)) {
        PyErr_SetString(PyExc_TypeError, "the open calls must be a tuple of code objects");
        return NULL;
    }
    int64_t at = now_ns();
    self->begun_ns = at;
    self->spent_ns = 0;
    self->open[0] = (Open){0, at};
    self->depth = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(codes); i++) {
        PyObject *code = PyTuple_GET_ITEM(codes, i);
        enter(self, code, code, 0, at, 0);
    }
    int64_t before = now_ns(); /* from 3.12 on, all code that runs now is instrumented here */
    PyEval_SetProfile(on_event, (PyObject *)self);
    self->spent_ns += now_ns() - before;
    Py_RETURN_NONE;
}

static PyObject *stop(Tracer *self, PyObject *unused) {
    if (!self->depth) Py_RETURN_NONE;
    int64_t at = now_ns() - self->spent_ns;
    PyEval_SetProfile(NULL, NULL);
    while (self->depth) {
        Open *last = &self->open[--self->depth];
        self->nodes[last->node].total_ns += at - last->since_ns;
    }
    self->wall_ns += at + self->spent_ns - self->begun_ns;
    Py_RETURN_NONE;
}

static PyObject *nodes(Tracer *self, PyObject *unused) {
    PyObject *found = PyList_New(self->n_nodes);
    for (int i = 0; found && i < self->n_nodes; i++) {
        Node *n = &self->nodes[i];
        PyObject *row = Py_BuildValue("(iiLL)", n->parent, n->function, (long long)n->calls, (long long)n->total_ns);
        if (!row) {
            Py_DECREF(found);
            return NULL;
        }
        PyList_SET_ITEM(found, i, row);
    }
    return found;
}

static PyObject *known(Tracer *self, PyObject *unused) {
    return PyList_GetSlice(self->known, 0, PyList_GET_SIZE(self->known));
}

static PyObject *sums(Tracer *self, PyObject *unused) {
    return Py_BuildValue("(LLLi)", (long long)self->wall_ns, (long long)self->spent_ns, (long long)self->events,
                         self->lost);
}

static int init(Tracer *self, PyObject *args, PyObject *kwargs) {
    PyObject *describe;
    if (!PyArg_ParseTuple(args, "O", &describe)) return -1;
    if (self->open) {
        PyErr_SetString(PyExc_RuntimeError, "a tracer is made once");
        return -1;
    }
    self->describe = Py_NewRef(describe);
    self->known = PyList_New(0);
    self->open = malloc(MOST_DEPTH * sizeof(Open));
    if (!self->known || !self->open || grow(self) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    self->nodes[0] = (Node){-1, -1, 0, 0};
    self->n_nodes = 1;
    return 0;
}

static void dealloc(Tracer *self) {
    Py_XDECREF(self->describe);
    Py_XDECREF(self->known);
    free(self->nodes);
    free(self->keys);
    free(self->slots);
    free(self->open);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef methods[] = {
    {"start", (PyCFunction)start, METH_O, "Begin, below the calls that are open: their code, outermost first."},
    {"stop", (PyCFunction)stop, METH_NOARGS, "End; calls that are open end now."},
    {"nodes", (PyCFunction)nodes, METH_NOARGS, "(parent, function, calls, total_ns) of each node; the root is first."},
    {"known", (PyCFunction)known, METH_NOARGS, "Each function: its code, or how it was described."},
    {"sums", (PyCFunction)sums, METH_NOARGS, "(wall_ns, spent_ns, events, lost)."},
    {NULL},
};

static PyTypeObject TracerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "hotloop.profiling.recorder.deep._functions.Tracer",
    .tp_basicsize = sizeof(Tracer),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Counts and times the calls of the thread that starts it.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)init,
    .tp_dealloc = (destructor)dealloc,
    .tp_methods = methods,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_functions", NULL, -1, NULL};

PyMODINIT_FUNC PyInit__functions(void) {
    PyObject *made = PyModule_Create(&module);
    if (!made || PyType_Ready(&TracerType) < 0 || PyModule_AddObjectRef(made, "Tracer", (PyObject *)&TracerType) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
