/* What `hotloop.profiling.recorder.call_tree.fold_reference` does, in C: a thread's raw events become the times of its call tree's nodes. One
   pass with a stack. It keeps the interpreter's lock: some thousand events take less time than getting it back from a
   busy loop would. Built where a compiler is there; never needed.

   A Places keeps what the tree must remember between segments. Node 0 is the root. Numbers mean what they mean in
   `hotloop.profiling.recorder.call_tree.tree`: a variant is 2 * code, plus 1 for a network that was acting.  */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROOT 0
#define EDGE 0
#define DARK (-1)
#define MAX_DEPTH 4096

enum { CONTAINER = 1, NETWORK = 2, DECISIVE = 4, ENV = 8 };
enum { FINE = 0, UNBALANCED = 1, NO_MEMORY = 2 };

typedef struct {
    int64_t parent, variant, before;
    int is_gap;
} Node;

typedef struct {
    uint64_t key;
    int64_t node;
} Slot;

typedef struct {
    PyObject_HEAD
    Slot *slots; /* open addressing; key 0 is empty */
    size_t room, used;
    Node *nodes;
    int64_t count, nodes_room, most;
    char *acting;
    size_t codes;
} Places;

/* ---- numbers of paths ------------------------------------------------------------------------------------ */

static Slot *
find(Slot *slots, size_t room, uint64_t key)
{
    uint64_t mixed = key * 0x9E3779B97F4A7C15ull;
    size_t i = (mixed ^ (mixed >> 32)) & (room - 1);
    while (slots[i].key != 0 && slots[i].key != key)
        i = (i + 1) & (room - 1);
    return &slots[i];
}

static int
set_slot(Places *p, uint64_t key, int64_t node)
{
    if (2 * (p->used + 1) > p->room) {
        size_t room = 2 * p->room;
        Slot *slots = calloc(room, sizeof(Slot));
        if (slots == NULL)
            return NO_MEMORY;
        for (size_t i = 0; i < p->room; i++)
            if (p->slots[i].key)
                *find(slots, room, p->slots[i].key) = p->slots[i];
        free(p->slots);
        p->slots = slots;
        p->room = room;
    }
    Slot *slot = find(p->slots, p->room, key);
    p->used += slot->key == 0;
    slot->key = key;
    slot->node = node;
    return FINE;
}

static int64_t
get_slot(Places *p, uint64_t key)
{
    Slot *slot = find(p->slots, p->room, key);
    return slot->key ? slot->node : -1;
}

/* Return the number of a path, new or known; ROOT where the tree is full, -1 without memory. */
static int64_t
intern(Places *p, uint64_t key, Node node)
{
    int64_t known = get_slot(p, key);
    if (known >= 0)
        return known;
    if (p->count >= p->most)
        return ROOT;
    if (p->count == p->nodes_room) {
        Node *nodes = realloc(p->nodes, 2 * p->nodes_room * sizeof(Node));
        if (nodes == NULL)
            return -1;
        p->nodes = nodes;
        p->nodes_room *= 2;
    }
    p->nodes[p->count] = node;
    return set_slot(p, key, p->count) == FINE ? p->count++ : -1;
}

#define AFTER_KEY(parent, before) ((1ull << 62) | (uint64_t)(parent) << 32 | (uint64_t)((before) + 1))

static int64_t
span_node(Places *p, int64_t parent, int64_t variant)
{
    return intern(p, (1ull << 63) | (uint64_t)parent << 32 | (uint64_t)variant, (Node){parent, variant, EDGE, 0});
}

static int64_t
gap_node(Places *p, int64_t parent, int64_t before, int64_t variant)
{
    uint64_t key = (1ull << 61) | (uint64_t)parent << 48 | (uint64_t)(before + 1) << 24 | (uint64_t)variant;
    return intern(p, key, (Node){parent, variant, before, 1});
}

/* ---- one segment ----------------------------------------------------------------------------------------- */

typedef struct {
    int64_t node, start_ns, since_ns, code, variant, last_child, last_end_ns, inside_ns, began_at, since_at;
    int carried, has_child;
} Open;

typedef struct {
    Places *places;
    const int64_t *events;
    Py_ssize_t n;
    const unsigned char *codes;
    Py_ssize_t n_codes;
    int64_t begin_ns, end_ns;
    int dark;
    Open *stack;
    Py_ssize_t depth;
    int64_t *total, *self;
    int64_t sums_room;
    int64_t *at, *inner, *done, *counters;
    Py_ssize_t n_at, n_done, n_counters;
} Segment;

