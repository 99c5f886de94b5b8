# cython: language_level=3, freethreading_compatible=True
"""Short system calls in one call each that keeps the GIL. See the stub ``_brief.pyi``."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t

import os


cdef extern from * nogil:
    """
    #include <fcntl.h>
    #include <poll.h>
    #include <signal.h>
    #include <time.h>
    #include <unistd.h>
    #include <sys/resource.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>

    static long waitid_with_rusage(int pid, siginfo_t *info, struct rusage *usage)
    {
        return syscall(SYS_waitid, P_PID, pid, info, WEXITED | WNOWAIT, usage);
    }
    static int64_t monotonic_ns(void)
    {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
    }
    """
    struct timeval:
        long tv_sec
        long tv_usec
    struct rusage:
        timeval ru_utime
        timeval ru_stime
        long ru_maxrss
    ctypedef struct siginfo_t:
        int si_code
        int si_status
    struct pollfd:
        int fd
        short events
        short revents
    int O_RDONLY, O_CLOEXEC, POLLIN, WNOHANG, CLD_EXITED
    int pipe2(int *, int)
    int open(const char *, int)
    int close_fd "close"(int)
    ssize_t read(int, void *, size_t)
    ssize_t pread(int, void *, size_t, long)
    int poll(pollfd *, unsigned long, int)
    int waitpid(int, int *, int)
    long waitid_with_rusage(int, siginfo_t *, rusage *)
    int64_t monotonic_ns()

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL

cdef extern from "native/parse.h" nogil:
    struct io_fields:
        int64_t read_chars
        int64_t write_chars
        int64_t reads
        int64_t writes
        int64_t read_bytes
        int64_t write_bytes
    bint parse_io(const char *, size_t, io_fields *)

cdef int PATIENCE_MS = 1


def pipe():
    cdef int[2] ends
    if pipe2(ends, O_CLOEXEC) != 0:
        raise OSError(errno, os.strerror(errno))
    return ends[0], ends[1]


def open_to_read(str path):
    cdef int fd = open(PyUnicode_AsUTF8AndSize(path, NULL), O_RDONLY | O_CLOEXEC)
    return fd if fd >= 0 else None


def read_io(int fd):
    cdef char text[512]
    cdef io_fields io
    cdef ssize_t got = pread(fd, text, sizeof(text), 0)
    if got <= 0 or not parse_io(text, got, &io):
        return {}
    return {
        "read_chars": io.read_chars, "write_chars": io.write_chars, "reads": io.reads, "writes": io.writes,
        "read_bytes": io.read_bytes, "write_bytes": io.write_bytes,
    }


def read_soon(int fd, int size):
    cdef char text[64]
    cdef pollfd wanted
    wanted.fd, wanted.events, wanted.revents = fd, POLLIN, 0
    if not 0 < size <= <int>sizeof(text):
        raise ValueError(f"expected a size of 1 to {sizeof(text)}, found {size}")
    if poll(&wanted, 1, PATIENCE_MS) != 1:
        return None
    cdef ssize_t got = read(fd, text, size)
    return PyBytes_FromStringAndSize(text, got) if got >= 0 else None


def close(int fd):
    close_fd(fd)


def reap(int pid):
    return waitpid(pid, NULL, WNOHANG) != 0


def await_end(int pid):
    cdef siginfo_t info
    cdef rusage usage
    cdef int wrong
    while True:
        with nogil:
            wrong = errno if waitid_with_rusage(pid, &info, &usage) != 0 else 0
        if wrong == 0:
            break
        if wrong != EINTR:
            return None
        PyErr_CheckSignals()
    return (
        info.si_status if info.si_code == CLD_EXITED else -info.si_status,
        <int64_t>usage.ru_utime.tv_sec * 1_000_000_000 + usage.ru_utime.tv_usec * 1000,
        <int64_t>usage.ru_stime.tv_sec * 1_000_000_000 + usage.ru_stime.tv_usec * 1000,
        <int64_t>usage.ru_maxrss * 1024,
        monotonic_ns(),
    )
