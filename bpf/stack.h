/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The stack of a goroutine: of the one that runs, from its registers, or of one that is parked,
 * from its gobuf; either way along the frame pointers and inside the stack's bounds.
 *
 * Go keeps frame pointers on amd64 in every function that has a frame, and newproc zeroes
 * the saved one of the outermost (runtime/proc.go, Go 1.19 to 1.27).
 *
 * Nobody moves the stack of a goroutine that runs. That of a parked one the garbage collector
 * may move (runtime/stack.go, copystack). It does so with the scan bit set in g.atomicstatus,
 * and first g.sched.bp, then g.stack, then the saved frame pointers one by one come to point
 * into the new stack. So if the bounds are the same before and after, and the frame pointers
 * lead from one end to the other inside of them, what was read is one stack; everything else
 * is taken for a move while that bit is set.
 */
#ifndef EBPFPROF_STACK_H
#define EBPFPROF_STACK_H

#include "loss.h"
#include "memory.h"
#include "target.h"

#define G_SCAN 0x1000 /* runtime._Gscan */
#define G_SCHED_PC 64 /* offset of runtime.g.sched.pc, Go 1.19 to 1.27 */

/* The part of a runtime.g that says where its stack lies. */
struct bounds {
    u64 lo;
    u64 hi;
};

/* What a Go frame pointer points at. */
struct frame {
    u64 bp;
    u64 return_pc;
};

/* Where a walk begins: at the frame that returns to the operation that blocks. */
struct start {
    struct bounds bounds;
    u64 bp; /* address of that frame; 0 where there is none yet, or no longer */
    struct frame frame;
};

static __always_inline bool frame_at(u64 bp, const struct bounds *bounds, struct frame *frame) {
    return bp >= bounds->lo && bp < bounds->hi - 8 && (bp & 7) == 0 &&
           read_user(frame, sizeof(*frame), (void *)bp) == 0;
}

/* Whether the stack of g was moved while it was read, given whether it seemed to be whole. */
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

/* The start in the running goroutine g, about to park in a call that returns to return_pc. */
static __always_inline bool start_here(u64 g, const struct pt_regs *ctx,
                                       const struct target *target, u64 return_pc,
                                       struct start *start) {
    start->bp = target->callback.none;
    start->frame.bp = ctx->bp;
    start->frame.return_pc = return_pc;
    return read_user(&start->bounds, sizeof(start->bounds), (void *)g) == 0;
}

/*
 * The start in g, parked in a call that returns to return_pc. As a rule that is the frame of
 * gopark. In profile-guided builds goparkunlock may have a frame of its own, and its is the
 * second; or gopark was inlined: the saved pc is that return address then, and the saved frame
 * pointer already the operation's. Returns false if it can't be found.
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

/* The goroutine that runs on the thread whose g0 this is; 0 if there is none. */
static __always_inline u64 running_goroutine(u64 g0, const struct target *target) {
    u64 m = 0, g = 0;
    if (read_user(&m, sizeof(m), (void *)(g0 + target->m_offset)) == 0)
        read_user(&g, sizeof(g), (void *)(m + target->curg_offset));
    return g;
}

/* The start in g, which has switched to its thread's g0 (runtime.systemstack) and runs there. */
static __always_inline bool start_switched(u64 g, const struct target *target,
                                           struct start *start) {
    return g && read_user(&start->bounds, sizeof(start->bounds), (void *)g) == 0 &&
           read_user(&start->bp, sizeof(start->bp), (void *)(g + target->sched_bp_offset)) == 0 &&
           frame_at(start->bp, &start->bounds, &start->frame);
}

struct walk {
    u64 hash;
    u32 depth;
    int loss; /* enum loss, or -1 for a stack that is whole, or deeper than Go itself keeps */
};

/*
 * Where a frame's caller has its frame: at the saved frame pointer, but for callbacks from C,
 * below which the goroutine's stack goes on at known distances (struct callback). One step at
 * a time: each return address that Go puts there is a frame of its own.
 */
static __always_inline u64 frame_below(const struct frame *frame, u64 bp,
                                       const struct callback *callback, u64 *callback_bp) {
    if (frame->return_pc == callback->return_pc) {
        *callback_bp = bp;
        return bp + callback->switch_offset - 8;
    }
    if (bp == *callback_bp + callback->switch_offset - 8) {
        if (frame->return_pc != callback->switch_pc)
            return 0; /* C called first: no Go below */
        return *callback_bp +
               (callback->caller_offset ? callback->caller_offset - 8 : callback->frame_offset);
    }
    if (callback->caller_offset && bp == *callback_bp + callback->caller_offset - 8)
        return *callback_bp + callback->frame_offset;
    return frame->bp;
}

/* Adds a return address, the i-th, to what was walked; stores it where pcs is not NULL. */
static __always_inline void take_pc(struct walk *walk, u64 pc, int i, u64 *pcs) {
    walk->hash = (walk->hash ^ pc) * 0x9e3779b97f4a7c15ULL;
    walk->hash ^= walk->hash >> 32;
    if (pcs)
        pcs[i] = pc;
    walk->depth = i + 1;
}

/*
 * Follows the frame pointers and hashes the return addresses, beginning with seed; stores them
 * where pcs is not NULL. Two walks of one stack give the same hash, which is its key in the maps.
 */
static __always_inline struct walk walk_stack(const struct start *start,
                                              const struct target *target, u64 seed, u64 *pcs) {
    struct walk walk = {.hash = seed, .loss = -1};
    struct frame frame = start->frame;
    u64 bp = start->bp, callback_bp = target->callback.none;

    for (int i = 0; i < MAX_DEPTH; i++) {
        take_pc(&walk, frame.return_pc, i, pcs);

        u64 next = frame_below(&frame, bp, &target->callback, &callback_bp);
        if (next == 0)
            break;
        if (next < start->bounds.lo || next >= start->bounds.hi) {
            walk.loss = LOSS_stack_left;
            break;
        }
        if (next <= bp || !frame_at(next, &start->bounds, &frame)) {
            walk.loss = LOSS_stack_unreadable;
            break;
        }
        bp = next;
    }
    return walk;
}

#endif
