package main

// Works that are about calls: inlined ones, wrappers, deep and growing stacks.
var callWorks = []work{
	{"inlinedCalls", inlinedCalls},
	{"useMaps", useMaps},
	{"growStacks", growStacks},
	{"callMethods", callMethods},
	{"recoverPanics", recoverPanics},
	{"deep100", deep100},
	{"deep200", deep200},
}

//go:noinline
func inlinedCalls() {
	x := uint64(sink)
	for i := 0; i < 1000000; i++ {
		x = outer(x)
	}
	sink = int(x)
}

func outer(x uint64) uint64  { return middle(x) + 1 }
func middle(x uint64) uint64 { return inner(x) ^ x>>3 }
func inner(x uint64) uint64  { return x*6364136223846793005 + x>>7 }

var numbers = map[int]int{}

//go:noinline
func useMaps() {
	for i := 0; i < 20000; i++ {
		numbers[i&0xfff] += numbers[i>>2]
	}
	fresh := map[int]int{}
	for i := 0; i < 5000; i++ {
		fresh[i] = i
	}
	sink += len(fresh)
}

// growStacks makes stacks grow from 2 KB to 16 KB, again and again.
//
//go:noinline
func growStacks() {
	done := make(chan int)
	for i := 0; i < 10; i++ {
		go func() { done <- grow(12) }()
	}
	for i := 0; i < 10; i++ {
		sink += <-done
	}
}

//go:noinline
func grow(depth int) int {
	var frame [768]byte
	if depth == 0 {
		return 1
	}
	frame[depth] = 1
	return grow(depth-1) + int(frame[depth])
}

type stepper interface{ step(n int) int }

type counter struct{ count int }

//go:noinline
func (c counter) step(n int) int {
	for i := 0; i < n; i++ {
		c.count = c.count*5 + i
	}
	return c.count
}

type embedding struct {
	name string
	*counter
}

var steppers = []stepper{&counter{}, embedding{"a", &counter{}}, &embedding{"b", &counter{}}}

// callMethods calls through wrappers that the compiler makes.
//
//go:noinline
func callMethods() {
	for i := 0; i < 10000; i++ {
		sink += steppers[i%len(steppers)].step(100)
	}
}

//go:noinline
func recoverPanics() {
	for i := 0; i < 1000; i++ {
		sink += recovered(i)
	}
}

//go:noinline
func recovered(n int) (result int) {
	defer func() {
		if recover() != nil {
			result = n
		}
	}()
	for i := 0; i < 3; i++ {
		defer addToSink(i)
	}
	panicAt(5, n)
	return 0
}

//go:noinline
func addToSink(n int) { sink += n }

//go:noinline
func panicAt(depth, n int) {
	if depth == 0 {
		panic(n)
	}
	panicAt(depth-1, n)
	sink++
}

//go:noinline
func deep100() { sink += descend(100) }

//go:noinline
func deep200() { sink += descend(200) }

//go:noinline
func descend(depth int) int {
	if depth == 0 {
		return spin(1000000)
	}
	return descend(depth-1) + 1
}

//go:noinline
func spin(n int) int {
	x := sink
	for i := 0; i < n; i++ {
		x = x*5 + i
	}
	return x
}
