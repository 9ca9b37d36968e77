/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
#ifndef EBPFPROF_RUN_H
#define EBPFPROF_RUN_H

#include "common/cost.h"
#include "probes/target.h"
#if WITH_ALARM
#include "probes/alarm.h"
#endif

/* A run at a probe. */
struct run {
    struct site *site;
    struct target *target;
    struct cost *cost;
};

/* Whether to record the target; a run costs it time even if not. */
static __always_inline bool begin_run(struct pt_regs *ctx, struct run *run) {
    run->site = site_of(ctx);
    run->target = run->site ? target_at(run->site->target) : NULL;
    run->cost = run->target ? run_begins(run->site->target) : NULL;
#if WITH_ALARM
    if (run->cost)
        ring_alarm(run->site->target, run->cost);
#endif
    return run->cost && run->target->active;
}

#endif
