/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * How long waits were: the sums of a stack, by the length of a wait, or of the delay that a release
 * is charged; of a pair of stacks (wakers.h), by the length until the wake. Beside sums that are
 * elsewhere: how long goroutines were in the run queue (one_in_eight.h), and how long locks were
 * held (locks.h).
 *
 * Lengths are in buckets, eight for each power of two, numbered as in
 * ebpfprof/profile/wait_histogram.py; those below 8 ns have 1 ns each. A row has some neighbouring
 * buckets, so a stack whose waits are alike has few rows. It also has the delay of these waits. So
 * a wait adds to one row, as it would to that of its stack in totals, and the histogram costs no
 * more than to find the bucket. If there is no room for another row, totals has the wait.
 */
#ifndef EBPFPROF_LENGTHS_H
#define EBPFPROF_LENGTHS_H

#include "common/loss.h"
#include "probes/totals.h"

#define LENGTHS_IN_ROW 15 /* the kernel allocates 192 bytes for a row of 128 bytes, and its key */
/*
 * The lowest bits of a row's key have its number; the others are those of a hash: the key in totals
 * or in pairs. RUN_QUEUE_ROWS is for the time in the run queue after waits of a stack,
 * HOLD_ROWS for how long a lock was held.
 */
#define LENGTH_ROW_BITS 6
#define RUN_QUEUE_ROWS 0x8000000000000000ULL /* xor the key in totals */
#define HOLD_ROWS 1                          /* mixed into the key in locks */

struct lengths {
    u64 delay_ns;
    u64 counts[LENGTHS_IN_ROW]; /* in the unit of struct total */
};

BPF_HASH(lengths, u64, struct lengths, MAX_LENGTHS);
/* An empty row: the BPF stack has no room for one. Only read. */
BPF_ARRAY(no_lengths, struct lengths, 1);

/* The place of a length in the map. */
struct length {
    u64 key;
    u64 index; /* of its count in the row */
};

/*
 * The bucket of a length. Without branches, since the verifier would go on from each power of two:
 * all bits below the highest one are set, and then counted.
 */
static __always_inline u64 length_bucket(u64 ns) {
    u64 bits = ns;
    bits |= bits >> 1;
    bits |= bits >> 2;
    bits |= bits >> 4;
    bits |= bits >> 8;
    bits |= bits >> 16;
    bits |= bits >> 32;
    bits -= bits >> 1 & 0x5555555555555555ULL;
    bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
    bits = ((bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL) * 0x0101010101010101ULL >> 56;
    s64 shift = (s64)bits - 4;
    shift &= ~(shift >> 63); /* 0 at least */
    return shift * 8 + (ns >> (shift & 63));
}

static __always_inline struct length length_of(u64 stack, u64 ns) {
    u64 bucket = length_bucket(ns);
    u64 row = bucket * 0x1112 >> 16; /* bucket / LENGTHS_IN_ROW; a division takes longer */
    struct length length = {
        .key = (stack & ~((1ULL << LENGTH_ROW_BITS) - 1)) | row,
        .index = bucket - row * LENGTHS_IN_ROW,
    };
    return length;
}

/* Adds to the row of this length; false, which is counted, if there is no room for the row. */
static __always_inline bool add_to_row(u64 key, u64 ns, const struct total *more,
                                       u32 target_index) {
    struct length at = length_of(key, ns);
    struct lengths *row = lengths.lookup(&at.key);
    if (!row) {
        int first = 0;
        struct lengths *none = no_lengths.lookup(&first);
        if (none)
            lengths.insert(&at.key, none);
        row = lengths.lookup(&at.key);
    }
    u64 index = at.index;
    OWN_REGISTER(index);
    if (!row || index >= LENGTHS_IN_ROW) {
        count_loss(LOSS_lengths_full, target_index);
        return false;
    }
    __sync_fetch_and_add(&row->counts[index], more->count);
    __sync_fetch_and_add(&row->delay_ns, more->delay_ns);
    return true;
}

/* Adds to the sums of a stack what waits of this length make up. */
static __always_inline void add_of_length(u64 stack, u64 ns, const struct total *more,
                                          u32 target_index) {
    if (!add_to_row(stack, ns, more, target_index))
        add_to(stack, more, target_index);
}

/* Counts an event of this length, whose sums are elsewhere. */
static __always_inline void count_length(u64 key, u64 ns, u32 target_index) {
    struct total one = {.count = COUNT_ONE, .delay_ns = ns};
    add_to_row(key, ns, &one, target_index);
}

/* Takes back the count of waits that were added with this length. */
static __always_inline void take_count(u64 stack, u64 ns, u64 count, u32 target_index) {
    struct length at = length_of(stack, ns);
    struct lengths *row = lengths.lookup(&at.key);
    u64 index = at.index;
    OWN_REGISTER(index);
    if (row && index < LENGTHS_IN_ROW) {
        __sync_fetch_and_add(&row->counts[index], -count);
    } else {
        struct total less = {.count = -count};
        add_to(stack, &less, target_index);
    }
}

#endif
