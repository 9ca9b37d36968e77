/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Contention for the runtime's own locks, runtime.mutex (runtime/lock_spinbit.go, Go 1.25 to 1.27).
 *
 * A thread, a runtime.m, that does not get such a lock pushes itself on the lock's list and
 * sleeps: on_thread_sleep. A release of the lock is charged the waiting time of the sleeping
 * threads: on_runtime_unlock. It also removes one of them from the list and wakes it:
 * on_thread_wake. The woken thread still competes for the lock, and if it sleeps again in the same
 * call of lock2, it has waited all the time.
 *
 * We can't read the list, as it changes meanwhile. So we keep queues like those of semaphores
 * (locks.h). A release may remove a thread from the list before the thread sleeps. For that order,
 * too, we count a thread's sleeps minus its wakes.
 */
#ifndef EBPFPROF_RUNTIME_LOCKS_H
#define EBPFPROF_RUNTIME_LOCKS_H

#include "waits/locks.h"
#include "common/loss.h"
#include "common/memory.h"
#include "probes/goroutine_stack.h"
#include "probes/run.h"
#include "probes/target.h"
#include "probes/totals.h"
#include "waits/recorded_time.h"

/* The bits of runtime.mutex.key beside the list's head: mutexMMask. */
#define MUTEX_FLAGS 0x3ff
#define MAX_SYSTEM_DEPTH 64
#define G_SCHED_SP 56 /* offset of runtime.g.sched.sp, Go 1.25 to 1.27 */

/* The layout of the Go version; see symbolizer/codeanalysis/runtime_locks.py. */
struct runtime_layout {
    u64 system_stack_pc;    /* return address in runtime.systemstack, on the system stack */
    u64 more_stack_pc;      /* the same in runtime.morestack */
    u32 start_ticks_offset; /* of runtime.m.mWaitList.startTicks */
    u32 semaphore_offset;   /* of runtime.m.waitsema */
    u32 woken_offset;       /* in struct pt_regs, of the register with the thread to wake */
};

struct sleeper {
    u64 lock; /* address of the runtime.mutex that it sleeps for; 0 if it is in no queue */
    /* The begin of its wait in ticks, read at its wake: the same ticks, the same wait. */
    u64 ticks;
    u64 woken_ns;
    s64 sleeps; /* minus wakes: 1 while it sleeps, -1 if the wake came first */
};

BPF_ARRAY(runtime_layouts, struct runtime_layout, MAX_TARGETS);
BPF_HASH(sleepers, u64, struct sleeper, MAX_SLEEPERS);

static __always_inline struct runtime_layout *layout_at(int index) {
    return runtime_layouts.lookup(&index);
}

/* The row of a thread; NULL if the table is full. */
static __always_inline struct sleeper *sleeper_at(u64 thread, u32 target_index) {
    u64 key = goroutine_key(thread, target_index);
    struct sleeper *sleeper = sleepers.lookup(&key);
    if (sleeper)
        return sleeper;
    struct sleeper none = {};
    sleepers.insert(&key, &none);
    sleeper = sleepers.lookup(&key);
    if (!sleeper)
        count_loss(LOSS_sleepers_full, target_index);
    return sleeper;
}

static __always_inline void thread_sleeps(struct pt_regs *ctx, const struct run *run,
                                          const struct runtime_layout *layout) {
    u64 thread, ticks, lock;
    if (read_user(&thread, sizeof(thread), (void *)(ctx->r14 + run->target->m_offset)) ||
        read_user(&ticks, sizeof(ticks), (void *)(thread + layout->start_ticks_offset)) ||
        read_user(&lock, sizeof(lock), (void *)(ctx->bp + sizeof(struct frame)))) {
        count_loss(LOSS_goroutine_unreadable, run->site->target);
        return;
    }
    struct sleeper *sleeper = sleeper_at(thread, run->site->target);
    u64 since_ns = recorded_time(run->target);
    if (!sleeper || !since_ns)
        return;
    if (sleeper->ticks == ticks)
        since_ns = sleeper->woken_ns;
    /* The queue first: a wake that finds the thread counted must find it in the queue, too. */
    bool joined = join_queue(run->site->target, lock, 0, since_ns);
    sleeper->lock = joined ? lock : 0;
    if (__sync_fetch_and_add(&sleeper->sleeps, 1) != 0 && joined)
        quit_queue(run->site->target, lock, since_ns); /* it is woken already */
}

/* At the call of semasleep in lock2, whose first argument, the lock, is in its stack slot. */
int on_thread_sleep(struct pt_regs *ctx) {
    struct run run;
    if (!begin_run(ctx, &run))
        return 0;
    struct runtime_layout *layout = layout_at(run.site->target);
    if (layout)
        thread_sleeps(ctx, &run, layout);
    run_ends(run.cost);
    return 0;
}

static __always_inline void thread_is_woken(struct pt_regs *ctx, const struct run *run,
                                            const struct runtime_layout *layout) {
    u64 thread = 0, ticks;
    s32 semaphore;
    read_kernel(&thread, sizeof(thread), (void *)ctx + layout->woken_offset);
    if (!thread)
        return;
    if (read_user(&ticks, sizeof(ticks), (void *)(thread + layout->start_ticks_offset)) ||
        read_user(&semaphore, sizeof(semaphore), (void *)(thread + layout->semaphore_offset))) {
        count_loss(LOSS_goroutine_unreadable, run->site->target);
        return;
    }
    struct sleeper *sleeper = sleeper_at(thread, run->site->target);
    u64 now_ns = recorded_time(run->target);
    if (!sleeper || !now_ns)
        return;
    sleeper->ticks = ticks;
    sleeper->woken_ns = now_ns;
    if (semaphore < 0 && sleeper->sleeps <= 0)
        return; /* it has slept since before the recording */
    if (__sync_fetch_and_add(&sleeper->sleeps, -1) > 0 && sleeper->lock)
        quit_queue(run->site->target, sleeper->lock, sleeper->woken_ns);
}

