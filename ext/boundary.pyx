# cython: language_level=3, freethreading_compatible=True
"""The counters at a task's boundary in one call that keeps the GIL. See the stub ``_boundary.pyi``.

Each of these system calls takes about a microsecond. Giving the GIL away for one costs up to a switch interval
(5 ms) where another thread computes in Python, and a task has two boundaries.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t
from libc.string cimport memcpy


cdef extern from "<time.h>" nogil:
    ctypedef int clockid_t
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(clockid_t, timespec *)
    clockid_t CLOCK_REALTIME
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
    long sysconf(int)
    int _SC_PAGE_SIZE

cdef extern from "<stdio.h>" nogil:
    int snprintf(char *, size_t, const char *, ...)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL

cdef extern from "native/parse.h" nogil:
    struct io_fields:
        int64_t read_chars
        int64_t write_chars
        int64_t read_bytes
        int64_t write_bytes
    bint parse_io(const char *, size_t, io_fields *)
    bint parse_statm(const char *, size_t, int64_t *, int64_t *)

cdef long PAGE = sysconf(_SC_PAGE_SIZE)


cdef int64_t now(clockid_t clock) noexcept:
    cdef timespec t
    if clock_gettime(clock, &t) != 0:
        return -1
    return <int64_t>t.tv_sec * 1_000_000_000 + t.tv_nsec


cdef tuple io(int descriptor):
    cdef char text[512]
    cdef io_fields found
    cdef ssize_t got = pread(descriptor, text, sizeof(text), 0) if descriptor >= 0 else 0
    if got <= 0 or not parse_io(text, got, &found):
        return None
    return found.read_bytes, found.write_bytes, found.read_chars, found.write_chars, got


def start(int descriptor):
    counted = io(descriptor)
    cdef int64_t mono = now(CLOCK_MONOTONIC)
    return mono, now(CLOCK_THREAD_CPUTIME_ID), counted


def stop(int descriptor, int clear, int statm):
    cdef int64_t cpu = now(CLOCK_THREAD_CPUTIME_ID)
    cdef int64_t mono = now(CLOCK_MONOTONIC)
    counted = io(descriptor)
    return mono, cpu, counted, peak(clear) if clear >= 0 else resident(statm), children()


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
    return highest * 1024, usage.ru_maxrss * 1024, 0, 1


cpdef resident(int statm):
    cdef char text[128]
    cdef int64_t pages, shared
    cdef ssize_t got = pread(statm, text, sizeof(text), 0) if statm >= 0 else 0
    if got <= 0 or not parse_statm(text, got, &pages, &shared):
        return None
    return None, pages * PAGE, got, 0


cpdef tuple children():
    cdef rusage usage
    getrusage(RUSAGE_CHILDREN, &usage)
    return (
        <int64_t>usage.ru_utime.tv_sec * 1_000_000_000 + usage.ru_utime.tv_usec * 1000,
        <int64_t>usage.ru_stime.tv_sec * 1_000_000_000 + usage.ru_stime.tv_usec * 1000,
    )


def note(place, Py_ssize_t at, Py_ssize_t size, *words):
    cdef Py_buffer view
    cdef char times[64]
    cdef char *to
    cdef const char *word
    cdef Py_ssize_t length
    cdef Py_ssize_t used = snprintf(
        times, sizeof(times), b"%lld%c%lld", <long long>now(CLOCK_MONOTONIC), 0, <long long>now(CLOCK_REALTIME)
    ) + 1
    cdef Py_ssize_t whole = used
    for text in words:
        PyUnicode_AsUTF8AndSize(text, &length)
        whole += length + 1
    if whole > size:
        return False
    PyObject_GetBuffer(place, &view, PyBUF_WRITABLE)
    try:
        if at < 0 or at + size > view.len:
            raise ValueError(f"no room for {size} bytes at {at} of {view.len}")
        to = <char *>view.buf + at
        memcpy(to, times, used)
        for text in words:
            word = PyUnicode_AsUTF8AndSize(text, &length)
            memcpy(to + used, word, length + 1)
            used += length + 1
        return True
    finally:
        PyBuffer_Release(&view)
