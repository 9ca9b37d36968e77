/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The current or last wait of a goroutine; and Go's sampling of waits.
 */
#ifndef EBPFPROF_WAIT_H
#define EBPFPROF_WAIT_H

#include "probes/totals.h"

enum state {
    OVER,  /* we don't know what it waits for now */
    WAITS, /* in an operation with a probe */
    WOKEN, /* from one */
};

/* The current or last wait of a goroutine. */
struct wait {
    u64 start_ns;   /* when the operation began to wait */
    u64 since_ns;   /* that, or the time of its last wake in this wait */
    u64 stack;      /* key in totals and stacks; 0: unknown */
    u64 return_pc;  /* of the call in which it parks */
    u64 counted_ns; /* its delay that is in totals already; 0: none */
    u64 draw_ns;    /* sampling drops a shorter wait than this; 0: not drawn yet */
    u64 sema;       /* address of the semaphore of the lock it waits for; 0: no lock */
    u32 state;      /* enum state */
    u8 is_queued;   /* it is in the queue of that lock */
    u8 is_semaphore;
    u8 is_seeded; /* it waited when the recording began */
};

BPF_HASH(waits, u64, struct wait, MAX_WAITS);

/* Go's sampling by duration (runtime/mprof.go, blocksampled and saveBlockEventStack). */
static __always_inline bool sampled(struct wait *wait, u64 delay_ns) {
    if (EVERY_EVENT || delay_ns >= BLOCK_RATE_NS)
        return true;
    if (wait->draw_ns == 0) {
        u64 random = bpf_get_prandom_u32();
        if (BLOCK_RATE_NS >> 32)
            random = (random << 32 | bpf_get_prandom_u32()) % BLOCK_RATE_NS;
        else
            random = random * BLOCK_RATE_NS >> 32; /* a division would take longer */
        wait->draw_ns = 1 + random;
    }
    return delay_ns >= wait->draw_ns;
}

/* What a recorded wait adds: a short one also stands for those that sampling drops. */
static __always_inline struct total weight(u64 delay_ns) {
    struct total total = {.count = COUNT_ONE, .delay_ns = delay_ns};
    if (delay_ns == 0) {
        total.count = 0;
    } else if (!EVERY_EVENT && delay_ns < BLOCK_RATE_NS) {
        total.count = (BLOCK_RATE_NS << COUNT_SHIFT) / delay_ns;
        total.delay_ns = BLOCK_RATE_NS;
    }
    return total;
}

#endif
