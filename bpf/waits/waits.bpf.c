/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The block and mutex profiles: how long goroutines were parked in channel operations, select
 * and the semaphores below sync, added up by the stack that waited (block) and, for locks, by
 * the stack that released (mutex). Compiled with WITH_BLOCK, WITH_MUTEX or both. With
 * WITH_RUNTIME_LOCKS the mutex profile includes the runtime's own locks (runtime_locks.h). With
 * WITH_WAKERS, beside WITH_BLOCK, waits are also added up by who woke whom (wakers.h).
 *
 * on_wait runs where such an operation is about to park, once per operation; on_wake in
 * runtime.ready, which makes the goroutine runnable again. semacquire1 parks again if another
 * goroutine got the semaphore first. To Go that is one event, from the first park to the last
 * wake. So a wake counts the event at once, and a further wake without a new on_wait in between
 * adds the difference. semacquire1 may also get the semaphore without a park: on_settled.
 *
 * To record every event, we walk the stack before the goroutine parks: it is in this CPU's cache,
 * and no other thread moves it. With sampling (not EVERY_EVENT), we walk it at the wake, when we
 * know whether to keep the event; and so we do for goroutines that waited before (recorded_time.h).
 */
#include "common/at_load.h"
#include "common/loss.h"
#include "waits/locks.h"
#include "probes/goroutine_stack.h"
#include "probes/run.h"
#include "probes/target.h"
#include "probes/totals.h"
#include "waits/wait.h"
#include "waits/lengths.h"
#include "waits/wakers.h"
#include "waits/recorded_time.h"
#if WITH_RUNTIME_LOCKS
#include "waits/runtime_locks.h"
#endif

#define WITH_WAITERS (WITH_BLOCK || BY_LOCK)
#define MOVE_SPINS 64

/* The group of a wait of g. */
static __always_inline struct group waiters(u32 target_index, u64 sema, u64 g,
                                            const struct target *target) {
    struct group group = group_of(target_index, KIND_BLOCK, g, target);
    if (BY_LOCK)
        group.sema = sema;
    return group;
}

/* Walks the stack of g, about to park at `site`; NULL, which is counted, if it can't. */
static __always_inline struct walker *walk_here(struct pt_regs *ctx, struct site *site,
                                                const struct target *target, u64 g, u64 sema) {
    struct group group = {.target = site->target, .kind = KIND_BLOCK, .sema = BY_LOCK ? sema : 0};
    struct walker *walker = take_walker(&group);
    if (!walker)
        return NULL;
    bool is_unbounded = !WITH_LABELS || !target->labels_offset;
    if (is_unbounded) {
        start_unbounded(walker, g, ctx, target, site);
    } else if (!start_here(g, ctx, target, site->return_pc, walker->piece, site->target,
                           &walker->start)) {
        give_walker(walker);
        count_loss(LOSS_goroutine_unreadable, site->target);
        return NULL;
    }
#if WITH_LABELS
    if (!is_unbounded) {
        u64 labels = word_of_g(walker->piece, target->labels_offset);
        walker->stack.group.labels =
            label_set(labels, target->labels_in_slice, label_owner(site->target, 0));
    }
#endif
    walk_stack(walker, target);
    /* Not is_unbounded: verifiers would go on from each of its values through the whole walk. */
    if (walker->g)
        learn_depth(walker, ctx->bp, site);
    return walker;
}

static __always_inline void begin(struct pt_regs *ctx, struct site *site,
                                  const struct target *target, u64 g, u64 key, u64 sema) {
    struct wait begun = {
        .return_pc = site->return_pc,
        .sema = sema,
        .state = WAITS,
        .is_semaphore = site->is_semaphore,
    };
    struct walker *walker = NULL;
    /* Before the walk, which delays the goroutine, too: Go's own clock has started already. */
    begun.start_ns = begun.since_ns = every_wait_time(target);
    if (!begun.start_ns)
        return;
    if (WITH_WAITERS && EVERY_EVENT)
        walker = walk_here(ctx, site, target, g, sema);
    /* Only now: else the verifier would try the walk with a row and without. */
    struct wait *wait = waits.lookup(&key);
    if (WITH_WAITERS && EVERY_EVENT) {
        if (!walker) {
            if (wait)
                wait->state = OVER;
            return;
        }
        begun.stack = stack_hash(walker);
        if (!wait || wait->stack != begun.stack || walker->loss >= 0)
            begun.stack = stack_key(walker);
        give_walker(walker);
    }
    if (wait) {
        *wait = begun;
    } else {
        waits.update(&key, &begun);
        wait = waits.lookup(&key);
    }
    if (!wait)
        count_loss(LOSS_waits_full, site->target);
    else if (WITH_MUTEX && sema)
        wait->is_queued = join_queue(site->target, sema, g, begun.since_ns);
}

