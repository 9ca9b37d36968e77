// A C++ program: namespaces, templates, virtual calls, inlined calls, exceptions, std::sort.
//
// Protocol: work.h.
#include "work.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace shop {

template <typename T> class Basket {
  public:
    NOINLINE T total(long rounds) const { return add(rounds); }

  private:
    // The compiler always inlines it into total.
    __attribute__((always_inline)) inline T add(long rounds) const
    {
        T sum = 0;
        for (long i = 0; i < rounds; i++)
            sum = sum * 5 + static_cast<T>(i);
        return sum;
    }
};

struct Price {
    virtual ~Price() = default;
    virtual long of(long rounds) const = 0;
};

struct Reduced : Price {
    NOINLINE long of(long rounds) const override { return Basket<long>().total(rounds) + 1; }
};

NOINLINE long charge(const Price &price, long rounds) { return price.of(rounds) + 2; }

} // namespace shop

NOINLINE static void callMethods()
{
    static const shop::Reduced reduced;
    sink = shop::charge(reduced, 1000000) + 1;
}

NOINLINE static void sortWithLambda()
{
    std::vector<long> numbers(1000);
    for (long i = 0; i < 1000; i++)
        numbers[i] = i * 7919 % 1000;
    std::sort(numbers.begin(), numbers.end(), [](long a, long b) {
        return shop::Basket<unsigned>().total(200) == 42 || a < b;
    });
    sink = numbers[1];
}

NOINLINE static void thrower(int depth)
{
    if (depth == 0)
        throw std::runtime_error("enough");
    thrower(depth - 1);
    sink = depth;
}

NOINLINE static void throwAndCatch()
{
    for (int i = 0; i < 500; i++) {
        try {
            thrower(5);
        } catch (const std::runtime_error &) {
            sink = i;
        }
    }
}

static const struct work works[] = {
    {"callMethods", callMethods},
    {"sortWithLambda", sortWithLambda},
    {"throwAndCatch", throwAndCatch},
};

int main() { return obey(works, sizeof works / sizeof works[0]); }
