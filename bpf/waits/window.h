/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The window in which a target is recorded: from begin_ns to end_ns, which are 0 and the end of
 * time to record every event. A window within a recording needs the goroutines that wait when it
 * begins. So the profiler attaches the probes a moment earlier, and puts waiting goroutines
 * into the tables (seed, in waits.bpf.c). An event before begin_ns counts as one at begin_ns,
 * without waiting time, and adds nothing. After end_ns no event changes the tables, so that they
 * keep the goroutines that waited then.
 */
#ifndef EBPFPROF_WINDOW_H
#define EBPFPROF_WINDOW_H

#include "probes/target.h"

/* The time now, but at least begin_ns; 0 after the window. */
static __always_inline u64 window_time(const struct target *target) {
    u64 now_ns = bpf_ktime_get_ns();
    if (now_ns > target->end_ns)
        return 0;
    return now_ns < target->begin_ns ? target->begin_ns : now_ns;
}

/* Whether events at this time, from window_time(), count. */
static __always_inline bool is_inside(const struct target *target, u64 time_ns) {
    return time_ns > target->begin_ns;
}

#endif
