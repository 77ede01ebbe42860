/* Samples the stacks of all Python threads from a native thread that never takes the interpreter's lock.

   Why: a sampler that needs the lock sees a thread only where it gives the lock away or handles pending calls, which is at
   calls and jumps, not where the time is spent. CPython stores the current instruction of each frame in memory, so another
   thread can read it at any moment.

   How: every read of memory that CPython may free at that moment goes through process_vm_readv on this process, which
   fails instead of crashing. A code object is accepted if its type and the position of the instruction are right. Names
   and line tables are copied when a code object is first seen; after that a stack is a number, and a sample is seven
   integers. All of it goes to the recorder through the channel.

   Intervals are random, so that the sampler cannot fall into step with the loop. All signals are blocked in the thread. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include "../../spans/hot_path.h"
#include "windows.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
#define SUPPORTED 1
#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED /* defined again by the headers below */
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#undef Py_BUILD_CORE
#else
#define SUPPORTED 0
#endif

#if SUPPORTED

#if PY_VERSION_HEX >= 0x030D0000
#define CODE_OF(frame) ((PyObject *)(frame)->f_executable)
#define INSTRUCTION_OF(frame) ((frame)->instr_ptr)
#else
#define CODE_OF(frame) ((PyObject *)(frame)->f_code)
#define INSTRUCTION_OF(frame) ((frame)->prev_instr)
#endif

#if PY_VERSION_HEX >= 0x030C0000
#define GIL_OF(interpreter) ((interpreter)->ceval.gil)
#define IS_C_FRAME(frame) ((frame)->owner == FRAME_OWNED_BY_CSTACK)
#else
#define GIL_OF(interpreter) (&_PyRuntime.ceval.gil)
#define IS_C_FRAME(frame) 0
#endif

#define FRAME_BYTES offsetof(_PyInterpreterFrame, localsplus)
#define CODE_BYTES offsetof(PyCodeObject, co_code_adaptive)
#define MAX_DEPTH 60
#define INNERMOST 36 /* frames kept at this end of a deeper stack */
#define MAX_STEPS 3000
#define TRIES 4
#define CLOSELY 1000 /* events between two samples, a microsecond each */
#define MAX_THREADS 64
#define MAX_CODES 32768
#define N_RECENT 1024
#define TRUSTED_NS 1000000000
#define MAX_STACKS 20000
#define CHUNK_BYTES 65536
#define MAX_TEXT 4096
#define MAX_TABLE 65536

/* Flags of a sample. Whether a thread is blocked is known of the main thread only. */
enum { HOLDS_LOCK = 1, COLLECTING = 2, STATE_KNOWN = 4, BLOCKED = 8, ON_FILE = 16 };

typedef struct { int64_t at, ident, stack, elapsed_ns, cpu_ns, delay_ns, flags; } Sample; /* as in the ring */
enum { TALLY = -1 }; /* instead of a thread: `stack` is the code of a tally, `elapsed_ns` what it grew by */
typedef struct { int32_t code, instruction; } Place;

typedef struct {
    /* The identity of a code object: an address alone may be given to another one later. */
    uintptr_t address, filename, table;
    int32_t first_line, id;
    char *text[2]; /* file name and qualified name, UTF-8 */
    char *line_table, *instructions;
    int32_t text_bytes[2], table_bytes, instruction_bytes;
} Code;

typedef struct { uint64_t key; int32_t first, depth; } Stack;

/* A code object that was checked a short time ago: it is not read again for each sample. */
typedef struct { uintptr_t address, end; int64_t checked_ns; int32_t id; } Recent;

typedef struct {
    uintptr_t state;
    unsigned long ident;
    pid_t tid;
    int64_t cpu_ns, last_ns, delay_ns, flags;
    int32_t stack;
    int seen;
} Thread;

/* A file of the main thread in /proc. The script may close it, and the number may then be another file's. */
typedef struct {
    int number;
    dev_t device;
    ino_t inode;
} ProcFile;

static struct {
    pthread_t thread;
    pthread_mutex_t sleeping;
    pthread_cond_t woken;
    int running, stop;
    int64_t tick_ns;
    HotPath *hot_path;
    Window *windows[2], *window; /* those there are, in turns; the one that is open */
    Channel *channel;
    int64_t windows_opened, window_end_ns, events_seen, rested_ns;
    PyInterpreterState *interpreter;
    pid_t pid;
    ProcFile syscall_file, schedstat_file;
    uint64_t random;

