/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Where a value is at a probe. */
#ifndef EBPFPROF_SOURCE_H
#define EBPFPROF_SOURCE_H

#include "common/memory.h"

/* symbolizer/x86/values.py */
struct source {
    u32 of;    /* enum origin */
    u32 reads; /* it is what is there */
    s64 offset;
};

/* In the order of pt_regs. RSP is that before the instruction. */
enum origin { NONE, AX, BX, CX, DX, SI, DI, R8, R9, R10, R11, R12, R13, SP, BP };

/*
 * Different asm for each register: else the compiler loads from a pointer into the registers that
 * it has chosen before, which verifiers reject.
 */
#define FROM(origin, name)                                                                         \
    case origin:                                                                                   \
        value = ctx->name;                                                                         \
        asm volatile("" : "+r"(value) : "i"(origin));                                              \
        break;

static __always_inline u64 value_of(const struct pt_regs *ctx, const struct source *source) {
    u64 value = 0;
    switch (source->of) {
        FROM(AX, ax)
        FROM(BX, bx)
        FROM(CX, cx)
        FROM(DX, dx)
        FROM(SI, si)
        FROM(DI, di)
        FROM(R8, r8)
        FROM(R9, r9)
        FROM(R10, r10)
        FROM(R11, r11)
        FROM(R12, r12)
        FROM(R13, r13)
        FROM(SP, sp)
        FROM(BP, bp)
    }
    value += source->offset;
    if (source->reads && read_user(&value, sizeof(value), (void *)value))
        return 0;
    return value;
}

#endif
