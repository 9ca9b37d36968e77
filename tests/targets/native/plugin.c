/* A library that cwork loads late. */
#define NOINLINE __attribute__((noipa)) /* nor cloned */

NOINLINE static long plugin_inner(long rounds)
{
    volatile long sum = 0;
    for (long i = 0; i < rounds; i++)
        sum += i;
    return sum;
}

NOINLINE static long plugin_middle(long rounds)
{
    return plugin_inner(rounds) + 2;
}

long plugin_work(long rounds)
{
    return plugin_middle(rounds) * 5;
}
