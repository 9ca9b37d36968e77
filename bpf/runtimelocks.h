/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Contention for the runtime's own locks, runtime.mutex (runtime/lock_spinbit.go, Go 1.25 to 1.27).
 *
 * A thread, a runtime.m, that does not get such a lock pushes itself on the lock's list and
 * sleeps: on_thread_sleep. Who releases the lock while others sleep is charged what they waited:
 * on_runtime_unlock. It also takes one of them from the list and wakes it: on_thread_wake. That
 * one still has to compete for the lock, and if it sleeps again in the same call of lock2, it has
 * waited all the time.
 *
 * The list itself can't be read from here, as it changes meanwhile. So the queues are kept as
 * those of semaphores are (locks.h). A thread may be taken from the list before it comes to sleep.
 * To see it in that order, too, its sleeps are added up, and its wakes subtracted.
 */
#ifndef EBPFPROF_RUNTIMELOCKS_H
#define EBPFPROF_RUNTIMELOCKS_H

#include "locks.h"
#include "loss.h"
#include "stack.h"
#include "target.h"
#include "totals.h"

/* The bits of runtime.mutex.key that are no part of the list's head: mutexMMask. */
#define MUTEX_FLAGS 0x3ff
#define G_SCHED_SP 56 /* offset of runtime.g.sched.sp, Go 1.25 to 1.27 */

static long (*read_kernel)(void *to, u32 size_bytes,
                           const void *from) = (void *)BPF_FUNC_probe_read_kernel;

/* What its Go version lays out where; see symbolizer/runtimelocks.py. */
struct runtime_layout {
    u64 system_stack_pc;    /* return address in runtime.systemstack, on the system stack */
    u64 more_stack_pc;      /* the same in runtime.morestack */
    u32 start_ticks_offset; /* of runtime.m.mWaitList.startTicks */
    u32 semaphore_offset;   /* of runtime.m.waitsema */
    u32 woken_offset;       /* in struct pt_regs, of the register with the thread that is woken */
};

struct sleeper {
    u64 lock; /* address of the runtime.mutex that it sleeps for; 0 if it is in no queue */
    /* When it began to wait, in ticks, read when it was woken: the same ticks, the same wait. */
    u64 ticks;
    u64 woken_ns;
    s64 sleeps; /* minus wakes: 1 while it sleeps, -1 if it was woken before */
};

BPF_ARRAY(runtime_layouts, struct runtime_layout, MAX_TARGETS);
BPF_HASH(sleepers, u64, struct sleeper, MAX_SLEEPERS);

static __always_inline struct runtime_layout *layout_at(int index) {
    return runtime_layouts.lookup(&index);
}

/* The record of a thread; NULL if there is no room for it. */
static __always_inline struct sleeper *sleeper_at(u64 thread, u32 target_index) {
    u64 key = goroutine_key(thread, target_index);
    struct sleeper *sleeper = sleepers.lookup(&key);
    if (sleeper)
        return sleeper;
    struct sleeper none = {};
    sleepers.insert(&key, &none);
    sleeper = sleepers.lookup(&key);
    if (!sleeper)
        count_loss(LOSS_sleepers_full);
    return sleeper;
}

/* At the call of semasleep in lock2: its first argument, the lock, is in its slot. */
int on_thread_sleep(struct pt_regs *ctx) {
    struct site *site = site_of(ctx);
    struct target *target = site ? target_at(site->target) : NULL;
    struct runtime_layout *layout = site ? layout_at(site->target) : NULL;
    if (!target || !target->active || !layout)
        return 0;
    u64 thread, ticks, lock;
    if (read_user(&thread, sizeof(thread), (void *)(ctx->r14 + target->m_offset)) ||
        read_user(&ticks, sizeof(ticks), (void *)(thread + layout->start_ticks_offset)) ||
        read_user(&lock, sizeof(lock), (void *)(ctx->bp + sizeof(struct frame)))) {
        count_loss(LOSS_goroutine_unreadable);
        return 0;
    }
    struct sleeper *sleeper = sleeper_at(thread, site->target);
    if (!sleeper)
        return 0;
    u64 since_ns = bpf_ktime_get_ns();
    if (sleeper->ticks == ticks)
        since_ns = sleeper->woken_ns;
    sleeper->lock = lock;
    if (__sync_fetch_and_add(&sleeper->sleeps, 1) == 0 &&
        !join_queue(site->target, lock, 0, since_ns))
        sleeper->lock = 0;
    return 0;
}

/* Before semawakeup raises the semaphore of a thread, which can't run before that. */
int on_thread_wake(struct pt_regs *ctx) {
    struct site *site = site_of(ctx);
    struct target *target = site ? target_at(site->target) : NULL;
    struct runtime_layout *layout = site ? layout_at(site->target) : NULL;
    if (!target || !target->active || !layout)
        return 0;
    u64 thread = 0, ticks;
    s32 semaphore;
    read_kernel(&thread, sizeof(thread), (void *)ctx + layout->woken_offset);
    if (!thread)
        return 0;
    if (read_user(&ticks, sizeof(ticks), (void *)(thread + layout->start_ticks_offset)) ||
        read_user(&semaphore, sizeof(semaphore), (void *)(thread + layout->semaphore_offset))) {
        count_loss(LOSS_goroutine_unreadable);
        return 0;
    }
    struct sleeper *sleeper = sleeper_at(thread, site->target);
    if (!sleeper)
        return 0;
    sleeper->ticks = ticks;
    sleeper->woken_ns = bpf_ktime_get_ns();
    if (semaphore < 0 && sleeper->sleeps <= 0)
        return 0; /* it has slept since before the recording */
    if (__sync_fetch_and_add(&sleeper->sleeps, -1) > 0 && sleeper->lock)
        quit_queue(site->target, sleeper->lock, sleeper->woken_ns);
    return 0;
}

