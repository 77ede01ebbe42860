/* What the hooks put in place of functions and methods, as C callables: a call that is only counted costs little more than
   the call itself, and neither leaves a frame in tracebacks. `wrappers.py` does the same in Python.

   A span decides what happens (`../../../spans/registry.py`): it is timed, or only counted, or nothing is recorded. While
   it is timed, a function in Python may be called in place of the original, which looks more closely. That costs much more
   than the rest, so the recorder has it done now and then, where calls are frequent. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>
#include "../../../spans/hot_path.h"

static HotPath *hot_path;

/* How many calls of modules are open in this thread, and whether the outermost is the first of its kind, in which those
   below are looked at. */
static _Thread_local struct {
    int open, inspected;
} modules;

/* Stands in for a function, whose span is always the same, or a method, whose span depends on the class of its object.
   The span of the last class is kept, because most methods are called on objects of one class. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *fn;
    PyObject *span;    /* of a function; of a method a dictionary, from class to span, or None if it is not timed */
    PyObject *closer;  /* called instead of `fn` to look more closely at a timed call */
    PyObject *quick;   /* called instead of `fn` otherwise */
    PyObject *levels;  /* of a module's call: a bytearray with the number of nested calls to time; else NULL */
    PyObject *inner;   /* of a module's call: called instead of `fn` within the first of its kind, where it is timed, */
    PyObject *below;   /* and below the timed levels */
    int by_class;      /* whether this is a method */
    PyObject *dict, *weak;
    PyTypeObject *last_class; /* kept alive by the dictionary, which forgets none */
    PyObject *last_span;
} Wrapper;

static PyObject *
span_of(Wrapper *self, PyObject *object)
{
    PyTypeObject *cls = Py_TYPE(object);
    PyObject *found = PyDict_GetItemWithError(self->span, (PyObject *)cls);
    if (found == NULL) {
        if (PyErr_Occurred())
            return NULL;
        found = PyObject_GetItem(self->span, (PyObject *)cls); /* makes one, and keeps it */
        if (found == NULL)
            return NULL;
        Py_DECREF(found);
    }
    self->last_class = cls;
    self->last_span = found;
    return found;
}

/* A span that is also timed on a device does so in Python. */
static PyObject *
call_on_device(PyObject *span, PyObject *fn, PyObject *const *args, size_t n, PyObject *names)
{
    PyObject *entered = PyObject_CallMethod(span, "__enter__", NULL);
    if (entered == NULL)
        return NULL;
    Py_DECREF(entered);
    PyObject *out = PyObject_Vectorcall(fn, args, n, names), *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyObject *left = PyObject_CallMethod(span, "__exit__", "OOO", Py_None, Py_None, Py_None);
    if (left == NULL)
        Py_CLEAR(out);
    Py_XDECREF(left);
    if (kind != NULL)
        PyErr_Restore(kind, error, trace);
    return out;
}

static PyObject *
call_timed(Wrapper *self, PyObject *closer, PyObject *span, PyObject *const *args, size_t n, PyObject *names)
{
    switch (hot_path->state(span)) {
    case SPAN_IDLE:
        return PyObject_Vectorcall(self->quick, args, n, names);
    case SPAN_COUNTED:
        hot_path->count(span);
        return PyObject_Vectorcall(self->quick, args, n, names);
    case SPAN_ON_DEVICE:
        return call_on_device(span, closer != self->fn && hot_path->looks(span) ? closer : self->quick, args, n, names);
    }
    if (hot_path->begin(span) < 0)
        return NULL;
    PyObject *out = PyObject_Vectorcall(closer != self->fn && hot_path->looks(span) ? closer : self->quick, args, n, names);
    if (hot_path->end(span) < 0)
        Py_CLEAR(out);
    return out;
}

