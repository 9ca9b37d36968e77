/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The parts of map keys. ebpfprof/kernel/c_facts.py reads these numbers, and those of all files in
 * bpf/, for Python.
 */
#ifndef EBPFPROF_KEYS_H
#define EBPFPROF_KEYS_H

/* User space addresses have 47 bits. From this bit on, a key has the index of the target. */
#define TARGET_SHIFT 48
#define HASH_FACTOR 0x9e3779b97f4a7c15ULL /* 2^64 divided by the golden ratio */

/* Adds a word to a hash. */
static __always_inline u64 mix(u64 hash, u64 word) {
    hash = (hash ^ word) * HASH_FACTOR;
    return hash ^ hash >> 32;
}

#endif