    int64_t at_ns; /* of this sample */
    Thread threads[MAX_THREADS];
    Recent recent[N_RECENT];
    Code *codes;          /* by id */
    int32_t *code_slots;  /* hash table: id + 1 */
    int32_t n_codes, codes_sent;
    Stack *stacks;        /* by id */
    int32_t *stack_slots; /* hash table: id + 1 */
    int32_t n_stacks, stacks_sent;
    Place *places;
    int32_t n_places, place_room;
    int64_t tallied[MAX_COUNTERS];
    char chunk[CHUNK_BYTES];
    char code_bytes[MAX_DEPTH][CODE_BYTES];
} the = {.sleeping = PTHREAD_MUTEX_INITIALIZER, .syscall_file = {-1}, .schedstat_file = {-1}};

static int64_t
clock_ns(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) != 0)
        return -1;
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* CPU time of a thread by its kernel id: the clock id that pthread_getcpuclockid makes, which is only safe for living
   threads. */
static int64_t
cpu_ns_of(pid_t tid)
{
    return tid > 0 ? clock_ns((clockid_t)((~(unsigned int)tid) << 3 | 6)) : -1;
}

/* ---- checked reads --------------------------------------------------------------------------------------- */

static int
copy(void *to, const void *from, size_t bytes)
{
    struct iovec local = {to, bytes}, remote = {(void *)from, bytes};
    return from != NULL && process_vm_readv(the.pid, &local, 1, &remote, 1, 0) == (ssize_t)bytes;
}

/* Read a pointer that another thread may write. */
static uintptr_t
pointer_at(const void *place)
{
    uintptr_t value;
    memcpy(&value, place, sizeof value);
    return value;
}

static uint64_t
mixed(uint64_t key, uint64_t word)
{
    key = (key ^ word) * 0x9E3779B97F4A7C15ull;
    return key ^ (key >> 29);
}

/* Copy a str object as UTF-8; NULL if it is not one. Text beyond MAX_TEXT characters is cut. */
static char *
copy_text(PyObject *object, int32_t *bytes)
{
    PyCompactUnicodeObject header;
    if (!copy(&header, object, sizeof header) || Py_TYPE((PyObject *)&header) != &PyUnicode_Type)
        return NULL;
    PyASCIIObject *text = (PyASCIIObject *)&header;
    Py_ssize_t length = text->length < MAX_TEXT ? text->length : MAX_TEXT;
    int kind = text->state.kind, ascii = text->state.ascii;
    if (!text->state.compact || length < 0 || (kind != 1 && kind != 2 && kind != 4))
        return NULL;
    const char *from = (const char *)object + (ascii ? sizeof(PyASCIIObject) : sizeof(PyCompactUnicodeObject));
    char *raw = malloc(length * kind + 1), *utf8 = malloc(length * 4 + 1);
    if (raw == NULL || utf8 == NULL || (length && !copy(raw, from, length * kind))) {
        free(raw);
        free(utf8);
        return NULL;
    }
    char *to = utf8;
    for (Py_ssize_t i = 0; i < length; i++) {
        uint32_t c = kind == 1 ? (uint8_t)raw[i] : kind == 2 ? ((uint16_t *)raw)[i] : ((uint32_t *)raw)[i];
        if (c < 0x80)
            *to++ = (char)c;
        else if (c < 0x800)
            *to++ = (char)(0xC0 | c >> 6), *to++ = (char)(0x80 | (c & 63));
        else if (c < 0x10000)
            *to++ = (char)(0xE0 | c >> 12), *to++ = (char)(0x80 | (c >> 6 & 63)), *to++ = (char)(0x80 | (c & 63));
        else {
            *to++ = (char)(0xF0 | (c >> 18 & 7)), *to++ = (char)(0x80 | (c >> 12 & 63));
            *to++ = (char)(0x80 | (c >> 6 & 63)), *to++ = (char)(0x80 | (c & 63));
        }
    }
    free(raw);
    *bytes = (int32_t)(to - utf8);
    return utf8;
}

