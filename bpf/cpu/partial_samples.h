/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Hands samples over that the kernel can't unwind to their end, with copies of their stacks
 * (ebpfprof/profilers/cpu/partial_samples.py).
 */
#ifndef EBPFPROF_PARTIAL_SAMPLES_H
#define EBPFPROF_PARTIAL_SAMPLES_H

#include "common/memory.h"
#include "cpu/table_unwind.h"

#define KERNEL_FRAMES 64
#define COPY_BYTES 1024
#define COPIES 32    /* of a stack */
#define FEW_COPIES 4 /* of a small one */
/* Of a goroutine's stack that is larger: `missing` has no more bits. */
#define HUGE_COPIES 64
#define HUGE_COPY_BYTES 4096
#define STACKS 3       /* a signal's handler, what it interrupted, and its caller */
#define PAGE_SIZE 4096 /* BCC's macro for ring buffers needs it */

struct sample {
    u64 count;
    u64 labels;
    u32 process; /* index into processes */
    u32 ending;  /* enum ending */
    u64 kernel_depth;
    u64 kernel_pcs[KERNEL_FRAMES];
    struct pcs user;
};

/* A copy of a stack, in parts. */
struct copy {
    u64 start;   /* its address */
    u64 missing; /* a bit for each part that could not be read, the lowest first */
    u32 parts;
    u32 part_bytes;
};

/* A sample that user space unwinds to its end. */
struct unfinished {
    struct sample sample;
    struct cursor at;
    struct go_state go;
    struct copy copies[STACKS]; /* in the order of their bytes */
    u64 behind_breakpoint;
    u64 at_breakpoint;
};

/* With the copies. Most stacks are small, and the ring buffer holds many more small ones. */
struct small_unfinished {
    struct unfinished head;
    u8 bytes[2][FEW_COPIES * COPY_BYTES];
};

struct large_unfinished {
    struct unfinished head;
    u8 bytes[2][COPIES * COPY_BYTES];
};

struct huge_unfinished {
    struct unfinished head;
    u8 huge[HUGE_COPIES * HUGE_COPY_BYTES];
    u8 small[COPIES * COPY_BYTES];
};

struct signalled_unfinished {
    struct unfinished head;
    u8 bytes[STACKS][COPIES * COPY_BYTES];
};

/* Too large for the stack of a BPF program. */
struct work {
    struct sample sample;
    struct cursor at;
    struct go_state go;
    struct signal_stack signals;
    struct pt_regs registers;
    /* Perhaps of a probe: the rules that decide are not known yet. */
    u64 behind_breakpoint;
    u64 at_breakpoint; /* with the frame pointer on top of the stack */
};

BPF_RINGBUF_OUTPUT(unlearned, RING_PAGES);

static __always_inline u64 copy_start(u64 sp, u64 part_bytes) {
    return sp & ~(part_bytes - 1);
}

/*
 * Copies a stack from the stack pointer on. A new frame may be on pages without a write so far:
 * they can't be read, but those of the callers can.
 */
static __always_inline void copy_stack(struct copy *copy, u8 *to, u64 sp, int parts,
                                       int part_bytes) {
    u64 missing = 0, start = copy_start(sp, part_bytes);
    for (int i = 0; i < parts; i++) {
        s64 failure = read_user(to + i * part_bytes, part_bytes, (void *)(start + i * part_bytes));
        /* No branch: with one, the verifier would try all combinations. */
        missing |= ((u64)failure >> 63) << i;
    }
    copy->start = start;
    copy->missing = missing;
    copy->parts = parts;
    copy->part_bytes = part_bytes;
}

/*
 * Where the walk may go on outside of the copy that begins at sp; 0: nowhere. The stack of
 * a thread may be just below that of its goroutine, so the distance alone does not decide.
 */
