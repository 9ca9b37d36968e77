/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Who woke whom: sums by pair, the stack that waited and the one that woke it.
 *
 * A wake adds to a pair what it adds to the sum of the stack that waited, so that all pairs of a
 * stack make up its sum. Of an event with several wakes (semacquire1 parks again if another
 * goroutine got the semaphore first), the pair of the first wake has the count, and each one the
 * delay since the wake before. The length is that until the first wake.
 *
 * A stack that wakes is stored as a releaser's, KIND_MUTEX; in pairs without labels and without a
 * lock: there would be a pair for each combination. Timers run on a thread's own stack, g0's, while
 * the thread runs no goroutine: KIND_THREAD.
 */
#ifndef EBPFPROF_WAKERS_H
#define EBPFPROF_WAKERS_H

#include "common/keys.h"
#include "common/loss.h"
#include "probes/fp_unwind.h"
#include "probes/goroutine_stack.h"
#include "probes/totals.h"
#include "waits/lengths.h"
#include "waits/locks.h"
#include "waits/wait.h"

#define NOT_TAKEN (~0ULL) /* in place of a charge: there is no release to record */

/* What a wake has added to the sum of a stack. */
struct added {
    u64 waiter;    /* the key of the stack; 0: nothing was added */
    u64 is_first;  /* it was the first wake of its event that counts */
    u64 length_ns; /* of the wait until this wake, since the wake before if there was one */
    struct total sums;
};

#if WITH_WAKERS
/* What we know of a wake before we walk the stack of the waker. */
struct wake {
    u64 charge_ns; /* of the release that it is; NOT_TAKEN */
    u64 sema;
    struct added added;
};

/* A pair; and of its sums, as struct total has them, those without a row in lengths. */
struct pair {
    u64 waiter; /* keys in stacks */
    u64 waker;  /* 0: it could not be read */
    u64 count;
    u64 delay_ns;
};

BPF_HASH(pairs, u64, struct pair, MAX_PAIRS);
#if !EVERY_EVENT
/* The first wake of an event: the waker's key of the pair that has its count, and its length. */
struct counted_wake {
    u64 waker;
    u64 length_ns;
};
/* By goroutine: that of its last wait. */
BPF_HASH(counted_wakers, u64, struct counted_wake, MAX_WAITS);
#endif

/* The pair with this key, of these stacks; NULL, which is counted, if the table is full. */
static __always_inline struct pair *pair_of(u64 key, u64 waiter, u64 waker, u32 target_index) {
    struct pair *pair = pairs.lookup(&key);
    if (pair)
        return pair;
    struct pair none;
    none.waiter = waiter;
    none.waker = waker;
    none.count = none.delay_ns = 0;
    pairs.insert(&key, &none);
    pair = pairs.lookup(&key);
    if (!pair)
        count_loss(LOSS_pairs_full, target_index);
    return pair;
}

/* Adds what a wake of g by the stack `waker` has added to the sum of the stack that waited. */
static __always_inline void add_to_pair(const struct added *added, u64 waker, u64 g,
                                        u32 target_index) {
    u64 counted = waker, length_ns = added->length_ns;
    struct total more = added->sums;
    if (!waker)
        count_loss(LOSS_waker_unreadable, target_index);
#if !EVERY_EVENT
    /* With sampling, the second wake of an event changes its weight. */
    u64 row = goroutine_key(g, target_index);
    if (added->is_first) {
        struct counted_wake first = {.waker = waker, .length_ns = length_ns};
        counted_wakers.update(&row, &first);
    } else {
        struct counted_wake *first = counted_wakers.lookup(&row);
        if (first) {
            counted = first->waker;
            length_ns = first->length_ns;
        }
    }
    if (counted != waker) {
        struct pair *later = pair_of(mix(added->waiter, waker), added->waiter, waker, target_index);
        if (later)
            __sync_fetch_and_add(&later->delay_ns, more.delay_ns);
        more.delay_ns = 0;
    }
#endif
    u64 key = mix(added->waiter, counted);
    struct pair *pair = pair_of(key, added->waiter, counted, target_index);
    if (pair && !add_to_row(key, length_ns, &more, target_index)) {
        __sync_fetch_and_add(&pair->count, more.count);
        __sync_fetch_and_add(&pair->delay_ns, more.delay_ns);
    }
}

/* The start in a thread's own stack: at the innermost frame, of ready or its caller. */
static __always_inline bool start_on_thread(struct pt_regs *ctx, struct start *start) {
    u64 g0 = ctx->r14, bp = ctx->bp;
    start->bp = bp;
    return read_user(&start->bounds, sizeof(start->bounds), (void *)g0) == 0 &&
           frame_at(bp, &start->bounds, &start->frame);
}

/* The key of the walked stack as a waker's; 0 if it is lost. Counts a release, if it is one. */
static __always_inline u64 waker_key(struct walker *walker, const struct wake *wake,
                                     u32 target_index) {
    if (walker->stack.group.kind == KIND_THREAD)
        walker->loss = -1; /* a thread's own stack has no certain end */
    if (WITH_MUTEX && wake->charge_ns != NOT_TAKEN) {
        add_release(stack_key(walker), wake->charge_ns, target_index);
        walker->loss = -1; /* counted already */
    }
    walker->stack.group.labels = walker->stack.group.sema = 0;
    return stack_key(walker);
}

/* Walks the stack of a waker; 0: the thread runs no goroutine. Adds up what its wake is. */
static __always_inline void note_wake(struct pt_regs *ctx, const struct wake *before, u64 waker,
                                      const struct target *target, u32 target_index) {
    struct group group = {.target = target_index, .kind = waker ? KIND_MUTEX : KIND_THREAD};
    struct walker *walker = take_walker(&group);
    if (!walker) {
        if (before->added.waiter)
            add_to_pair(&before->added, 0, ctx->ax, target_index);
        return;
    }
    struct wake *wake = (struct wake *)walker->kept;
    *wake = *before;
    if (WITH_MUTEX && wake->charge_ns != NOT_TAKEN) {
        walker->stack.group = group_of(target_index, KIND_MUTEX, waker, target);
        if (BY_LOCK)
            walker->stack.group.sema = wake->sema;
    }
    bool found = waker ? start_switched(waker, target, &walker->start)
                       : start_on_thread(ctx, &walker->start);
    u64 key = 0;
    if (found) {
        walk_stack(walker, target);
        key = waker_key(walker, wake, target_index);
    } else if (WITH_MUTEX && wake->charge_ns != NOT_TAKEN) {
        count_loss(LOSS_releaser_unreadable, target_index);
    }
    if (wake->added.waiter)
        add_to_pair(&wake->added, key, ctx->ax, target_index);
    give_walker(walker);
}
#endif

#endif
