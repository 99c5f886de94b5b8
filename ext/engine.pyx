# cython: language_level=3, freethreading_compatible=True
"""The native engine for Python: a thin cover over ext/native/engine.h. See the stub ``_engine.pyi``."""

from libc.errno cimport ENOENT
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport strncpy

import os


cdef extern from "native/engine.h" nogil:
    enum:
        STREAMS
        MOST_PATH
        MOST_EXCLUDED

    struct settings:
        int64_t interval_ns
        bint in_target
        bint node
        bint queue
        int thread_pid
        int64_t flush_ns
        int64_t cap
        char segment[4096]
        char node_lock[4096]
        const char *schema
        size_t schema_size
        void *(*let_go)() noexcept
        void (*take_back)(void *) noexcept

    struct statistics:
        int64_t ticks, missed, late_ns, cpu_ns, pss_cpu_ns, dropped, refused, size, queue_lost, rows_lost
        int64_t processes, kept_descriptors, scans, looks
        int error
        bint running, private_table

    struct engine:
        pass

    struct collector:
        char *path
        char *config
        char *name
        char *origin
        unsigned levels
        size_t columns

    enum:
        MOST_REASON
        MOST_COLLECTORS

    engine *engine_new(const settings *)
    bint engine_add_collector(engine *, const collector *)
    void engine_collector_reason(engine *, size_t, char *, size_t)
    bint engine_start(engine *, int *)
    int engine_add_tree(engine *, int, const int *, int, const char *)
    int engine_add_tree_soon(engine *, int, const int *, int, const char *)
    int engine_add_owner(engine *, int, unsigned, const char *)
    void engine_remove(engine *, int)
    enum:
        MOST_WIDTH
    bint engine_finish(engine *, int, int64_t *)
    void engine_exclude(engine *, int)
    void engine_node(engine *, bint)
    void engine_go(engine *)
    void engine_tick(engine *, bint)
    bint engine_text(engine *, const char *, size_t)
    int engine_text_at_once(engine *, const char *, size_t)
    int64_t engine_flush(engine *)
    void engine_stop(engine *)
    void engine_free(engine *)
    size_t engine_drain(engine *, int64_t *, size_t, int64_t)
    void engine_statistics(engine *, statistics *)
    bint engine_alive(engine *, int)
    enum:
        MEMBER_WIDTH
    size_t engine_members(engine *, int, int64_t *, size_t)


cdef extern from "native/parse.h" nogil:
    const int64_t UNKNOWN

cdef extern from "native/rows.h" nogil:
    const char *const *stream_columns(int)


cdef extern from "Python.h":
    void *PyInterpreterState_Get()
    int64_t PyInterpreterState_GetID(void *)
    void *PyEval_SaveThread() nogil
    void PyEval_RestoreThread(void *) nogil


cdef void *let_go() noexcept nogil:
    return PyEval_SaveThread()


cdef void take_back(void *state) noexcept nogil:
    PyEval_RestoreThread(state)


if PyInterpreterState_GetID(PyInterpreterState_Get()) != 0:
    raise ImportError("the native engine is made for the main interpreter, and not imported in a sub-interpreter")

#: of this module, compared with jumper/monitor/backends/native/__init__.py
INTERFACE = 4
DRAIN_BYTES = 1 << 20
MOST_LIBRARIES = MOST_COLLECTORS


def columns(int stream):
    """See the stub."""
    cdef const char *const *names = stream_columns(stream)
    found = []
    if names == NULL:
        raise ValueError(f"no stream {stream}; there are 1 to {STREAMS}")
    while names[0] != NULL:
        found.append((<bytes>names[0]).decode())
        names += 1
    return found