static int
kind(Segment *s, int64_t code)
{
    return code < s->n_codes ? s->codes[code] : 0;
}

/* Make room in the sums for the nodes that have come. */
static int
cover(Segment *s)
{
    int64_t room = s->places->count;
    if (room <= s->sums_room)
        return FINE;
    room += 64;
    int64_t *total = realloc(s->total, room * sizeof(int64_t));
    if (total != NULL)
        s->total = total;
    int64_t *self = realloc(s->self, room * sizeof(int64_t));
    if (self != NULL)
        s->self = self;
    if (total == NULL || self == NULL)
        return NO_MEMORY;
    memset(s->total + s->sums_room, 0, (room - s->sums_room) * sizeof(int64_t));
    memset(s->self + s->sums_room, 0, (room - s->sums_room) * sizeof(int64_t));
    s->sums_room = room;
    return FINE;
}

static int
add_gap(Segment *s, Open *in, int64_t node, int64_t gap_ns, int64_t since_at)
{
    if (node < 0)
        return NO_MEMORY;
    if (node == ROOT)
        return FINE; /* a full tree: the time stays the container's own */
    if (cover(s) != FINE)
        return NO_MEMORY;
    s->total[node] += gap_ns;
    s->self[node] += gap_ns;
    s->self[in->node] -= gap_ns;
    s->inner[since_at] = node;
    return FINE;
}

static int
gap(Segment *s, Open *in, int64_t before, int64_t variant, int64_t gap_ns, int64_t since_at)
{
    if (gap_ns <= 0)
        return FINE;
    if (s->dark)
        before = DARK, variant = EDGE;
    int64_t node = gap_node(s->places, in->node, before, variant);
    if (node >= 0 && set_slot(s->places, AFTER_KEY(in->node, before), node) != FINE)
        return NO_MEMORY;
    return add_gap(s, in, node, gap_ns, since_at);
}

/* A gap that the segment's end cuts is taken for the one that followed this sibling last time. */
static int
unfinished_gap(Segment *s, Open *in, int64_t before, int64_t gap_ns, int64_t since_at)
{
    if (gap_ns <= 0)
        return FINE;
    if (s->dark)
        before = DARK;
    int64_t node = get_slot(s->places, AFTER_KEY(in->node, before));
    if (node < 0)
        node = gap_node(s->places, in->node, before, EDGE);
    return add_gap(s, in, node, gap_ns, since_at);
}

static int
begin(Segment *s, int64_t code, int64_t variant, int64_t at_ns, int64_t at)
{
    if (s->depth == MAX_DEPTH)
        return UNBALANCED;
    Open *parent = &s->stack[s->depth - 1];
    if (kind(s, parent->code) & CONTAINER && gap(s, parent, parent->last_child, variant,
                                                 at_ns - parent->last_end_ns, parent->since_at) != FINE)
        return NO_MEMORY;
    int64_t node = span_node(s->places, parent->node, variant);
    if (node < 0 || cover(s) != FINE)
        return NO_MEMORY;
    parent->has_child = 1;
    s->stack[s->depth++] = (Open){
        .node = node, .start_ns = at_ns, .since_ns = at_ns, .code = code, .variant = variant,
        .last_child = EDGE, .last_end_ns = at_ns, .began_at = at, .since_at = at,
    };
    s->inner[at] = node;
    return FINE;
}

/* Add up what is on top of the stack, until now; it stays there. */
static int
sum_up(Segment *s, int64_t at_ns, int cut)
{
    Open *top = &s->stack[s->depth - 1];
    int64_t length = at_ns - top->since_ns, rest = at_ns - top->last_end_ns;
    int container = kind(s, top->code) & CONTAINER, failed = FINE;
    s->self[top->node] += length - top->inside_ns;
    if (top->node != ROOT || s->depth == 1)
        s->total[top->node] += length;
    if (container && top->has_child)
        failed = cut ? unfinished_gap(s, top, top->last_child, rest, top->since_at)
                     : gap(s, top, top->last_child, EDGE, rest, top->since_at);
    else if (container && s->dark)
        failed = gap(s, top, DARK, EDGE, length, top->began_at);
    else if (container && top->carried && top->last_child != EDGE)
        failed = unfinished_gap(s, top, top->last_child, length, top->began_at);
    if (s->depth > 1) {
        Open *parent = top - 1;
        parent->inside_ns += length;
        parent->has_child = 1;
    }
    return failed;
}

