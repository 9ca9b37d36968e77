/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * One wait in eight: those that Go's scheduler tracks itself
 * (symbolizer/codeanalysis/tracked_waits.py). All others pass no probe. A wait that is recorded
 * counts eight times in totals, as does its release.
 *
 * on_tracked_begin notes when a wait began; since Go 1.20 waits for locks need none, because the
 * runtime notes it itself. on_tracked_end adds the wait to the sum of its stack, which it walks
 * from the gobuf of the goroutine: that is parked, and in no run queue yet.
 *
 * A goroutine that waits for a semaphore may park again. To Go that is one event, from the first
 * park to the last wake. When the goroutine begins to run we know whether it will: the semaphore
 * has no permit left, and none was handed over with the wake (runtime/sema.go, semacquire1). So
 * on_tracked_run counts in what part of the waits that is so, and how long goroutines were in the
 * run queue. It need not be attached all the time.
 *
 * Releases of locks are charged as in locks.h, with tracked waiters alone in the queues:
 * on_tracked_lock lets one in, on_tracked_release, which each release of a contended lock passes,
 * lets it out. So a release is charged an eighth of what it made others wait, on average. These
 * queues have keys of their own: a lock may have one of all its waiters, too.
 *
 * Samples of goroutines see long waits themselves, each of them. So a wait that two samples saw is
 * left to them, and is not counted here.
 */
#ifndef EBPFPROF_ONE_IN_EIGHT_H
#define EBPFPROF_ONE_IN_EIGHT_H

#include "probes/source.h"
#include "waits/lengths.h"
#include "waits/locks.h"
#include "waits/wakers.h"

#define PERIOD 8 /* runtime.gTrackingPeriod */
#define G_WAITING 4
#define TRACKED_QUEUE 1   /* added to the address of a semaphore, which is a multiple of 4 */
#define SEMAPHORE_PARKS 4 /* the program and its plugins have one each */
#define DELAY_SHIFT 8
#define LONG_SHIFT 16 /* for delays whose squares would soon overflow 64 bits */
#define LONG_NS (1 << 24)

/* More of a target's layout. Offsets of runtime.g where nothing else is said. */
struct tracking {
    u64 reasons;     /* a bit for each runtime.waitReason of a recorded wait */
    u64 stamped;     /* those whose begin is in the stamp */
    u64 began_ns;    /* waits that began before are not recorded */
    u64 attached_ns; /* before, not every begin of a wait was seen, and no end counts */
    u64 within_ns;   /* of a wait whose begin a probe noted: how much of it is our own time */
    u64 semaphore_pcs[SEMAPHORE_PARKS]; /* the return addresses of semacquire1's parks */
    u32 only_runs;     /* every wait is recorded otherwise: only the time in the run queue is not */
    u32 checks_status; /* not only goroutines that begin to wait pass on_tracked_begin */
    u32 stamp_offset;
    u32 runnable_offset;
    u32 sequence_offset;
    s32 sudog_offset;  /* of semacquire1's sudog, from its frame pointer; 0: unknown */
    u32 ticket_offset; /* of runtime.sudog.ticket */
};
BPF_ARRAY(trackings, struct tracking, MAX_TARGETS);

/* The samples of the goroutines of a target. */
struct sampled {
    u64 before_last_ns; /* when the last but one was taken; 0: there is none */
};
BPF_ARRAY(samples, struct sampled, MAX_TARGETS);

/* Where the address of the runtime.g is, by site. */
BPF_ARRAY(goroutines, struct source, MAX_SITES);

/* The last tracked wait of a goroutine. */
struct tracked {
    u64 since_ns;  /* 0: it does not wait, or nothing is known */
    u64 stack;     /* key in totals and stacks; 0: it is not runnable after a recorded wait */
    u64 sema;      /* address of the semaphore of the lock it waits for; 0: no lock */
    u64 queued_ns; /* when it joined the queue of that lock; 0: it is not there */
    u64 is_semaphore;
    u64 last_stack; /* of its last recorded wait */
    u64 in_a_row;   /* recorded waits with that stack, without another one in between */
};
BPF_HASH(tracked, u64, struct tracked, MAX_WAITS);

