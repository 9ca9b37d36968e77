/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Sums by stack. */
#ifndef EBPFPROF_TOTALS_H
#define EBPFPROF_TOTALS_H

#include "loss.h"
#include "stack.h"
#include "target.h"
#if WITH_LABELS
#include "labels.h"
#endif

#define COUNT_ONE (1ULL << COUNT_SHIFT)

#define KIND_BLOCK 0
#define KIND_MUTEX 1

/* What is added up apart, even where the stack is the same. */
struct group {
    u32 target; /* index into targets */
    u32 kind;
    u64 sema;   /* BY_LOCK: the semaphore that was waited for or released; else 0 */
    u64 labels; /* WITH_LABELS: key of the goroutine's in label_sets; 0: it has none */
};

struct stack {
    struct group group;
    u64 depth;          /* 0 while it is being written */
    u64 pcs[MAX_DEPTH]; /* return addresses, innermost first */
};

/* Sums of one stack since the start. */
struct total {
    u64 count; /* in units of 1/COUNT_ONE: a sampled short wait stands for several */
    u64 delay_ns;
};

BPF_HASH(totals, u64, struct total, MAX_STACKS);
BPF_HASH(stacks, u64, struct stack, MAX_STACKS);
BPF_ARRAY(empty_stack, struct stack, 1);

/* Where the hash of a stack begins, so that groups have keys of their own. */
static __always_inline u64 group_seed(const struct group *group) {
    u64 seed = group->target + 1 + ((u64)group->kind << 32);
    if (BY_LOCK)
        seed ^= group->sema * 0x9e3779b97f4a7c15ULL;
    return WITH_LABELS ? seed ^ group->labels : seed;
}

/* What is added up for something that the goroutine g did. */
static __always_inline struct group group_of(u32 target_index, u32 kind, u64 g,
                                             const struct target *target) {
    struct group group = {.target = target_index, .kind = kind};
#if WITH_LABELS
    group.labels = label_set(g, target->labels_offset, target->labels_in_slice);
#endif
    return group;
}

/* Room for a stack that was not seen before; NULL if there is none. */
static __always_inline struct stack *new_stack(u64 hash) {
    int zero = 0;
    struct stack *empty = empty_stack.lookup(&zero);
    if (!empty || stacks.update(&hash, empty)) {
        count_loss(LOSS_stacks_full);
        return NULL;
    }
    return stacks.lookup(&hash);
}

/* Makes a new stack known, whose walk stored it, and makes room for its sums. */
static __always_inline bool keep_stack(struct stack *stack, const struct walk *walk, u64 hash,
                                       const struct group *group) {
    struct total none = {};
    if (walk->hash != hash) { /* it was moved just now */
        stacks.delete(&hash);
        count_loss(LOSS_stack_moving);
        return false;
    }
    stack->group = *group;
    stack->depth = walk->depth;
    totals.insert(&hash, &none);
    return true;
}

/* Stores a stack that was not seen before. */
static __always_inline bool remember(u64 hash, const struct start *start,
                                     const struct target *target, const struct group *group) {
    struct stack *stack = new_stack(hash);
    if (!stack)
        return false;
    struct walk walk = walk_stack(start, target, group_seed(group), stack->pcs);
    return keep_stack(stack, &walk, hash, group);
}

/* The key of the stack that begins at start; 0 if it is lost. */
static __always_inline u64 stack_key(const struct walk *walk, const struct start *start,
                                     const struct target *target, const struct group *group) {
    u64 hash = walk->hash;
    if (walk->loss >= 0)
        count_loss(walk->loss);
    if (!totals.lookup(&hash) && !remember(hash, start, target, group))
        return 0;
    return hash;
}

static __always_inline void add_to(u64 key, const struct total *more) {
    struct total *total = totals.lookup(&key);
    if (!total) {
        count_loss(LOSS_totals_full);
        return;
    }
    __sync_fetch_and_add(&total->count, more->count);
    __sync_fetch_and_add(&total->delay_ns, more->delay_ns);
}

#endif
