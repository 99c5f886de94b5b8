/* Start a command so that its high-water mark is its own, and so that whoever asked for it is its parent.
 *
 *     _spawn FD -- COMMAND [ARGUMENT ...]
 *
 * ru_maxrss starts at the peak of the process that forked (see shim.c). This program is small, and the command is
 * its child in memory only: CLONE_PARENT makes it a child of this program's own parent (clone(2)), which waits for
 * it, signals it and reaps it as if it had started it itself.
 *
 * FD gets one record of two 32-bit numbers in the machine's byte order: the command's pid, and errno where it could
 * not be executed (then that pid is dead, to be reaped). The command does not inherit FD.
 *
 * With BARE there is no C library in it (x86-64 only): to set one up costs more than all that is done here, because
 * it asks for the features of the CPU, and a virtual machine traps each such question. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

enum { WRONG_USE = 125, NOT_FOUND = 127, STACK_BYTES = 64 << 10 };

struct start {
    char **arguments, **environment;
    volatile int error; /* written by the child, in our memory */
};

static char stack[STACK_BYTES] __attribute__((aligned(16)));
static const int sharing = CLONE_VM | CLONE_VFORK | CLONE_PARENT | SIGCHLD;

#ifdef BARE
static long ask(long number, long a, long b, long c)
{
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return answer;
}

static long split(void (*run)(struct start *), struct start *start)
{
    long answer;
    register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
    register struct start *r12 __asm__("r12") = start;
    register void (*r13)(struct start *) __asm__("r13") = run;
    __asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\tmov %%r12, %%rdi\n\tcall *%%r13\n1:"
                     : "=a"(answer)
                     : "a"(SYS_clone), "D"((long)sharing), "S"(stack + STACK_BYTES), "d"(0L), "r"(r10), "r"(r8),
                       "r"(r12), "r"(r13)
                     : "rcx", "r11", "memory");
    return answer;
}
#else
#include <unistd.h>

static long ask(long number, long a, long b, long c)
{
    return syscall(number, a, b, c) < 0 ? -errno : 0;
}

static void (*running)(struct start *);

static int called(void *start)
{
    running(start);
    return NOT_FOUND;
}

static long split(void (*run)(struct start *), struct start *start)
{
    running = run;
    int pid = clone(called, stack + STACK_BYTES, sharing, start);
    return pid < 0 ? -errno : pid;
}
#endif

static void run(struct start *start)
{
    start->error = (int)-ask(SYS_execve, (long)start->arguments[0], (long)start->arguments, (long)start->environment);
    for (;;)
        ask(SYS_exit, NOT_FOUND, 0, 0);
}

static int wrong_use(void)
{
    static const char usage[] = "_spawn: expected FD -- COMMAND...; jumper starts it so\n";
    ask(SYS_write, 2, (long)usage, sizeof usage - 1);
    return WRONG_USE;
}

static int begin(long argc, char **argv, char **environment)
{
    if (argc < 4 || argv[2][0] != '-' || argv[2][1] != '-' || argv[2][2] != '\0' || argv[1][0] == '\0')
        return wrong_use();
    long fd = 0;
    for (const char *at = argv[1]; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || fd > 1 << 20)
            return wrong_use();
        fd = fd * 10 + *at - '0';
    }
    if (ask(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC) < 0)
        return wrong_use();
    struct start start = {.arguments = argv + 3, .environment = environment};
    long pid = split(run, &start);
    for (char **at = environment; *at != NULL; at++) /* what marks the command's processes does not mark this one */
        **at = '\0';
    int32_t record[2] = {pid < 0 ? -1 : (int32_t)pid, pid < 0 ? (int32_t)-pid : start.error};
    return ask(SYS_write, fd, (long)record, sizeof record) < 0 ? WRONG_USE : 0;
}

#ifdef BARE
__attribute__((used)) static void entry(long *at)
{
    char **argv = (char **)(at + 1);
    int status = begin(at[0], argv, argv + at[0] + 1);
    for (;;)
        ask(SYS_exit_group, status, 0, 0);
}

__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall entry\n\thlt\n");
#else
int main(int argc, char **argv, char **environment) { return begin(argc, argv, environment); }
#endif