/* By stack, more of the tracked waits in totals; not multiplied. */
struct spread {
    u64 parks;
    u64 probed;       /* those that began at a probe */
    u64 unknown;      /* waits of which only the end was seen, and which are not in totals */
    u64 runs;         /* waits after which on_tracked_run saw the goroutine begin to run */
    u64 runnable_ns;  /* how long it was in the run queue until then */
    u64 again;        /* how many of them were followed by another park of the same event */
    u64 again_ns;     /* how long it was in the run queue before those */
    u64 row_squares;  /* sum of the squares of in_a_row of all goroutines */
    u64 squares;      /* sum of the squares of the delays, in units of 1 << DELAY_SHIFT ns */
    u64 long_squares; /* of delays of LONG_NS and more, in units of 1 << LONG_SHIFT ns */
};
BPF_HASH(spreads, u64, struct spread, MAX_STACKS);

/* Of a target: the waits after which on_tracked_run tells something that the sums need, and those
   after which it did. */
struct needed {
    u64 parks;
    u64 runs;
};
BPF_PERCPU_ARRAY(needed_runs, struct needed, MAX_TARGETS);

struct passed {
    struct run run;
    struct tracking *tracking;
    u64 g;
    u64 key;
};

static __always_inline bool pass(struct pt_regs *ctx, struct passed *passed) {
    int site_index = bpf_get_attach_cookie(ctx);
    if (!begin_run(ctx, &passed->run))
        return false;
    int target_index = passed->run.site->target;
    passed->tracking = trackings.lookup(&target_index);
    struct source *source = goroutines.lookup(&site_index);
    if (!passed->tracking || !source)
        return false;
    passed->g = value_of(ctx, source);
    passed->key = goroutine_key(passed->g, target_index);
    return true;
}

/* Whether g waits for something that is recorded. */
static __always_inline bool is_recorded(u64 mask, u8 reason) {
    return reason < 64 && (mask >> reason & 1);
}

/* The reason for which g waits; 255, which is counted, if it can't be read. */
static __always_inline u8 reason_of(const struct passed *passed) {
    u8 reason = 255;
    if (read_user(&reason, sizeof(reason),
                  (void *)(passed->g + passed->run.target->wait_reason_offset))) {
        count_loss(LOSS_goroutine_unreadable, passed->run.site->target);
        reason = 255; /* the kernel has made it 0 */
    }
    return reason;
}

/* Whether it is the address of a park in semacquire1. */
static __always_inline bool is_semaphore_pc(const struct tracking *tracking, u64 return_pc) {
    for (int i = 0; i < SEMAPHORE_PARKS; i++)
        if (return_pc && return_pc == tracking->semaphore_pcs[i])
            return true;
    return false;
}

/* The frame pointer of semacquire1, in which g is parked; 0 if it is not found. */
static __always_inline u64 semaphore_bp(u64 g, const struct tracking *tracking,
                                        const struct target *target) {
    struct frame frame;
    if (read_user(&frame.bp, sizeof(frame.bp), (void *)(g + target->sched_bp_offset)) ||
        read_user(&frame, sizeof(frame), (void *)frame.bp))
        return 0;
    /* gopark is called by goparkunlock, if that is not inlined. */
    if (!is_semaphore_pc(tracking, frame.return_pc) &&
        (read_user(&frame, sizeof(frame), (void *)frame.bp) ||
         !is_semaphore_pc(tracking, frame.return_pc)))
        return 0;
    return frame.bp;
}

