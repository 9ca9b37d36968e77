/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
#ifndef EBPFPROF_COST_H
#define EBPFPROF_COST_H

/*
 * What our programs cost one target, by processor. Looking at the clock twice would be a good part
 * of that, so one run of many is timed: of a prime number, lest it always be the same of two
 * probes that take turns. At first it is one of few, else a short recording would know nothing.
 */
#define TIMED_EVERY 61
#define AT_FIRST_EVERY 5
#define AT_FIRST 16 /* runs that are timed */
/*
 * No run takes that long by itself: an interrupt, another thread or a hypervisor came in between.
 * Where that was shorter, or caches were cold, the longest run tells: it is kept out of the sums.
 */
#define INTERRUPTED_NS 50000

struct cost {
    u64 runs;
    u64 timed;      /* how many of them were timed, without the longest */
    u64 timed_ns;   /* how long those took */
    u64 longest_ns; /* how long the longest took */
    u64 began_ns;   /* when the one began that is being timed; 0: none is */
    u64 untimed;    /* how many more pass before the next is timed; a division would cost more */
};

BPF_PERCPU_ARRAY(costs, struct cost, MAX_TARGETS);

/* NULL for no target only. What is remembered is kept in the map: the verifier would try each. */
static __always_inline struct cost *run_begins(int target) {
    struct cost *cost = costs.lookup(&target);
    if (cost) {
        cost->runs++;
        cost->began_ns = 0;
        if (cost->untimed) {
            cost->untimed--;
        } else {
            cost->untimed = cost->timed < AT_FIRST ? AT_FIRST_EVERY - 1 : TIMED_EVERY - 1;
            cost->began_ns = bpf_ktime_get_ns();
        }
    }
    return cost;
}

static __always_inline void run_ends(struct cost *cost) {
    u64 took_ns = cost->began_ns ? bpf_ktime_get_ns() - cost->began_ns : INTERRUPTED_NS;
    if (took_ns < INTERRUPTED_NS) {
        u64 longest_ns = cost->longest_ns;
        if (took_ns > longest_ns) {
            cost->longest_ns = took_ns;
            took_ns = longest_ns; /* that it is not any more */
        }
        cost->timed_ns += took_ns;
        cost->timed += took_ns > 0;
    }
}

#endif
