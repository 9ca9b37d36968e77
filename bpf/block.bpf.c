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
 */
#include "loss.h"
#include "stack.h"
#include "target.h"

#define COUNT_ONE (1ULL << COUNT_SHIFT)
#define MOVE_SPINS 64

/* The wait that a goroutine is in, or was in last. */
struct wait {
    u64 start_ns;   /* 0: none */
    u64 return_pc;  /* of the call of gopark in which it parks */
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

int on_wait(struct pt_regs *ctx) {
    u64 now_ns = bpf_ktime_get_ns();
    struct site *site = site_of(ctx);
    if (!site)
        return 0;

    u64 key = goroutine_key(ctx->r14, site->target);
    struct wait begun = {.start_ns = now_ns, .return_pc = site->return_pc};
    struct wait *wait = waits.lookup(&key);
    if (wait)
        *wait = begun;
    else if (waits.update(&key, &begun))
        count_loss(LOSS_waits_full);
    return 0;
}

/* Go's sampling by duration (runtime/mprof.go, blocksampled and saveBlockEventStack). */
static __always_inline bool sampled(struct wait *wait, u64 delay_ns, u64 rate_ns) {
    if (delay_ns >= rate_ns)
        return true;
    if (wait->draw_ns == 0) {
        u64 random = ((u64)bpf_get_prandom_u32() << 32) | bpf_get_prandom_u32();
        wait->draw_ns = 1 + random % rate_ns;
    }
    return delay_ns >= wait->draw_ns;
}

/* What a wait of that length stands for: a short one for all those that sampling drops. */
static __always_inline struct total weight(u64 delay_ns, u64 rate_ns) {
    struct total total = {.count = COUNT_ONE, .delay_ns = delay_ns};
    if (delay_ns == 0) {
        total.count = 0;
    } else if (delay_ns < rate_ns) {
        total.count = (rate_ns << COUNT_SHIFT) / delay_ns;
        total.delay_ns = rate_ns;
    }
    return total;
}

static __always_inline bool store_stack(u64 hash, const struct parked *parked,
                                        const struct target *target, u32 target_index) {
    int zero = 0;
    struct stack *stack = stacks.lookup(&hash);
    if (stack)
        return true;
    struct stack *empty = empty_stack.lookup(&zero);
    if (!empty || stacks.update(&hash, empty))
        return false;
    stack = stacks.lookup(&hash);
    if (!stack)
        return false;
    struct walk walk = walk_stack(parked, target, target_index, stack->pcs);
    if (walk.hash != hash) { /* it was moved just now */
        stacks.delete(&hash);
        return false;
    }
    stack->target = target_index;
    stack->depth = walk.depth;
    return true;
}

int on_wake(struct pt_regs *ctx) {
    u64 now_ns = bpf_ktime_get_ns();
    struct site *site = site_of(ctx);
    if (!site)
        return 0;
    u64 g = ctx->ax;
    u64 key = goroutine_key(g, site->target);
    struct wait *wait = waits.lookup(&key);
    if (!wait || wait->start_ns == 0)
        return 0;
    struct target *target = target_at(site->target);
    if (!target)
        return 0;

    u64 delay_ns = now_ns - wait->start_ns;
    if ((s64)delay_ns <= 0)
        delay_ns = 1;
    if (!sampled(wait, delay_ns, target->block_rate_ns))
        return 0;

    struct parked parked = {};
    bool readable = true, is_this_wait = false, moving = true;
    for (int i = 0; i < MOVE_SPINS && moving && !is_this_wait; i++) {
        readable = read_parked(g, target, wait->return_pc, &parked);
        is_this_wait = readable && parked.first.return_pc == wait->return_pc;
        moving = stack_moved(g, target, &parked.bounds, is_this_wait);
    }
    if (!is_this_wait) {
        /*
         * The operation ended without parking, and this is the wake from another wait; or it
         * has yet to park, and the garbage collector had stopped the goroutine on its way.
         */
        if (moving)
            count_loss(LOSS_stack_moving);
        else if (!readable)
            count_loss(LOSS_goroutine_unreadable);
        return 0;
    }
    struct walk walk = walk_stack(&parked, target, site->target, NULL);
    if (stack_moved(g, target, &parked.bounds, walk.loss < 0)) {
        count_loss(LOSS_stack_moving);
        return 0;
    }

    struct total *total = totals.lookup(&walk.hash);
    if (!total) {
        struct total none = {};
        if (!store_stack(walk.hash, &parked, target, site->target)) {
            count_loss(LOSS_stacks_full);
            return 0;
        }
        totals.insert(&walk.hash, &none);
        total = totals.lookup(&walk.hash);
        if (!total) {
            count_loss(LOSS_totals_full);
            return 0;
        }
    }
    struct total now = weight(delay_ns, target->block_rate_ns);
    struct total before = weight(wait->counted_ns, target->block_rate_ns);
    __sync_fetch_and_add(&total->count, now.count - before.count);
    __sync_fetch_and_add(&total->delay_ns, now.delay_ns - before.delay_ns);
    wait->counted_ns = delay_ns;
    if (walk.loss >= 0 && !before.count)
        count_loss(walk.loss);
    return 0;
}
