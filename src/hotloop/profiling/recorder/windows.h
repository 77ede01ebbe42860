/* How the sampling thread opens and closes the windows in which calls are counted: as pending calls of the main thread. */

#ifndef HOTLOOP_WINDOWS_H
#define HOTLOOP_WINDOWS_H

#define WINDOWS_CAPSULE "hotloop.profiling.recorder._call_counter._windows"
#define WINDOW_NS 10000000

typedef struct {
    int (*open)(void *);
    int (*close)(void *);
} CallWindows;

#endif
