# cython: language_level=3, freethreading_compatible=True, cdivision=True
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
    clockid_t CLOCK_PROCESS_CPUTIME_ID
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


cdef ssize_t io(int descriptor, io_fields *found) noexcept:
    """Read I/O; return how many bytes that took, 0 where it is not known."""
    cdef char text[512]
    cdef ssize_t got = pread(descriptor, text, sizeof(text), 0) if descriptor >= 0 else 0
    return got if got > 0 and parse_io(text, got, found) else 0


cdef tuple counted(io_fields *found, ssize_t looked, ssize_t wrote):
    return (
        found.read_bytes, found.write_bytes, found.read_chars, found.write_chars,
        found.read_chars + looked, found.write_chars + wrote,
    )


def start(int descriptor):
    cdef io_fields found
    cdef ssize_t looked = io(descriptor, &found)
    cdef int64_t mono = now(CLOCK_MONOTONIC)
    return mono, now(CLOCK_THREAD_CPUTIME_ID), counted(&found, looked, 0) if looked else None


def stop(int descriptor, int clear, int statm):
    cdef int64_t cpu = now(CLOCK_THREAD_CPUTIME_ID)
    cdef int64_t mono = now(CLOCK_MONOTONIC)
    cdef io_fields found
    cdef ssize_t looked = io(descriptor, &found)
    cdef ssize_t read = 0
    memory = peak(clear) if clear >= 0 else resident(statm, &read)
    return mono, cpu, counted(&found, looked + read, clear >= 0) if looked else None, memory, children()


def look(int clear, int statm):
    cdef ssize_t read = 0
    memory = peak(clear) if clear >= 0 else resident(statm, &read)
    return memory, children(), read, int(clear >= 0)


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


cdef tuple resident(int statm, ssize_t *read):
    cdef char text[128]
    cdef int64_t pages, shared
    read[0] = pread(statm, text, sizeof(text), 0) if statm >= 0 else 0
    if read[0] <= 0 or not parse_statm(text, read[0], &pages, &shared):
        read[0] = 0
        return None
    return None, pages * PAGE


cpdef tuple children():
    cdef rusage usage
    getrusage(RUSAGE_CHILDREN, &usage)
    return (
        <int64_t>usage.ru_utime.tv_sec * 1_000_000_000 + usage.ru_utime.tv_usec * 1000,
        <int64_t>usage.ru_stime.tv_sec * 1_000_000_000 + usage.ru_stime.tv_usec * 1000,
    )


def clocks(list tids):
    cdef int64_t tid
    # CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED, as `jumper_dask.counters.clocks` explains
    threads = [now(<clockid_t>((~tid << 3) | 6)) for tid in tids]
    return threads, now(CLOCK_PROCESS_CPUTIME_ID)


cdef Py_ssize_t digits(char *to, int64_t number) noexcept:
    """Write a number that is not negative, ended by a zero byte; return how many bytes that are."""
    cdef char backwards[24]
    cdef Py_ssize_t length = 0
    cdef Py_ssize_t at
    while number > 0 or length == 0:
        backwards[length] = <char>(c"0" + number % 10)
        number //= 10
        length += 1
    for at in range(length):
        to[at] = backwards[length - 1 - at]
    to[length] = 0
    return length + 1


def note(place, Py_ssize_t at, Py_ssize_t size, *words):
    cdef Py_buffer view
    cdef char times[64]
    cdef char *to
    cdef const char *word
    cdef Py_ssize_t length
    cdef Py_ssize_t used = digits(times, now(CLOCK_MONOTONIC))
    used += digits(times + used, now(CLOCK_REALTIME))
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
