/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The process that is traced, and how to read its runtime's structs.
 */
#ifndef EBPFPROF_TRACED_H
#define EBPFPROF_TRACED_H

#include "common/loss.h"
#include "probes/fp_unwind.h"
#include "probes/target.h"
#include "trace/waited_for.h"

#define KIND_TRACE 3
#define SLEEP_FRAMES 24 /* of the kernel */

/* What a trace needs of the process besides struct target. */
struct traced {
    u32 tgid;             /* as the kernel numbers it; 0: known from its first moment or switch */
    u32 own_tgid;         /* as its own pid namespace numbers it */
    u64 namespace_device; /* of that namespace */
    u64 namespace_inode;
    u64 text_start; /* of Go's code */
    u64 text_bytes;
    u64 coro_start; /* of runtime.corostart, where a new coroutine begins */
    u32 g0_offset;  /* of runtime.m.g0 */
    s32 tls_offset;
    u32 goid_offset;
    u32 sequence_offset; /* of runtime.g.trackingSeq */
    u32 start_pc_offset;
    u32 coro_offset; /* of runtime.g.coroarg; 0: there is none */
    u32 coro_exit_offset;
    u32 coro_g_offset; /* of runtime.coro.gp */
    u32 pc_offset;     /* of runtime.g.sched.pc */
    u32 p_offset;      /* of runtime.m.p */
    u32 old_p_offset;
    u32 tick_offset; /* of runtime.m.syscalltick */
    u32 p_id_offset;
    struct wait_layout waits;
    u32 syscall_pc_offset;
    u32 syscall_bp_offset; /* 0: before Go 1.23 */
    u32 made_in_bx;        /* for goschedImpl: whether the goroutine was made to */
};
BPF_ARRAY(traces, struct traced, 1);
BPF_HASH(stacks, u64, struct stack, MAX_STACKS);

static __always_inline u8 byte_at(u64 address) {
    u8 byte = 0;
    read_user(&byte, sizeof(byte), (void *)address);
    return byte;
}

static __always_inline u64 goid_of(u64 g, const struct traced *traced) {
    return g ? word_at(g + traced->goid_offset) : 0;
}

/* The id of the P whose address is at `at`. */
static __always_inline s32 p_at(u64 at, const struct traced *traced) {
    s32 id = NO_P;
    u64 p = word_at(at);
    if (p && read_user(&id, sizeof(id), (void *)(p + traced->p_id_offset)))
        id = NO_P;
    return id;
}

/* The key of the stack from walker->start on, which is stored if it is new; 0 if it is lost. */
static __always_inline u64 keep_stack(struct walker *walker, const struct target *target) {
    walk_stack(walker, target);
    u64 key = walker->hash;
    if (walker->loss >= 0)
        count_loss(walker->loss, walker->stack.group.target);
    if (!stacks.lookup(&key) && stacks.update(&key, &walker->stack)) {
        count_loss(LOSS_stacks_full, walker->stack.group.target);
        key = 0;
    }
    return key;
}

#endif
