/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The execution trace: what the scheduler does with goroutines, by probes (on_moment), and what the
 * kernel does with the threads of the process, at each of its context switches (on_switch).
 *
 * All moments are recorded in the same way, so that there is one program. Who runs on a thread
 * needs no probe: each later event of the thread tells. Nor does a system call that blocks: the
 * kernel takes the processor from the thread, and its goroutine's status says what it is in.
 */
#include "common/loss.h"
#include "probes/fp_unwind.h"
#include "probes/goroutine_stack.h"
#include "probes/run.h"
#include "probes/target.h"
#include "trace/events.h"
#include "trace/waited_for.h"
#if WITH_LABELS
#include "common/labels.h"
#endif

#define KIND_TRACE 3
#define SWITCHES 1 /* where costs has the runs at context switches: not those at probes */
#define STATUS_MASK 0xff
#define IN_SYSCALL 3     /* runtime._Gsyscall */
#define MOST_GOROUTINE 2 /* runtime.pdReady and pdWait are less or equal */
#define READS 'r'
#define WRITES 'w'
#define TASK_IS_RUNNABLE 0

/* By site. */
struct moment {
    u32 kind;    /* enum event_kind */
    u32 subject; /* enum subject */
    u32 walks;   /* enum walked */
};
enum subject { NOBODY, IN_AX, IN_BX, IN_POLL };
enum walked { NO_STACK, OF_SUBJECT, OF_RUNNER };
BPF_ARRAY(moments, struct moment, MAX_SITES);

/* What a trace needs of the process besides struct target. */
struct traced {
    u32 tgid; /* as the kernel numbers it; 0 until the first moment tells it */
    s32 tls_offset;
    u32 goid_offset;
    u32 sequence_offset; /* of runtime.g.trackingSeq */
    u32 start_pc_offset;
    u32 coro_offset; /* of runtime.g.coroarg; 0: there is none */
    u32 coro_exit_offset;
    u32 coro_g_offset; /* of runtime.coro.gp */
    u32 p_offset;      /* of runtime.m.p */
    u32 old_p_offset;
    u32 tick_offset; /* of runtime.m.syscalltick */
    u32 p_id_offset;
    struct wait_layout waits;
    u32 syscall_pc_offset;
    u32 syscall_bp_offset; /* 0: before Go 1.23 */
    u32 made_in_bx;        /* goschedImpl tells whether the goroutine was made to */
};
BPF_ARRAY(traces, struct traced, 1);
BPF_HASH(stacks, u64, struct stack, MAX_STACKS);

static __always_inline u8 byte_at(u64 address) {
    u8 byte = 0;
    read_user(&byte, sizeof(byte), (void *)address);
    return byte;
}

static __always_inline u64 goid_of(u64 g, const struct traced *traced) {
    return g ? word_at(g + traced->goid_offset) : 0;
}

/* The id of the P whose address is at `at`. */
static __always_inline s32 p_at(u64 at, const struct traced *traced) {
    s32 id = NO_P;
    u64 p = word_at(at);
    if (p && read_user(&id, sizeof(id), (void *)(p + traced->p_id_offset)))
        id = NO_P;
    return id;
}

/* The key of the stack from walker->start on, which is stored if it is new; 0 if it is lost. */
static __always_inline u64 keep_stack(struct walker *walker, const struct target *target) {
    walk_stack(walker, target);
    u64 key = walker->hash;
    if (walker->loss >= 0)
        count_loss(walker->loss, walker->stack.group.target);
    if (!stacks.lookup(&key) && stacks.update(&key, &walker->stack)) {
        count_loss(LOSS_stacks_full, walker->stack.group.target);
        key = 0;
    }
    return key;
}

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
        return traced->coro_offset
                   ? goid_of(word_at(word_at(g + traced->coro_offset) + traced->coro_g_offset),
                             traced)
                   : 0;
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

/* Where a thread of the process is when the kernel takes its processor. */
struct stop {
    u64 goid;
    u64 stack;
    u64 tick; /* tells the system calls of a thread apart */
    s32 p;    /* of a thread in a system call the one that it had before */
    bool in_syscall;
};

/*
 * The stack of g, in a system call: from where it entered that, which the runtime notes. Before Go
 * 1.23 it does not note the frame pointer; the thread has it, unless C called the kernel.
 */
