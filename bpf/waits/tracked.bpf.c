/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The block profile from one wait in eight: those that Go's scheduler tracks itself
 * (symbolizer/codeanalysis/tracked_waits.py). All other waits pass no probe.
 *
 * on_tracked_begin notes when a wait began; since Go 1.20 waits for locks need none, because the
 * runtime notes it itself. on_tracked_end adds the wait to the sum of its stack, which it walks
 * from the gobuf of the goroutine: that is parked, and in no run queue yet. on_tracked_run adds
 * how long the goroutine was in the run queue.
 *
 * A goroutine that waits for a semaphore may park again. To Go that is one event, from the first
 * park to the last wake. When the goroutine begins to run we know whether it will: the semaphore
 * has no permit left, and none was handed over with the wake (runtime/sema.go, semacquire1).
 */
#include "common/loss.h"
#include "probes/goroutine_stack.h"
#include "probes/run.h"
#include "probes/source.h"
#include "probes/target.h"
#include "probes/totals.h"

#define G_WAITING 4
#define DELAY_SHIFT 8
#define LONG_SHIFT 16 /* for delays whose squares would soon overflow 64 bits */
#define LONG_NS (1 << 24)
#define MOVE_SPINS 64

/* More of a target's layout. Offsets of runtime.g where nothing else is said. */
struct tracking {
    u64 reasons;       /* a bit for each runtime.waitReason of a recorded wait */
    u64 stamped;       /* those whose begin is in the stamp */
    u64 began_ns;      /* waits that began before are not recorded */
    u64 semaphore_pc;  /* the return address of semacquire1's park */
    u32 checks_status; /* not only goroutines that begin to wait pass on_tracked_begin */
    u32 stamp_offset;
    u32 runnable_offset;
    s32 sudog_offset;  /* of semacquire1's sudog, from its frame pointer; 0: unknown */
    u32 ticket_offset; /* of runtime.sudog.ticket */
    u32 spare;
};
BPF_ARRAY(trackings, struct tracking, MAX_TARGETS);

/* Where the address of the runtime.g is, by site. */
BPF_ARRAY(goroutines, struct source, MAX_SITES);

/* The last tracked wait of a goroutine. */
struct tracked {
    u64 since_ns; /* 0: it does not wait, or nothing is known */
    u64 woken_ns;
    u64 stack; /* key in totals and stacks; 0: it is not runnable after a recorded wait */
    u64 is_semaphore;
};
BPF_HASH(tracked, u64, struct tracked, MAX_WAITS);

/* By stack, as totals: the time in the run queue after waits, and parks that followed another. */
struct queued {
    u64 count;
    u64 runnable_ns;
    u64 again;
    u64 again_ns;     /* from the wakes before them until they began to run */
    u64 probed;       /* waits that began at a probe */
    u64 squares;      /* sum of the squares of the delays, in units of 1 << DELAY_SHIFT ns */
    u64 long_squares; /* of delays of LONG_NS and more, in units of 1 << LONG_SHIFT ns */
};
BPF_HASH(queues, u64, struct queued, MAX_STACKS);

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

