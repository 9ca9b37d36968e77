/*
 * A C program that is hard to unwind: no frame pointers, callbacks from libc, a library that it
 * loads late, code that it writes at run time, short-lived threads, another program in its place.
 *
 * Protocol: work.h. "execute" executes the program again. The argument is the plugin.
 */
#define _GNU_SOURCE
#include "work.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

static char **arguments;

NOINLINE long burn(long rounds)
{
    long sum = sink;
    for (long i = 0; i < rounds; i++)
        sum = sum * 5 + i;
    return sum;
}

NOINLINE long level3(long rounds) { return burn(rounds) + 1; }
NOINLINE long level2(long rounds)
{
    volatile char scratch[300];
    scratch[rounds & 0xff] = 1;
    return level3(rounds) + scratch[rounds & 0xff];
}
NOINLINE long level1(long rounds) { return level2(rounds) + 1; }
NOINLINE void callDeep(void) { sink = level1(1000000) + 1; }

NOINLINE long recurse(long depth)
{
    volatile long here = depth;
    return here ? recurse(depth - 1) + here : burn(1000000);
}
NOINLINE void callRecursive(void) { sink = recurse(60) + 1; }

NOINLINE int compare(const void *a, const void *b)
{
    return burn(200) == 42 ? 0 : *(const int *)a - *(const int *)b;
}
NOINLINE void sortNumbers(void)
{
    int numbers[1000];
    for (int i = 0; i < 1000; i++)
        numbers[i] = i * 7919 % 1000;
    qsort(numbers, 1000, sizeof numbers[0], compare);
    sink = numbers[1];
}

/* Breakpoints before a function, like the padding of Go's linker; its first instruction faults. */
void fillPages(char *to, long unused, long unused_too, long bytes);
asm(".p2align 6\n"
    ".skip 64, 0xcc\n"
    ".type fillPages, @function\n"
    "fillPages:\n"
    ".cfi_startproc\n"
    "rep stosb\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size fillPages, .-fillPages\n");
NOINLINE void fillBehindPadding(void)
{
    const long bytes = 32 << 20;
    static char *pages;
    if (!pages)
        pages = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(pages, bytes, MADV_DONTNEED);
    fillPages(pages, 0, 0, bytes);
    sink = pages[0];
}

/* A frame of four pages; it writes to the upper ones first. */
#define FRAME_BYTES 16384
void fillFrame(void);
asm(".type fillFrame, @function\n"
    "fillFrame:\n"
    ".cfi_startproc\n"
    "sub $16384, %rsp\n"
    ".cfi_adjust_cfa_offset 16384\n"
    "lea 16384(%rsp), %rax\n"
    "1: sub $4096, %rax\n"
    "movb $0, (%rax)\n"
    "cmp %rsp, %rax\n"
    "jne 1b\n"
    "add $16384, %rsp\n"
    ".cfi_adjust_cfa_offset -16384\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size fillFrame, .-fillFrame\n");
NOINLINE void fillFreshFrames(void)
{
    const long page = 4096;
    char *top = (char *)((long)__builtin_frame_address(0) & -page) - page;
    for (int i = 0; i < 100; i++) {
        madvise(top - FRAME_BYTES - page, FRAME_BYTES + page, MADV_DONTNEED);
        fillFrame();
    }
}

static long (*plugin_work)(long rounds);
NOINLINE void callPlugin(void)
{
    if (!plugin_work) {
        void *plugin = dlopen(arguments[1], RTLD_NOW);
        if (plugin)
            plugin_work = (long (*)(long))dlsym(plugin, "plugin_work");
        if (!plugin_work)
            exit(3);
    }
    sink = plugin_work(1000000) + 1;
}

/* mov rax, rdi; loop: dec rax; jnz loop; ret */
static const unsigned char loop[] = {0x48, 0x89, 0xf8, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3};
static long (*written)(long rounds);
NOINLINE void callWritten(void)
{
    if (!written) {
        void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(page, loop, sizeof loop);
        mprotect(page, 4096, PROT_READ | PROT_EXEC);
        written = (long (*)(long))page;
    }
    sink = written(1000000) + 1;
}

NOINLINE void *inThread(void *unused)
{
    (void)unused;
    sink = level1(1000000) + 1;
    return 0;
}
NOINLINE void startThreads(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, inThread, 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
}

NOINLINE void *endAtOnce(void *unused)
{
    return unused;
}
NOINLINE void startIdle(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, endAtOnce, 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
}

NOINLINE void moveBetween(void)
{
    static cpu_set_t allowed;
    static int at;
    cpu_set_t one;
    if (!CPU_COUNT(&allowed))
        sched_getaffinity(0, sizeof allowed, &allowed);
    do
        at = (at + 1) % CPU_SETSIZE;
    while (!CPU_ISSET(at, &allowed));
    CPU_ZERO(&one);
    CPU_SET(at, &one);
    if (sched_setaffinity(0, sizeof one, &one))
        exit(4);
    sink = level1(1000000) + 1;
}

static void handle(int number) { sink += number; }
NOINLINE void raiseSignals(void)
{
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, 0);
    for (int i = 0; i < 1000; i++)
        raise(SIGUSR1);
}

NOINLINE void execute(void)
{
    execv("/proc/self/exe", arguments);
    exit(5);
}

static const struct work works[] = {
    {"callDeep", callDeep},         {"callRecursive", callRecursive},
    {"fillBehindPadding", fillBehindPadding}, {"fillFreshFrames", fillFreshFrames},
    {"sortNumbers", sortNumbers},   {"callPlugin", callPlugin},
    {"callWritten", callWritten},   {"startThreads", startThreads},
    {"moveBetween", moveBetween},   {"execute", execute},
    {"startIdle", startIdle},       {"raiseSignals", raiseSignals},
};

int main(int count, char **values)
{
    if (count != 2)
        return 2;
    arguments = values;
    return obey(works, sizeof works / sizeof works[0]);
}
