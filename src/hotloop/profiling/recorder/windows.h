/* Windows in which the main thread is watched more closely. The sampling thread opens and closes them, as pending calls of
   the main thread. */

#ifndef HOTLOOP_WINDOWS_H
#define HOTLOOP_WINDOWS_H

#include <stdint.h>

#define COUNTER_CAPSULE "hotloop.profiling.recorder._call_counter._windows"
#define OBSERVER_CAPSULE "hotloop.profiling.recorder._observer._windows"

typedef struct {
    int (*open)(void *);
    int (*close)(void *);
    int64_t length_ns; /* at most */
    volatile int64_t *events; /* seen in this window: code that is watched is slow; -1 once the window may be closed */
} Window;

#endif
