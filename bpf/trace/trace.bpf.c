/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The execution trace: what the scheduler does with goroutines, by probes (on_moment), what the
 * kernel does with the threads of the process, at each of its context switches and wakes
 * (threads.h), and what the program annotates (annotations.h).
 *
 * All moments are recorded in the same way, so that there is one program. Which goroutine
 * runs on a thread needs no probe: each later event of the thread has it. Nor does a system call
 * that blocks: the kernel takes the processor from the thread, and its goroutine's status says what
 * it is in.
 */
#include "common/at_load.h"
#include "common/loss.h"
#include "probes/fp_unwind.h"
#include "probes/goroutine_stack.h"
#include "probes/run.h"
#include "probes/target.h"
#include "trace/events.h"
#include "trace/threads.h"
#include "trace/traced.h"
#include "trace/waited_for.h"
#if WITH_LABELS
#include "common/labels.h"
#endif
#if WITH_ANNOTATIONS
#include "trace/annotations.h"
#endif

#define MOST_GOROUTINE 2 /* runtime.pdReady and pdWait are less or equal */
#define READS 'r'
#define WRITES 'w'

/* By site. */
struct moment {
    u32 kind;    /* enum event_kind */
    u32 subject; /* enum subject */
    u32 walks;   /* enum walked */
};
enum subject { NOBODY, IN_AX, IN_BX, IN_POLL };
enum walked { NO_STACK, OF_SUBJECT, OF_RUNNER };
BPF_ARRAY(moments, struct moment, MAX_SITES);

/*
 * The stack of g, which is not on it: it parks, or runs on its thread's g0. Tells the frame of
 * semacquire1, too, if it waits there.
 */
static __always_inline u64 stack_of(u64 g, u32 target_index, const struct target *target,
                                    const struct traced *traced, u64 *semaphore_bp) {
    struct group group = {.target = target_index, .kind = KIND_TRACE};
    struct walker *walker = take_walker(&group);
    u64 key = 0;
    if (!walker)
        return 0;
    if (start_switched(g, target, &walker->start)) {
        key = keep_stack(walker, target);
        *semaphore_bp = semaphore_frame(walker, &traced->waits);
    }
    give_walker(walker);
    return key;
}

/* The other goroutine of the coroutine that g hands over to. */
static __always_inline u64 partner_of(u64 g, const struct traced *traced) {
    if (!traced->coro_offset)
        return 0;
    return word_at(word_at(g + traced->coro_offset) + traced->coro_g_offset);
}

/*
 * more: of CREATE the new goroutine's startpc; of READY the woken one's trackingSeq; of SWITCH the
 * goid of the other one; of those that stop to run the key of their labels.
 */
static __always_inline u64 more_of(u32 kind, u64 g, const struct traced *traced,
                                   const struct target *target, u32 target_index) {
    if (kind == CREATE)
        return word_at(g + traced->start_pc_offset);
    if (kind == READY)
        return byte_at(g + traced->sequence_offset);
    if (kind == SWITCH)
        return goid_of(partner_of(g, traced), traced);
#if WITH_LABELS
    if (kind == PARK || kind == EXIT || kind == YIELD || kind == PREEMPT)
        return label_set_of(g, target->labels_offset, target->labels_in_slice,
                            label_owner(target_index, 0));
#endif
    return 0;
}

/* What all events at a probe have in common. */
struct occasion {
    u64 runner; /* the goroutine of the thread; 0: none */
    u64 m;
    u64 stack;
    u64 semaphore_bp; /* frame pointer of semacquire1, in which it waits; 0: elsewhere */
};

