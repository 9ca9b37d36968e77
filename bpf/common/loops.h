/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Verifiers follow each pass of a loop, which takes them longest of all. From Linux 6.9 on they
 * check a pass only until it is like one before, if it has a may_goto: an instruction that, to
 * them, may end the loop at any time. It does so after millions of passes. Before Linux 6.9 the
 * program is loaded without it (ebpfprof/kernel/program_source.py).
 */
#ifndef EBPFPROF_LOOPS_H
#define EBPFPROF_LOOPS_H

#include "common/at_load.h"

#define MAY_GOTO 0xe5 /* BPF_JMP | BPF_JCOND */

/*
 * The first statement in a loop, whose counter begins with FROM_0(word): the word is a 0 that
 * verifiers don't know, such as one in a map, or they would distinguish each value of the counter.
 * Without may_goto they have to: there LOOP_MASK, which is put in at load, is 0.
 */
#define FROM_0(word) ((word)&LOOP_MASK)
#ifndef VERIFIED_ONCE /* LLVM 14 has no name for the instruction */
#define VERIFIED_ONCE                                                                              \
    ({                                                                                             \
        __label__ end, next;                                                                       \
        asm volatile goto("1: .byte %c0, 0\n"                                                      \
                          ".long ((%l[end] - 1b - 8) / 8) & 0xffff\n"                              \
                          ".short 0"                                                               \
                          :                                                                        \
                          : "i"(MAY_GOTO)                                                          \
                          :                                                                        \
                          : end);                                                                  \
        goto next;                                                                                 \
    end:                                                                                           \
        break;                                                                                     \
    next:;                                                                                         \
    })
#endif

#endif
