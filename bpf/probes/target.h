/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
#ifndef EBPFPROF_TARGET_H
#define EBPFPROF_TARGET_H

#include "common/keys.h"

/*
 * Where the stack continues below a callback from C: distances in bytes from the frame pointer of
 * the function that runtime.cgocallback called (symbolizer/codeanalysis/cgo_callback.py). return_pc
 * is 0 in programs without callbacks.
 */
struct callback {
    u64 return_pc;
    u64 switch_pc;
    /*
     * A 0 in 64 bits, which the verifier doesn't know to be 0: Linux 6.1 distinguishes stack slots
     * with a 0, with a bounded number and with any number, and would verify the walk for each.
     * Loops begin with it (common/loops.h).
     */
    u64 none;
    u32 switch_offset;
    u32 caller_offset;
    u32 frame_offset;
};

/* One target, with the layout of its Go version. */
struct target {
    u32 active;             /* 0 until all its probes are attached, so that they see whole waits */
    u32 sched_bp_offset;    /* of runtime.g.sched.bp */
    u32 status_offset;      /* of runtime.g.atomicstatus */
    u32 m_offset;           /* of runtime.g.m */
    u32 curg_offset;        /* of runtime.m.curg */
    u32 wait_reason_offset; /* of runtime.g.waitreason */
    u32 labels_offset;      /* of runtime.g.labels; 0: the program never sets them */
    u32 labels_in_slice;    /* Go 1.24 or newer: labels.h */
    u32 g_bytes;            /* how much of a runtime.g start_here reads */
    u64 semaphore_reasons;  /* a bit for each runtime.waitReason that semacquire1 parks with */
    s64 sema_offset;        /* of semacquire1's argument, from its frame pointer */
    u64 lock_callers[LOCK_CALLERS]; /* semacquire1's return addresses in waits for locks */
    struct callback callback;
    u64 begin_ns; /* waits/recorded_time.h */
    u64 end_ns;
    u64 every_until_ns; /* end_ns at most */
};

/* One probe. Its index is the attach cookie of the probe's perf event. */
struct site {
    u64 return_pc;    /* behind the call at this place; 0 if unused */
    u32 target;       /* index into targets */
    u32 is_semaphore; /* a wait in semacquire1 begins here */
    u64 deeper_bytes; /* waits here use so much more of the stack than FIRST_PIECE_BYTES */
};

BPF_ARRAY(targets, struct target, MAX_TARGETS);
BPF_ARRAY(sites, struct site, MAX_SITES);

static __always_inline struct site *site_of(void *ctx) {
    int index = bpf_get_attach_cookie(ctx);
    return sites.lookup(&index);
}

static __always_inline struct target *target_at(int index) {
    return targets.lookup(&index);
}

/* The key of a runtime.g, or of another address, in a target. */
static __always_inline u64 goroutine_key(u64 g, u32 target) {
    return g ^ ((u64)target << TARGET_SHIFT);
}

#endif
