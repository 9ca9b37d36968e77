/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
#ifndef EBPFPROF_COST_H
#define EBPFPROF_COST_H

/*
 * What our programs cost one target, by CPU. Reading the clock twice would be a good part of that,
 * so we time one run in many. The interval is a prime: with an even one and two alternating probes,
 * it would always be the same probe. At first we time more runs, for short recordings.
 */
#define TIMED_EVERY 61
#define AT_FIRST_EVERY 5
#define AT_FIRST 16 /* timed runs */
/*
 * No run takes this long by itself: an interrupt, another thread or a hypervisor delayed it, and
 * the sums leave it out. They also leave out the longest other run, which a shorter interruption
 * or cold caches may have delayed.
 */
#define INTERRUPTED_NS 50000

struct cost {
    u64 runs;
    u64 timed;      /* timed runs, without the longest */
    u64 timed_ns;   /* their duration */
    u64 longest_ns; /* duration of the longest */
    u64 began_ns;   /* begin of this run; 0: it is not timed */
    u64 untimed;    /* runs to skip until the next timed one; a division would cost more */
};

BPF_PERCPU_ARRAY(costs, struct cost, MAX_TARGETS);

/* NULL without a target only. State is in the map: of a variable, verifiers try each value. */
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
            took_ns = longest_ns; /* the former longest */
        }
        cost->timed_ns += took_ns;
        cost->timed += took_ns > 0;
    }
}

#endif