static int
end(Segment *s, int64_t code, int64_t at_ns, int64_t at)
{
    Open *top = &s->stack[s->depth - 1];
    if (s->depth < 2 || top->code != code)
        return UNBALANCED;
    int failed = sum_up(s, at_ns, 0);
    if (top->node != ROOT) {
        int64_t *done = s->done + 3 * s->n_done++;
        done[0] = top->node, done[1] = top->start_ns, done[2] = at_ns;
    }
    Open *parent = top - 1;
    s->inner[at] = parent->node;
    parent->last_child = top->variant;
    parent->last_end_ns = at_ns;
    parent->since_at = at;
    s->depth--;
    return failed;
}

/* Tell network calls that acted (1) from those that learned (0) by what came after them; -1 is not known yet. */
static void
look_ahead(Segment *s, signed char *acts)
{
    signed char next = -1;
    for (Py_ssize_t i = s->n - 1; i >= 0; i--) {
        int64_t code = s->events[2 * i];
        acts[i] = next;
        if (code > 0 && code < s->n_codes && s->codes[code] & DECISIVE)
            next = (s->codes[code] & ENV) != 0;
    }
}

static int64_t
variant_of(Segment *s, int64_t code, signed char acts)
{
    if (!(kind(s, code) & NETWORK))
        return 2 * code;
    Places *p = s->places;
    if (acts < 0)
        acts = (size_t)code < p->codes && p->acting[code];
    if ((size_t)code < p->codes)
        p->acting[code] = acts;
    return 2 * code + acts;
}

static int
run(Segment *s, int64_t counter_base, signed char *acts)
{
    look_ahead(s, acts);
    int failed = FINE;
    int64_t last_ns = s->begin_ns;
    for (Py_ssize_t i = 0; i < s->n && failed == FINE; i++) {
        int64_t code = s->events[2 * i], value = s->events[2 * i + 1];
        if (code >= counter_base) {
            int64_t *row = s->counters + 3 * s->n_counters++;
            row[0] = s->n_at - 1, row[1] = code, row[2] = value;
            continue;
        }
        int64_t ns = value < s->begin_ns ? s->begin_ns : value > s->end_ns ? s->end_ns : value;
        last_ns = ns < last_ns ? last_ns : ns;
        s->at[s->n_at] = last_ns;
        failed = code > 0 ? begin(s, code, variant_of(s, code, acts[i]), last_ns, s->n_at)
                          : end(s, -code, last_ns, s->n_at);
        s->n_at++;
    }
    return failed;
}

/* Cut what is still open at the segment's end, innermost first; the stack stays as it is. */
static int
cut(Segment *s)
{
    int failed = FINE;
    Py_ssize_t depth = s->depth;
    for (; s->depth > 0 && failed == FINE; s->depth--) {
        Open *top = &s->stack[s->depth - 1];
        failed = sum_up(s, s->end_ns, 1);
        if (s->depth > 1) {
            /* The parent's rest is none: its child goes on. What followed last is what followed last. */
            top[-1].last_end_ns = s->end_ns;
        }
    }
    s->depth = depth;
    return failed;
}

/* ---- to and from Python ---------------------------------------------------------------------------------- */

static int
read_opened(Segment *s, PyObject *opened)
{
    s->depth = PyTuple_GET_SIZE(opened);
    if (s->depth < 1 || s->depth > MAX_DEPTH) {
        PyErr_Format(PyExc_ValueError, "%zd spans are open: from 1 to %d can be", s->depth, MAX_DEPTH);
        return -1;
    }
    for (Py_ssize_t i = 0; i < s->depth; i++) {
        long long node, start, last, code;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(opened, i), "LLLL", &node, &start, &last, &code))
            return -1;
        if (node < 0 || node >= s->places->count) {
            PyErr_Format(PyExc_ValueError, "no node %lld in this tree", node);
            return -1;
        }
        s->stack[i] = (Open){
            .node = node, .start_ns = start, .since_ns = s->begin_ns, .code = code,
            .variant = s->places->nodes[node].variant, .last_child = last, .last_end_ns = s->begin_ns,
            .began_at = i, .since_at = i, .carried = 1,
        };
        s->at[i] = s->begin_ns;
        s->inner[i] = node;
        if (i)
            s->stack[i - 1].has_child = 1;
    }
    s->n_at = s->depth;
    return 0;
}

static PyObject *
bytes_of(const int64_t *values, Py_ssize_t n)
{
    return PyBytes_FromStringAndSize((const char *)values, n * sizeof(int64_t));
}

static PyObject *
sums_of(Segment *s)
{
    int64_t *rows = malloc((3 * s->places->count + 1) * sizeof(int64_t)), n = 0;
    if (rows == NULL)
        return PyErr_NoMemory();
    for (int64_t node = 0; node < s->places->count && node < s->sums_room; node++)
        if (s->total[node] || s->self[node]) {
            rows[n++] = node, rows[n++] = s->total[node], rows[n++] = s->self[node];
        }
    PyObject *made = bytes_of(rows, n);
    free(rows);
    return made;
}

