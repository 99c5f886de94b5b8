/* The launcher between `jumper run` and its command: what each process of it cost, told before it is reaped.
 *
 *     _shim FD_REPORT FD_ACK -- COMMAND [ARGUMENT ...]
 *
 * Why a program of its own: ru_maxrss starts at the peak of the process that forked, so a command that Python
 * starts reports at least Python's peak. This one is static, small, and starts the command by vfork (getrusage(2);
 * fs/exec.c, setmax_mm_hiwater_rss). It is also the reaper of the command's orphans (PR_SET_CHILD_SUBREAPER), so
 * what daemonized processes cost is not lost; they see its pid as their parent's where it would have been 1.
 *
 * FD_REPORT gets one record of 56 bytes an event, in the machine's byte order; struct format "=iiiiiiqqqq":
 *
 *     kind        1 spawned, 2 the command could not be executed, 3 exited
 *     pid
 *     code        kind 3: si_code (1 exited, 2 killed, 3 dumped core; waitid(2)), else 0
 *     status      kind 3: exit status or signal; kind 2: errno; else 0
 *     is_command  1 for the command itself, 0 for a process that was orphaned
 *     reserved    0
 *     utime_us, stime_us   CPU time, waited-for descendants included
 *     maxrss_kib  largest single process among it and its waited-for descendants
 *     mono_ns     CLOCK_MONOTONIC at the event; kind 1: right before the command was started
 *
 * After each record of kind 3 it waits for one byte on FD_ACK before it reaps, so that the reader can look at the
 * zombie's /proc/PID/io (at most one second; a closed FD_ACK is no wait). When the command has been reaped, what
 * else is dead is reaped too, then it exits as a shell would: the command's status, 128 + signal, 127 where there
 * is no such command, 126 where it cannot be executed; 125 is wrong use.
 *
 * All signals are blocked here and not in the command, which has the dispositions and the mask that this program
 * was started with. It outlives a Ctrl-C to the whole group, and the death of who reads its reports.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SPAWNED = 1, EXEC_FAILED = 2, EXITED = 3 };
enum { PATIENCE_MS = 1000, WRONG_USE = 125, NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

struct record {
    int32_t kind, pid, code, status, is_command, reserved;
    int64_t utime_us, stime_us, maxrss_kib, mono_ns;
};
_Static_assert(sizeof(struct record) == 56, "the record's layout is a promise");

static int report_fd, ack_fd;

static int ready(int fd, short events, int timeout_ms)
{
    struct pollfd waiter = {.fd = fd, .events = events};
    int n;
    while ((n = poll(&waiter, 1, timeout_ms)) < 0 && errno == EINTR)
        ;
    return n > 0;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void report(struct record r)
{
    /* a reader that is stopped must not stop us: a pipe that polls writable takes 56 bytes at once (pipe(7)) */
    if (ready(report_fd, POLLOUT, PATIENCE_MS) && write(report_fd, &r, sizeof r) < 0)
        return;
}

static void await_ack(void)
{
    char byte;
    if (ready(ack_fd, POLLIN, PATIENCE_MS) && read(ack_fd, &byte, 1) < 0)
        return;
}

static void forget_late_acks(void)
{
    char late[64];
    while (ready(ack_fd, POLLIN, 0) && read(ack_fd, late, sizeof late) > 0)
        ;
}

static int64_t microseconds(struct timeval t)
{
    return (int64_t)t.tv_sec * 1000000 + t.tv_usec;
}

/* The wrapper of the C library has no rusage; the system call has (waitid(2), "C library/kernel differences"). */
static int wait_raw(idtype_t type, id_t id, siginfo_t *info, int options, struct rusage *usage)
{
    long result;
    info->si_pid = 0;
    while ((result = syscall(SYS_waitid, type, id, info, options, usage)) < 0 && errno == EINTR)
        ;
    return result == 0 && info->si_pid != 0;
}

static int descriptor(const char *text)
{
    char *end;
    long fd = strtol(text, &end, 10);
    if (end == text || *end != '\0' || fd < 3 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
        return -1;
    return (int)fd;
}

/* A pipe that the command closes must be closed here too, or its reader waits for the end of the file. */
static void close_what_is_the_commands(void)
{
#ifdef SYS_close_range
    unsigned low = (unsigned)(report_fd < ack_fd ? report_fd : ack_fd);
    unsigned high = (unsigned)(report_fd < ack_fd ? ack_fd : report_fd);
    syscall(SYS_close_range, 0u, low - 1, 0u);
    if (high > low + 1)
        syscall(SYS_close_range, low + 1, high - 1, 0u);
    syscall(SYS_close_range, high + 1, ~0u, 0u);
#endif
    close(0);
    close(1);
    close(2);
}

int main(int argc, char **argv)
{
    static const char usage[] = "_shim: expected FD_REPORT FD_ACK -- COMMAND...; `jumper run` starts it so\n";
    if (argc < 5 || strcmp(argv[3], "--") != 0 || (report_fd = descriptor(argv[1])) < 0
        || (ack_fd = descriptor(argv[2])) < 0 || report_fd == ack_fd) {
        if (write(2, usage, sizeof usage - 1) < 0)
            return WRONG_USE;
        return WRONG_USE;
    }

    sigset_t all, original;
    struct sigaction wait_for_children = {.sa_handler = SIG_DFL}, child_action;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &original);
    /* inherited as ignored, SIGCHLD would make the kernel reap before we look */
    sigaction(SIGCHLD, &wait_for_children, &child_action);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);

    volatile int exec_errno = 0; /* written by the child: after vfork the memory is shared */
    int64_t start_ns = now_ns(); /* when this program runs again the command may have ended */
    pid_t command = vfork();
    if (command == 0) {
        sigaction(SIGCHLD, &child_action, NULL);
        sigprocmask(SIG_SETMASK, &original, NULL);
        execvp(argv[4], argv + 4);
        exec_errno = errno;
        _exit(NOT_FOUND);
    }
    if (command < 0)
        exec_errno = errno;
    close_what_is_the_commands();
    if (exec_errno != 0) {
        report((struct record){
            .kind = EXEC_FAILED, .pid = command, .status = exec_errno, .is_command = 1, .mono_ns = now_ns()});
        return exec_errno == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
    }
    report((struct record){.kind = SPAWNED, .pid = command, .is_command = 1, .mono_ns = start_ns});

    int status = WRONG_USE, command_lives = 1;
    siginfo_t dead;
    struct rusage cost;
    while (wait_raw(P_ALL, 0, &dead, WEXITED | WNOWAIT | (command_lives ? 0 : WNOHANG), &cost)) {
        struct record r = {
            .kind = EXITED,
            .pid = dead.si_pid,
            .code = dead.si_code,
            .status = dead.si_status,
            .is_command = dead.si_pid == command,
            .utime_us = microseconds(cost.ru_utime),
            .stime_us = microseconds(cost.ru_stime),
            .maxrss_kib = cost.ru_maxrss,
            .mono_ns = now_ns(),
        };
        forget_late_acks();
        report(r);
        await_ack();
        wait_raw(P_PID, (id_t)r.pid, &dead, WEXITED, NULL);
        if (r.is_command) {
            command_lives = 0;
            status = r.code == CLD_EXITED ? r.status : 128 + r.status;
        }
    }
    return status;
}
