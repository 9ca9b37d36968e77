/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The window in which a target is watched: from begin_ns to end_ns, which are 0 and the end of time
 * where every event is taken. A window in the middle of a recording must know who waits when it
 * begins. So the probes come a moment earlier, and those who wait already are put into the tables
 * (seed, in waits.bpf.c). All that happens before its begin counts as having happened at it:
 * nobody has waited yet, nothing is added up. After its end nothing changes any more, and the
 * tables have who waited then.
 */
#ifndef EBPFPROF_WINDOW_H
#define EBPFPROF_WINDOW_H

#include "waits/target.h"

/* The time now, as the window has it; 0 once it is over. */
static __always_inline u64 window_time(const struct target *target) {
    u64 now_ns = bpf_ktime_get_ns();
    if (now_ns > target->end_ns)
        return 0;
    return now_ns < target->begin_ns ? target->begin_ns : now_ns;
}

/* Whether a time, as the window has it, is one at which events are counted. */
static __always_inline bool is_inside(const struct target *target, u64 time_ns) {
    return time_ns > target->begin_ns;
}

#endif
