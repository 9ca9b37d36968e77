/*
 * Functions that say where they are, what rsp and rbp hold there, and what an unwinder has to
 * find: where their frame ends, where they return to, and their caller's rbp.
 */
#include <alloca.h>
#include <stdint.h>
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone))

extern const char __ehdr_start;

static struct {
    uint64_t pc, sp, bp;
} here;
static uint64_t bp_of_caller, sp_of_caller;
static volatile uint64_t sink;

static NOINLINE void say(const char *name, uint64_t cfa, uint64_t to) {
    printf("%s %lx %lx %lx", name, here.pc - (uint64_t)&__ehdr_start, here.sp, here.bp);
    printf(" %lx %lx %lx", cfa, to, bp_of_caller);
    /* The stack from rsp up to the end of the frame, and some of the caller's. */
    for (uint64_t word = here.sp; word < cfa + 128; word += 8)
        printf(" %lx", *(uint64_t *)word);
    printf("\n");
}

#define HERE()                                                                                     \
    __asm__ volatile("leaq 0(%%rip), %%rax\n\tmovq %%rax, %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2"  \
                     : "=m"(here.pc), "=m"(here.sp), "=m"(here.bp)                                 \
                     :                                                                             \
                     : "rax", "memory")
#define SAY(name)                                                                                  \
    HERE();                                                                                        \
    say(name, (uint64_t)__builtin_dwarf_cfa(), (uint64_t)__builtin_return_address(0))
#define CALL(call)                                                                                 \
    __asm__ volatile("movq %%rbp, %0\n\tmovq %%rsp, %1"                                            \
                     : "=m"(bp_of_caller), "=m"(sp_of_caller)                                      \
                     :                                                                             \
                     : "memory");                                                                  \
    sink += call;                                                                                  \
    __asm__ volatile("" : : : "memory")

static NOINLINE uint64_t plain(uint64_t n) {
    SAY("plain");
    return n + sink;
}

/* More values live across a call than there are callee-saved registers. */
static NOINLINE uint64_t many(uint64_t n) {
    uint64_t a = sink, b = sink + n, c = sink * 3, d = sink * n, e = sink ^ 7, f = sink + 9;
    volatile uint64_t wide[100];
    wide[n] = n;
    SAY("many");
    return a + b * c + d * e + f * n + wide[n];
}

static NOINLINE uint64_t realigned(uint64_t n) {
    _Alignas(64) volatile char wide[64];
    volatile char *rest = alloca(n);
    wide[0] = rest[0] = (char)n;
    HERE();
    /* Here __builtin_dwarf_cfa gives the end of a copy of the return address. */
    say("realigned", sp_of_caller, (uint64_t)__builtin_return_address(0));
    return wide[0] + rest[0];
}

static NOINLINE uint64_t grows(uint64_t n) {
    volatile char *rest = alloca(16 * n);
    rest[0] = (char)n;
    SAY("grows");
    return rest[0];
}

static NOINLINE uint64_t pushes(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                                uint64_t f, uint64_t g, uint64_t h, uint64_t i) {
    SAY("pushes");
    return a + b + c + d + e + f + g + h + i;
}

/* With a value in rbp where it is no frame pointer. */
static NOINLINE uint64_t outer(uint64_t n) {
    uint64_t a = sink, b = sink + n, c = sink * 3, d = sink * n, e = sink ^ 7, f = sink + 9;
    CALL(plain(n));
    CALL(many(n));
    CALL(realigned(n));
    CALL(grows(n));
    CALL(pushes(n, 2, 3, 4, 5, 6, 7, 8, 9));
    return a + b * c + d * e + f * n;
}

int main(int count, char **arguments) {
    (void)arguments;
    sink = 0x1234;
    return outer((uint64_t)count) == 1;
}