static PyObject *
wrapper_call(PyObject *callable, PyObject *const *args, size_t n, PyObject *names)
{
    Wrapper *self = (Wrapper *)callable;
    if (self->levels != NULL && modules.open >= PyByteArray_AS_STRING(self->levels)[0])
        return PyObject_Vectorcall(modules.inspected ? self->below : self->fn, args, n, names);
    PyObject *span = self->span;
    if (self->by_class) {
        if (PyVectorcall_NARGS(n) == 0)
            return PyObject_Vectorcall(self->fn, args, n, names);
        span = Py_TYPE(args[0]) == self->last_class ? self->last_span : span_of(self, args[0]);
        if (span == NULL)
            return NULL;
    }
    if (self->levels == NULL)
        return call_timed(self, self->closer, span, args, n, names);
    PyObject *own = span == Py_None ? PyObject_CallMethod(self->span, "of", "O", args[0]) : NULL; /* it is compiled */
    if (span == Py_None && own == NULL)
        return NULL;
    PyObject *closer = modules.open == 0 ? self->closer : modules.inspected ? self->inner : self->fn;
    modules.open++;
    PyObject *out = call_timed(self, closer, own ? own : span, args, n, names);
    modules.open--;
    Py_XDECREF(own);
    return out;
}

static PyObject *
bind(PyObject *self, PyObject *owner, PyObject *Py_UNUSED(cls))
{
    return owner == NULL || owner == Py_None ? Py_NewRef(self) : PyMethod_New(self, owner);
}

/* What it does not have itself (`__code__`, `__defaults__`, ...) it has from the original. */
static PyObject *
get_attribute(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Wrapper *)self)->fn, name);
}

/* Pickled by name, as a function is. */
static PyObject *
reduce(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyObject *
or_function(PyObject *other, PyObject *fn)
{
    return Py_NewRef(other == NULL || other == Py_None ? fn : other);
}

static PyObject *
wrapper_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"fn", "span", "closer", "quick", "levels", "inner", "below", NULL};
    PyObject *fn, *span, *closer = NULL, *quick = NULL, *levels = NULL, *inner = NULL, *below = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OOO!OO", keywords, &fn, &span, &closer, &quick, &PyByteArray_Type,
                                     &levels, &inner, &below))
        return NULL;
    Wrapper *self = (Wrapper *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = wrapper_call;
    self->fn = Py_NewRef(fn), self->span = Py_NewRef(span);
    self->closer = or_function(closer, fn), self->quick = or_function(quick, fn);
    self->inner = or_function(inner, fn), self->below = or_function(below, fn);
    self->levels = Py_XNewRef(levels), self->by_class = PyDict_Check(span);
    return (PyObject *)self;
}

static int
wrapper_traverse(Wrapper *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->fn);
    Py_VISIT(self->span);
    Py_VISIT(self->closer);
    Py_VISIT(self->quick);
    Py_VISIT(self->inner);
    Py_VISIT(self->below);
    Py_VISIT(self->dict);
    return 0;
}

/* The rest stays: it may be called while the garbage collector takes it apart. */
static int
wrapper_clear(Wrapper *self)
{
    Py_CLEAR(self->dict);
    return 0;
}

static void
wrapper_dealloc(Wrapper *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weak != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    wrapper_clear(self);
    Py_XDECREF(self->fn);
    Py_XDECREF(self->span);
    Py_XDECREF(self->closer);
    Py_XDECREF(self->quick);
    Py_XDECREF(self->inner);
    Py_XDECREF(self->below);
    Py_XDECREF(self->levels);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef wrapper_methods[] = {
    {"__reduce__", reduce, METH_NOARGS, "Pickle by name."},
    {NULL},
};
static PyMemberDef wrapper_members[] = {
    {"fn", T_OBJECT, offsetof(Wrapper, fn), READONLY, "The original."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Wrapper, call), READONLY},
    {"__dictoffset__", T_PYSSIZET, offsetof(Wrapper, dict), READONLY},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Wrapper, weak), READONLY},
    {NULL},
};
static PyGetSetDef wrapper_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict},
    {NULL},
};
static PyType_Slot wrapper_slots[] = {
    {Py_tp_doc, "Stands in for a function or method, and times or counts its calls."},
    {Py_tp_new, wrapper_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, bind},
    {Py_tp_getattro, get_attribute},
    {Py_tp_traverse, wrapper_traverse},
    {Py_tp_clear, wrapper_clear},
    {Py_tp_dealloc, wrapper_dealloc},
    {Py_tp_methods, wrapper_methods},
    {Py_tp_members, wrapper_members},
    {Py_tp_getset, wrapper_getset},
    {0, NULL},
};
static PyType_Spec wrapper_spec = {
    "hotloop.profiling.recorder.hooks._hooks.Wrapper", sizeof(Wrapper), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, wrapper_slots,
};

