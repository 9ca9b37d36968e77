/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * A number that user space puts into the instructions when it loads a program: so one compiled
 * program serves all kernels and all values of an option (ebpfprof/kernel/compiled.py). To the
 * verifier it is a constant: it skips branches that depend on it and are not taken.
 */
#ifndef EBPFPROF_AT_LOAD_H
#define EBPFPROF_AT_LOAD_H

#define AT_LOAD_MARK 0x61746c64 /* in the upper 32 bits; in the lower, which number it is */

/* Python defines the names of such numbers as AT_LOAD(0), AT_LOAD(1) ... */
#define AT_LOAD(index)                                                                             \
    ({                                                                                             \
        u64 at_load;                                                                               \
        asm("%0 = %1 ll" : "=r"(at_load) : "i"((u64)AT_LOAD_MARK << 32 | (index)));                \
        at_load;                                                                                   \
    })

#endif
