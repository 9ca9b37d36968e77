/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * What the kernel does with the threads of the traced process: it gives them a processor or takes
 * it from them (on_switch), and others wake them (on_waking).
 */
#ifndef EBPFPROF_THREADS_H
#define EBPFPROF_THREADS_H

#include "common/cost.h"
#include "probes/fp_unwind.h"
#include "probes/goroutine_stack.h"
#include "trace/events.h"
#include "trace/traced.h"
#if WITH_C
#include "trace/c_stack.h"
#endif

#define SWITCHES 1 /* where costs has the runs at context switches: not those at probes */
#define WAKES 2    /* and those at wakes of threads */
#define KERNEL_STACK_BYTES 16384 /* arch/x86/include/asm/page_64_types.h, THREAD_SIZE */
#define NAME_BYTES 16            /* TASK_COMM_LEN */
#define USER_MODE 3              /* of the code segment's selector */
#define NO_SYSTEM_CALL (-1)
#define IN_SYSCALL 3 /* runtime._Gsyscall */
#define TASK_IS_RUNNABLE 0

/* Where a thread of the process is when the kernel takes its processor. */
struct stop {
    u64 goid;
    u64 stack;
    u64 tick; /* distinguishes the system calls of a thread */
    s32 p;    /* of a thread in a system call the one that it had before */
    bool in_syscall;
};

/* Begins the walker's stack with what the thread does in the kernel. */
static __always_inline void add_kernel_stack(void *ctx, struct walker *walker) {
    int size_bytes = bpf_get_stack(ctx, walker->stack.pcs, 8 * SLEEP_FRAMES, 0);
    u64 depth = size_bytes > 0 ? (u32)size_bytes / 8 : 0;
    walker->stack.depth = depth;
    /* By way of the map, so that verifiers don't try each depth. */
    for (int i = 0; i < SLEEP_FRAMES && i < *(volatile u64 *)&walker->stack.depth; i++)
        walker->hash = mix(walker->hash, walker->stack.pcs[i]);
}

/*
 * The stack of g, in a system call: in the kernel, and from where it entered that, which the
 * runtime notes. Before Go 1.23 it does not note the frame pointer; the thread has it, unless C
 * called the kernel.
 */
static __always_inline u64 stack_in_syscall(void *ctx, u64 g, u64 m, const struct traced *traced,
                                            const struct target *target) {
    u32 target_index = 0;
    /* Of a struct that is all constant LLVM 14 makes a copy, before which it loses other writes. */
    OWN_REGISTER(target_index);
    struct group group = {.target = target_index, .kind = KIND_TRACE};
    struct walker *walker = take_walker(&group);
    u64 key = 0;
    if (!walker)
        return 0;
    add_kernel_stack(ctx, walker);
#if WITH_C
    struct work *handed_over = add_c_stack(walker, m, traced);
#endif
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
#if WITH_C
    if (handed_over && key) {
        handed_over->sample.labels = key;
        if (!hand_over(handed_over))
            count_loss(LOSS_c_stacks_many, 0);
    }
#endif
    return key;
}

static __always_inline void where_it_stops(void *ctx, u64 task, bool is_preempted,
                                           const struct traced *traced, const struct target *target,
                                           struct stop *stop) {
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
    stop->stack = stack_in_syscall(ctx, g, m, traced, target);
}

static __always_inline void switched_off(void *ctx, u64 task, bool is_preempted,
                                         const struct traced *traced, const struct target *target) {
    struct stop stop = {.p = NO_P};
    u64 number = 0;
    where_it_stops(ctx, task, is_preempted, traced, target, &stop);
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

/* Whether the current thread is of the process, whose tgid is not known yet; then it is. */
static __always_inline bool learn_tgid(struct traced *traced) {
    struct bpf_pidns_info ids = {};
    if (bpf_get_ns_current_pid_tgid(traced->namespace_device, traced->namespace_inode, &ids,
                                    sizeof(ids)) ||
        ids.tgid != traced->own_tgid)
        return false;
    traced->tgid = bpf_get_current_pid_tgid() >> 32;
    return true;
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
    if (!traced || !target || !target->active)
        return 0;
    if (!traced->tgid && !learn_tgid(traced))
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
        switched_off(ctx, before, ctx->is_preempted || state == TASK_IS_RUNNABLE, traced, target);
    }
    if (tgid == traced->tgid) {
        read_kernel(&tid, sizeof(tid), (void *)(next + TID_OFFSET));
        switched_on(tid);
    }
    run_ends(cost);
    return 0;
}

/*
 * Whether an interrupt runs. One that came while the kernel ran has a stack of the processor's; one
 * that came while the task was in user mode does not. Then the entry's code has called from right
 * below the registers, as it does for a fault, which is the task's own: *entry is its address
 * (arch/x86/entry/entry_64.S, idtentry_body; arch/x86/include/asm/irq_stack.h).
 */
static __always_inline bool in_interrupt(void *ctx, u64 *scratch, u64 *entry) {
    struct pt_regs *registers;
    u64 bottom = 0, code_segment = 0;
    s64 call = 0;
    read_kernel(&bottom, sizeof(bottom), (void *)((u64)bpf_get_current_task() + STACK_OFFSET));
    /* The arguments are on the stack. By way of the map their address is a number to compare. */
    *scratch = (u64)ctx;
    if (*(volatile u64 *)scratch - bottom >= KERNEL_STACK_BYTES)
        return true;
    registers = (void *)bpf_task_pt_regs((void *)bpf_get_current_task_btf());
    read_kernel(&code_segment, sizeof(code_segment), &registers->cs);
    read_kernel(&call, sizeof(call), &registers->orig_ax);
    if ((code_segment & USER_MODE) != USER_MODE || call != NO_SYSTEM_CALL)
        return false;
    read_kernel(entry, sizeof(*entry), (void *)((u64)registers - sizeof(*entry)));
    return true;
}

/* The arguments of the tracepoint sched_waking, include/trace/events/sched.h. */
struct waking_arguments {
    u64 woken; /* struct task_struct */
};

/* On each wake of a thread of the machine. */
int on_waking(struct waking_arguments *ctx) {
    int first = 0;
    struct traced *traced = traces.lookup(&first);
    u32 tgid = 0;
    u64 woken = ctx->woken, number = 0;
    if (!traced || !traced->tgid)
        return 0;
    read_kernel(&tgid, sizeof(tgid), (void *)(woken + TGID_OFFSET));
    if (tgid != traced->tgid)
        return 0;
    struct target *target = target_at(0);
    struct cost *cost = target && target->active ? run_begins(WAKES) : NULL;
    if (!cost)
        return 0;
    struct event *event = begin_event(&number);
    if (event) {
        u64 who = bpf_get_current_pid_tgid();
        u64 entry = 0;
        event->is_made = in_interrupt(ctx, &event->stack, &entry);
        event->goid = entry;
        event->by = (u32)who;
        event->is_exit = who >> 32 == tgid;
        bpf_get_current_comm(&event->stack, NAME_BYTES);
        read_kernel(&event->tid, sizeof(event->tid), (void *)(woken + TID_OFFSET));
        event->p = NO_P;
        event->kind = THREAD_WAKE;
        event->reason = 0;
        end_event(event, number);
    }
    run_ends(cost);
    return 0;
}

#endif