static __always_inline void wait_begins(struct pt_regs *ctx, struct site *site,
                                        const struct target *target) {
    u64 g = ctx->r14;
    u64 key = goroutine_key(g, site->target);
    u64 sema = target->callback.none;
    if (WITH_MUTEX && site->is_semaphore && !lock_waited_for(ctx->bp, target, &sema))
        count_loss(LOSS_goroutine_unreadable, site->target);
    if (WITH_BLOCK || sema) {
        begin(ctx, site, target, g, key, sema);
    } else {
        struct wait *wait = waits.lookup(&key);
        if (wait && every_wait_time(target))
            wait->state = OVER; /* it waits for something else now */
    }
}

int on_wait(struct pt_regs *ctx) {
    struct run run;
    if (begin_run(ctx, &run)) {
        wait_begins(ctx, run.site, run.target);
        run_ends(run.cost);
    }
    return 0;
}

/* In semacquire1, where the goroutine got the semaphore and won't park. */
int on_settled(struct pt_regs *ctx) {
    struct run run;
    if (!begin_run(ctx, &run))
        return 0;
    u64 key = goroutine_key(ctx->r14, run.site->target);
    struct wait *wait = waits.lookup(&key);
    if (wait && every_wait_time(run.target)) {
        if (WITH_MUTEX && wait->state == WAITS && wait->is_queued)
            quit_queue(run.site->target, wait->sema, wait->since_ns);
        wait->state = OVER;
    }
    run_ends(run.cost);
    return 0;
}

/* The key of the stack of g, which is parked in a call that returns to return_pc; 0 if lost. */
static __always_inline u64 parked_stack(u64 g, u64 return_pc, const struct target *target,
                                        const struct group *group) {
    struct walker *walker = take_walker(group);
    u64 key = 0;
    bool found = false;
    if (!walker)
        return 0;
    for (u64 i = FROM_0(target->callback.none); i < MOVE_SPINS && !found; i++) {
        VERIFIED_ONCE;
        found = start_parked(g, target, return_pc, &walker->start);
    }
    if (found)
        walk_stack(walker, target);
    if (found && !stack_moved(g, target, &walker->start.bounds, walker->loss < 0))
        key = stack_key(walker);
    else
        count_loss(LOSS_stack_moving, group->target);
    give_walker(walker);
    return key;
}

/* Finds the stack of a wait that has none yet; it stays 0 if it is lost. */
static __always_inline void find_stack(struct wait *wait, u64 g, const struct target *target,
                                       u32 target_index) {
    if (wait->stack == 0) {
        struct group group = waiters(target_index, wait->sema, g, target);
        wait->stack = parked_stack(g, wait->return_pc, target, &group);
    }
}