/* Before semawakeup raises the semaphore of a thread, which can't run until then. */
int on_thread_wake(struct pt_regs *ctx) {
    struct run run;
    if (!begin_run(ctx, &run))
        return 0;
    struct runtime_layout *layout = layout_at(run.site->target);
    if (layout)
        thread_is_woken(ctx, &run, layout);
    run_ends(run.cost);
    return 0;
}

/*
 * The start in g, whose thread switched to the system stack in morestack. The function at pc calls
 * that before it has a frame of its own, so its return address is on top.
 */
static __always_inline bool start_in_prologue(u64 g, const struct target *target, u64 *pc,
                                              struct start *start) {
    struct {
        u64 sp;
        u64 pc;
    } sched;
    if (read_user(&start->bounds, sizeof(start->bounds), (void *)g) != 0 ||
        read_user(&sched, sizeof(sched), (void *)(g + G_SCHED_SP)) != 0 ||
        read_user(&start->frame.bp, sizeof(start->frame.bp),
                  (void *)(g + target->sched_bp_offset)) != 0 ||
        sched.sp < start->bounds.lo || sched.sp >= start->bounds.hi)
        return false;
    start->bp = target->callback.none;
    *pc = sched.pc;
    return read_user(&start->frame.return_pc, sizeof(u64), (void *)sched.sp) == 0;
}

/* Where a system stack ends. */
enum system_stack_end { ENDS, IN_SYSTEM_STACK, IN_MORE_STACK };

/* Walks a system stack; returns how it ends. Its outermost frame may have any frame pointer. */
static __always_inline enum system_stack_end
walk_system_stack(struct walker *walker, const struct runtime_layout *layout) {
    const struct start *start = &walker->start;
    struct frame frame = start->frame;
    u64 bp = start->bp;
    for (int i = 0; i < MAX_SYSTEM_DEPTH; i++) {
        add_pc(walker, frame.return_pc);
        if (frame.return_pc == layout->system_stack_pc)
            return IN_SYSTEM_STACK;
        if (frame.return_pc == layout->more_stack_pc)
            return IN_MORE_STACK;
        u64 next = frame.bp;
        if (next <= bp || !frame_at(next, &start->bounds, &frame))
            return ENDS;
        bp = next;
    }
    walker->loss = LOSS_stack_unreadable;
    return ENDS;
}

/*
 * walk_stack for g, which may be the g0 of a thread that runs the goroutine curg. Behind
 * systemstack and morestack its stack continues on the goroutine's. At all other stack switches
 * Go's tracebacks end, too (runtime/traceback.go, unwindJumpStack).
 */
static __always_inline void walk_both_stacks(struct walker *walker, u64 g, u64 curg,
                                             const struct runtime_layout *layout,
                                             const struct target *target) {
    if (g != curg) {
        enum system_stack_end end = walk_system_stack(walker, layout);
        if (end == ENDS || !curg)
            return;
        u64 pc = 0;
        if (end == IN_SYSTEM_STACK ? !start_switched(curg, target, &walker->start)
                                   : !start_in_prologue(curg, target, &pc, &walker->start)) {
            walker->loss = LOSS_stack_unreadable;
            return;
        }
        if (pc)
            add_pc(walker, pc);
    }
    walk_stack(walker, target);
}

static __always_inline void lock_is_released(struct pt_regs *ctx, const struct run *run,
                                             const struct runtime_layout *layout) {
    const struct target *target = run->target;
    u32 index = run->site->target;
    u64 now_ns = recorded_time(run->target), lock = ctx->ax, list;
    if (!now_ns)
        return;
    if (read_user(&list, sizeof(list), (void *)lock)) {
        count_loss(LOSS_releaser_unreadable, index);
        return;
    }
    if ((list & ~(u64)MUTEX_FLAGS) == 0)
        return; /* no thread sleeps */
    u64 charge_ns = charge_queue(index, lock, now_ns);
    if (!is_inside(target, now_ns) || !release_sampled())
        return;
    u64 curg = running_goroutine(ctx->r14, target);
    struct group group = group_of(index, KIND_MUTEX, curg, target);
    struct walker *walker = take_walker(&group);
    if (!walker)
        return;
    u64 key = 0;
    if (start_here(ctx->r14, ctx, target, run->site->return_pc, walker->piece, index,
                   &walker->start)) {
        walk_both_stacks(walker, ctx->r14, curg, layout, target);
        key = stack_key(walker);
    } else {
        count_loss(LOSS_releaser_unreadable, index);
    }
    give_walker(walker);
    add_release(key, charge_ns, index);
}

/* At a call of unlock2Wake in unlock2: RAX holds the lock, released a moment ago. */
int on_runtime_unlock(struct pt_regs *ctx) {
    struct run run;
    if (!begin_run(ctx, &run))
        return 0;
    struct runtime_layout *layout = layout_at(run.site->target);
    if (layout)
        lock_is_released(ctx, &run, layout);
    run_ends(run.cost);
    return 0;
}

#endif
