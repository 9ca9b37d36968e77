/* What the C and C++ programs share: the protocol, and a known amount of CPU time. */
#ifndef WORK_H
#define WORK_H

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Neither inlined nor cloned. */
#define NOINLINE __attribute__((noipa))

static volatile long sink;

struct work {
    const char *name;
    void (*run)(void); /* takes some milliseconds */
};

static long long cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Obeys lines "NAME MS": does the work for so many milliseconds of CPU time, prints "done". */
static inline int obey(const struct work *works, int count)
{
    char name[64];
    long ms;

    printf("ready %d\n", getpid());
    fflush(stdout);
    while (scanf("%63s %ld", name, &ms) == 2) {
        const struct work *found = 0;
        for (int i = 0; i < count; i++)
            if (!strcmp(works[i].name, name))
                found = &works[i];
        if (!found)
            return 2;
        for (long long end = cpu_ns() + ms * 1000000; cpu_ns() < end;)
            found->run();
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}

#endif
