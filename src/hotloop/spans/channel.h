/* The memory through which a recorded process and its recorder meet: logs of threads, stack samples, counts, messages,
   and what the recorder wants. The recorder is another process that maps the same memory. Each log and each ring has one
   writer and one reader, so nothing here needs a lock, and what is written survives the process. */

#ifndef HOTLOOP_CHANNEL_H
#define HOTLOOP_CHANNEL_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define CHANNEL_MAGIC 0x34706f6f6c746f68 /* changes with the layout */
#define COUNTER_BASE (1 << 24) /* as in hotloop.spans.registry: codes from here on are counters */
#define MAX_SPANS 4104         /* above registry.MAX_NAMES */
#define MAX_COUNTERS 512
#define LOG_SLOTS 32
#define LOG_PAIRS 16384
#define FULL_PAIRS (LOG_PAIRS - 1024) /* a log this full takes no new spans: the rest is for the ends of open ones */
#define RESTART_PAIRS 256 /* an empty log begins again at its first place, so that it stays in the caches */
#define LOOK_BACK 6       /* counters after the last span in which an amount is looked for, to be added to */
#define SAMPLE_ROWS 4096
#define SAMPLE_COLUMNS 7
#define RING_BYTES (1 << 19)
#define RESERVED_BYTES (RING_BYTES / 4) /* room that windows leave for other messages: names must not be lost */
#define NAME_BYTES 72
#define FAILURE_BYTES 512
#define LEAST_FILE_NUMBER 700

typedef struct {
    int64_t code;
    _Atomic int64_t value;
} Pair;

/* A thread's log. Positions only grow. Pairs before `published` are final; those from there to `written` are counters,
   whose amounts may still grow. The reader may take these amounts, but not the pairs. */
typedef struct {
    _Alignas(64) _Atomic int64_t written;
    _Atomic int64_t published, origin;
    _Atomic int64_t ended;  /* whether the thread has ended */
    _Atomic int64_t serial; /* of the thread that has this slot, from 1; 0 for none */
    _Atomic int64_t ident;
    char name[NAME_BYTES];
    _Alignas(64) _Atomic int64_t taken;
    _Alignas(64) Pair pairs[LOG_PAIRS];
} LogSlot;

typedef struct {
    _Alignas(64) _Atomic int64_t written;
    _Alignas(64) _Atomic int64_t taken;
    _Alignas(64) char bytes[RING_BYTES];
} ByteRing;

typedef struct {
    _Alignas(64) _Atomic int64_t written;
    _Alignas(64) _Atomic int64_t taken;
    _Alignas(64) int64_t rows[SAMPLE_ROWS][SAMPLE_COLUMNS];
} SampleRing;

typedef struct {
    int64_t magic, pid;
    /* Written by the recorded process. */
    _Atomic int64_t stopped_ns;  /* when recording was stopped; 0 before */
    _Atomic int64_t paused_ns;   /* since when nothing is recorded; 0: not paused */
    _Atomic int64_t flush_asked; /* how often everything was asked to be written */
    _Atomic int64_t resting;     /* while set, the recorder does nothing and time stands still for it; for benchmarks */
    _Atomic int64_t rested_ns;   /* how long that was in all */
    _Atomic int64_t gc_count, gc_ns, gpu_bytes, gpu_busy_percent;
    _Atomic int64_t sampler_cpu_ns, samples_lost, samples_torn;
    int64_t serials, change_seen;
    /* Written by the recorder. */
    _Atomic int64_t recorder_pid; /* once it reads */
    _Atomic int64_t change;       /* grows when `counted_only` or `has_ended` changes */
    _Atomic int64_t has_ended;    /* nothing more is recorded */
    _Atomic int64_t armed;        /* whether what is recorded is kept: `after_s` and `after_steps` have passed */
    _Atomic int64_t flush_done, finished;
    _Atomic int64_t looking;       /* whether hooks look more closely at the calls that they time */
    _Atomic int64_t tick_ns;       /* mean interval of stack samples */
    _Atomic int64_t windows_asked; /* how many windows in which calls are counted are to be opened */
    char failure[FAILURE_BYTES];
    uint8_t counted_only[MAX_SPANS];     /* by code of the span: 1 to count its calls without timing them */
    uint8_t is_tally[MAX_COUNTERS + 1];  /* by counter: 1 if it is not in the logs */
    _Atomic int64_t n_tallies;
    int16_t tallies[MAX_COUNTERS];       /* the numbers of these counters, without gaps */
    int64_t counted[MAX_SPANS];          /* calls that were counted and not timed */
    int64_t looked[MAX_SPANS];           /* calls that hooks looked at more closely */
    int64_t device_ns[MAX_SPANS];
    double within_ns[MAX_SPANS];
    int64_t totals[MAX_COUNTERS + 1];    /* all that was counted, by counter */
    _Atomic int64_t late[MAX_COUNTERS];  /* what of it found no room in a log */
    SampleRing samples;
    ByteRing definitions, messages;
    LogSlot logs[LOG_SLOTS];
} Channel;