/* Writes the event of g, but for what more_of() says. */
static __always_inline void record(struct pt_regs *ctx, const struct moment *moment,
                                   const struct target *target, const struct traced *traced, u64 g,
                                   u64 more, const struct occasion *occasion) {
    u64 number = 0;
    u32 kind = moment->kind;
    struct event *event = begin_event(&number);
    if (!event)
        return;
    event->goid = goid_of(g, traced);
    event->by = occasion->runner == g ? event->goid : goid_of(occasion->runner, traced);
    event->stack = occasion->stack;
    event->more = more;
    event->tid = bpf_get_current_pid_tgid();
    event->p = p_at(occasion->m + traced->p_offset, traced);
    event->kind = kind;
    u8 reason = g ? byte_at(g + target->wait_reason_offset) : (u8)ctx->ax;
    event->reason = reason;
    if (kind == PARK)
        event->by = waited_for(occasion->m, occasion->semaphore_bp, reason, target->sema_offset,
                               &traced->waits);
    event->is_made = kind == YIELD && traced->made_in_bx ? (u8)ctx->bx : 0;
    if (kind == SWITCH) {
        u64 partner = partner_of(g, traced);
        event->is_made = partner && word_at(partner + traced->pc_offset) == traced->coro_start;
    }
    event->is_exit =
        kind == SWITCH && traced->coro_exit_offset ? byte_at(g + traced->coro_exit_offset) : 0;
    end_event(event, number);
}

/* Of runtime.netpollready: those that wait for what the descriptor is ready for. */
static __always_inline void record_poll(struct pt_regs *ctx, const struct moment *moment,
                                        const struct target *target, const struct traced *traced,
                                        const struct occasion *occasion) {
    u32 mode = ctx->cx;
    u64 reader = 0, writer = 0;
    if (mode != WRITES)
        reader = word_at(ctx->bx + traced->waits.read_g_offset);
    if (mode != READS)
        writer = word_at(ctx->bx + traced->waits.write_g_offset);
    if (reader > MOST_GOROUTINE)
        record(ctx, moment, target, traced, reader, byte_at(reader + traced->sequence_offset),
               occasion);
    if (writer > MOST_GOROUTINE)
        record(ctx, moment, target, traced, writer, byte_at(writer + traced->sequence_offset),
               occasion);
}

static __always_inline void note(struct pt_regs *ctx, const struct site *site,
                                 const struct target *target) {
    int index = bpf_get_attach_cookie(ctx), first = 0;
    struct moment *moment = moments.lookup(&index);
    struct traced *traced = traces.lookup(&first);
    if (!moment || !traced)
        return;
    if (!traced->tgid)
        traced->tgid = bpf_get_current_pid_tgid() >> 32;
    u64 ax = ctx->ax, bx = ctx->bx, g = 0;
    OWN_REGISTER(ax);
    OWN_REGISTER(bx);
    if (moment->subject == IN_AX)
        g = ax;
    if (moment->subject == IN_BX)
        g = bx;
    struct occasion occasion = {};
    occasion.m = word_at(ctx->r14 + target->m_offset);
    occasion.runner = word_at(occasion.m + target->curg_offset);
    u64 walked = moment->walks == OF_SUBJECT ? g : occasion.runner;
    if (moment->walks != NO_STACK && walked)
        occasion.stack = stack_of(walked, site->target, target, traced, &occasion.semaphore_bp);
    if (moment->subject == IN_POLL) {
        record_poll(ctx, moment, target, traced, &occasion);
        return;
    }
    u64 more = more_of(moment->kind, g, traced, target, site->target);
    record(ctx, moment, target, traced, g, more, &occasion);
}

int on_moment(struct pt_regs *ctx) {
    struct run run;
    if (begin_run(ctx, &run)) {
        note(ctx, run.site, run.target);
        run_ends(run.cost);
    }
    return 0;
}

#if WITH_ANNOTATIONS
/* Where a program annotates what it does; moments has the kind. */
int on_annotation(struct pt_regs *ctx) {
    int index = bpf_get_attach_cookie(ctx), first = 0;
    struct run run;
    if (!begin_run(ctx, &run))
        return 0;
    struct moment *moment = moments.lookup(&index);
    struct traced *traced = traces.lookup(&first);
    if (moment && traced) {
        if (!traced->tgid)
            traced->tgid = bpf_get_current_pid_tgid() >> 32;
        record_annotation(ctx, moment->kind, run.site->target, run.target, traced);
    }
    run_ends(run.cost);
    return 0;
}
#endif