/* The goroutine's own stack, on which that of a thread's g0 goes on, or nothing. */
struct goroutine_stack {
    bool found;
    u64 pc;             /* where morestack was called */
    struct start start; /* at the frame that returns to what called systemstack or morestack's f */
};

static __always_inline void find_goroutine_stack(u64 g, const struct target *target,
                                                 struct goroutine_stack *outer) {
    struct {
        u64 sp;
        u64 pc;
    } sched;
    u64 curg = running_goroutine(g, target);
    struct start *start = &outer->start;
    outer->found =
        curg && curg != g && read_user(&start->bounds, sizeof(start->bounds), (void *)curg) == 0 &&
        read_user(&sched, sizeof(sched), (void *)(curg + G_SCHED_SP)) == 0 &&
        read_user(&start->frame.bp, sizeof(start->frame.bp),
                  (void *)(curg + target->sched_bp_offset)) == 0 &&
        sched.sp >= start->bounds.lo && sched.sp < start->bounds.hi &&
        read_user(&start->frame.return_pc, sizeof(start->frame.return_pc), (void *)sched.sp) == 0;
    outer->pc = sched.pc;
}

/*
 * walk_stack for a stack that may begin on the thread's system stack and go on on that of its
 * goroutine. From systemstack and morestack on, that is; at all other places where the stack was
 * switched Go's tracebacks end, too (runtime/traceback.go, unwindJumpStack).
 */
static __always_inline struct walk walk_system_stack(const struct start *start,
                                                     const struct goroutine_stack *outer,
                                                     const struct runtime_layout *layout,
                                                     const struct target *target, u64 seed,
                                                     u64 *pcs) {
    struct walk walk = {.hash = seed, .loss = -1};
    struct frame frame = start->frame;
    struct bounds bounds = start->bounds;
    u64 bp = start->bp, callback_bp = target->callback.none;
    bool on_system_stack = outer->found, in_prologue = false;

    for (int i = 0; i < MAX_DEPTH; i++) {
        take_pc(&walk, frame.return_pc, i, pcs);
        if (in_prologue || (on_system_stack && frame.return_pc == layout->system_stack_pc)) {
            frame = outer->start.frame;
            bounds = outer->start.bounds;
            bp = 0;
            on_system_stack = in_prologue = false;
            continue;
        }
        if (on_system_stack && frame.return_pc == layout->more_stack_pc) {
            frame.return_pc = outer->pc;
            in_prologue = true;
            continue;
        }
        u64 next = frame_below(&frame, bp, &target->callback, &callback_bp);
        if (next == 0)
            break;
        if (next < bounds.lo || next >= bounds.hi) {
            /* The outermost frame of a system stack has any. */
            if (!on_system_stack)
                walk.loss = LOSS_stack_left;
            break;
        }
        if (next <= bp || !frame_at(next, &bounds, &frame)) {
            walk.loss = LOSS_stack_unreadable;
            break;
        }
        bp = next;
    }
    return walk;
}

/* The key of that stack; 0 if it is lost. */
static __always_inline u64 system_stack_key(const struct start *start,
                                            const struct goroutine_stack *outer,
                                            const struct runtime_layout *layout,
                                            const struct target *target,
                                            const struct group *group) {
    u64 seed = group_seed(group);
    struct walk walk = walk_system_stack(start, outer, layout, target, seed, NULL);
    if (walk.loss >= 0)
        count_loss(walk.loss);
    u64 hash = walk.hash;
    if (totals.lookup(&hash))
        return hash;
    struct stack *stack = new_stack(hash);
    if (!stack)
        return 0;
    walk = walk_system_stack(start, outer, layout, target, seed, stack->pcs);
    return keep_stack(stack, &walk, hash, group) ? hash : 0;
}

/* At a call of unlock2Wake in unlock2: RAX holds the lock, released a moment ago. */
int on_runtime_unlock(struct pt_regs *ctx) {
    struct site *site = site_of(ctx);
    struct target *target = site ? target_at(site->target) : NULL;
    struct runtime_layout *layout = site ? layout_at(site->target) : NULL;
    if (!target || !target->active || !layout)
        return 0;
    u64 now_ns = bpf_ktime_get_ns(), lock = ctx->ax, list;
    struct start start;
    if (read_user(&list, sizeof(list), (void *)lock)) {
        count_loss(LOSS_releaser_unreadable);
        return 0;
    }
    if ((list & ~(u64)MUTEX_FLAGS) == 0)
        return 0; /* nobody sleeps */
    u64 charge_ns = charge_queue(site->target, lock, now_ns);
    if (!release_sampled())
        return 0;
    if (!start_here(ctx->r14, ctx, site->return_pc, &start)) {
        count_loss(LOSS_releaser_unreadable);
        return 0;
    }
    struct goroutine_stack outer = {};
    struct group group = {.target = site->target, .kind = KIND_MUTEX};
    find_goroutine_stack(ctx->r14, target, &outer);
    u64 key = system_stack_key(&start, &outer, layout, target, &group);
    struct total total = {
        .count = MUTEX_FRACTION * COUNT_ONE,
        .delay_ns = MUTEX_FRACTION * charge_ns,
    };
    if (key)
        add_to(key, &total);
    return 0;
}

#endif
