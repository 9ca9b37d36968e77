/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Unwinds a thread's user stack by rules, one for each byte of code (symbolizer/unwind/rules.py).
 * At an unknown rule it stops, and user space continues from there with a copy of the stack
 * (ebpfprof/profilers/cpu/unwinder.py, which does the same as this file).
 */
#ifndef EBPFPROF_TABLE_UNWIND_H
#define EBPFPROF_TABLE_UNWIND_H

#include "common/loops.h"
#include "common/keys.h"

#define LINE_SHIFT 6
#define LINE_BYTES (1 << LINE_SHIFT)

/* RuleKind */
enum kind {
    UNKNOWN,
    SP,
    BP,
    BP_POINTS,
    END,
    SIGNAL,
    SYSTEM_STACK,
    MORE_STACK,
    SWITCH,
    NONE,
    GUESS,
    IN_R12
};

struct rule {
    s32 cfa_offset;
    s32 bp_offset; /* 0: the register still has the caller's frame pointer */
    u16 kind;
    u16 exact_caller;
};

/* The numbers of the rules for LINE_BYTES of code; 0: unknown. */
struct line {
    u16 rules[LINE_BYTES];
};

/* How a walk ended. */
enum ending {
    WHOLE,
    UNLEARNED, /* no rule known yet */
    TOO_DEEP,
    NO_RULE, /* the code has no rule for the caller */
    UNREADABLE,
    ASTRAY, /* the caller's frame would not be above */
};

struct cursor {
    u64 pc;
    u64 sp;
    u64 bp;
    u64 is_exact; /* pc is an interrupted instruction, not a return address */
    u64 r12;      /* of the innermost frame; 0: unknown */
};

/* What the Go runtime's own records say of a thread; all 0 if it is not a Go program. */
struct go_state {
    u64 curg; /* address of the runtime.g whose code the thread runs */
    u64 lo;   /* bounds of its stack */
    u64 hi;
    u64 sched_sp; /* where it left its own stack */
    u64 sched_pc;
    u64 vdso_sp; /* where a call of the vDSO began */
    u64 vdso_pc;
    u64 syscall_sp; /* where a call of C began; 0 outside of one */
    u64 syscall_pc;
    u64 thread_hi; /* where the thread's own stack, that of its g0, ends */
};

BPF_HASH(lines, u64, struct line, MAX_LINES);
BPF_ARRAY(rules, struct rule, MAX_RULES);

static __always_inline struct rule *rule_at(u64 pc, u64 target) {
    u64 key = (pc >> LINE_SHIFT) ^ (target << TARGET_SHIFT);
    struct line *line = lines.lookup(&key);
    if (!line)
        return NULL;
    int number = line->rules[pc & (LINE_BYTES - 1)];
    return number ? rules.lookup(&number) : NULL;
}

static __always_inline bool read_word(u64 *to, u64 from) {
    return read_user(to, sizeof(*to), (void *)from) == 0;
}

static __always_inline bool is_on_other_stack(u64 sp, const struct go_state *go) {
    return go->curg && (sp < go->lo || sp >= go->hi);
}

static __always_inline void jump(struct cursor *at, u64 pc, u64 sp) {
    at->pc = pc;
    at->sp = sp;
    at->is_exact = 0;
}

/* Goes on where Go code left its stack; false without a record. Uses each record once. */
static __always_inline bool go_on(struct cursor *at, struct go_state *go) {
    if (go->vdso_sp) {
        jump(at, go->vdso_pc, go->vdso_sp);
        go->vdso_sp = 0;
        return true;
    }
    if (go->syscall_sp) {
        jump(at, go->syscall_pc, go->syscall_sp);
        go->syscall_sp = 0;
        return true;
    }
    return false;
}

/* From a signal handler's frame to the interrupted code: struct ucontext is at SP. */
#define UCONTEXT_STACK 16 /* uc_stack.ss_sp, and two words on, ss_size */
#define UCONTEXT_BP 120
#define UCONTEXT_SP 160
#define UCONTEXT_PC 168
static __always_inline enum ending interrupted(struct cursor *at) {
    u64 context = at->sp;
    if (!read_word(&at->pc, context + UCONTEXT_PC) || !read_word(&at->sp, context + UCONTEXT_SP) ||
        !read_word(&at->bp, context + UCONTEXT_BP))
        return UNREADABLE;
    at->is_exact = 1;
    at->r12 = 0;
    return WHOLE;
}

/* The stack that a thread has for handlers of signals (sigaltstack); without one, all is 0. */
struct signal_stack {
    u64 start;
    u64 bytes;
    u64 none; /* 0: see common/loops.h */
};

/*
 * The stack pointer of what a handler interrupted that runs on the stack for signals; 0: not known.
 * The kernel puts the frame at the end of that stack, below the vector registers, which take up to
 * about 11 KB (arch/x86/kernel/signal.c: get_sigframe, arch/x86/kernel/fpu/signal.c:
 * fpu__alloc_mathframe). We know its struct ucontext by the stack's bounds, which are in it. A
 * handler that interrupted another has its frame below, and is on the same stack.
 */
