/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Sums by stack. */
#ifndef EBPFPROF_TOTALS_H
#define EBPFPROF_TOTALS_H

#include "common/loss.h"
#include "probes/target.h"
#include "probes/fp_unwind.h"
#if WITH_LABELS
#include "common/labels.h"
#endif

#define COUNT_ONE (1ULL << COUNT_SHIFT)

#define KIND_BLOCK 0
#define KIND_MUTEX 1 /* that of a goroutine that releases, or wakes (wakers.h) */
#define KIND_ALLOCATION 2
#define KIND_THREAD 3 /* that of a thread without a goroutine, which wakes one (wakers.h) */

/* Sums of one stack since the start. */
struct total {
    u64 count; /* in units of 1/COUNT_ONE: with sampling, a short wait stands for several */
    u64 delay_ns;
};

BPF_HASH(totals, u64, struct total, MAX_STACKS);
BPF_HASH(stacks, u64, struct stack, MAX_STACKS);
/*
 * Programs may give each request labels of its own, or a lock. Their stacks must not fill the
 * table: once there are as many as ..._most allows, events with new labels are added up without
 * labels, and those of new locks as OTHER_LOCKS.
 */
struct stack_count {
    u64 stacks; /* in ..._made: ever stored; in ..._most: allowed, written by user space only */
};
#if WITH_LABELS
BPF_ARRAY(labelled_made, struct stack_count, 1);
BPF_ARRAY(labelled_most, struct stack_count, 1);
#endif
#if BY_LOCK
#define OTHER_LOCKS 1 /* in place of a semaphore's address, which is a multiple of 4 */
BPF_ARRAY(locked_made, struct stack_count, 1);
BPF_ARRAY(locked_most, struct stack_count, 1);
#endif

/* The group of an event of the goroutine g. */
static __always_inline struct group group_of(u32 target_index, u32 kind, u64 g,
                                             const struct target *target) {
    struct group group = {.target = target_index, .kind = kind};
#if WITH_LABELS
    group.labels = label_set_of(g, target->labels_offset, target->labels_in_slice,
                                label_owner(target_index, 0));
#endif
    return group;
}

/* Stores the walked stack if it is new; returns its key, 0 if it is lost. */
static __always_inline u64 stack_key(struct walker *walker) {
    u64 hash = stack_hash(walker);
    if (walker->loss >= 0)
        count_loss(walker->loss, walker->stack.group.target);
    if (totals.lookup(&hash))
        return hash;
#if BY_LOCK
    int first = 0;
    struct stack_count *locked = locked_made.lookup(&first);
    struct stack_count *locked_at_most = locked_most.lookup(&first);
    if (!locked || !locked_at_most)
        return 0;
    if (walker->stack.group.sema && locked->stacks >= locked_at_most->stacks) {
        count_loss(LOSS_locks_many, walker->stack.group.target);
        walker->stack.group.sema = OTHER_LOCKS;
        hash = stack_hash(walker);
        if (totals.lookup(&hash))
            return hash;
    }
#endif
#if WITH_LABELS
    int zero = 0;
    struct stack_count *made = labelled_made.lookup(&zero), *most = labelled_most.lookup(&zero);
    if (!made || !most)
        return 0;
    if (walker->stack.group.labels && made->stacks >= most->stacks) {
        count_loss(LOSS_labelled_full, walker->stack.group.target);
        walker->stack.group.labels = 0;
        hash = stack_hash(walker);
        if (totals.lookup(&hash))
            return hash;
    }
#endif
    if (stacks.update(&hash, &walker->stack)) {
        count_loss(LOSS_stacks_full, walker->stack.group.target);
        return 0;
    }
    struct total none = {};
    s64 failure = totals.insert(&hash, &none);
    /* No branches: with one, the verifier would try all that follows twice. */
#if BY_LOCK
    u64 sema = walker->stack.group.sema & ~(u64)OTHER_LOCKS;
    __sync_fetch_and_add(&locked->stacks, (1 + (failure >> 63)) & (sema | -sema) >> 63);
#endif
#if WITH_LABELS
    u64 labels = walker->stack.group.labels;
    __sync_fetch_and_add(&made->stacks, (1 + (failure >> 63)) & (labels | -labels) >> 63);
#endif
    return hash;
}

static __always_inline void add_to(u64 key, const struct total *more, u32 target_index) {
    struct total *total = totals.lookup(&key);
    if (!total) {
        count_loss(LOSS_totals_full, target_index);
        return;
    }
    __sync_fetch_and_add(&total->count, more->count);
    __sync_fetch_and_add(&total->delay_ns, more->delay_ns);
}

#endif