/* The semaphore of the lock for which g, which is parked, waits; 0: it waits for none. */
static __always_inline u64 lock_of_parked(u64 g, const struct tracking *tracking,
                                          const struct target *target, u32 target_index) {
    u64 sema = target->callback.none, bp = semaphore_bp(g, tracking, target);
    if (bp && !lock_waited_for(bp, target, &sema))
        count_loss(LOSS_goroutine_unreadable, target_index);
    return sema;
}

/* The row of the goroutine; NULL, which is counted, if the table is full. */
static __always_inline struct tracked *row_of(const struct passed *passed) {
    u64 key = passed->key;
    struct tracked *row = tracked.lookup(&key);
    if (!row) {
        struct tracked none = {};
        tracked.update(&key, &none);
        row = tracked.lookup(&key);
    }
    if (!row)
        count_loss(LOSS_waits_full, passed->run.site->target);
    return row;
}

/* If g waits for a lock whose releases are recorded, it joins the queue of that. */
static __always_inline void join(const struct passed *passed, struct tracked *row) {
    u32 target_index = passed->run.site->target;
    u64 sema = lock_of_parked(passed->g, passed->tracking, passed->run.target, target_index);
    row->sema = row->queued_ns = 0;
    if (!sema)
        return;
    u64 now_ns = bpf_ktime_get_ns();
    row->sema = sema;
    if (join_queue(target_index, sema + TRACKED_QUEUE, passed->g, now_ns))
        row->queued_ns = now_ns;
}

static __always_inline void tracked_begins(const struct passed *passed) {
    const struct tracking *tracking = passed->tracking;
    const struct target *target = passed->run.target;
    u32 status = 0;
    u8 reason = reason_of(passed);
    if (!is_recorded(tracking->reasons & ~tracking->stamped, reason))
        return;
    if (tracking->checks_status &&
        (read_user(&status, sizeof(status), (void *)(passed->g + target->status_offset)) ||
         (status & ~G_SCAN) != G_WAITING))
        return;
    struct tracked *row = row_of(passed);
    if (!row)
        return;
    if (WITH_MUTEX && is_recorded(target->semaphore_reasons, reason))
        join(passed, row);
    row->since_ns = bpf_ktime_get_ns(); /* last, so that our own time is not in the wait */
}

int on_tracked_begin(struct pt_regs *ctx) {
    struct passed passed;
    if (pass(ctx, &passed)) {
        tracked_begins(&passed);
        run_ends(passed.run.cost);
    }
    return 0;
}

#if WITH_MUTEX
static __always_inline void tracked_lock_begins(const struct passed *passed) {
    if (!is_recorded(passed->tracking->stamped, reason_of(passed)))
        return;
    struct tracked *row = row_of(passed);
    if (row)
        join(passed, row);
}

/* A tracked goroutine begins to wait for a lock, and the runtime notes when. */
int on_tracked_lock(struct pt_regs *ctx) {
    struct passed passed;
    if (pass(ctx, &passed)) {
        tracked_lock_begins(&passed);
        run_ends(passed.run.cost);
    }
    return 0;
}
#endif

#if WITH_WAITERS
/* The key of the stack of g, which is parked; 0, which is counted, if it is lost. */
static __always_inline u64 stack_of_parked(const struct passed *passed, struct walker *walker) {
    const struct target *target = passed->run.target;
    struct start *start = &walker->start;
    u64 key = 0, pc = 0;
    bool found = false;
    for (u64 i = FROM_0(target->callback.none); i < MOVE_SPINS && !found; i++) {
        VERIFIED_ONCE;
        found = !read_user(&start->bounds, sizeof(start->bounds), (void *)passed->g) &&
                !read_user(&start->frame.bp, sizeof(start->frame.bp),
                           (void *)(passed->g + target->sched_bp_offset)) &&
                lies_in(start->frame.bp, &start->bounds);
    }
    found = found && !read_user(&pc, sizeof(pc), (void *)(passed->g + G_SCHED_PC));
    start->frame.return_pc = pc;
    start->bp = target->callback.none;
    if (found)
        walk_stack(walker, target);
    if (found && !stack_moved(passed->g, target, &start->bounds, walker->loss < 0))
        key = stack_key(walker);
    else
        count_loss(LOSS_stack_moving, passed->run.site->target);
    return key;
}

