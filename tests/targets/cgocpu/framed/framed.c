#include "framed.h"

/* Neither inlined nor cloned. */
#define NOINLINE __attribute__((noipa))

extern void framedCallback(long rounds);

/* The locals in memory make frames of their own size; the sums keep calls from being jumps. */
NOINLINE static long framed_leaf(long rounds)
{
    volatile long sum = 0;
    for (long i = 0; i < rounds; i++)
        sum += i * i;
    return sum;
}

NOINLINE static long framed_middle(long rounds)
{
    volatile char scratch[200];
    scratch[rounds & 0x7f] = 1;
    return framed_leaf(rounds) + scratch[rounds & 0x7f];
}

NOINLINE long framed_outer(long rounds)
{
    return framed_middle(rounds) * 3;
}

NOINLINE long framed_back(long rounds)
{
    volatile long before = rounds;
    framedCallback(rounds);
    return before;
}
