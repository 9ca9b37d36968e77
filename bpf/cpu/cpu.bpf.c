/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The CPU profile: a perf event on every CPU, at a fixed rate in time, counts the stack of the
 * thread that runs there, if that belongs to a target.
 */
#include "common/at_load.h"
#include "common/cost.h"
#include "common/loss.h"
#include "common/memory.h"
#include "cpu/partial_samples.h"
#include "cpu/table_unwind.h"
#if WITH_LABELS
#include "common/labels.h"
#endif

#define BREAKPOINT 0xcc
#define CALL_BYTES 5
#define USER_MODE 3 /* of the code segment's selector */

struct bpf_perf_event_data {
    struct pt_regs regs;
    u64 sample_period;
    u64 addr;
};

/* One target; offsets are 0 if it is not a Go program. */
struct process {
    u64 namespace_device; /* of its pid namespace */
    u64 namespace_inode;
    u64 memory; /* its struct mm_struct; 0 until its first sample */
    u32 tgid;   /* in that namespace */
    u32 active;
    s32 g_offset; /* of the running g, from the FS base */
    u32 m_offset;
    u32 g0_offset;
    u32 curg_offset;
    u32 c_calls_offset; /* of runtime.m.ncgo */
    u32 vdso_sp_offset;
    u32 vdso_pc_offset;
    u32 sched_sp_offset;
    u32 sched_pc_offset;
    u32 syscall_sp_offset;
    u32 syscall_pc_offset;
    u32 labels_offset; /* of runtime.g.labels */
    u32 labels_in_slice;
    u32 one_in; /* record one in this many samples, at random, with that weight */
};

/*
 * Rows of samples belong to one of two generations, by the last bit of their keys: user space
 * removes the rows of one while new ones belong to the other
 * (ebpfprof/profilers/cpu/sample_table.py). The same holds for their sets of labels.
 */
struct turn {
    u64 is_odd;
};

struct filled {
    u64 rows; /* ever made */
};

BPF_ARRAY(processes, struct process, MAX_TARGETS);
BPF_HASH(samples, u64, struct sample, MAX_SAMPLES);
BPF_ARRAY(turns, struct turn, 1);
BPF_PERCPU_ARRAY(filled, struct filled, 1);
BPF_PERCPU_ARRAY(works, struct work, 1);

static __always_inline void read_go_state(const struct process *process, u64 task,
                                          struct go_state *go) {
    u64 fs_base = 0, g = 0, g0 = 0, m = 0;
    u32 in_c = 0;
    read_kernel(&fs_base, sizeof(fs_base), (void *)(task + FS_BASE_OFFSET));
    if (!read_word(&g, fs_base + process->g_offset) || !g ||
        !read_word(&m, g + process->m_offset) || !m)
        return; /* a thread that C made, or one that begins or ends */
    if (!read_word(&go->curg, m + process->curg_offset))
        go->curg = 0;
    if (read_word(&g0, m + process->g0_offset))
        read_word(&go->thread_hi, g0 + 8);
    read_word(&go->vdso_sp, m + process->vdso_sp_offset);
    read_word(&go->vdso_pc, m + process->vdso_pc_offset);
    read_user(&in_c, sizeof(in_c), (void *)(m + process->c_calls_offset));
    if (!go->curg)
        return;
    if (!read_word(&go->lo, go->curg) || !read_word(&go->hi, go->curg + 8) ||
        !read_word(&go->sched_sp, go->curg + process->sched_sp_offset) ||
        !read_word(&go->sched_pc, go->curg + process->sched_pc_offset)) {
        go->curg = 0;
        return;
    }
    if (in_c && read_word(&go->syscall_pc, go->curg + process->syscall_pc_offset))
        read_word(&go->syscall_sp, go->curg + process->syscall_sp_offset);
}

/* Whether there is a push of one byte: behind it, the caller's frame is 8 bytes further away. */
static __always_inline bool is_push(const struct rule *rule, const struct rule *next) {
    return rule->kind == SP && next->kind == SP && next->cfa_offset == rule->cfa_offset + 8;
}

/*
 * The registers with which the thread entered the kernel. If it entered at a uprobe, such as ours,
 * its pc is behind the breakpoint, but it has yet to run the instruction that the breakpoint
 * replaces. Padding between functions may consist of breakpoints, too, with the interrupted
 * instruction right behind it: padding has no rules, or NONE.
 * (ebpfprof/profilers/cpu/unwinder.py: interrupted_at.)
 *
 * The kernel emulates a `push %rbp` and a call: it pushes first, and moves the pc afterwards
 * (arch/x86/kernel/uprobes.c: push_emulate_op, branch_emulate_op). In between, the pc is at the
 * breakpoint with the frame pointer on top of the stack, or behind the call with itself on top.
 * Once a push is done, the pc is right behind the breakpoint.
 */