#define UCONTEXT_ALIGN 64ULL
#define UCONTEXT_PLACES 192
static __always_inline u64 interrupted_sp(u64 sp, const struct signal_stack *stack) {
    struct {
        u64 start;
        u64 flags;
        u64 bytes;
    } current = {};
    u64 found = 0;
    u64 end = (stack->start + stack->bytes) & ~(UCONTEXT_ALIGN - 1);
    if (!stack->bytes || sp - stack->start > stack->bytes)
        return 0;
    for (u64 i = FROM_0(stack->none); i < UCONTEXT_PLACES; i++) {
        VERIFIED_ONCE;
        u64 context = end - (i + 1) * UCONTEXT_ALIGN;
        if (context < sp)
            return 0;
        if (read_user(&current, sizeof(current), (void *)(context + UCONTEXT_STACK)) == 0 &&
            current.start == stack->start && current.bytes == stack->bytes) {
            read_word(&found, context + UCONTEXT_SP);
            return found;
        }
    }
    return 0;
}

/* Assembly that made a system call with its return address kept in R12. */
static __always_inline enum ending from_r12(struct cursor *at) {
    if (!at->is_exact || !at->r12)
        return NO_RULE;
    jump(at, at->r12, at->sp);
    at->r12 = 0;
    return WHOLE;
}

#define MAX_CFA_BYTES 0x80000000ULL /* from a stack pointer to the CFA */
/* From a frame to its caller's; WHOLE where there is none, with pc 0. */
static __always_inline enum ending caller(struct cursor *at, const struct rule *rule,
                                          const struct go_state *go) {
    u64 cfa, sp = at->sp;
    if (rule->kind == SYSTEM_STACK) {
        at->pc = 0;
        if (!is_on_other_stack(sp, go))
            return WHOLE;
        sp = go->sched_sp;
    }
    /* Code in no table, such as the dynamic linker's _start: there the chain of frames ends. */
    if (rule->kind == GUESS && at->bp == 0) {
        at->pc = 0;
        return WHOLE;
    }
    bool by_bp = rule->kind == BP || rule->kind == BP_POINTS || rule->kind == GUESS;
    cfa = (by_bp ? at->bp : sp) + rule->cfa_offset;
    /* With BP_POINTS, the word at our frame pointer is the caller's. */
    if (rule->kind == BP_POINTS && (!read_word(&cfa, cfa) || !read_word(&at->bp, at->bp)))
        return UNREADABLE;
    if (cfa <= sp || cfa - sp > MAX_CFA_BYTES)
        return ASTRAY;
    if (rule->bp_offset && !read_word(&at->bp, cfa + rule->bp_offset))
        return UNREADABLE;
    if (!read_word(&at->pc, cfa - 8))
        return UNREADABLE;
    at->sp = cfa;
    at->is_exact = rule->exact_caller;
    return WHOLE;
}

struct pcs {
    u64 hash;
    u64 depth;
    u64 pcs[MAX_DEPTH]; /* innermost first; return addresses, or interrupted addresses + 1 */
};

/* Unwinds from the cursor on, to an empty stack. */
static __always_inline enum ending unwind(struct cursor *at, struct go_state *go, u64 target,
                                          struct pcs *to) {
    for (u64 i = FROM_0(*(volatile u64 *)&to->depth); i < MAX_DEPTH; i++) {
        VERIFIED_ONCE;
        struct rule *rule = rule_at(at->pc - 1 + at->is_exact, target);
        if (!rule)
            return UNLEARNED;
        if (rule->kind == MORE_STACK && is_on_other_stack(at->sp, go)) {
            jump(at, go->sched_pc, go->sched_sp);
            continue;
        }
        u64 pc = at->pc + at->is_exact, depth = to->depth;
        if (depth >= MAX_DEPTH)
            return TOO_DEEP;
        to->pcs[depth] = pc;
        to->depth = depth + 1;
        to->hash = mix(to->hash, pc);
        enum ending ending = WHOLE;
        switch (rule->kind) {
        case END:
        case MORE_STACK:
            return WHOLE;
        case SWITCH:
            if (!go_on(at, go))
                return WHOLE;
            continue;
        case NONE:
            ending = NO_RULE;
            break;
        case IN_R12:
            ending = from_r12(at);
            break;
        case SIGNAL:
            ending = interrupted(at);
            break;
        default:
            ending = caller(at, rule, go);
        }
        if (ending != WHOLE) {
            /* C code that we can't unwind, called by Go code that we can. */
            if (!go_on(at, go))
                return ending;
        } else if (at->pc == 0) {
            return WHOLE;
        }
    }
    return TOO_DEEP;
}

#endif
