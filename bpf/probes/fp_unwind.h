/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Walks a goroutine's stack along its frame pointers. The result is in a map: the BPF stack is too
 * small, and the verifier would go on from each state that a result there can have.
 */
#ifndef EBPFPROF_FP_UNWIND_H
#define EBPFPROF_FP_UNWIND_H

#include "common/loops.h"
#include "common/keys.h"
#include "common/loss.h"
#include "common/memory.h"
#include "probes/goroutine_stack.h"
#include "probes/target.h"

#ifndef BY_SIZE
#define BY_SIZE 0
#endif

#define WALKERS 4
#define KEPT_WORDS 7
/*
 * Read at once, up to the end of the stack: most stacks fit into one piece, and a call of the
 * helper takes longer than copying a kilobyte.
 */
#define PIECE_BYTES 2048
#define PIECE_LAST (PIECE_BYTES - sizeof(struct frame)) /* offset of its last frame */
#define FIRST_PIECE_BYTES 256 /* read at first of a stack whose bounds are not known yet */

/* Equal stacks of different groups have sums of their own. */
struct group {
    u32 target; /* index into targets */
    u32 kind;
    u64 sema;   /* BY_LOCK: the semaphore of the wait or release, or OTHER_LOCKS; else 0 */
                /* BY_SIZE: the size of allocated objects in bytes */
    u64 labels; /* WITH_LABELS: key of the goroutine's labels in label_sets; 0: none */
};

struct stack {
    struct group group;
    u64 depth;
    u64 pcs[MAX_DEPTH]; /* return addresses, innermost first */
};

struct walker {
    u64 is_taken;
    u64 hash;       /* of the return addresses so far; of the group only its target and kind */
    s64 loss;       /* enum loss; -1 for a whole stack, or one deeper than Go itself keeps */
    u64 piece_base; /* where piece is in the target; 0: not read yet */
    u64 piece_last; /* offset of the last frame in it, in bytes */
    u64 piece[PIECE_BYTES / 8];
    u64 next; /* address of the next frame; 0: none */
    u64 g;    /* whose bounds are to be read if they are needed; 0: they are known */
    /* Of the caller, for after the walk: on its stack the verifier would go on from each value. */
    u64 kept[KEPT_WORDS];
    struct start start;
    struct stack stack;
};

/* Several for each CPU: another program may interrupt one that walks. */
BPF_PERCPU_ARRAY(walkers, struct walker, WALKERS);

/* The first hash of a stack, different for each target and kind. */
static __always_inline u64 group_seed(const struct group *group) {
    return group->target + 1 + ((u64)group->kind << 32);
}

/* The key of the walked stack. The lock and the labels come last: stack_key may change them. */
static __always_inline u64 stack_hash(const struct walker *walker) {
    u64 hash = walker->hash;
    if (BY_LOCK || BY_SIZE)
        hash = mix(hash, walker->stack.group.sema);
    return WITH_LABELS ? mix(hash, walker->stack.group.labels) : hash;
}

/* A walker without a start, for give_walker() later; NULL, which is counted, if none is free. */
static __always_inline struct walker *take_walker(const struct group *group) {
    for (int i = 0; i < WALKERS; i++) {
        int index = i;
        struct walker *walker = walkers.lookup(&index);
        if (walker && __sync_val_compare_and_swap(&walker->is_taken, 0, 1) == 0) {
            walker->hash = group_seed(group);
            walker->loss = -1;
            walker->g = 0;
            walker->piece_base = walker->piece_last = 0;
            walker->stack.group = *group;
            walker->stack.depth = 0;
            return walker;
        }
    }
    count_loss(LOSS_goroutine_unreadable, group->target);
    return NULL;
}

static __always_inline void give_walker(struct walker *walker) {
    walker->is_taken = 0;
}

/* Adds a return address; false if the stack is full. */
static __always_inline bool add_pc(struct walker *walker, u64 pc) {
    u64 index = walker->stack.depth;
    OWN_REGISTER(index);
    if (index >= MAX_DEPTH)
        return false;
    walker->stack.pcs[index] = pc;
    walker->hash = mix(walker->hash, pc);
    walker->stack.depth++;
    return true;
}

/*
 * The address of the caller's frame: the saved frame pointer, but in callbacks from C, below which
 * the goroutine's stack continues at known distances (struct callback). One step at a time: each
 * return address that Go puts there is a frame of its own.
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

/* Reads the piece at bp of a stack that ends at `end`; false if the first frame is unreadable. */
static __always_inline bool read_piece(struct walker *walker, u64 bp, u64 end) {
    u64 size_bytes = end - bp;
    OWN_REGISTER(size_bytes);
    if (size_bytes > PIECE_BYTES)
        size_bytes = PIECE_BYTES;
    walker->piece_base = bp;
    walker->piece_last = size_bytes - sizeof(struct frame);
    if (read_user(walker->piece, size_bytes, (void *)bp) == 0)
        return true;
    /* One of its pages is unreadable, but perhaps not that of the frame. */
    walker->piece_last = 0;
    return read_user(walker->piece, sizeof(struct frame), (void *)bp) == 0;
}