static PyObject *
still_open(Segment *s)
{
    PyObject *made = PyTuple_New(s->depth);
    for (Py_ssize_t i = 0; made != NULL && i < s->depth; i++) {
        Open *each = &s->stack[i];
        PyObject *row = Py_BuildValue("LLLL", (long long)each->node, (long long)each->start_ns,
                                      (long long)each->last_child, (long long)each->code);
        if (row == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, i, row);
    }
    return made;
}

static PyObject *
new_nodes(Places *p, int64_t since)
{
    PyObject *made = PyList_New(0);
    for (int64_t i = since; made != NULL && i < p->count; i++) {
        Node *n = &p->nodes[i];
        PyObject *row = Py_BuildValue("LsLL", (long long)n->parent, n->is_gap ? "gap" : "span", (long long)n->variant,
                                      (long long)n->before);
        if (row == NULL || PyList_Append(made, row) < 0)
            Py_CLEAR(made);
        Py_XDECREF(row);
    }
    return made;
}

static PyObject *
result_of(Segment *s, int64_t since)
{
    for (Py_ssize_t i = 0; i < s->n_counters; i++)
        s->counters[3 * i] = s->inner[s->counters[3 * i]];
    return Py_BuildValue("NNNNNNN", sums_of(s), bytes_of(s->done, 3 * s->n_done), bytes_of(s->counters, 3 * s->n_counters),
                         bytes_of(s->at, s->n_at), bytes_of(s->inner, s->n_at), still_open(s),
                         new_nodes(s->places, since));
}

static PyObject *
places_fold(Places *p, PyObject *args)
{
    Segment s = {.places = p};
    Py_buffer events, codes;
    PyObject *opened, *made = NULL;
    long long begin_ns, end_ns, counter_base;
    if (!PyArg_ParseTuple(args, "y*O!LLy*pL", &events, &PyTuple_Type, &opened, &begin_ns, &end_ns, &codes, &s.dark,
                          &counter_base))
        return NULL;
    s.events = events.buf, s.n = events.len / (2 * sizeof(int64_t));
    s.codes = codes.buf, s.n_codes = codes.len;
    s.begin_ns = begin_ns, s.end_ns = end_ns;
    int64_t since = p->count;
    Py_ssize_t room = s.n + PyTuple_GET_SIZE(opened) + 1;
    signed char *acts = malloc(s.n + 1);
    s.stack = malloc(MAX_DEPTH * sizeof(Open));
    s.at = malloc(room * sizeof(int64_t));
    s.inner = malloc(room * sizeof(int64_t));
    s.done = malloc(3 * room * sizeof(int64_t));
    s.counters = malloc(3 * room * sizeof(int64_t));
    int failed = acts && s.stack && s.at && s.inner && s.done && s.counters && cover(&s) == FINE ? FINE : NO_MEMORY;
    if (failed == FINE && read_opened(&s, opened) == 0) {
        failed = run(&s, counter_base, acts);
        if (failed == FINE)
            failed = cut(&s);
        if (failed == FINE)
            made = result_of(&s, since);
        else if (failed == UNBALANCED)
            made = new_nodes(p, since);
    }
    if (failed == NO_MEMORY)
        PyErr_NoMemory();
    free(acts), free(s.stack), free(s.at), free(s.inner), free(s.done), free(s.counters), free(s.total), free(s.self);
    PyBuffer_Release(&events);
    PyBuffer_Release(&codes);
    return made;
}

static int
places_init(Places *p, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    long long most, codes;
    if (!PyArg_ParseTuple(args, "LL", &most, &codes))
        return -1;
    p->room = 256, p->nodes_room = 64, p->codes = codes, p->most = most;
    p->slots = calloc(p->room, sizeof(Slot));
    p->nodes = calloc(p->nodes_room, sizeof(Node));
    p->acting = calloc(codes, 1);
    if (!p->slots || !p->nodes || !p->acting) {
        PyErr_NoMemory();
        return -1;
    }
    p->nodes[ROOT].parent = -1;
    p->count = 1;
    return 0;
}

static void
places_dealloc(Places *p)
{
    PyTypeObject *type = Py_TYPE(p);
    free(p->slots), free(p->nodes), free(p->acting);
    type->tp_free(p);
    Py_DECREF(type);
}