static __always_inline u64 stack_in_syscall(u64 g, const struct traced *traced,
                                            const struct target *target) {
    u32 target_index = 0;
    /* Of a struct that is all constant LLVM 14 makes a copy, before which it loses other writes. */
    OWN_REGISTER(target_index);
    struct group group = {.target = target_index, .kind = KIND_TRACE};
    struct walker *walker = take_walker(&group);
    u64 key = 0;
    if (!walker)
        return 0;
    struct start *start = &walker->start;
    start->bp = target->callback.none;
    start->frame.bp = 0;
    start->frame.return_pc = word_at(g + traced->syscall_pc_offset);
    if (start->frame.return_pc && !read_user(&start->bounds, sizeof(start->bounds), (void *)g)) {
        u64 bp = 0;
        if (traced->syscall_bp_offset) {
            bp = word_at(g + traced->syscall_bp_offset);
            start->frame.bp = lies_in(bp, &start->bounds) ? bp : 0;
        } else {
            struct pt_regs *registers =
                (void *)bpf_task_pt_regs((void *)bpf_get_current_task_btf());
            struct frame frame;
            read_kernel(&bp, sizeof(bp), &registers->bp);
            if (frame_at(bp, &start->bounds, &frame)) {
                start->frame = frame;
                start->bp = bp;
            }
        }
        key = keep_stack(walker, target);
    }
    give_walker(walker);
    return key;
}

static __always_inline void where_it_stops(u64 task, bool is_preempted, const struct traced *traced,
                                           const struct target *target, struct stop *stop) {
    u64 fs_base = 0;
    read_kernel(&fs_base, sizeof(fs_base), (void *)(task + FS_BASE_OFFSET));
    u64 m = word_at(word_at(fs_base + traced->tls_offset) + target->m_offset);
    u64 g = m ? word_at(m + target->curg_offset) : 0;
    if (!g)
        return;
    stop->goid = goid_of(g, traced);
    u8 status = 0;
    read_user(&status, sizeof(status), (void *)(g + target->status_offset));
    stop->in_syscall = !is_preempted && status == IN_SYSCALL;
    stop->p = p_at(m + traced->p_offset, traced);
    if (!stop->in_syscall)
        return;
    if (stop->p == NO_P)
        stop->p = p_at(m + traced->old_p_offset, traced);
    stop->tick = word_at(m + traced->tick_offset);
    stop->stack = stack_in_syscall(g, traced, target);
}

static __always_inline void switched_off(u64 task, bool is_preempted, const struct traced *traced,
                                         const struct target *target) {
    struct stop stop = {.p = NO_P};
    u64 number = 0;
    where_it_stops(task, is_preempted, traced, target, &stop);
    struct event *event = begin_event(&number);
    if (!event)
        return;
    event->goid = event->by = stop.goid;
    event->stack = stop.stack;
    event->more = (u32)stop.tick;
    event->tid = bpf_get_current_pid_tgid();
    event->p = stop.p;
    event->kind = THREAD_OFF;
    event->reason = 0;
    event->is_made = is_preempted;
    event->is_exit = stop.in_syscall;
    end_event(event, number);
}

static __always_inline void switched_on(u32 tid) {
    u64 number = 0;
    struct event *event = begin_event(&number);
    if (!event)
        return;
    event->goid = event->by = event->stack = event->more = 0;
    event->tid = tid;
    event->p = NO_P;
    event->kind = THREAD_ON;
    event->reason = event->is_made = event->is_exit = 0;
    end_event(event, number);
}

/* The arguments of the tracepoint sched_switch, include/trace/events/sched.h. */
struct switch_arguments {
    u64 is_preempted;
    u64 before; /* struct task_struct, still the current one */
    u64 next;
};

/* On each context switch of the machine. */
int on_switch(struct switch_arguments *ctx) {
    int first = 0;
    struct traced *traced = traces.lookup(&first);
    struct target *target = target_at(0);
    if (!traced || !target || !target->active || !traced->tgid)
        return 0;
    u32 tgid = 0, tid = 0, state = 0;
    u64 next = ctx->next;
    bool is_of_ours = bpf_get_current_pid_tgid() >> 32 == traced->tgid;
    read_kernel(&tgid, sizeof(tgid), (void *)(next + TGID_OFFSET));
    if (!is_of_ours && tgid != traced->tgid)
        return 0;
    struct cost *cost = run_begins(SWITCHES);
    if (!cost)
        return 0;
    if (is_of_ours) {
        u64 before = ctx->before;
        read_kernel(&state, sizeof(state), (void *)(before + STATE_OFFSET));
        switched_off(before, ctx->is_preempted || state == TASK_IS_RUNNABLE, traced, target);
    }
    if (tgid == traced->tgid) {
        read_kernel(&tid, sizeof(tid), (void *)(next + TID_OFFSET));
        switched_on(tid);
    }
    run_ends(cost);
    return 0;
}
