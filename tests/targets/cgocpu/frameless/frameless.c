#include "frameless.h"

/* Neither inlined nor cloned. */
#define NOINLINE __attribute__((noipa))

extern void framelessCallback(long rounds);

/* The locals in memory make frames of their own size; the sums keep calls from being jumps. */
NOINLINE static long frameless_leaf(long rounds)
{
    volatile long sum = 0;
    for (long i = 0; i < rounds; i++)
        sum += i * i;
    return sum;
}

NOINLINE static long frameless_middle(long rounds)
{
    volatile char scratch[200];
    scratch[rounds & 0x7f] = 1;
    return frameless_leaf(rounds) + scratch[rounds & 0x7f];
}

NOINLINE long frameless_outer(long rounds)
{
    return frameless_middle(rounds) * 3;
}

NOINLINE long frameless_back(long rounds)
{
    volatile long before = rounds;
    framelessCallback(rounds);
    return before;
}
