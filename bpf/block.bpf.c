/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The block profile: how long goroutines were parked in channel operations, select and the
 * semaphores below sync, added up by stack.
 *
 * on_wait stands where such an operation is about to park, once an operation; on_wake in
 * runtime.ready, which makes the goroutine runnable again. An operation may park more than
 * once (semacquire1 does when another goroutine is quicker at the semaphore). To Go that is
 * one event, from the first park to the last wake. So a wake counts the event at once, and
 * a second wake without a new on_wait in between only adds the difference.
 *
 * With every event taken, the stack is walked before the goroutine parks: it is in this
 * processor's cache, and nobody moves it. With sampling, BLOCK_RATE_NS > 1, it is walked at the
 * wake, when it is known whether the event is kept.
 */
#include "loss.h"
#include "stack.h"
#include "target.h"

#define COUNT_ONE (1ULL << COUNT_SHIFT)
#define EVERY_EVENT (BLOCK_RATE_NS == 1)
#define MOVE_SPINS 64

/* The wait that a goroutine is in, or was in last. */
struct wait {
    u64 start_ns;   /* 0: none */
    u64 stack;      /* key in totals and stacks; 0: not known yet */
    u64 return_pc;  /* of the call in which it parks */
    u64 counted_ns; /* what the totals hold of it already; 0: nothing */
    u64 draw_ns;    /* waits shorter than this are left out by sampling; 0: not drawn yet */
};

/* Sums of one stack since the start. */
struct total {
    u64 count; /* in units of 1/COUNT_ONE: a sampled short wait stands for several */
    u64 delay_ns;
};

BPF_HASH(waits, u64, struct wait, MAX_WAITS);
BPF_HASH(totals, u64, struct total, MAX_STACKS);
BPF_HASH(stacks, u64, struct stack, MAX_STACKS);
BPF_ARRAY(empty_stack, struct stack, 1);

/* Makes room for the sums of a stack that was not seen before, and stores it. */
static __always_inline bool remember(u64 hash, const struct start *start,
                                     const struct target *target, u32 target_index) {
    int zero = 0;
    struct total none = {};
    struct stack *empty = empty_stack.lookup(&zero);
    if (!empty || stacks.update(&hash, empty)) {
        count_loss(LOSS_stacks_full);
        return false;
    }
    struct stack *stack = stacks.lookup(&hash);
    if (!stack)
        return false;
    struct walk walk = walk_stack(start, target, target_index, stack->pcs);
    if (walk.hash != hash) { /* it was moved just now */
        stacks.delete(&hash);
        count_loss(LOSS_stack_moving);
        return false;
    }
    stack->target = target_index;
    stack->depth = walk.depth;
    totals.insert(&hash, &none);
    return true;
}

/* The key of the stack that begins at start; 0 if it is lost. */
static __always_inline u64 stack_key(const struct walk *walk, const struct start *start,
                                     const struct target *target, u32 target_index) {
    u64 hash = walk->hash;
    if (walk->loss >= 0)
        count_loss(walk->loss);
    if (!totals.lookup(&hash) && !remember(hash, start, target, target_index))
        return 0;
    return hash;
}

int on_wait(struct pt_regs *ctx) {
    struct site *site = site_of(ctx);
    struct target *target = site ? target_at(site->target) : NULL;
    if (!target || !target->active)
        return 0;

    u64 g = ctx->r14;
    u64 key = goroutine_key(g, site->target);
    struct wait begun = {.return_pc = site->return_pc};
    struct wait *wait = waits.lookup(&key);
    if (EVERY_EVENT) {
        struct start start;
        if (!start_here(g, ctx, site->return_pc, &start)) {
            count_loss(LOSS_goroutine_unreadable);
            if (wait)
                wait->start_ns = 0;
            return 0;
        }
        struct walk walk = walk_stack(&start, target, site->target, NULL);
        begun.stack = walk.hash;
        if (!wait || wait->stack != walk.hash || walk.loss >= 0)
            begun.stack = stack_key(&walk, &start, target, site->target);
    }
    begun.start_ns = bpf_ktime_get_ns();
    if (wait)
        *wait = begun;
    else if (waits.update(&key, &begun))
        count_loss(LOSS_waits_full);
    return 0;
}