static char *
copy_bytes(PyObject *object, int32_t *bytes)
{
    PyBytesObject header;
    if (!copy(&header, object, offsetof(PyBytesObject, ob_sval)) || Py_TYPE((PyObject *)&header) != &PyBytes_Type)
        return NULL;
    Py_ssize_t size = Py_SIZE((PyObject *)&header);
    if (size < 0 || size > MAX_TABLE)
        size = 0; /* without a table, the function's first line stands for all */
    char *found = malloc(size + 1);
    if (found != NULL && size && !copy(found, ((PyBytesObject *)object)->ob_sval, size)) {
        free(found);
        return NULL;
    }
    *bytes = (int32_t)size;
    return found;
}

/* ---- numbering code objects and stacks ------------------------------------------------------------------- */

static void
free_code(Code *code)
{
    free(code->text[0]);
    free(code->text[1]);
    free(code->line_table);
    free(code->instructions);
}

/* The number of a code object, of which a copy is given; -1 if it has none. */
static int32_t
number_code(uintptr_t address, PyCodeObject *code)
{
    uintptr_t filename = (uintptr_t)code->co_filename, table = (uintptr_t)code->co_linetable;
    uint64_t at = mixed(mixed(address, table), filename);
    for (;; at++) {
        int32_t id = the.code_slots[at % (2 * MAX_CODES)] - 1;
        if (id < 0)
            break;
        Code *known = &the.codes[id];
        if (known->address == address && known->table == table && known->filename == filename
            && known->first_line == code->co_firstlineno)
            return id;
    }
    if (the.n_codes >= MAX_CODES)
        return -1;
    Code made = {address, filename, table, code->co_firstlineno, the.n_codes};
    made.text[0] = copy_text(code->co_filename, &made.text_bytes[0]);
    made.text[1] = made.text[0] ? copy_text(code->co_qualname, &made.text_bytes[1]) : NULL;
    made.line_table = made.text[1] ? copy_bytes(code->co_linetable, &made.table_bytes) : NULL;
    made.instruction_bytes = (int32_t)Py_SIZE((PyObject *)code) * (int32_t)sizeof(_Py_CODEUNIT);
    if (made.instruction_bytes > MAX_TABLE)
        made.instruction_bytes = MAX_TABLE;
    made.instructions = made.line_table ? malloc(made.instruction_bytes + 1) : NULL;
    if (made.instructions == NULL || !copy(made.instructions, (char *)address + CODE_BYTES, made.instruction_bytes)) {
        free_code(&made);
        return -1;
    }
    the.codes[the.n_codes] = made;
    the.code_slots[at % (2 * MAX_CODES)] = ++the.n_codes;
    return made.id;
}

static int32_t
number_stack(Place *places, int32_t depth)
{
    uint64_t key = depth;
    for (int32_t i = 0; i < depth; i++)
        key = mixed(key, (uint64_t)(uint32_t)places[i].code << 32 | (uint32_t)places[i].instruction);
    uint64_t at = key;
    for (;; at++) {
        int32_t id = the.stack_slots[at % (2 * MAX_STACKS)] - 1;
        if (id < 0)
            break;
        if (the.stacks[id].key == key && the.stacks[id].depth == depth)
            return id;
    }
    if (the.n_stacks >= MAX_STACKS)
        return -1;
    if (the.n_places + depth > the.place_room) {
        int32_t room = 2 * the.place_room + MAX_DEPTH;
        Place *grown = realloc(the.places, room * sizeof(Place));
        if (grown == NULL)
            return -1;
        the.places = grown;
        the.place_room = room;
    }
    memcpy(the.places + the.n_places, places, depth * sizeof(Place));
    the.stacks[the.n_stacks] = (Stack){key, the.n_places, depth};
    the.n_places += depth;
    the.stack_slots[at % (2 * MAX_STACKS)] = ++the.n_stacks;
    return the.n_stacks - 1;
}

/* ---- one thread's stack ---------------------------------------------------------------------------------- */

/* Read the frames of a thread, innermost first: the address of each code object and instruction. Of a deep stack the
   innermost and the outermost frames are kept, since the user's own lines may be at either end. Returns how many; 0 if
   the stack changed meanwhile. */
