# cython: boundscheck=False, wraparound=False, freethreading_compatible=True
"""Parse /proc/PID/stat without making Python objects for the fields that nobody asked for.

Field    Name         Example            proc_pid_stat(5)
1        pid          4711
2        comm         (a b) c)           in parentheses; may hold any byte, ``)`` and newline too
3        state        S
4        ppid         1
8 fields of process groups and flags are skipped
10, 11   minflt, cminflt
14..17   utime, stime, cutime, cstime    clock ticks
20       num_threads
22       starttime                       clock ticks after boot
28       start_stack                     address; 0 where the reader lacks the privilege to see it
"""

from libc.string cimport memchr


cdef extern from *:
    """
    static const char *last_parenthesis(const char *data, Py_ssize_t size)
    {
        while (size > 0 && data[size - 1] != ')')
            size--;
        return size > 0 ? data + size - 1 : NULL;
    }
    """
    const char *last_parenthesis(const char *data, Py_ssize_t size) nogil


# fields 3 (state) to 28 (start_stack)
cdef enum:
    FIRST = 4
    LAST = 28


cdef bint parse_numbers(const char *at, const char *end, long long *fields) noexcept nogil:
    """Read the fields FIRST to LAST, one space before each; return whether all were there."""
    cdef int field
    cdef bint negative
    cdef unsigned long long value
    for field in range(FIRST, LAST + 1):
        if at >= end or at[0] != c" ":
            return False
        at += 1
        negative = at < end and at[0] == c"-"
        if negative:
            at += 1
        if at >= end or not c"0" <= at[0] <= c"9":
            return False
        value = 0
        while at < end and c"0" <= at[0] <= c"9":
            value = value * 10 + <unsigned long long>(at[0] - c"0")
            at += 1
        fields[field] = -<long long>value if negative else <long long>value
    # a last field that is cut off would be a smaller number, not an error
    return at < end and (at[0] == c" " or at[0] == b"\n")


def parse_stat(bytes data not None):
    """See the stub ``_procfs.pyi``."""
    cdef const char *text = data
    cdef Py_ssize_t size = len(data)
    cdef const char *end = text + size
    cdef const char *opening = <const char *>memchr(text, c"(", size)
    cdef const char *closing = last_parenthesis(text, size)
    cdef const char *at
    cdef long long fields[LAST + 1]
    cdef long long pid = 0
    if opening == NULL or closing == NULL or closing < opening:
        raise ValueError(f"expected the text of /proc/PID/stat, found no (comm) in {data[:64]!r}")
    at = text
    while at < opening and c"0" <= at[0] <= c"9":
        pid = pid * 10 + (at[0] - c"0")
        at += 1
    if at == text or at + 1 != opening or at[0] != c" ":
        raise ValueError(f"expected the text of /proc/PID/stat, found no pid in {data[:64]!r}")
    at = closing + 1
    if at + 2 > end or at[0] != c" " or at[1] == c" " or not parse_numbers(at + 2, end, fields):
        raise ValueError(f"expected {LAST} fields of /proc/PID/stat, found fewer in {data[:64]!r}")
    return (
        pid,
        data[opening - text + 1 : closing - text],
        chr(at[1]),
        fields[4],
        fields[14],
        fields[15],
        fields[16],
        fields[17],
        fields[20],
        fields[22],
        fields[10],
        fields[11],
        <unsigned long long>fields[28],
    )
