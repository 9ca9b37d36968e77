/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The stack of C code that a thread sleeps in, unwound by tables as that of a CPU sample is: those
 * that lack rules go to user space with copies of what is on the stack, and are unwound there
 * (ebpfprof/tracing/c_stacks.py).
 */
#ifndef EBPFPROF_C_STACK_H
#define EBPFPROF_C_STACK_H

#include "common/memory.h"
#include "trace/traced.h"

/* A record has as many addresses as one of a CPU sample; events have a kind of that name. */
#pragma push_macro("MAX_DEPTH")
#undef MAX_DEPTH
#define MAX_DEPTH C_DEPTH
#define SWITCH SWITCH_OF_STACKS
#include "cpu/table_unwind.h"
#include "cpu/partial_samples.h"
#undef SWITCH
#pragma pop_macro("MAX_DEPTH")

#define C_FRAMES 64

BPF_PERCPU_ARRAY(works, struct work, 1);

/*
 * Adds the C code that the current thread runs to the walker's stack. Returns what has to be handed
 * over to user space, where rules are missing; else NULL.
 */
static __always_inline struct work *add_c_stack(struct walker *walker, u64 m,
                                                const struct traced *traced) {
    int first = 0;
    struct work *work = works.lookup(&first);
    struct pt_regs *from = (void *)bpf_task_pt_regs((void *)bpf_get_current_task_btf());
    if (!work || read_kernel(&work->registers, sizeof(work->registers), from))
        return NULL;
    work->at.pc = work->registers.ip;
    if (work->at.pc - traced->text_start < traced->text_bytes)
        return NULL;
    work->at.sp = work->registers.sp;
    work->at.bp = work->registers.bp;
    work->at.r12 = work->registers.r12;
    work->at.is_exact = 1;
    work->behind_breakpoint = work->at_breakpoint = 0;
    work->sample.count = 1;
    work->sample.process = work->sample.ending = 0;
    work->sample.kernel_depth = work->sample.user.depth = 0;
    work->sample.user.hash = 1;
    work->signals.start = work->signals.bytes = 0;
    __builtin_memset(&work->go, 0, sizeof(work->go));
    /* Where the thread's stack ends: most of what is on it fits into a small record. */
    work->go.thread_hi = word_at(word_at(m + traced->g0_offset) + sizeof(u64));
    enum ending ending = unwind(&work->at, &work->go, 0, &work->sample.user);
    u64 depth = *(volatile u64 *)&work->sample.user.depth, at = walker->stack.depth;
    OWN_REGISTER(depth);
    if (depth > C_FRAMES)
        depth = C_FRAMES;
    OWN_REGISTER(at);
    if (at > SLEEP_FRAMES)
        return NULL;
    read_kernel(&walker->stack.pcs[at], 8 * depth, work->sample.user.pcs);
    walker->stack.depth = at + depth;
    walker->hash = mix(walker->hash, work->sample.user.hash);
    if (ending != UNLEARNED)
        return NULL;
    /* It gets a stack of its own, to which its C code can be added. */
    walker->hash = mix(walker->hash, bpf_ktime_get_ns());
    return work;
}

#endif