/* ---- methods that make the host wait ---------------------------------------------------------------------- */

/* Counts calls of a method with a tally; not in threads whose calls are a library's own. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *fn, *tally, *quiet, *dict, *weak;
} Tallied;

static PyObject *
tallied_call(PyObject *callable, PyObject *const *args, size_t n, PyObject *names)
{
    Tallied *self = (Tallied *)callable;
    int quiet = 0;
    if (PySet_GET_SIZE(self->quiet)) {
        PyObject *ident = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
        quiet = ident ? PySet_Contains(self->quiet, ident) : -1;
        Py_XDECREF(ident);
        if (quiet < 0)
            return NULL;
    }
    if (!quiet)
        hot_path->bump(self->tally);
    return PyObject_Vectorcall(self->fn, args, n, names);
}

static PyObject *
tallied_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *fn, *tally, *quiet;
    if (!PyArg_ParseTuple(args, "OOO!", &fn, &tally, &PySet_Type, &quiet))
        return NULL;
    Tallied *self = (Tallied *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = tallied_call;
    self->fn = Py_NewRef(fn), self->tally = Py_NewRef(tally), self->quiet = Py_NewRef(quiet);
    return (PyObject *)self;
}

static PyObject *
get_attribute_of_tallied(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Tallied *)self)->fn, name);
}

static int
tallied_traverse(Tallied *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->fn);
    Py_VISIT(self->quiet);
    Py_VISIT(self->dict);
    return 0;
}

static void
tallied_dealloc(Tallied *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weak != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    Py_XDECREF(self->fn);
    Py_XDECREF(self->tally);
    Py_XDECREF(self->quiet);
    Py_XDECREF(self->dict);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef tallied_members[] = {
    {"fn", T_OBJECT, offsetof(Tallied, fn), READONLY, "The original."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Tallied, call), READONLY},
    {"__dictoffset__", T_PYSSIZET, offsetof(Tallied, dict), READONLY},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Tallied, weak), READONLY},
    {NULL},
};
static PyType_Slot tallied_slots[] = {
    {Py_tp_doc, "Stands in for a method and counts its calls."},
    {Py_tp_new, tallied_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, bind},
    {Py_tp_getattro, get_attribute_of_tallied},
    {Py_tp_traverse, tallied_traverse},
    {Py_tp_dealloc, tallied_dealloc},
    {Py_tp_methods, wrapper_methods},
    {Py_tp_members, tallied_members},
    {Py_tp_getset, wrapper_getset},
    {0, NULL},
};
static PyType_Spec tallied_spec = {
    "hotloop.profiling.recorder.hooks._hooks.Tallied", sizeof(Tallied), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, tallied_slots,
};

/* ---- the module ------------------------------------------------------------------------------------------ */

static PyObject *
inspect_calls(PyObject *Py_UNUSED(module), PyObject *on)
{
    modules.inspected = on == Py_True;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"inspect_calls", inspect_calls, METH_O, "Look at the module calls of this thread below the timed ones, or no longer."},
    {NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_hooks", "What the hooks put in place of functions and methods.", -1, methods,
};

PyMODINIT_FUNC
PyInit__hooks(void)
{
    hot_path = import_hot_path();
    PyObject *module = hot_path ? PyModule_Create(&definition) : NULL;
    PyObject *wrapper = PyType_FromSpec(&wrapper_spec), *tallied = PyType_FromSpec(&tallied_spec);
    if (module != NULL
        && (wrapper == NULL || tallied == NULL || PyModule_AddObjectRef(module, "Wrapper", wrapper) < 0
            || PyModule_AddObjectRef(module, "Tallied", tallied) < 0))
        Py_CLEAR(module);
    Py_XDECREF(wrapper);
    Py_XDECREF(tallied);
    return module;
}
