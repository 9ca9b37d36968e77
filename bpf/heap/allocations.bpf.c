/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The allocs profile of a program whose own memory profile is off: on_gate runs where the runtime
 * decides whether that profile samples an object (symbolizer/codeanalysis/allocation_gates.py),
 * once for each. Objects are counted by the stack that allocates them and their size.
 *
 * Like Go, we sample: an object of `size` bytes with the probability 1 - exp(-size / rate), each
 * for itself. What was decided for one object says nothing of the next, so no pattern of a program
 * can fool the estimate, as it would if we took each n-th object, or one in each span.
 *
 * Of the sampled objects, those that a lower rate samples, too, are reported to ebpfprof (born),
 * which checks after each garbage collection whether they are still there.
 */
#include "common/loss.h"
#include "probes/fp_unwind.h"
#include "probes/goroutine_stack.h"
#include "probes/run.h"
#include "probes/source.h"
#include "probes/target.h"
#include "probes/totals.h"

#define SMALL_BYTES 32768       /* larger objects have spans of their own */
#define MOST_BYTES (1ULL << 47) /* all that user space can address */
#define SIZES (SMALL_BYTES / 8 + 1)
#define CERTAIN (1ULL << 32)

struct gate {
    struct source object;
    struct source size;
};

/* By site. */
BPF_ARRAY(gates, struct gate, MAX_SITES);

/* The heap of a target. */
struct heap {
    u64 sweepgen; /* address of runtime.mheap_.sweepgen */
    u64 follows;  /* whether objects are to be reported */
};
BPF_ARRAY(heaps, struct heap, MAX_TARGETS);

/* How often objects are sampled and reported, of CERTAIN; by size / 8, rounded up. */
struct chance {
    u64 sampled;
    u64 reported; /* at most as often */
};
BPF_ARRAY(chances, struct chance, SIZES);

/* A sampled object. sweepgen says during which garbage collection it was allocated. */
struct born {
    u64 object;
    u64 stack;
    u64 size_bytes;
    u32 target;
    u32 sweepgen;
    u32 drawn; /* reported if this is below the chance, so that fewer can be followed later */
    u32 spare;
};
BPF_RINGBUF_OUTPUT(births, BIRTH_PAGES);

static __always_inline void tell(struct pt_regs *ctx, const struct gate *gate, u64 stack,
                                 u32 target_index, u64 size_bytes, u32 drawn) {
    int index = target_index;
    struct heap *heap = heaps.lookup(&index);
    if (!heap || !heap->follows)
        return;
    struct born *born = births.ringbuf_reserve(sizeof(*born));
    if (!born) {
        count_loss(LOSS_births_full, target_index);
        return;
    }
    born->object = value_of(ctx, &gate->object);
    born->stack = stack;
    born->target = target_index;
    born->size_bytes = size_bytes;
    born->drawn = drawn;
    born->spare = 0;
    born->sweepgen = 0;
    read_user(&born->sweepgen, sizeof(born->sweepgen), (void *)heap->sweepgen);
    births.ringbuf_submit(born, BPF_RB_NO_WAKEUP);
}

/* The key of the stack of g, which allocates; 0 if it is lost. */
static __always_inline u64 stack_here(struct pt_regs *ctx, struct site *site,
                                      const struct target *target, u64 size_bytes) {
    struct group group = {.target = site->target, .kind = KIND_ALLOCATION, .sema = size_bytes};
    struct walker *walker = take_walker(&group);
    if (!walker)
        return 0;
    start_unbounded(walker, ctx->r14, ctx, target, site);
    walk_stack(walker, target);
    learn_depth(walker, walker->start.frame.bp, site);
    u64 key = stack_key(walker);
    give_walker(walker);
    return key;
}

static __always_inline void allocated(struct pt_regs *ctx, struct site *site,
                                      const struct target *target) {
    int site_index = bpf_get_attach_cookie(ctx);
    struct gate *gate = gates.lookup(&site_index);
    if (!gate)
        return;
    u64 size_bytes = value_of(ctx, &gate->size);
    if (size_bytes == 0 || size_bytes > MOST_BYTES) {
        count_loss(LOSS_object_size_unreadable, site->target);
        return;
    }
    u64 eighths = (size_bytes + 7) / 8;
    int size_index = eighths < SIZES ? eighths : SIZES - 1;
    struct chance *chance = chances.lookup(&size_index);
    if (!chance)
        return;
    u32 drawn = bpf_get_prandom_u32();
    bool is_large = size_bytes > SMALL_BYTES;
    if (!is_large && drawn >= chance->sampled)
        return;
    u64 key = stack_here(ctx, site, target, size_bytes);
    struct total one = {.count = 1};
    if (!key)
        return; /* a loss, which is counted already */
    add_to(key, &one, site->target);
    if (is_large || drawn < chance->reported)
        tell(ctx, gate, key, site->target, size_bytes, drawn);
}

/* Where each object passes once that was allocated; R14 has the runtime.g. */
int on_gate(struct pt_regs *ctx) {
    struct run run;
    if (begin_run(ctx, &run)) {
        allocated(ctx, run.site, run.target);
        run_ends(run.cost);
    }
    return 0;
}