static int
read_frames(PyThreadState *state, uintptr_t *codes, uintptr_t *instructions)
{
    _PyInterpreterFrame *frame;
#if PY_VERSION_HEX >= 0x030D0000
    frame = state->current_frame;
#else
    if (!copy(&frame, &state->cframe->current_frame, sizeof frame))
        return 0;
#endif
    /* Most frames lie in one chunk of memory, which one call copies, all of the same moment. */
    const char *begin = (const char *)state->datastack_chunk, *end = (const char *)state->datastack_top + 2048;
    if (end > (const char *)state->datastack_limit)
        end = (const char *)state->datastack_limit;
    if (begin != NULL && end - begin > CHUNK_BYTES)
        begin = end - CHUNK_BYTES;
    size_t bytes = begin != NULL && end > begin && copy(the.chunk, begin, end - begin) ? end - begin : 0;
    int depth = 0, owner = 0;
    /* A damaged chain must not be a loop without end. */
    for (int steps = 0; frame != NULL && steps < MAX_STEPS; steps++) {
        char one[FRAME_BYTES];
        const char *at = (const char *)frame;
        _PyInterpreterFrame *found = (_PyInterpreterFrame *)one;
        if (bytes >= FRAME_BYTES && at >= begin && at <= begin + bytes - FRAME_BYTES)
            found = (_PyInterpreterFrame *)(the.chunk + (at - begin));
        else if (!copy(one, frame, FRAME_BYTES))
            return 0;
        if (!IS_C_FRAME(found) && CODE_OF(found) != NULL) {
            if (depth == MAX_DEPTH) { /* the outermost of those kept so far gives way */
                memmove(codes + INNERMOST, codes + INNERMOST + 1, (MAX_DEPTH - INNERMOST - 1) * sizeof *codes);
                memmove(instructions + INNERMOST, instructions + INNERMOST + 1,
                        (MAX_DEPTH - INNERMOST - 1) * sizeof *instructions);
                depth--;
            }
            codes[depth] = (uintptr_t)CODE_OF(found);
            instructions[depth++] = (uintptr_t)INSTRUCTION_OF(found);
        }
        owner = found->owner;
        frame = found->previous;
    }
    /* A generator that yields in this moment has no caller any more, but is not where the stack begins. */
    return owner == FRAME_OWNED_BY_GENERATOR ? 0 : depth;
}

static Recent *
recent_of(uintptr_t address)
{
    return &the.recent[mixed(0, address) % N_RECENT];
}

/* Check the code objects of some frames and number them; return 0, or -1 if there is no room, -2 if one is not valid. */
static int32_t
check_codes(const uintptr_t *codes, const uintptr_t *instructions, Place *places, const int *which, int n)
{
    struct iovec remote[MAX_DEPTH];
    for (int i = 0; i < n; i++)
        remote[i] = (struct iovec){(void *)codes[which[i]], CODE_BYTES};
    struct iovec local = {the.code_bytes, (size_t)n * CODE_BYTES};
    if (n && process_vm_readv(the.pid, &local, 1, remote, n, 0) != (ssize_t)local.iov_len)
        return -2;
    for (int i = 0; i < n; i++) {
        PyCodeObject *code = (PyCodeObject *)the.code_bytes[i];
        uintptr_t address = codes[which[i]], begin = address + CODE_BYTES;
        if (Py_TYPE((PyObject *)code) != &PyCode_Type)
            return -2;
        uintptr_t end = begin + (uintptr_t)Py_SIZE((PyObject *)code) * sizeof(_Py_CODEUNIT), at = instructions[which[i]];
        if (at >= end)
            return -2;
        int32_t id = number_code(address, code);
        if (id < 0)
            return the.n_codes >= MAX_CODES ? -1 : -2;
        /* Before its first instruction, a frame is one in which nothing ran yet. */
        places[which[i]] = (Place){id, at < begin ? 0 : (int32_t)(at - begin)};
        *recent_of(address) = (Recent){address, end, the.at_ns, id};
    }
    return 0;
}

/* Return the number of a thread's stack: -1 if there is no room for it, -2 if it changed while it was read. */
static int32_t
read_stack(PyThreadState *state)
{
    uintptr_t codes[MAX_DEPTH], instructions[MAX_DEPTH];
    Place places[MAX_DEPTH];
    int unknown[MAX_DEPTH], n_unknown = 0, depth = read_frames(state, codes, instructions);
    if (depth == 0)
        return -2;
    for (int i = 0; i < depth; i++) {
        Recent *known = recent_of(codes[i]);
        uintptr_t begin = codes[i] + CODE_BYTES;
        if (known->address == codes[i] && the.at_ns - known->checked_ns < TRUSTED_NS && instructions[i] < known->end)
            places[i] = (Place){known->id, instructions[i] < begin ? 0 : (int32_t)(instructions[i] - begin)};
        else
            unknown[n_unknown++] = i;
    }
    int32_t failed = check_codes(codes, instructions, places, unknown, n_unknown);
    return failed ? failed : number_stack(places, depth);
}