static __always_inline void tracked_begins(const struct passed *passed) {
    const struct tracking *tracking = passed->tracking;
    const struct target *target = passed->run.target;
    u64 key = passed->key;
    u8 reason = 0;
    u32 status = 0;
    if (read_user(&reason, sizeof(reason), (void *)(passed->g + target->wait_reason_offset)) ||
        (tracking->checks_status &&
         read_user(&status, sizeof(status), (void *)(passed->g + target->status_offset)))) {
        count_loss(LOSS_goroutine_unreadable, passed->run.site->target);
        return;
    }
    if (!is_recorded(tracking->reasons & ~tracking->stamped, reason) ||
        (tracking->checks_status && (status & ~G_SCAN) != G_WAITING))
        return;
    struct tracked *row = tracked.lookup(&key);
    if (!row) {
        struct tracked none = {};
        tracked.update(&key, &none);
        row = tracked.lookup(&key);
    }
    if (!row)
        count_loss(LOSS_waits_full, passed->run.site->target);
    else
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

/* The key of the stack of g, which is parked; 0, which is counted, if it is lost. */
static __always_inline u64 stack_of_parked(const struct passed *passed, struct walker *walker) {
    const struct target *target = passed->run.target;
    struct start *start = &walker->start;
    u64 key = 0, pc = 0;
    bool found = false;
    for (int i = 0; i < MOVE_SPINS && !found; i++)
        found = !read_user(&start->bounds, sizeof(start->bounds), (void *)passed->g) &&
                !read_user(&start->frame.bp, sizeof(start->frame.bp),
                           (void *)(passed->g + target->sched_bp_offset)) &&
                lies_in(start->frame.bp, &start->bounds);
    found = found && !read_user(&pc, sizeof(pc), (void *)(passed->g + G_SCHED_PC));
    start->frame.return_pc = pc;
    start->bp = target->callback.none;
    if (found)
        walk_stack(walker, target);
    if (found && !stack_moved(passed->g, target, &start->bounds, walker->loss < 0))
        key = stack_key(walker);
    else
        count_loss(LOSS_stack_moving, passed->run.site->target);
    give_walker(walker);
    return key;
}

static __always_inline struct queued *queue_of(u64 stack) {
    struct queued *queued = queues.lookup(&stack);
    if (!queued) {
        struct queued none = {};
        queues.insert(&stack, &none);
        queued = queues.lookup(&stack);
    }
    return queued;
}

static __always_inline void tracked_ends(const struct passed *passed, u64 now_ns) {
    const struct tracking *tracking = passed->tracking;
    const struct target *target = passed->run.target;
    u32 target_index = passed->run.site->target;
    u64 key = passed->key, since_ns = 0;
    u8 reason = 0;
    if (read_user(&reason, sizeof(reason), (void *)(passed->g + target->wait_reason_offset))) {
        count_loss(LOSS_goroutine_unreadable, target_index);
        return;
    }
    if (!is_recorded(tracking->reasons, reason))
        return;
    bool is_stamped = is_recorded(tracking->stamped, reason);
    struct tracked *row = tracked.lookup(&key);
    if (is_stamped)
        read_user(&since_ns, sizeof(since_ns), (void *)(passed->g + tracking->stamp_offset));
    else if (row)
        since_ns = row->since_ns;
    if (since_ns < tracking->began_ns)
        return;
    if (!row) {
        struct tracked none = {};
        tracked.update(&key, &none);
    }
    struct group group = group_of(target_index, KIND_BLOCK, passed->g, target);
    struct walker *walker = take_walker(&group);
    if (!walker)
        return;
    u64 stack = stack_of_parked(passed, walker);
    s64 delay_ns = now_ns - since_ns;
    struct total one = {.count = COUNT_ONE, .delay_ns = delay_ns > 0 ? delay_ns : 1};
    struct queued *queued = stack ? queue_of(stack) : NULL;
    if (queued) {
        bool is_long = one.delay_ns >= LONG_NS;
        u64 units = one.delay_ns >> (is_long ? LONG_SHIFT : DELAY_SHIFT);
        add_to(stack, &one, target_index);
        __sync_fetch_and_add(&queued->probed, !is_stamped);
        __sync_fetch_and_add(is_long ? &queued->long_squares : &queued->squares, units * units);
    }
    row = tracked.lookup(&key);
    if (row) {
        row->since_ns = 0;
        row->woken_ns = now_ns;
        row->stack = stack;
        row->is_semaphore = is_recorded(target->semaphore_reasons, reason);
    }
}

int on_tracked_end(struct pt_regs *ctx) {
    u64 now_ns = bpf_ktime_get_ns(); /* first, so that our own time is not in the wait */
    struct passed passed;
    if (pass(ctx, &passed)) {
        tracked_ends(&passed, now_ns);
        run_ends(passed.run.cost);
    }
    return 0;
}

/* Whether g, which was woken in semacquire1 and begins to run there, will park again. */
static __always_inline bool parks_again(const struct passed *passed) {
    const struct target *target = passed->run.target;
    struct frame frame;
    u64 address, sudog;
    u32 permits = 1, ticket = 1;
    if (!passed->tracking->sudog_offset)
        return false;
    if (read_user(&frame.bp, sizeof(frame.bp), (void *)(passed->g + target->sched_bp_offset)) ||
        read_user(&frame, sizeof(frame), (void *)frame.bp))
        return false;
    /* gopark is called by goparkunlock, if that is not inlined. */
    if (frame.return_pc != passed->tracking->semaphore_pc &&
        (read_user(&frame, sizeof(frame), (void *)frame.bp) ||
         frame.return_pc != passed->tracking->semaphore_pc))
        return false;
    if (read_user(&address, sizeof(address), (void *)(frame.bp + target->sema_offset)) ||
        read_user(&sudog, sizeof(sudog), (void *)(frame.bp + passed->tracking->sudog_offset)) ||
        read_user(&ticket, sizeof(ticket), (void *)(sudog + passed->tracking->ticket_offset)) ||
        read_user(&permits, sizeof(permits), (void *)address))
        return false;
    return !permits && !ticket;
}

static __always_inline void tracked_runs(const struct passed *passed, u64 now_ns) {
    u64 key = passed->key, runnable_ns = 0;
    struct tracked *row = tracked.lookup(&key);
    if (!row || !row->stack)
        return;
    u64 stack = row->stack;
    struct queued *queued = queue_of(stack);
    read_user(&runnable_ns, sizeof(runnable_ns),
              (void *)(passed->g + passed->tracking->runnable_offset));
    if (queued) {
        __sync_fetch_and_add(&queued->count, 1);
        __sync_fetch_and_add(&queued->runnable_ns, runnable_ns);
        if (row->is_semaphore && parks_again(passed)) {
            __sync_fetch_and_add(&queued->again, 1);
            __sync_fetch_and_add(&queued->again_ns, now_ns - row->woken_ns);
        }
    }
    row->stack = 0;
}

int on_tracked_run(struct pt_regs *ctx) {
    u64 now_ns = bpf_ktime_get_ns();
    struct passed passed;
    if (pass(ctx, &passed)) {
        tracked_runs(&passed, now_ns);
        run_ends(passed.run.cost);
    }
    return 0;
}