/* Add calls to what is known of their nodes: number, shortest, longest, histogram. */
static PyObject *
add_calls(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer done, calls, shortest, longest, histogram;
    long long first_octave, per_octave;
    if (!PyArg_ParseTuple(args, "y*w*w*w*w*LL", &done, &calls, &shortest, &longest, &histogram, &first_octave,
                          &per_octave))
        return NULL;
    const int64_t *rows = done.buf;
    int64_t *n = calls.buf, *low = shortest.buf, *high = longest.buf, nodes = calls.len / sizeof(int64_t);
    int32_t *counts = histogram.buf;
    int64_t buckets = nodes ? histogram.len / (int64_t)sizeof(int32_t) / nodes : 0;
    for (Py_ssize_t i = 0; i < done.len / (Py_ssize_t)(3 * sizeof(int64_t)); i++) {
        int64_t node = rows[3 * i], took = rows[3 * i + 2] - rows[3 * i + 1];
        if (node < 0 || node >= nodes)
            continue;
        n[node]++;
        low[node] = took < low[node] ? took : low[node];
        high[node] = took > high[node] ? took : high[node];
        int64_t bucket = (int64_t)((log2((double)(took > 1 ? took : 1)) - first_octave) * per_octave);
        counts[node * buckets + (bucket < 0 ? 0 : bucket >= buckets ? buckets - 1 : bucket)]++;
    }
    PyBuffer_Release(&done), PyBuffer_Release(&calls), PyBuffer_Release(&shortest), PyBuffer_Release(&longest);
    PyBuffer_Release(&histogram);
    Py_RETURN_NONE;
}

/* Count the begins of spans by code, and the counters' events: what the numpy twin does in six passes. */
static PyObject *
begun(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer events;
    long long counter_base, most = 0, counters = 0;
    if (!PyArg_ParseTuple(args, "y*L", &events, &counter_base))
        return NULL;
    const int64_t *rows = events.buf;
    Py_ssize_t n = events.len / (Py_ssize_t)(2 * sizeof(int64_t));
    for (Py_ssize_t i = 0; i < n; i++) {
        if (rows[2 * i] >= counter_base)
            counters++;
        else if (rows[2 * i] > most)
            most = rows[2 * i];
    }
    int64_t *counts = calloc(most + 1, sizeof(int64_t));
    PyObject *found = counts ? PyDict_New() : PyErr_NoMemory();
    for (Py_ssize_t i = 0; found != NULL && i < n; i++)
        if (rows[2 * i] > 0 && rows[2 * i] < counter_base)
            counts[rows[2 * i]]++;
    for (long long code = 1; found != NULL && code <= most; code++) {
        if (counts[code] == 0)
            continue;
        PyObject *key = PyLong_FromLongLong(code), *value = PyLong_FromLongLong(counts[code]);
        if (key == NULL || value == NULL || PyDict_SetItem(found, key, value) < 0)
            Py_CLEAR(found);
        Py_XDECREF(key), Py_XDECREF(value);
    }
    free(counts);
    PyBuffer_Release(&events);
    return found ? Py_BuildValue("NL", found, counters) : NULL;
}

static PyMethodDef places_methods[] = {
    {"fold", (PyCFunction)places_fold, METH_VARARGS,
     "Fold one segment: return its sums, calls, counters, moments, what is open and new nodes; or only the new\n"
     "nodes, as a list, where an end has no begin."},
    {NULL},
};
static PyType_Slot places_slots[] = {
    {Py_tp_doc, "What a call tree remembers between segments."}, {Py_tp_init, places_init},
    {Py_tp_dealloc, places_dealloc},                             {Py_tp_methods, places_methods},
    {0, NULL},
};
static PyType_Spec places_spec = {"hotloop.profiling.recorder.call_tree._fold.Places", sizeof(Places), 0, Py_TPFLAGS_DEFAULT, places_slots};
static PyMethodDef methods[] = {
    {"add_calls", add_calls, METH_VARARGS, "Add calls to the number, shortest, longest and histogram of their nodes."},
    {"begun", begun, METH_VARARGS, "Count the begins of spans, by code, and the events of counters."},
    {NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_fold", "The fold, in C. See hotloop.profiling.recorder.call_tree.fold_reference.", -1, methods,
};

PyMODINIT_FUNC
PyInit__fold(void)
{
    PyObject *module = PyModule_Create(&definition);
    PyObject *places = module ? PyType_FromSpec(&places_spec) : NULL;
    if (places == NULL || PyModule_AddObjectRef(module, "Places", places) < 0) {
        Py_XDECREF(places);
        Py_XDECREF(module);
        return NULL;
    }
    Py_DECREF(places);
    return module;
}