/* Of a wait that ends, for after the walk. */
struct ended {
    u64 since_ns;
    u64 now_ns;
    u64 is_probed;
};

/* The counts of this target, if what on_tracked_run sees after this wait is needed. */
static __always_inline struct needed *needed_of(const struct tracked *row, int target_index) {
    return row->is_semaphore || WITH_RUN_QUEUE ? needed_runs.lookup(&target_index) : NULL;
}

static __always_inline struct spread *spread_of(u64 stack) {
    struct spread *spread = spreads.lookup(&stack);
    if (!spread) {
        struct spread none = {};
        spreads.insert(&stack, &none);
        spread = spreads.lookup(&stack);
    }
    return spread;
}

/* When the wait began; 0 if nothing shows that. */
static __always_inline u64 began(const struct passed *passed, const struct tracked *row,
                                 bool is_stamped) {
    u64 key = passed->key, since_ns = 0;
    if (is_stamped) {
        read_user(&since_ns, sizeof(since_ns),
                  (void *)(passed->g + passed->tracking->stamp_offset));
        return since_ns;
    }
    if (row->since_ns >= passed->tracking->attached_ns)
        return row->since_ns;
    /* It began while every wait was recorded. */
    struct wait *wait = waits.lookup(&key);
    return wait && wait->state == WAITS ? wait->start_ns : 0;
}

/* Adds a wait to the sums of its stack. Returns what that added, for its waker. */
static __always_inline struct added add_wait(u64 stack, u64 delay_ns, struct tracked *row,
                                             bool is_probed, const struct passed *passed) {
    u32 target_index = passed->run.site->target;
    u64 within_ns = is_probed ? passed->tracking->within_ns : 0;
    struct added added = {.waiter = stack, .is_first = 1};
    added.sums.count = PERIOD * COUNT_ONE;
    added.sums.delay_ns = PERIOD * delay_ns;
    struct spread *spread = spread_of(stack);
    bool is_long = delay_ns >= LONG_NS;
    u64 units = delay_ns >> (is_long ? LONG_SHIFT : DELAY_SHIFT);
    row->in_a_row = row->last_stack == stack ? row->in_a_row + 1 : 1;
    row->last_stack = stack;
    if (within_ns > delay_ns / 2)
        within_ns = delay_ns / 2;
    added.length_ns = delay_ns - within_ns;
    if (!spread)
        return added;
    add_of_length(stack, added.length_ns, &added.sums, target_index);
    struct needed *needed = needed_of(row, target_index);
    if (needed)
        needed->parks++;
    __sync_fetch_and_add(&spread->parks, 1);
    __sync_fetch_and_add(&spread->probed, is_probed);
    __sync_fetch_and_add(&spread->row_squares, 2 * row->in_a_row - 1);
    __sync_fetch_and_add(is_long ? &spread->long_squares : &spread->squares, units * units);
    return added;
}

/* Adds the wait of g, which has that stack, to all sums. */
static __always_inline void add_ended(struct pt_regs *ctx, const struct passed *passed, u64 stack,
                                      const struct ended *ended) {
    const struct target *target = passed->run.target;
    u32 target_index = passed->run.site->target;
    u64 key = passed->key;
    struct tracked *row = tracked.lookup(&key);
    if (!row)
        return;
    if (!ended->since_ns && !passed->tracking->only_runs) {
        struct spread *spread = spread_of(stack);
        if (spread)
            __sync_fetch_and_add(&spread->unknown, 1);
        return;
    }
    row->stack = stack;
    if (passed->tracking->only_runs)
        return;
    s64 delay_ns = ended->now_ns - ended->since_ns;
    struct added added =
        add_wait(stack, delay_ns > 0 ? delay_ns : 1, row, ended->is_probed, passed);
#if WITH_WAKERS
    struct wake wake = {.charge_ns = NOT_TAKEN, .added = added};
    note_wake(ctx, &wake, running_goroutine(ctx->r14, target), target, target_index);
#endif
}

