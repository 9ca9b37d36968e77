/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The goroutines that wait for a lock, and the charge of a release.
 *
 * A release is charged the time that all goroutines then in the queue of the semaphore have
 * waited since they parked or since the previous release, whichever is later. That takes no list:
 * with n goroutines waiting at a time T, the waiting time for the lock until then is
 *
 *     waited(T) = n * T - sum,    sum = (times of all parks) - (times of all wakes)
 *
 * and a release is charged its growth since the previous one. Goroutines park and wake on all
 * CPUs at once. So n and sum share one word, which a single atomic addition changes: n in the low
 * bits and above them the sum, modulo what fits there. The difference of two such sums is right
 * as long as it is small enough: 2^44 units are 1,250 hours between two releases, of all waiters
 * together.
 *
 * The unit is 256 ns. All times are rounded down to it, begins and ends alike, so that on average
 * no time is lost.
 */
#ifndef EBPFPROF_LOCKS_H
#define EBPFPROF_LOCKS_H

#include "common/loss.h"
#include "probes/goroutine_stack.h"
#include "probes/target.h"
#include "waits/lengths.h"
#include "waits/recorded_time.h"

#define UNIT_SHIFT 8
#define CHARGE_ATTEMPTS 8
#define WAITERS_BITS 19 /* MAX_WAITS goroutines at most */
/* From the semaphore of the Mutex in a sync.RWMutex to writerSem (sync/rwmutex.go, Go 1.19 on). */
#define WRITER_SEM_OFFSET 4

struct lock {
    u64 queue;   /* (sum << WAITERS_BITS) + n */
    u64 charged; /* waited(T) at the last release, in units, modulo 2^(64-WAITERS_BITS) */
#if WITH_ONE_IN_EIGHT
    u64 missed_ns; /* waiting of those that were there before the queue, for no release to charge */
#endif
#if BY_LOCK
    u64 owner; /* the goroutine that was woken last, while others waited on; 0: unknown */
    u64 owned_since_ns;
    u64 holds; /* recorded releases by a woken goroutine */
    u64 held_ns;
#endif
};

BPF_HASH(locks, u64, struct lock, MAX_LOCKS);

/* What a goroutine that parks at that time adds to a queue; a wake subtracts it. */
static __always_inline u64 one_waiter(u64 time_ns) {
    return 1 + (time_ns >> UNIT_SHIFT << WAITERS_BITS);
}

/*
 * Reads the semaphore that a goroutine waits for in semacquire1, with the frame pointer bp, if it
 * is a lock's (sync's functions for locks call it from addresses of their own); else leaves *sema.
 * The address is the first argument of semacquire1, at a known distance from the frame pointer
 * (symbolizer/codeanalysis/semaphores.py). Returns false if the frame can't be read.
 */
static __always_inline bool lock_waited_for(u64 bp, const struct target *target, u64 *sema) {
    struct frame frame;
    if (read_user(&frame, sizeof(frame), (void *)bp))
        return false;
    for (int i = 0; i < LOCK_CALLERS && target->lock_callers[i]; i++)
        if (frame.return_pc == target->lock_callers[i])
            return read_user(sema, sizeof(*sema), (void *)(bp + target->sema_offset)) == 0;
    return true;
}

/* The row of the semaphore; NULL, which is counted, if the table of locks is full. */
static __always_inline struct lock *lock_of(u32 target_index, u64 sema) {
    u64 key = goroutine_key(sema, target_index);
    struct lock *lock = locks.lookup(&key);
    if (!lock) {
        struct lock none = {};
        locks.insert(&key, &none);
        lock = locks.lookup(&key);
        if (!lock)
            count_loss(LOSS_locks_full, target_index);
    }
    return lock;
}

/* Adds the goroutine g to the queue of the semaphore; false if the table of locks is full. */
static __always_inline bool join_queue(u32 target_index, u64 sema, u64 g, u64 now_ns) {
    struct lock *lock = lock_of(target_index, sema);
    if (!lock)
        return false;
#if BY_LOCK
    if (lock->owner == g)
        lock->owner = 0; /* another goroutine got the semaphore first */
#endif
    __sync_fetch_and_add(&lock->queue, one_waiter(now_ns));
    return true;
}

