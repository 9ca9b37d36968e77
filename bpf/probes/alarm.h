/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
#ifndef EBPFPROF_ALARM_H
#define EBPFPROF_ALARM_H

#include "common/cost.h"

#define PAGE_SIZE 4096 /* BCC's macro for ring buffers needs it */

/*
 * Tells ebpfprof that the probes of a target were passed so often that its budget may be used up:
 * a burst may do that within milliseconds. ebpfprof writes at which of its runs each CPU rings, 0
 * for never; it rings once.
 */
BPF_PERCPU_ARRAY(alarms, u64, MAX_TARGETS);
BPF_RINGBUF_OUTPUT(rung, 1);

static __always_inline void ring_alarm(u32 target_index, const struct cost *cost) {
    int index = target_index;
    u64 *at = alarms.lookup(&index);
    if (at && *at && cost->runs >= *at) {
        u32 *rings = rung.ringbuf_reserve(sizeof(target_index));
        *at = 0;
        if (rings) {
            *rings = target_index;
            rung.ringbuf_submit(rings, 0);
        }
    }
}

#endif