static __always_inline void tracked_ends(struct pt_regs *ctx, const struct passed *passed,
                                         u64 now_ns) {
    const struct tracking *tracking = passed->tracking;
    const struct target *target = passed->run.target;
    int target_index = passed->run.site->target;
    u8 reason = reason_of(passed);
    bool is_stamped = is_recorded(tracking->stamped, reason);
    bool is_semaphore = is_recorded(target->semaphore_reasons, reason);
    struct tracked *row = is_recorded(tracking->reasons, reason) ? row_of(passed) : NULL;
    if (!row || now_ns < tracking->attached_ns || now_ns > target->end_ns)
        return;
    u64 since_ns = began(passed, row, is_stamped);
    row->since_ns = row->stack = 0;
    row->is_semaphore = is_semaphore;
    struct sampled *sampled = samples.lookup(&target_index);
    if (!tracking->only_runs && since_ns &&
        (since_ns < tracking->began_ns || !sampled || since_ns < sampled->before_last_ns))
        return;
    struct group group = group_of(target_index, KIND_BLOCK, passed->g, target);
    if (BY_LOCK && is_semaphore)
        group.sema = lock_of_parked(passed->g, tracking, target, target_index);
    struct walker *walker = take_walker(&group);
    if (!walker)
        return;
    struct ended *ended = (struct ended *)walker->kept;
    ended->since_ns = since_ns;
    ended->now_ns = now_ns;
    ended->is_probed = !is_stamped;
    u64 stack = stack_of_parked(passed, walker);
    struct ended wait = *ended;
    give_walker(walker);
    if (stack)
        add_ended(ctx, passed, stack, &wait);
}

int on_tracked_end(struct pt_regs *ctx) {
    u64 now_ns = bpf_ktime_get_ns(); /* first, so that our own time is not in the wait */
    struct passed passed;
    if (pass(ctx, &passed)) {
        tracked_ends(ctx, &passed, now_ns);
        run_ends(passed.run.cost);
    }
    return 0;
}

/* Whether g, which was woken in semacquire1 and begins to run there, will park again. */
static __always_inline bool parks_again(const struct passed *passed) {
    const struct tracking *tracking = passed->tracking;
    u64 bp = semaphore_bp(passed->g, tracking, passed->run.target), address, sudog;
    u32 permits = 1, ticket = 1;
    if (!bp || !tracking->sudog_offset ||
        read_user(&address, sizeof(address), (void *)(bp + passed->run.target->sema_offset)) ||
        read_user(&sudog, sizeof(sudog), (void *)(bp + tracking->sudog_offset)) ||
        read_user(&ticket, sizeof(ticket), (void *)(sudog + tracking->ticket_offset)) ||
        read_user(&permits, sizeof(permits), (void *)address))
        return false;
    return !permits && !ticket;
}

static __always_inline void tracked_runs(const struct passed *passed) {
    u64 key = passed->key, runnable_ns = 0;
    struct tracked *row = tracked.lookup(&key);
    if (!row || !row->stack)
        return;
    u64 stack = row->stack;
    struct spread *spread = spread_of(stack);
    read_user(&runnable_ns, sizeof(runnable_ns),
              (void *)(passed->g + passed->tracking->runnable_offset));
    row->stack = 0;
    if (!spread)
        return;
    struct needed *needed = needed_of(row, passed->run.site->target);
    if (needed)
        needed->runs++;
    __sync_fetch_and_add(&spread->runs, 1);
    __sync_fetch_and_add(&spread->runnable_ns, runnable_ns);
    if (WITH_RUN_QUEUE)
        count_length(stack ^ RUN_QUEUE_ROWS, runnable_ns, passed->run.site->target);
    if (row->is_semaphore && parks_again(passed)) {
        __sync_fetch_and_add(&spread->again, 1);
        __sync_fetch_and_add(&spread->again_ns, runnable_ns);
    }
}

