/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
#ifndef EBPFPROF_LOSS_H
#define EBPFPROF_LOSS_H

enum loss {
#define LOSS(name, text) LOSS_##name,
#include "common/losses.h"
#undef LOSS
    LOSS_KINDS,
};

/* Of each target. */
BPF_ARRAY(losses, u64, MAX_TARGETS *LOSS_KINDS);

static __always_inline void count_loss(enum loss kind, u32 target_index) {
    int index = target_index * LOSS_KINDS + kind;
    u64 *lost = losses.lookup(&index);
    if (lost)
        __sync_fetch_and_add(lost, 1);
}

#endif
