/* What other C extensions use of the hot path of spans, through a capsule. */

#ifndef HOTLOOP_HOT_PATH_H
#define HOTLOOP_HOT_PATH_H

#include <Python.h>
#include <stdint.h>

#define HOT_PATH_CAPSULE "hotloop.spans._hot_path._api"

/* What a span does now: nothing, since nobody records; time each call; only count them. */
enum { SPAN_IDLE, SPAN_TIMED, SPAN_COUNTED };

typedef struct {
    int (*begin)(PyObject *span);      /* log that a timed span begins now; -1 with an exception set if that fails */
    int (*end)(PyObject *span);        /* log that it ends; keeps an exception that is set */
    void (*count)(PyObject *span);     /* count a call that is not timed */
    int (*state)(PyObject *span);      /* SPAN_IDLE, SPAN_TIMED or SPAN_COUNTED; SPAN_IDLE for None */
    int (*add)(int64_t code, int64_t amount); /* add to a counter; -1 with an exception set if that fails */
} HotPath;

#endif