/*
 * Removes a waiter from the queue without a charge. If since_ns is when it joined, it leaves no
 * waiting time: it got the semaphore at once.
 */
static __always_inline void quit_queue(u32 target_index, u64 sema, u64 since_ns) {
    u64 key = goroutine_key(sema, target_index);
    struct lock *lock = locks.lookup(&key);
    if (lock)
        __sync_fetch_and_add(&lock->queue, -one_waiter(since_ns));
}

/* Go's sampling of releases (runtime/mprof.go, mutexevent). */
static __always_inline bool release_sampled(void) {
    return MUTEX_FRACTION == 1 || bpf_get_prandom_u32() % MUTEX_FRACTION == 0;
}

/* Adds a release to the sums of its stack, by the length of its charge. */
static __always_inline void add_release(u64 stack, u64 charge_ns, u32 target_index) {
    struct total more = {
        .count = MUTEX_FRACTION * COUNT_ONE,
        .delay_ns = MUTEX_FRACTION * charge_ns,
    };
    if (stack)
        add_of_length(stack, charge_ns, &more, target_index);
}

/*
 * The charge, in nanoseconds, of a release at now_ns that found this queue: all waiting time since
 * the previous release. 0 if that is not positive: another release was charged just now, or a
 * goroutine parked after now_ns. Time that is not charged here is left for the next release.
 */
static __always_inline u64 charge(struct lock *lock, u64 queue, u64 now_ns) {
    u64 waiters = queue & ((1 << WAITERS_BITS) - 1);
    u64 waited = waiters * (now_ns >> UNIT_SHIFT) - (queue >> WAITERS_BITS);
    for (int i = 0; i < CHARGE_ATTEMPTS; i++) {
        u64 before = lock->charged;
        s64 units = (s64)((waited - before) << WAITERS_BITS) >> WAITERS_BITS;
        if (units <= 0)
            return 0;
        if (__sync_val_compare_and_swap(&lock->charged, before, waited) == before)
            return (u64)units << UNIT_SHIFT;
    }
    return 0;
}

/* The charge of a release that removes no waiter from the queue, in nanoseconds. */
static __always_inline u64 charge_queue(u32 target_index, u64 sema, u64 now_ns) {
    u64 key = goroutine_key(sema, target_index);
    struct lock *lock = locks.lookup(&key);
    return lock ? charge(lock, __sync_fetch_and_add(&lock->queue, 0), now_ns) : 0;
}

/*
 * A release, with which releaser wakes the goroutine g. That leaves the queue, if it had joined it.
 * Returns the charge of the release, in nanoseconds.
 */
static __always_inline u64 release_queue(u32 target_index, const struct target *target, u64 sema,
                                         u64 now_ns, bool leaves, u64 g, u64 releaser) {
    u64 key = goroutine_key(sema, target_index);
    struct lock *lock = locks.lookup(&key);
    if (!lock)
        return 0; /* no waiter joined the queue */
    u64 queue = __sync_fetch_and_add(&lock->queue, leaves ? -one_waiter(now_ns) : 0);
    u64 charge_ns = charge(lock, queue, now_ns);
#if BY_LOCK
    if (lock->owner && lock->owner == releaser && is_inside(target, lock->owned_since_ns)) {
        u64 held_ns = now_ns - lock->owned_since_ns;
        __sync_fetch_and_add(&lock->holds, 1);
        __sync_fetch_and_add(&lock->held_ns, held_ns);
        count_length(mix(key, HOLD_ROWS), held_ns, target_index);
    }
    /* Without other waiters, no probe sees g release and take the lock again. */
    lock->owner = (queue & ((1 << WAITERS_BITS) - 1)) > leaves ? g : 0;
    lock->owned_since_ns = now_ns;
    /* A writer waits for the Mutex first, then for readers: it has the lock only from now on. */
    key = goroutine_key(sema - WRITER_SEM_OFFSET, target_index);
    lock = locks.lookup(&key);
    if (lock && lock->owner == g)
        lock->owned_since_ns = now_ns;
#endif
    return charge_ns;
}

#endif
