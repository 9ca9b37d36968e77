/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * What a goroutine waits for from now on, as a word in the event of its park:
 *
 * - in runtime.semacquire1, the address of the semaphore, which its frame has;
 * - else what gopark unlocks (runtime.m.waitlock, Go 1.19 to 1.27): the lock in a
 *   channel or in the list of a sync.Cond, or nothing;
 * - of a file, rg or wg in its runtime.pollDesc. The high bits have pollDesc.fdseq, which another
 *   file in the same pollDesc gets another value of; before Go 1.21 rseq, which changes more often.
 */
#ifndef EBPFPROF_WAITED_FOR_H
#define EBPFPROF_WAITED_FOR_H

#include "common/memory.h"
#include "probes/fp_unwind.h"
#include "trace/polled_files.h"

#define SEMAPHORE_PARKS 4
#define FILE_SEQUENCE_SHIFT 48 /* addresses of user space are below */

/* Where to find that, in one version of Go. */
struct wait_layout {
    u64 semaphore_parks[SEMAPHORE_PARKS]; /* where semacquire1 continues; 0: unused */
    u32 wait_lock_offset;                 /* of runtime.m.waitlock */
    u32 file_reason;                      /* runtime.waitReason of waits for files */
    u32 read_g_offset;                    /* of runtime.pollDesc.rg */
    u32 write_g_offset;
    u32 fd_offset;
    u32 sequence_offset;
    u32 self_offset;
};

static __always_inline u64 word_at(u64 address) {
    u64 word = 0;
    read_user(&word, sizeof(word), (void *)address);
    return word;
}

/* The frame pointer of semacquire1, if the stack that was walked waits there; else 0. */
static __always_inline u64 semaphore_frame(const struct walker *walker,
                                           const struct wait_layout *layout) {
    for (int i = 0; i < SEMAPHORE_PARKS; i++) {
        u64 pc = layout->semaphore_parks[i];
        if (pc && walker->stack.pcs[0] == pc)
            return walker->start.frame.bp;
        if (pc && walker->stack.depth > 1 && walker->stack.pcs[1] == pc) /* by goparkunlock */
            return word_at(walker->start.frame.bp);
    }
    return 0;
}

/* The word of a wait at a pollDesc's rg or wg; notes the file. */
static __always_inline u64 file_waited_for(u64 at, const struct wait_layout *layout) {
    u64 poll = at - layout->read_g_offset;
    bool is_write = word_at(poll + layout->self_offset) != poll;
    if (is_write)
        poll = at - layout->write_g_offset;
    u64 key = at | word_at(poll + layout->sequence_offset) << FILE_SEQUENCE_SHIFT;
    note_file(key, word_at(poll + layout->fd_offset), is_write);
    return key;
}

/* See above. `m` is the thread's. */
static __always_inline u64 waited_for(u64 m, u64 semaphore_bp, u8 reason, s64 sema_offset,
                                      const struct wait_layout *layout) {
    u64 at =
        semaphore_bp ? word_at(semaphore_bp + sema_offset) : word_at(m + layout->wait_lock_offset);
    return at && reason == layout->file_reason ? file_waited_for(at, layout) : at;
}

#endif