/* Counts a wake in the block profile. `added` gets what that adds to the sum of the stack. */
static __always_inline void count_wait(struct wait *wait, u64 g, u64 now_ns,
                                       const struct target *target, u32 target_index,
                                       struct added *added) {
    /* First: verifiers would go on from each way to the delay through the whole walk. */
    if (EVERY_EVENT && WITH_EARLIER && wait->is_seeded)
        find_stack(wait, g, target, target_index);
    u64 delay_ns = now_ns - wait->start_ns;
    if ((s64)delay_ns <= 0)
        delay_ns = 1;
    if (WITH_EARLIER && delay_ns > now_ns - target->begin_ns)
        delay_ns = now_ns - target->begin_ns; /* no more than since the window began */
    if (!sampled(wait, delay_ns))
        return;
    if (!EVERY_EVENT)
        find_stack(wait, g, target, target_index);
    if (wait->stack == 0)
        return; /* a loss, which is counted already */
    struct total now = weight(delay_ns);
    struct total before = weight(wait->counted_ns);
    if (before.count)
        take_count(wait->stack, wait->counted_ns, before.count, target_index);
    now.delay_ns -= before.delay_ns;
    add_of_length(wait->stack, delay_ns, &now, target_index);
    now.count -= before.count;
    if (WITH_WAKERS) {
        added->waiter = wait->stack;
        added->is_first = wait->counted_ns == 0;
        added->length_ns = delay_ns - wait->counted_ns;
        added->sums = now;
    }
    wait->counted_ns = delay_ns;
}

/* The key of the releaser's stack, whose walker has its start if that is `found`; 0 if it is lost.
 */
static __always_inline u64 releaser_key(struct walker *walker, bool found,
                                        const struct target *target, u32 target_index) {
    if (!found) {
        count_loss(LOSS_releaser_unreadable, target_index);
        return 0;
    }
    walk_stack(walker, target);
    return stack_key(walker);
}

/* Counts a release in the mutex profile. */
static __always_inline void count_release(u64 charge_ns, struct walker *walker, bool found,
                                          const struct target *target, u32 target_index) {
    /* Of what is in a map, verifiers know nothing: so all ways through the walk are alike. */
    walker->kept[0] = charge_ns;
    u64 key = releaser_key(walker, found, target, target_index);
    charge_ns = walker->kept[0];
    give_walker(walker);
    add_release(key, charge_ns, target_index);
}

/* Takes a walker for the stack that releases. */
static __always_inline struct walker *
walker_of_releaser(u64 releaser, u64 sema, const struct target *target, u32 target_index) {
    struct group group = group_of(target_index, KIND_MUTEX, releaser, target);
    if (BY_LOCK)
        group.sema = sema;
    return take_walker(&group);
}

/*
 * Whether g, which is being woken, is parked in the operation of its row: the runtime calls ready
 * for many other reasons, too. At a semaphore g's wait reason decides: there the garbage collector
 * may stop it on its way to the park, and it may park again.
 */
static __always_inline bool is_parked(const struct wait *wait, u64 g, const struct target *target,
                                      u32 target_index) {
    u8 reason = 0;
    if (!wait->is_semaphore)
        return wait->state == WAITS;
    if (wait->state == OVER)
        return false;
    if (read_user(&reason, sizeof(reason), (void *)(g + target->wait_reason_offset))) {
        count_loss(LOSS_goroutine_unreadable, target_index);
        return false;
    }
    return reason < 64 && (target->semaphore_reasons >> reason & 1);
}

/*
 * What all kinds of wakes have in common. Returns the charge of the release in nanoseconds, or
 * NOT_TAKEN if there is no release to record. `added` is that of count_wait().
 */
static __always_inline u64 end_wait(u64 g, u64 releaser, u64 *sema, struct added *added,
                                    const struct target *target, u32 target_index) {
    u64 now_ns = every_wait_time(target);
    u64 key = goroutine_key(g, target_index);
    struct wait *wait = waits.lookup(&key);
    if (!now_ns)
        return NOT_TAKEN;
    if (WITH_EARLIER && !wait && !is_inside(target, now_ns)) {
        struct wait none = {.state = OVER};
        waits.insert(&key, &none); /* a later seed has no effect */
    }
    if (!wait || !is_parked(wait, g, target, target_index))
        return NOT_TAKEN;
    u64 since_ns = wait->since_ns;
    bool is_queued = wait->is_queued;
    wait->state = WOKEN;
    wait->since_ns = now_ns;
    wait->is_queued = false;
    if (WITH_WAITERS && is_inside(target, now_ns))
        count_wait(wait, g, now_ns, target, target_index, added);
    if (!WITH_MUTEX || !wait->sema)
        return NOT_TAKEN;
    *sema = wait->sema;
    /* Parked again, or the table of locks is full: its own waiting time. */
    u64 charge_ns = now_ns - since_ns;
    if (is_queued)
        charge_ns = release_queue(target_index, target, wait->sema, now_ns, true, g, releaser);
    return is_inside(target, now_ns) && release_sampled() ? charge_ns : NOT_TAKEN;
}

