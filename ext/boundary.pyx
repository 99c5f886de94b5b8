# cython: language_level=3, freethreading_compatible=True
"""The counters at a task's boundary in one call that keeps the GIL. See the stub ``_boundary.pyi``.

Each of these system calls takes about a microsecond. Giving the GIL away for one costs up to a switch interval
(5 ms) where another thread computes in Python, and a task has two boundaries.
"""

from libc.stdint cimport int64_t


cdef extern from "<time.h>" nogil:
    ctypedef int clockid_t
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(clockid_t, timespec *)
    clockid_t CLOCK_MONOTONIC
    clockid_t CLOCK_THREAD_CPUTIME_ID

cdef extern from "<sys/resource.h>" nogil:
    struct timeval:
        long tv_sec
        long tv_usec
    struct rusage:
        timeval ru_utime
        timeval ru_stime
        long ru_maxrss
    int getrusage(int, rusage *)
    int RUSAGE_CHILDREN
    int RUSAGE_THREAD

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int, void *, size_t, long)
    ssize_t write(int, const void *, size_t)

cdef enum:
    FIELDS = 6  # rchar, wchar, syscr, syscw, read_bytes, write_bytes (proc(5))


cdef int64_t now(clockid_t clock) noexcept:
    cdef timespec t
    if clock_gettime(clock, &t) != 0:
        return -1
    return <int64_t>t.tv_sec * 1_000_000_000 + t.tv_nsec


cdef int numbers(const char *text, ssize_t size, int64_t *out) noexcept:
    """Take the number after each colon; return how many there are."""
    cdef ssize_t at = 0
    cdef int found = 0
    cdef int64_t value
    while at < size and found < FIELDS:
        while at < size and text[at] != c":":
            at += 1
        at += 2
        if at >= size:
            break
        value = 0
        while at < size and c"0" <= text[at] <= c"9":
            value = value * 10 + (text[at] - c"0")
            at += 1
        out[found] = value
        found += 1
    return found


cdef tuple io(int descriptor):
    cdef char text[512]
    cdef int64_t n[FIELDS]
    cdef ssize_t got = pread(descriptor, text, sizeof(text), 0) if descriptor >= 0 else 0
    if got <= 0 or numbers(text, got, n) != FIELDS:
        return None
    return n[4], n[5], n[0], n[1], got


def start(int descriptor):
    counted = io(descriptor)
    cdef int64_t mono = now(CLOCK_MONOTONIC)
    return mono, now(CLOCK_THREAD_CPUTIME_ID), counted


def stop(int descriptor, int clear):
    cdef int64_t cpu = now(CLOCK_THREAD_CPUTIME_ID)
    cdef int64_t mono = now(CLOCK_MONOTONIC)
    counted = io(descriptor)
    return mono, cpu, counted, peak(clear), children()


cpdef peak(int clear):
    cdef rusage usage
    cdef long highest
    if clear < 0:
        return None
    getrusage(RUSAGE_THREAD, &usage)
    highest = usage.ru_maxrss
    if write(clear, b"5", 1) != 1:
        return None
    getrusage(RUSAGE_THREAD, &usage)
    return highest * 1024, usage.ru_maxrss * 1024


cpdef tuple children():
    cdef rusage usage
    getrusage(RUSAGE_CHILDREN, &usage)
    return (
        <int64_t>usage.ru_utime.tv_sec * 1_000_000_000 + usage.ru_utime.tv_usec * 1000,
        <int64_t>usage.ru_stime.tv_sec * 1_000_000_000 + usage.ru_stime.tv_usec * 1000,
    )