/* ---- sending what is new ---------------------------------------------------------------------------------- */

static int
send_code(Code *code)
{
    const int32_t head[] = {'C', code->id, code->first_line, code->text_bytes[0], code->text_bytes[1],
                            code->table_bytes, code->instruction_bytes};
    const void *parts[] = {head, code->text[0], code->text[1], code->line_table, code->instructions};
    const int32_t sizes[] = {sizeof head, code->text_bytes[0], code->text_bytes[1], code->table_bytes,
                             code->instruction_bytes};
    return ring_put(&the.channel->definitions, parts, sizes, 5);
}

static int
send_stack(Stack *stack)
{
    const int32_t head[] = {'S', (int32_t)(stack - the.stacks), stack->depth};
    const void *parts[] = {head, the.places + stack->first};
    const int32_t sizes[] = {sizeof head, stack->depth * (int32_t)sizeof(Place)};
    return ring_put(&the.channel->definitions, parts, sizes, 2);
}

/* Send code objects and stacks that are new, in this order; return whether there was room for all. */
static int
send_new(void)
{
    while (the.codes_sent < the.n_codes && send_code(&the.codes[the.codes_sent]))
        the.codes_sent++;
    while (the.codes_sent == the.n_codes && the.stacks_sent < the.n_stacks && send_stack(&the.stacks[the.stacks_sent]))
        the.stacks_sent++;
    return the.codes_sent == the.n_codes && the.stacks_sent == the.n_stacks;
}

static void
send_sample(Sample sample)
{
    if (!send_new() || !put_sample(the.channel, (int64_t *)&sample))
        atomic_fetch_add(&the.channel->samples_lost, 1);
}

/* ---- one tick -------------------------------------------------------------------------------------------- */

/* Open a file under a high number: a script that closes its standard streams expects the low ones to be free. */
static ProcFile
open_proc(const char *name)
{
    char path[64], number[16]; /* in a namespace of its own, a process has another number in /proc */
    ssize_t digits = readlink("/proc/self", number, sizeof number - 1);
    number[digits < 0 ? 0 : digits] = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/%s", number, name);
    int low = open(path, O_RDONLY | O_CLOEXEC);
    ProcFile file = {low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, LEAST_FILE_NUMBER)};
    struct stat found;
    if (low >= 0)
        close(low);
    if (file.number >= 0 && fstat(file.number, &found) == 0)
        file.device = found.st_dev, file.inode = found.st_ino;
    return file;
}

static int
is_open(ProcFile *file)
{
    struct stat found;
    return file->number >= 0 && fstat(file->number, &found) == 0 && found.st_dev == file->device
        && found.st_ino == file->inode;
}

static void
close_proc(ProcFile *file)
{
    if (is_open(file))
        close(file->number);
    file->number = -1;
}

/* Read the beginning of a file as text; return whether there was any. */
static int
read_proc(ProcFile *file, char *text, size_t size)
{
    ssize_t n = is_open(file) ? pread(file->number, text, size - 1, 0) : -1;
    text[n < 0 ? 0 : n] = 0;
    return n > 0;
}

/* Return whether a system call waits for a disk rather than for another thread, process or machine. */
static int
is_on_file(long number, int file)
{
    struct stat found;
    switch (number) {
    case SYS_fsync: case SYS_fdatasync: case SYS_openat: case SYS_ftruncate: case SYS_unlinkat: case SYS_mkdirat:
        return 1;
    case SYS_read: case SYS_write: case SYS_pread64: case SYS_pwrite64: case SYS_readv: case SYS_writev:
        return fstat(file, &found) == 0 && (S_ISREG(found.st_mode) || S_ISBLK(found.st_mode));
    default:
        return number == -1; /* blocked outside of a system call: a page that is read from a disk */
    }
}