static __always_inline bool user_registers(void *task, u64 index, struct work *work) {
    u8 before = 0, next = 0; /* the bytes at pc - 1 or, of a call, at its start, and at pc */
    u64 top = 0;
    struct pt_regs *registers = &work->registers;
    if (read_kernel(registers, sizeof(*registers), (void *)bpf_task_pt_regs(task)) ||
        (registers->cs & USER_MODE) != USER_MODE)
        return false;
    u64 pc = registers->ip;
    work->at.pc = pc;
    work->at.sp = registers->sp;
    work->at.bp = registers->bp;
    work->at.r12 = registers->r12;
    bool has_top = read_word(&top, registers->sp);
    bool has_pushed_pc = has_top && top == pc, has_pushed_bp = has_top && top == registers->bp;
    read_user(&before, sizeof(before), (void *)(pc - (has_pushed_pc ? CALL_BYTES : 1)));
    read_user(&next, sizeof(next), (void *)pc);
    if (before == BREAKPOINT && has_pushed_pc) {
        work->at.sp += sizeof(top);
        return true;
    }
    bool is_behind = before == BREAKPOINT;
    if (!is_behind && !(next == BREAKPOINT && has_pushed_bp))
        return true;
    struct rule *rule = rule_at(pc - is_behind, index);
    struct rule *next_rule = rule_at(pc - is_behind + 1, index);
    if (!rule || (has_pushed_bp && !next_rule)) {
        work->behind_breakpoint = is_behind;
        work->at_breakpoint = !is_behind;
        return true;
    }
    bool has_pushed = has_pushed_bp && next_rule && is_push(rule, next_rule);
    if (!is_behind)
        work->at.sp += has_pushed ? sizeof(top) : 0;
    else if (!has_pushed && rule->kind != NONE && rule->kind != GUESS)
        work->at.pc--;
    return true;
}

static __always_inline void take(struct bpf_perf_event_data *ctx, struct process *process,
                                 u32 index, void *task) {
    u64 pc = ctx->regs.ip, sp = ctx->regs.sp, bp = ctx->regs.bp, r12 = ctx->regs.r12;
    bool in_kernel = (ctx->regs.cs & USER_MODE) != USER_MODE;
    /* Else the compiler would load them later by a pointer that the verifier does not allow. */
    asm volatile("" : "+r"(pc), "+r"(sp), "+r"(bp), "+r"(r12));
    int zero = 0;
    struct work *work = works.lookup(&zero);
    struct turn *turn = turns.lookup(&zero);
    if (!work || !turn)
        return;
    u64 is_odd = turn->is_odd & 1;
    struct sample *sample = &work->sample;
    sample->count = process->one_in;
    sample->labels = 0;
    sample->process = index;
    /* For keys of maps: of `index`, verifiers know each value, and would go on from each. */
    u32 number = *(volatile u32 *)&sample->process;
    sample->kernel_depth = 0;
    sample->user.depth = 0;
    sample->user.hash = index + 1;
#if WITH_KERNEL
    if (in_kernel) {
        int size_bytes = bpf_get_stack(ctx, sample->kernel_pcs, sizeof(sample->kernel_pcs), 0);
        if (size_bytes > 0)
            sample->kernel_depth = size_bytes / 8;
        u64 first = FROM_0(*(volatile u64 *)&sample->user.depth);
        for (u64 i = first; i < KERNEL_FRAMES && i < sample->kernel_depth; i++) {
            VERIFIED_ONCE;
            sample->user.hash = (sample->user.hash ^ sample->kernel_pcs[i]) * HASH_FACTOR;
        }
    }
#endif
    __builtin_memset(&work->go, 0, sizeof(work->go));
    if (process->g_offset)
        read_go_state(process, (u64)task, &work->go);
#if WITH_LABELS
    if (work->go.curg)
        sample->labels = label_set_of(work->go.curg, process->labels_offset,
                                      process->labels_in_slice, label_owner(number, is_odd));
    sample->user.hash ^= sample->labels;
#endif
    work->at.pc = pc;
    work->at.sp = sp;
    work->at.bp = bp;
    work->at.r12 = r12;
    work->at.is_exact = 1;
    work->behind_breakpoint = work->at_breakpoint = 0;
    enum ending ending = UNREADABLE;
    if (!in_kernel || user_registers(task, index, work))
        ending = work->behind_breakpoint || work->at_breakpoint
                     ? UNLEARNED
                     : unwind(&work->at, &work->go, index, &sample->user);
    sample->ending = ending;
    if (ending == UNLEARNED) {
        read_kernel(&work->signals.start, sizeof(u64), task + SIGNAL_STACK_OFFSET);
        read_kernel(&work->signals.bytes, sizeof(u64), task + SIGNAL_STACK_BYTES_OFFSET);
        if (hand_over(work))
            return;
        count_loss(LOSS_unlearned_full, number);
    }
    struct filled *made = filled.lookup(&zero);
    if (!made)
        return;
    u64 key = (sample->user.hash + ending) << 1 | is_odd;
    struct sample *known = samples.lookup(&key);
    if (!known && samples.insert(&key, sample) == 0) {
        made->rows++;
        return;
    }
    if (!known)
        known = samples.lookup(&key);
    if (known)
        __sync_fetch_and_add(&known->count, process->one_in);
    else
        count_loss(LOSS_samples_full, number);
}

int on_sample(struct bpf_perf_event_data *ctx) {
    void *task = (void *)bpf_get_current_task_btf();
    u64 memory = 0;
    for (u32 index = 0; index < TARGETS; index++) {
        int key = index;
        struct bpf_pidns_info ids = {};
        struct process *process = processes.lookup(&key);
        if (!process || !process->active ||
            bpf_get_ns_current_pid_tgid(process->namespace_device, process->namespace_inode, &ids,
                                        sizeof(ids)) ||
            ids.tgid != process->tgid)
            continue;
        if (process->one_in > 1 && bpf_get_prandom_u32() % process->one_in)
            return 0;
        read_kernel(&memory, sizeof(memory), task + MEMORY_OFFSET);
        if (!process->memory)
            process->memory = memory;
        struct cost *cost = run_begins(index);
        if (!cost || !memory || memory != process->memory)
            return 0;
        take(ctx, process, index, task);
        run_ends(cost);
        return 0;
    }
    return 0;
}