static __always_inline u64 other_stack(u64 sp, const struct go_state *go) {
    bool is_on_other = is_on_other_stack(sp, go);
    if (go->vdso_sp && (is_on_other_stack(go->vdso_sp, go) != is_on_other || go->vdso_sp < sp ||
                        go->vdso_sp - sp > COPIES * COPY_BYTES))
        return go->vdso_sp;
    return is_on_other ? go->sched_sp : 0;
}

/* Whether FEW_COPIES hold all of the stack at sp. */
static __always_inline bool is_small(u64 sp, const struct go_state *go) {
    u64 end = go->curg && sp >= go->lo && sp < go->hi ? go->hi : go->thread_hi;
    return end > sp && end - copy_start(sp, COPY_BYTES) <= FEW_COPIES * COPY_BYTES;
}

/* Whether sp is on the goroutine's stack, and COPIES don't reach its end. */
static __always_inline bool is_huge(u64 sp, const struct go_state *go) {
    return go->curg && sp >= go->lo && sp < go->hi &&
           go->hi - copy_start(sp, COPY_BYTES) > COPIES * COPY_BYTES;
}

/* The head of a record, without copies. */
static __always_inline void fill(struct unfinished *to, const struct work *work) {
    read_kernel(&to->sample, sizeof(to->sample), &work->sample);
    to->at = work->at;
    to->go = work->go;
    to->behind_breakpoint = work->behind_breakpoint;
    to->at_breakpoint = work->at_breakpoint;
    __builtin_memset(to->copies, 0, sizeof(to->copies));
}

/* Lets user space unwind the rest, for which rules are missing here. */
static __always_inline bool hand_over(const struct work *work) {
    u64 handler = work->at.sp, sp = interrupted_sp(handler, &work->signals);
    bool is_in_handler = sp;
    if (!is_in_handler)
        sp = handler;
    u64 other = other_stack(sp, &work->go);
    if (is_in_handler) {
        struct signalled_unfinished *to =
            unlearned.ringbuf_reserve(sizeof(struct signalled_unfinished));
        if (!to)
            return false;
        fill(&to->head, work);
        copy_stack(&to->head.copies[0], to->bytes[0], handler, COPIES, COPY_BYTES);
        copy_stack(&to->head.copies[1], to->bytes[1], sp, COPIES, COPY_BYTES);
        if (other)
            copy_stack(&to->head.copies[2], to->bytes[2], other, COPIES, COPY_BYTES);
        unlearned.ringbuf_submit(to, 0);
    } else if (is_small(sp, &work->go) && (!other || is_small(other, &work->go))) {
        struct small_unfinished *to = unlearned.ringbuf_reserve(sizeof(struct small_unfinished));
        if (!to)
            return false;
        fill(&to->head, work);
        copy_stack(&to->head.copies[0], to->bytes[0], sp, FEW_COPIES, COPY_BYTES);
        if (other)
            copy_stack(&to->head.copies[1], to->bytes[1], other, FEW_COPIES, COPY_BYTES);
        unlearned.ringbuf_submit(to, 0);
    } else if (is_huge(sp, &work->go) || is_huge(other, &work->go)) {
        struct huge_unfinished *to = unlearned.ringbuf_reserve(sizeof(struct huge_unfinished));
        if (!to)
            return false;
        u64 huge = is_huge(sp, &work->go) ? sp : other, small = sp ^ other ^ huge;
        fill(&to->head, work);
        copy_stack(&to->head.copies[0], to->huge, huge, HUGE_COPIES, HUGE_COPY_BYTES);
        if (small)
            copy_stack(&to->head.copies[1], to->small, small, COPIES, COPY_BYTES);
        unlearned.ringbuf_submit(to, 0);
    } else {
        struct large_unfinished *to = unlearned.ringbuf_reserve(sizeof(struct large_unfinished));
        if (!to)
            return false;
        fill(&to->head, work);
        copy_stack(&to->head.copies[0], to->bytes[0], sp, COPIES, COPY_BYTES);
        if (other)
            copy_stack(&to->head.copies[1], to->bytes[1], other, COPIES, COPY_BYTES);
        unlearned.ringbuf_submit(to, 0);
    }
    return true;
}

#endif