/* Whether the main thread is blocked at this moment, and in what; 0 if that cannot be known. */
static int64_t
blocked_flags(void)
{
    char text[64], *rest;
    if (!read_proc(&the.syscall_file, text, sizeof text))
        return 0;
    if (text[0] == 'r') /* "running" */
        return STATE_KNOWN;
    long number = strtol(text, &rest, 10); /* followed by the arguments */
    return STATE_KNOWN | BLOCKED | (is_on_file(number, (int)strtol(rest, NULL, 16)) ? ON_FILE : 0);
}

/* For how long the main thread was ready to run without a core, in all. */
static int64_t
delay_ns(void)
{
    char text[96], *rest;
    if (!read_proc(&the.schedstat_file, text, sizeof text))
        return -1;
    strtoll(text, &rest, 10);
    return strtoll(rest, NULL, 10);
}

static Thread *
thread_of(uintptr_t state, PyThreadState *copied)
{
    Thread *empty = NULL;
    for (Thread *each = the.threads; each < the.threads + MAX_THREADS; each++) {
        if (each->state == state && each->ident == copied->thread_id)
            return each;
        if (each->state == 0 && empty == NULL)
            empty = each;
    }
    if (empty != NULL)
        *empty = (Thread){state, copied->thread_id, (pid_t)copied->native_thread_id, -1, 0, -1, 0, -2, 0};
    return empty;
}

static void
sample_thread(uintptr_t address, PyThreadState *state, int64_t at)
{
    Thread *thread = thread_of(address, state);
    if (thread == NULL)
        return;
    thread->seen = 1;
    int main = thread->tid == the.pid;
    int64_t cpu = cpu_ns_of(thread->tid);
    /* A thread that used no CPU time since the last sample is where it was. */
    int idle = cpu >= 0 && cpu == thread->cpu_ns && thread->stack != -2;
    /* One that computed all the time is not blocked. How long it had no core is read again when it has waited. */
    int busy = cpu >= 0 && thread->last_ns && 64 * (cpu - thread->cpu_ns) >= 63 * (at - thread->last_ns);
    if (!idle) {
        /* The stack first: the copy of the thread's state is old soon. */
        thread->stack = read_stack(state);
        for (int i = 1; thread->stack == -2 && i < TRIES && copy(state, (void *)address, sizeof *state); i++)
            thread->stack = read_stack(state);
        atomic_fetch_add(&the.channel->samples_torn, thread->stack == -2);
        thread->flags = !main ? 0 : busy ? STATE_KNOWN : blocked_flags();
    } else if (main && !(thread->flags & BLOCKED))
        thread->flags = blocked_flags();
    int64_t delay = !main ? -1 : busy ? thread->delay_ns : delay_ns(), flags = thread->flags;
    struct _gil_runtime_state *gil = GIL_OF(the.interpreter);
    if (*(volatile int *)&gil->locked && pointer_at(&gil->last_holder) == address)
        flags |= HOLDS_LOCK | (*(volatile int *)&the.interpreter->gc.collecting ? COLLECTING : 0);
    if (thread->last_ns && thread->stack != -2)
        send_sample((Sample){
            at, (int64_t)thread->ident, thread->stack, at - thread->last_ns,
            cpu < 0 || thread->cpu_ns < 0 ? -1 : cpu - thread->cpu_ns,
            delay < 0 || thread->delay_ns < 0 ? 0 : delay - thread->delay_ns, flags});
    if (thread->stack != -2 || !thread->last_ns) /* else the next sample stands for this interval, too */
        thread->last_ns = at, thread->cpu_ns = cpu, thread->delay_ns = delay;
}

static void
read_tallies(int64_t at)
{
    int64_t n = atomic_load_explicit(&the.channel->n_tallies, memory_order_acquire);
    for (int64_t j = 0; j < n; j++) {
        int i = the.channel->tallies[j];
        int64_t value = *(volatile int64_t *)&the.channel->totals[i];
        if (value == the.tallied[i])
            continue;
        Sample change = {at, TALLY, COUNTER_BASE + i, value - the.tallied[i]};
        if (put_sample(the.channel, (int64_t *)&change))
            the.tallied[i] = value;
    }
}

/* Have the main thread open or close a window. */
static void
turn_windows(int64_t at)
{
    if (the.window != NULL && (at >= the.window_end_ns || *the.window->events < 0)) {
        if (Py_AddPendingCall(the.window->close, NULL) == 0)
            the.window = NULL;
    } else if (the.window == NULL && the.windows_opened < atomic_load(&the.channel->windows_asked)) {
        Window *next = the.windows[the.windows_opened++ % 2];
        if (next != NULL && Py_AddPendingCall(next->open, NULL) == 0)
            the.window = next, the.window_end_ns = at + next->length_ns, the.events_seen = 0;
    }
}