int on_tracked_run(struct pt_regs *ctx) {
    struct passed passed;
    if (pass(ctx, &passed)) {
        tracked_runs(&passed);
        run_ends(passed.run.cost);
    }
    return 0;
}
#endif

#if WITH_MUTEX
/* A waiter leaves that waited before the queue was there. */
static __always_inline void miss(u32 target_index, u64 sema, u64 waited_ns) {
    struct lock *lock = lock_of(target_index, sema);
    if (lock)
        __sync_fetch_and_add(&lock->missed_ns, waited_ns);
}

/* Of a release, for after the walk. */
struct charged {
    struct total sums;
    u64 has_length; /* a tracked waiter that left the queue waited so long, if it was alone there */
    u64 length_ns;
};

static __always_inline void tracked_release(struct pt_regs *ctx, const struct site *site,
                                            const struct target *target) {
    int target_index = site->target;
    struct tracking *tracking = trackings.lookup(&target_index);
    u64 now_ns = bpf_ktime_get_ns(), g;
    u8 sequence = 0;
    if (!tracking || now_ns < tracking->attached_ns || now_ns > target->end_ns)
        return;
    if (read_user(&g, sizeof(g), (void *)ctx->ax) ||
        read_user(&sequence, sizeof(sequence), (void *)(g + tracking->sequence_offset))) {
        count_loss(LOSS_releaser_unreadable, target_index);
        return;
    }
    u64 key = goroutine_key(g, target_index);
    u64 sema = lock_of_parked(g, tracking, target, target_index);
    if (!sema)
        return;                               /* not of a lock */
    bool is_tracked = sequence % PERIOD == 1; /* it was incremented when the wait began */
    struct tracked *row = is_tracked ? tracked.lookup(&key) : NULL;
    bool leaves = row && row->queued_ns >= tracking->attached_ns && row->sema == sema;
    u64 charge_ns =
        release_queue(target_index, target, sema + TRACKED_QUEUE, now_ns, leaves, g, ctx->r14);
    if (leaves)
        row->queued_ns = 0;
    else if (is_tracked)
        miss(target_index, sema + TRACKED_QUEUE, now_ns - tracking->attached_ns);
    if (!is_tracked && !charge_ns)
        return;
    struct group group = group_of(target_index, KIND_MUTEX, ctx->r14, target);
    if (BY_LOCK)
        group.sema = sema;
    struct walker *walker = take_walker(&group);
    if (!walker)
        return;
    struct charged *charged = (struct charged *)walker->kept;
    charged->sums.count = is_tracked ? PERIOD * COUNT_ONE : 0;
    charged->sums.delay_ns = PERIOD * charge_ns;
    charged->has_length = leaves;
    charged->length_ns = charge_ns;
    bool found = start_here(ctx->r14, ctx, target, site->return_pc, walker->piece, site->target,
                            &walker->start);
    u64 stack = releaser_key(walker, found, target, target_index);
    struct charged more = *charged;
    give_walker(walker);
    if (stack && more.has_length)
        add_of_length(stack, more.length_ns, &more.sums, target_index);
    else if (stack)
        add_to(stack, &more.sums, target_index);
}

/* At the call of readyWithTime in semrelease1, as on_release. */
int on_tracked_release(struct pt_regs *ctx) {
    struct run run;
    if (begin_run(ctx, &run)) {
        tracked_release(ctx, run.site, run.target);
        run_ends(run.cost);
    }
    return 0;
}
#endif

#endif