/*
 * The start in the running goroutine g, about to park at `site`, without the bounds of its stack.
 * Reads as much of the stack as waits there usually need: most walks end within this piece, at the
 * outermost frame, which has no caller. So they need a single read.
 */
static __always_inline void start_unbounded(struct walker *walker, u64 g, const struct pt_regs *ctx,
                                            const struct target *target, const struct site *site) {
    struct start *start = &walker->start;
    u64 bp = ctx->bp; /* once: verifiers want no pointer into the registers */
    OWN_REGISTER(bp);
    start->bounds.lo = start->bounds.hi = 0;
    start->bp = target->callback.none;
    start->frame.bp = bp;
    start->frame.return_pc = site->return_pc;
    walker->g = g;
    u64 size_bytes = FIRST_PIECE_BYTES + site->deeper_bytes;
    OWN_REGISTER(size_bytes);
    if (size_bytes > PIECE_BYTES)
        size_bytes = PIECE_BYTES;
    if ((bp & 7) || read_user(walker->piece, size_bytes, (void *)bp))
        return; /* perhaps the stack ends before: the walk asks for its bounds */
    walker->piece_base = bp;
    walker->piece_last = size_bytes - sizeof(struct frame);
}

/* Has the next first piece at `site` be larger if this walk had to read on; bp: where it began. */
static __always_inline void learn_depth(const struct walker *walker, u64 bp, struct site *site) {
    if (walker->piece_base > bp && site->deeper_bytes < PIECE_BYTES)
        site->deeper_bytes += FIRST_PIECE_BYTES + site->deeper_bytes;
}

/* Whether the bounds of the stack are in walker->start, or can be read. */
static __always_inline bool bounds_known(struct walker *walker) {
    return walker->start.bounds.hi ||
           read_user(&walker->start.bounds, sizeof(struct bounds), (void *)walker->g) == 0;
}

#if CROSSES_STACKS
/*
 * Where the stack of a thread's g0 ends, that of the goroutine which it runs continues:
 * runtime.systemstack keeps the frame pointer. Reads its bounds; false if there is none.
 */
static __always_inline bool cross_stacks(struct walker *walker, const struct target *target) {
    u64 g0 = walker->g, g = g0 ? running_goroutine(g0, target) : 0;
    walker->g = 0;
    return g && g != g0 && read_user(&walker->start.bounds, sizeof(struct bounds), (void *)g) == 0;
}
#endif

/* Walks the stack from walker->start on. */
static __always_inline void walk_stack(struct walker *walker, const struct target *target) {
    const struct start *start = &walker->start;
    struct frame frame = start->frame;
    u64 bp = start->bp, callback_bp = target->callback.none;

    for (u64 i = FROM_0(target->callback.none); i < MAX_DEPTH && add_pc(walker, frame.return_pc);
         i++) {
        VERIFIED_ONCE;
        /* By way of the map, so that verifiers know nothing of it: each path here is the same. */
        walker->next = frame_below(&frame, bp, &target->callback, &callback_bp);
        u64 next = *(volatile u64 *)&walker->next;
        if (next == 0)
            break;
        u64 offset = next - walker->piece_base;
        if (offset > walker->piece_last) {
            if (!bounds_known(walker)) {
                walker->loss = LOSS_stack_unreadable;
                break;
            }
#if CROSSES_STACKS
            if ((next < start->bounds.lo || next >= start->bounds.hi) &&
                cross_stacks(walker, target))
                bp = target->callback.none;
#endif
            if (next < start->bounds.lo || next >= start->bounds.hi) {
                walker->loss = LOSS_stack_left;
                break;
            }
            if (!lies_in(next, &start->bounds) || !read_piece(walker, next, start->bounds.hi)) {
                walker->loss = LOSS_stack_unreadable;
                break;
            }
            offset = next - walker->piece_base;
        }
        /* A difference: from a comparison, verifiers derive another lower bound each time. */
        if ((s64)(next - bp) <= 0) {
            walker->loss = LOSS_stack_stale;
            break;
        }
        if (offset & 7) {
            walker->loss = LOSS_stack_unreadable;
            break;
        }
        offset >>= 3;
        OWN_REGISTER(offset);
        if (offset > PIECE_LAST / 8)
            break;
        frame.bp = walker->piece[offset];
        frame.return_pc = walker->piece[offset + 1];
        bp = next;
    }
}

#endif