/* Whether so much was watched since the last sample that the code was much slower than usual. */
static int
is_watched_closely(void)
{
    int64_t events = the.window != NULL ? *the.window->events : 0, fresh = events - the.events_seen;
    the.events_seen = events;
    return events < 0 || fresh > CLOSELY;
}

static void
sample(void)
{
    int64_t at = the.at_ns = clock_ns(CLOCK_MONOTONIC);
    uintptr_t next = pointer_at(&the.interpreter->threads.head);
    for (int i = 0; next != 0 && i < MAX_THREADS; i++) {
        PyThreadState state;
        if (!copy(&state, (void *)next, sizeof state) || state.interp != the.interpreter)
            break;
        if (state.native_thread_id)
            sample_thread(next, &state, at);
        next = (uintptr_t)state.next;
    }
    for (Thread *each = the.threads; each < the.threads + MAX_THREADS; each++) {
        if (!each->seen)
            each->state = 0;
        each->seen = 0;
    }
    read_tallies(at);
}

static int64_t
interval_ns(void)
{
    int64_t wanted = atomic_load_explicit(&the.channel->tick_ns, memory_order_relaxed);
    if (wanted >= 1000)
        the.tick_ns = wanted;
    the.random ^= the.random << 13, the.random ^= the.random >> 7, the.random ^= the.random << 17;
    return the.tick_ns / 2 + (int64_t)(the.random % (uint64_t)the.tick_ns);
}

/* Ask for short turns on a core, and so for early ones: else, while all cores are busy, this thread gets its turn when the
   sampled one begins to wait, and sees it wait too often. Linux 6.12 and later; elsewhere it changes nothing. */
static void
ask_for_short_turns(void)
{
#ifdef SYS_sched_setattr
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } wanted = {.size = 48, .runtime = 100000};
    if (syscall(SYS_sched_setattr, 0, &wanted, 0) != 0)
        return;
#endif
}

static void *
run(void *Py_UNUSED(nothing))
{
    ask_for_short_turns();
    int64_t due = clock_ns(CLOCK_MONOTONIC) + interval_ns();
    pthread_mutex_lock(&the.sleeping);
    while (!the.stop) {
        struct timespec then = {due / 1000000000, due % 1000000000};
        if (clock_ns(CLOCK_MONOTONIC) < due) {
            pthread_cond_timedwait(&the.woken, &the.sleeping, &then);
            continue;
        }
        pthread_mutex_unlock(&the.sleeping);
        int64_t rested_ns = atomic_load(&the.channel->rested_ns);
        if (atomic_load(&the.channel->paused_ns) || atomic_load(&the.channel->resting) || rested_ns != the.rested_ns
            || is_watched_closely())
            memset(the.threads, 0, sizeof the.threads); /* this time belongs to no sample; followed code is slow */
        else
            sample();
        the.rested_ns = rested_ns;
        turn_windows(due);
        atomic_store(&the.channel->sampler_cpu_ns, clock_ns(CLOCK_THREAD_CPUTIME_ID));
        int64_t now = clock_ns(CLOCK_MONOTONIC);
        due += interval_ns();
        if (the.window != NULL && due > the.window_end_ns)
            due = the.window_end_ns;
        if (due < now)
            due = now + interval_ns();
        pthread_mutex_lock(&the.sleeping);
    }
    pthread_mutex_unlock(&the.sleeping);
    return NULL;
}

/* ---- what Python calls ----------------------------------------------------------------------------------- */

static int
allocate(void)
{
    if (the.codes == NULL)
        the.codes = calloc(MAX_CODES, sizeof(Code));
    if (the.code_slots == NULL)
        the.code_slots = calloc(2 * MAX_CODES, sizeof(int32_t));
    if (the.stacks == NULL)
        the.stacks = calloc(MAX_STACKS, sizeof(Stack));
    if (the.stack_slots == NULL)
        the.stack_slots = calloc(2 * MAX_STACKS, sizeof(int32_t));
    return the.codes && the.code_slots && the.stacks && the.stack_slots;
}

