/* What other C extensions use of the hot path of spans, through a capsule. */

#ifndef HOTLOOP_HOT_PATH_H
#define HOTLOOP_HOT_PATH_H

#include <Python.h>
#include <stdint.h>
#include "channel.h"

#define HOT_PATH_CAPSULE "hotloop.spans._hot_path._api"

/* What a span does now: nothing, since nobody records; time each call; only count them; time them on a device, too. */
enum { SPAN_IDLE, SPAN_TIMED, SPAN_COUNTED, SPAN_ON_DEVICE };

typedef struct {
    int (*begin)(PyObject *span);      /* log that a timed span begins now; -1 with an exception set if that fails */
    int (*end)(PyObject *span);        /* log that it ends; keeps an exception that is set */
    void (*count)(PyObject *span);     /* count a call that is not timed */
    int (*looks)(PyObject *span);      /* whether to look more closely at this timed call, which is then counted */
    int (*state)(PyObject *span);      /* one of the above; SPAN_IDLE for None */
    void (*bump)(PyObject *tally);     /* count one more */
    int (*add)(int64_t code, int64_t amount); /* add to a counter; -1 with an exception set if that fails */
    Channel *(*channel)(void);         /* of the recording; NULL before the first one */
} HotPath;

/* PyCapsule_Import does not import submodules itself. */
static inline HotPath *
import_hot_path(void)
{
    PyObject *module = PyImport_ImportModule("hotloop.spans._hot_path");
    Py_XDECREF(module);
    return module == NULL ? NULL : PyCapsule_Import(HOT_PATH_CAPSULE, 0);
}

#endif