#if WITH_BLOCK
static __always_inline void wake(struct pt_regs *ctx, const struct site *site,
                                 const struct target *target) {
    u64 sema = 0;
    struct added added;
    added.waiter = added.is_first = added.length_ns = added.sums.count = added.sums.delay_ns = 0;
    u64 waker = WITH_MUTEX && BY_LOCK ? running_goroutine(ctx->r14, target) : 0;
    u64 charge_ns = end_wait(ctx->ax, waker, &sema, &added, target, site->target);
    if (charge_ns == NOT_TAKEN && !(WITH_WAKERS && added.waiter))
        return;
    if (!(WITH_MUTEX && BY_LOCK))
        waker = running_goroutine(ctx->r14, target);
#if WITH_WAKERS
    struct wake wake = {.charge_ns = charge_ns, .sema = sema, .added = added};
    note_wake(ctx, &wake, waker, target, site->target);
#else
    struct walker *walker = walker_of_releaser(waker, sema, target, site->target);
    if (walker) {
        bool found = start_switched(waker, target, &walker->start);
        count_release(charge_ns, walker, found, target, site->target);
    }
#endif
}

/* In runtime.ready, on the g0 of the thread whose goroutine wakes the one in RAX. */
int on_wake(struct pt_regs *ctx) {
    struct run run;
    if (begin_run(ctx, &run)) {
        wake(ctx, run.site, run.target);
        run_ends(run.cost);
    }
    return 0;
}

#else

static __always_inline void release(struct pt_regs *ctx, const struct site *site,
                                    const struct target *target) {
    struct added unused;
    u64 g, sema = 0;
    if (read_user(&g, sizeof(g), (void *)ctx->ax)) {
        count_loss(LOSS_releaser_unreadable, site->target);
        return;
    }
    u64 charge_ns = end_wait(g, ctx->r14, &sema, &unused, target, site->target);
    if (charge_ns == NOT_TAKEN)
        return;
    struct walker *walker = walker_of_releaser(ctx->r14, sema, target, site->target);
    if (walker) {
        bool found = start_here(ctx->r14, ctx, target, site->return_pc, walker->piece, site->target,
                                &walker->start);
        count_release(charge_ns, walker, found, target, site->target);
    }
}

/*
 * At the call of readyWithTime in semrelease1, on the stack of the goroutine that releases; RAX
 * holds the sudog. Replaces on_wake to record locks only, so that all other wakes cost nothing.
 */
int on_release(struct pt_regs *ctx) {
    struct run run;
    if (begin_run(ctx, &run)) {
        release(ctx, run.site, run.target);
        run_ends(run.cost);
    }
    return 0;
}

#endif

/* A goroutine that is parked while a window is about to begin. */
struct seed {
    u64 target;
    u64 g;
    u64 return_pc; /* of the call in which it parks */
    u64 sema;      /* as in struct wait */
    u64 is_semaphore;
};

/* Run by ebpfprof, not at a probe: adds g to the tables, unless a probe has seen it meanwhile. */
int seed(struct seed *seed) {
    u64 key = goroutine_key(seed->g, seed->target), sema = seed->sema;
    struct target *target = target_at(seed->target);
    if (!target || !target->active)
        return 0;
    struct wait wait = {
        .start_ns = target->begin_ns,
        .since_ns = target->begin_ns,
        .return_pc = seed->return_pc,
        .sema = sema,
        .state = WAITS,
        .is_semaphore = seed->is_semaphore,
        .is_seeded = true,
    };
    /* First the queue: a wake removes g from it. */
    if (WITH_MUTEX && sema)
        wait.is_queued = join_queue(seed->target, sema, seed->g, wait.since_ns);
    if (waits.insert(&key, &wait) && wait.is_queued)
        quit_queue(seed->target, sema, wait.since_ns);
    return 0;
}

#if WITH_ONE_IN_EIGHT
#include "waits/one_in_eight.h"
#endif
