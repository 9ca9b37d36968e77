/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The time in which a target is recorded: from begin_ns to end_ns, as a rule 0 and the end of time.
 * Of that, every wait until every_until_ns, and one in eight from then on (one_in_eight.h).
 *
 * A begin in the future is for waits that go on already: the profiler attaches the probes a moment
 * earlier, and puts waiting goroutines into the tables (seed, in waits.bpf.c). An event before
 * begin_ns counts as one at begin_ns, without waiting time, and adds nothing. Later than the end no
 * event changes the tables, so that they keep the goroutines that waited then.
 */
#ifndef EBPFPROF_RECORDED_TIME_H
#define EBPFPROF_RECORDED_TIME_H

#include "probes/target.h"

/* The time now, but at least begin_ns; 0 if it is later than until_ns. */
static __always_inline u64 time_until(const struct target *target, u64 until_ns) {
    u64 now_ns = bpf_ktime_get_ns();
    if (now_ns > until_ns)
        return 0;
    return WITH_EARLIER && now_ns < target->begin_ns ? target->begin_ns : now_ns;
}

static __always_inline u64 recorded_time(const struct target *target) {
    return time_until(target, target->end_ns);
}

/* The same for events that are recorded while every wait is. */
static __always_inline u64 every_wait_time(const struct target *target) {
    return time_until(target, target->every_until_ns);
}

/* Whether events at this time, from recorded_time(), count. */
static __always_inline bool is_inside(const struct target *target, u64 time_ns) {
    return !WITH_EARLIER || time_ns > target->begin_ns;
}

#endif