cdef class Engine:
    """See the stub."""

    cdef engine *_engine

    def __cinit__(self, double interval, *, bytes schema=b"", bytes segment=b"", bytes node_lock=b"",
                  bint in_target=False, bint node=False, bint queue=False, int thread_pid=0, double flush_s=0.0,
                  int64_t cap=0):
        if not 1e-3 <= interval <= 1e9 or not 0.0 <= flush_s <= 1e9:
            raise ValueError(f"expected an interval of 0.001 to 1e9 s and a flush period below, found {interval}, {flush_s}")
        cdef settings *wanted = <settings *>calloc(1, sizeof(settings))
        if wanted == NULL:
            raise MemoryError
        try:
            if len(segment) >= MOST_PATH or len(node_lock) >= MOST_PATH:
                raise ValueError("the path of the segment or of the lock is too long")
            wanted.interval_ns = <int64_t>(interval * 1e9)
            wanted.in_target, wanted.node, wanted.queue, wanted.thread_pid = in_target, node, queue, thread_pid
            wanted.flush_ns, wanted.cap = <int64_t>(flush_s * 1e9), cap
            strncpy(wanted.segment, segment, MOST_PATH - 1)
            strncpy(wanted.node_lock, node_lock, MOST_PATH - 1)
            wanted.schema, wanted.schema_size = schema, len(schema)
            wanted.let_go, wanted.take_back = let_go, take_back
            self._engine = engine_new(wanted)
        finally:
            free(wanted)
        if self._engine == NULL:
            raise MemoryError

    def __dealloc__(self):
        with nogil:
            engine_free(self._engine)

    def __reduce__(self):
        raise TypeError("an engine belongs to its process and is not pickled; send its settings and make one there")

    def add_collector(self, bytes path, bytes config, bytes name, bytes origin, unsigned levels, size_t columns):
        cdef collector *wanted = <collector *>calloc(1, sizeof(collector))
        if wanted == NULL:
            raise MemoryError
        wanted.path, wanted.config, wanted.name, wanted.origin = path, config, name, origin
        wanted.levels, wanted.columns = levels, columns
        cdef bint added = engine_add_collector(self._engine, wanted)
        free(wanted)
        if not added:
            raise ValueError(f"at most {MOST_COLLECTORS} collectors in C, added before the start")

    def collector_reason(self, size_t index):
        cdef char[256] reason
        with nogil:
            engine_collector_reason(self._engine, index, reason, MOST_REASON)
        return (<bytes>reason).decode("utf-8", "replace")

    def start(self):
        cdef int error = 0
        cdef bint running
        with nogil:
            running = engine_start(self._engine, &error)
        if not running:
            raise OSError(error or ENOENT, os.strerror(error or ENOENT))

    def add_tree(self, int pid, parents=(), bytes tag=b"", bint soon=False):
        cdef int listed[16]
        cdef int count = 0
        cdef int number
        cdef const char *text = tag
        for parent in parents:
            if count == MOST_EXCLUDED:
                raise ValueError(f"at most {MOST_EXCLUDED} parents")
            listed[count] = parent
            count += 1
        if soon:
            return engine_add_tree_soon(self._engine, pid, listed, count, text)
        with nogil:
            number = engine_add_tree(self._engine, pid, listed, count, text)
        return number

    def add_owner(self, int stream, unsigned uid, bytes tag=b""):
        cdef const char *text = tag
        cdef int number
        with nogil:
            number = engine_add_owner(self._engine, stream, uid, text)
        return number

    def remove(self, int number):
        with nogil:
            engine_remove(self._engine, number)

    def finish(self, int number):
        cdef int64_t[5] most
        cdef bint known
        known = engine_finish(self._engine, number, most)
        return tuple([None if most[i] == UNKNOWN else most[i] for i in range(MOST_WIDTH)]) if known else None

    def exclude(self, int pid):
        with nogil:
            engine_exclude(self._engine, pid)

    def node(self, bint wanted):
        with nogil:
            engine_node(self._engine, wanted)

    def go(self):
        with nogil:
            engine_go(self._engine)

    def tick(self, bint everything=False):
        with nogil:
            engine_tick(self._engine, everything)

    def text(self, bytes lines):
        cdef const char *data = lines
        cdef size_t size = len(lines)
        cdef int taken = engine_text_at_once(self._engine, data, size)
        if taken < 0:  # only then: a GIL that was let go of is slow to get back
            with nogil:
                taken = engine_text(self._engine, data, size)
        return taken > 0

    def flush(self):
        cdef int64_t size
        with nogil:
            size = engine_flush(self._engine)
        return size

    def stop(self):
        with nogil:
            engine_stop(self._engine)

    def members(self, int number):
        cdef size_t count, most = 65536
        cdef int64_t *buffer = <int64_t *>malloc(most * MEMBER_WIDTH * sizeof(int64_t))
        if buffer == NULL:
            raise MemoryError
        try:
            with nogil:
                count = engine_members(self._engine, number, buffer, most)
            return [tuple([buffer[i * MEMBER_WIDTH + j] for j in range(MEMBER_WIDTH)]) for i in range(count)]
        finally:
            free(buffer)

    def alive(self, int number):
        cdef bint some
        with nogil:
            some = engine_alive(self._engine, number)
        return some

    def drain(self, double timeout_s=0.0):
        cdef int64_t *buffer = <int64_t *>malloc(DRAIN_BYTES)
        cdef int64_t timeout = <int64_t>(timeout_s * 1e9)
        cdef size_t moved, size = DRAIN_BYTES
        if buffer == NULL:
            raise MemoryError
        try:
            with nogil:
                moved = engine_drain(self._engine, buffer, size, timeout)
            return (<char *>buffer)[:moved]
        finally:
            free(buffer)

    def statistics(self):
        cdef statistics now
        with nogil:
            engine_statistics(self._engine, &now)
        return now