/* Go's sampling by duration (runtime/mprof.go, blocksampled and saveBlockEventStack). */
static __always_inline bool sampled(struct wait *wait, u64 delay_ns) {
    if (EVERY_EVENT || delay_ns >= BLOCK_RATE_NS)
        return true;
    if (wait->draw_ns == 0) {
        u64 random = ((u64)bpf_get_prandom_u32() << 32) | bpf_get_prandom_u32();
        wait->draw_ns = 1 + random % BLOCK_RATE_NS;
    }
    return delay_ns >= wait->draw_ns;
}

/* What a wait of that length stands for: a short one for all those that sampling drops. */
static __always_inline struct total weight(u64 delay_ns) {
    struct total total = {.count = COUNT_ONE, .delay_ns = delay_ns};
    if (delay_ns == 0) {
        total.count = 0;
    } else if (delay_ns < BLOCK_RATE_NS) {
        total.count = (BLOCK_RATE_NS << COUNT_SHIFT) / delay_ns;
        total.delay_ns = BLOCK_RATE_NS;
    }
    return total;
}

/*
 * Whether g is parked in a hooked operation. If not, its last one ended without parking, or the
 * garbage collector had stopped it for a moment: ready is called for many reasons.
 */
static __always_inline bool waits_in_hooked(u64 g, const struct target *target) {
    u8 reason = 0;
    if (read_user(&reason, sizeof(reason), (void *)(g + target->wait_reason_offset))) {
        count_loss(LOSS_goroutine_unreadable);
        return false;
    }
    return reason < 64 && (target->wait_reasons >> reason & 1);
}

/* The key of the stack of g, which is parked in a call that returns to return_pc; 0 if lost. */
static __always_inline u64 parked_stack(u64 g, u64 return_pc, const struct target *target,
                                        u32 target_index) {
    struct start start = {};
    bool found = false;
    for (int i = 0; i < MOVE_SPINS && !found; i++)
        found = start_parked(g, target, return_pc, &start);
    if (!found) {
        count_loss(LOSS_stack_moving);
        return 0;
    }
    struct walk walk = walk_stack(&start, target, target_index, NULL);
    if (stack_moved(g, target, &start.bounds, walk.loss < 0)) {
        count_loss(LOSS_stack_moving);
        return 0;
    }
    return stack_key(&walk, &start, target, target_index);
}

int on_wake(struct pt_regs *ctx) {
    u64 now_ns = bpf_ktime_get_ns();
    struct site *site = site_of(ctx);
    if (!site)
        return 0;
    u64 g = ctx->ax;
    u64 key = goroutine_key(g, site->target);
    struct wait *wait = waits.lookup(&key);
    struct target *target = target_at(site->target);
    if (!wait || !target || wait->start_ns == 0 || !waits_in_hooked(g, target))
        return 0;

    u64 delay_ns = now_ns - wait->start_ns;
    if ((s64)delay_ns <= 0)
        delay_ns = 1;
    if (!sampled(wait, delay_ns))
        return 0;
    if (!EVERY_EVENT && wait->stack == 0)
        wait->stack = parked_stack(g, wait->return_pc, target, site->target);
    if (wait->stack == 0)
        return 0; /* a loss that was counted where it happened */

    struct total *total = totals.lookup(&wait->stack);
    if (!total) {
        count_loss(LOSS_totals_full);
        return 0;
    }
    struct total now = weight(delay_ns);
    struct total before = weight(wait->counted_ns);
    __sync_fetch_and_add(&total->count, now.count - before.count);
    __sync_fetch_and_add(&total->delay_ns, now.delay_ns - before.delay_ns);
    wait->counted_ns = delay_ns;
    return 0;
}