static inline Pair *
pair_at(LogSlot *log, int64_t position)
{
    return &log->pairs[(position - atomic_load_explicit(&log->origin, memory_order_relaxed)) % LOG_PAIRS];
}

/* Take the pairs of a log that are final, and the amounts of those that are not; return how many pairs were copied.
   `to` has room for LOG_PAIRS. `written` is read first: what is not final by then is a counter. */
static inline int64_t
take_pairs(LogSlot *log, int64_t (*to)[2])
{
    int64_t at = atomic_load_explicit(&log->taken, memory_order_relaxed), n = 0;
    int64_t written = atomic_load_explicit(&log->written, memory_order_acquire);
    int64_t published = atomic_load_explicit(&log->published, memory_order_acquire);
    for (; at < written; at++) {
        Pair *pair = pair_at(log, at);
        int64_t value = at < published ? atomic_load_explicit(&pair->value, memory_order_relaxed)
                                       : atomic_exchange(&pair->value, 0);
        if (pair->code < COUNTER_BASE || value)
            to[n][0] = pair->code, to[n++][1] = value;
    }
    atomic_store_explicit(&log->taken, published < written ? published : written, memory_order_release);
    return n;
}

static inline int64_t
waiting_pairs(LogSlot *log)
{
    return atomic_load_explicit(&log->written, memory_order_acquire)
        - atomic_load_explicit(&log->taken, memory_order_relaxed);
}

static inline int64_t
ring_room(ByteRing *ring)
{
    return RING_BYTES - (atomic_load_explicit(&ring->written, memory_order_relaxed)
                         - atomic_load_explicit(&ring->taken, memory_order_acquire));
}

/* Append a record, its size first; return 0 if there is no room for it. */
static inline int
ring_put(ByteRing *ring, const void *const *parts, const int32_t *sizes, int n)
{
    int64_t total = sizeof(int32_t), at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    for (int i = 0; i < n; i++)
        total += sizes[i];
    if (total > RING_BYTES - (at - atomic_load_explicit(&ring->taken, memory_order_acquire)))
        return 0;
    int32_t size = (int32_t)(total - (int64_t)sizeof(int32_t));
    for (int i = -1; i < n; i++) {
        const char *from = i < 0 ? (const char *)&size : parts[i];
        int64_t left = i < 0 ? (int64_t)sizeof size : sizes[i];
        while (left > 0) {
            int64_t place = at % RING_BYTES, run = RING_BYTES - place < left ? RING_BYTES - place : left;
            memcpy(ring->bytes + place, from, (size_t)run);
            from += run, at += run, left -= run;
        }
    }
    atomic_store_explicit(&ring->written, at, memory_order_release);
    return 1;
}

static inline int
put_sample(Channel *channel, const int64_t *row)
{
    SampleRing *ring = &channel->samples;
    int64_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    if (at - atomic_load_explicit(&ring->taken, memory_order_acquire) >= SAMPLE_ROWS)
        return 0;
    memcpy(ring->rows[at % SAMPLE_ROWS], row, sizeof ring->rows[0]);
    atomic_store_explicit(&ring->written, at + 1, memory_order_release);
    return 1;
}

#endif