static void
forget(void)
{
    for (int i = 0; i < the.n_codes; i++)
        free_code(&the.codes[i]);
    if (the.code_slots != NULL)
        memset(the.code_slots, 0, 2 * MAX_CODES * sizeof(int32_t));
    if (the.stack_slots != NULL)
        memset(the.stack_slots, 0, 2 * MAX_STACKS * sizeof(int32_t));
    memset(the.threads, 0, sizeof the.threads);
    memset(the.tallied, 0, sizeof the.tallied);
    memset(the.recent, 0, sizeof the.recent);
    the.n_codes = the.codes_sent = the.n_stacks = the.stacks_sent = the.n_places = 0;
    the.windows_opened = the.window_end_ns = the.rested_ns = 0;
    close_proc(&the.syscall_file);
    close_proc(&the.schedstat_file);
}

static void
make_condition(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&the.woken, &attributes);
}

/* In a forked child the thread does not exist, and the locks may have been held by it. */
static void
after_fork(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    if (!the.running)
        return;
    the.sleeping = fresh;
    make_condition();
    the.running = 0;
    forget();
}

static PyObject *
start(PyObject *Py_UNUSED(module), PyObject *args)
{
    long long tick_ns;
    if (!PyArg_ParseTuple(args, "L", &tick_ns))
        return NULL;
    if (the.running) {
        PyErr_SetString(PyExc_RuntimeError, "the stack reader is running already");
        return NULL;
    }
    if (tick_ns < 1000) {
        PyErr_Format(PyExc_ValueError, "interval of %lld ns: give 1000 or more", tick_ns);
        return NULL;
    }
    if (!allocate())
        return PyErr_NoMemory();
    forget();
    the.interpreter = PyInterpreterState_Main();
    the.pid = getpid();
    char probe;
    if (!copy(&probe, &the.pid, 1)) {
        PyErr_SetString(PyExc_OSError, "process_vm_readv is not permitted here");
        return NULL;
    }
    the.syscall_file = open_proc("syscall");
    the.schedstat_file = open_proc("schedstat");
    the.tick_ns = tick_ns;
    the.channel = the.hot_path->channel();
    if (the.channel == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "nothing is recorded yet");
        return NULL;
    }
    static const char *capsules[] = {OBSERVER_CAPSULE, COUNTER_CAPSULE};
    static const char *modules[] = {"hotloop.profiling.recorder._observer", "hotloop.profiling.recorder._call_counter"};
    for (int i = 0; i < 2; i++) {
        PyObject *module = PyImport_ImportModule(modules[i]);
        the.windows[i] = module ? PyCapsule_Import(capsules[i], 0) : NULL;
        Py_XDECREF(module);
        PyErr_Clear(); /* there are no windows on this version of Python */
    }
    the.window = NULL;
    the.random = (uint64_t)clock_ns(CLOCK_MONOTONIC) | 1;
    the.stop = 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&the.thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        errno = failed;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    the.running = 1;
    Py_RETURN_NONE;
}

static PyObject *
stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (!the.running)
        Py_RETURN_NONE;
    pthread_mutex_lock(&the.sleeping);
    the.stop = 1;
    pthread_cond_signal(&the.woken);
    pthread_mutex_unlock(&the.sleeping);
    Py_BEGIN_ALLOW_THREADS
    pthread_join(the.thread, NULL);
    Py_END_ALLOW_THREADS
    the.running = 0;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, "start(interval_ns): sample all threads, at this mean interval."},
    {"stop", stop, METH_NOARGS, "End the sampling thread."},
    {NULL},
};
#else
static PyMethodDef methods[] = {{NULL}};
#endif

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_stack_reader", "Samples stacks from a native thread.", -1, methods,
};

PyMODINIT_FUNC
PyInit__stack_reader(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddIntConstant(module, "SUPPORTED", SUPPORTED) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
#if SUPPORTED
    if (PyModule_AddIntMacro(module, HOLDS_LOCK) < 0 || PyModule_AddIntMacro(module, COLLECTING) < 0
        || PyModule_AddIntMacro(module, STATE_KNOWN) < 0 || PyModule_AddIntMacro(module, BLOCKED) < 0
        || PyModule_AddIntMacro(module, ON_FILE) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    the.hot_path = import_hot_path();
    if (the.hot_path == NULL) {
        Py_DECREF(module);
        return NULL;
    }
    make_condition();
    pthread_atfork(NULL, NULL, after_fork);
#endif
    return module;
}
