/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The stack of a goroutine: a running one's from its registers, a parked one's from its gobuf;
 * both along the frame pointers and inside the stack's bounds.
 *
 * Go keeps frame pointers on amd64 in every function that has a frame, and newproc zeroes
 * the saved one of the outermost (runtime/proc.go, Go 1.19 to 1.27).
 *
 * No other thread moves the stack of a running goroutine. The garbage collector may move that of
 * a parked one (runtime/stack.go, copystack). It does so with the scan bit set in g.atomicstatus,
 * and makes first g.sched.bp, then g.stack, then the saved frame pointers one by one point into
 * the new stack. So if the bounds are the same before and after, and the frame pointers lead from
 * one end to the other inside of them, we have read one stack; if not, and that bit is set, we
 * assume a move.
 */
#ifndef EBPFPROF_GOROUTINE_STACK_H
#define EBPFPROF_GOROUTINE_STACK_H

#include "common/loss.h"
#include "common/memory.h"
#include "probes/target.h"

#define G_SCAN 0x1000 /* runtime._Gscan */
#define G_SCHED_PC 64 /* offset of runtime.g.sched.pc, Go 1.19 to 1.27 */

/* The first words of a runtime.g: the bounds of its stack. */
struct bounds {
    u64 lo;
    u64 hi;
};

/* What a Go frame pointer points at. */
struct frame {
    u64 bp;
    u64 return_pc;
};

#define G_WORDS 64 /* read of a runtime.g at most */

/* Where a walk begins: at the frame that returns to the operation that blocks. */
struct start {
    struct bounds bounds;
    u64 bp; /* address of that frame; 0 before it exists, or after */
    struct frame frame;
};

static __always_inline bool lies_in(u64 bp, const struct bounds *bounds) {
    return bp >= bounds->lo && bp < bounds->hi && bounds->hi - bp >= sizeof(struct frame) &&
           (bp & 7) == 0;
}

static __always_inline bool frame_at(u64 bp, const struct bounds *bounds, struct frame *frame) {
    return lies_in(bp, bounds) && read_user(frame, sizeof(*frame), (void *)bp) == 0;
}

/* Whether the runtime moved the stack of g while we read it; seemed_whole: the walk's result. */
static __always_inline bool stack_moved(u64 g, const struct target *target,
                                        const struct bounds *before, bool seemed_whole) {
    struct bounds now = {};
    u32 status = G_SCAN;
    read_user(&now, sizeof(now), (void *)g);
    if (now.lo != before->lo || now.hi != before->hi)
        return true;
    if (seemed_whole)
        return false;
    read_user(&status, sizeof(status), (void *)(g + target->status_offset));
    return status & G_SCAN;
}

/*
 * The start in the running goroutine g, about to park in a call that returns to return_pc. It reads
 * all that we need of the runtime.g into `words`, of G_WORDS words, at once: each read takes longer
 * than copying some hundred bytes.
 */
static __always_inline bool start_here(u64 g, const struct pt_regs *ctx,
                                       const struct target *target, u64 return_pc, u64 *words,
                                       u32 target_index, struct start *start) {
    start->bp = target->callback.none;
    start->frame.bp = ctx->bp;
    start->frame.return_pc = return_pc;
    if (read_user(words, target->g_bytes % (8 * G_WORDS), (void *)g)) {
        /* Perhaps only its end is unreadable; the kernel has made all of `words` 0. */
        if (read_user(words, sizeof(start->bounds), (void *)g))
            return false;
        if (WITH_LABELS)
            count_loss(LOSS_labels_unreadable, target_index);
    }
    start->bounds.lo = words[0];
    start->bounds.hi = words[1];
    return true;
}

/* The word at an offset of the runtime.g that start_here has read. */
static __always_inline u64 word_of_g(const u64 *words, u64 offset) {
    return words[offset / 8 % G_WORDS];
}

/*
 * The start in g, parked in a call that returns to return_pc: as a rule the frame of gopark. In
 * profile-guided builds it may be the second frame, that of goparkunlock; or the compiler inlined
 * gopark: then the saved pc is return_pc, and the saved frame pointer is the operation's. Returns
 * false if it finds none.
 */
static __always_inline bool start_parked(u64 g, const struct target *target, u64 return_pc,
                                         struct start *start) {
    u64 pc;
    if (read_user(&start->bounds, sizeof(start->bounds), (void *)g) != 0 ||
        read_user(&start->bp, sizeof(start->bp), (void *)(g + target->sched_bp_offset)) != 0 ||
        !frame_at(start->bp, &start->bounds, &start->frame))
        return false;
    if (start->frame.return_pc == return_pc)
        return true;
    if (read_user(&pc, sizeof(pc), (void *)(g + G_SCHED_PC)) == 0 && pc == return_pc) {
        start->frame.bp = start->bp;
        start->frame.return_pc = pc;
        start->bp = target->callback.none;
        return true;
    }
    start->bp = start->frame.bp;
    return frame_at(start->bp, &start->bounds, &start->frame) &&
           start->frame.return_pc == return_pc;
}

/* The goroutine that the thread with this g0 runs; 0 if there is none. */
static __always_inline u64 running_goroutine(u64 g0, const struct target *target) {
    u64 m = 0, g = 0;
    if (read_user(&m, sizeof(m), (void *)(g0 + target->m_offset)) == 0)
        read_user(&g, sizeof(g), (void *)(m + target->curg_offset));
    return g;
}

/* The start in g, which runs on its thread's g0 (runtime.systemstack). */
static __always_inline bool start_switched(u64 g, const struct target *target,
                                           struct start *start) {
    return g && read_user(&start->bounds, sizeof(start->bounds), (void *)g) == 0 &&
           read_user(&start->bp, sizeof(start->bp), (void *)(g + target->sched_bp_offset)) == 0 &&
           frame_at(start->bp, &start->bounds, &start->frame);
}

#endif
