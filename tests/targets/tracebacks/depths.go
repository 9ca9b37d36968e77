package main

// depths has stacks around the numbers of frames that Go shows.
func depths() []func() {
	all := []func(){}
	for _, levels := range []int{28, 45, 46, 47, 48, 49, 50, 94, 95, 96, 97, 98, 99, 100, 101, 102, 124, 250} {
		levels := levels
		all = append(all, func() { recurse(levels) }, func() { recurseInlined(levels / 2) })
	}
	return append(all, func() { throughWrappers(60) }, func() { wide(30) }, func() { panicDeep(120) })
}

//go:noinline
func recurse(levels int) int {
	if levels <= 1 {
		return <-never
	}
	return recurse(levels-1) + 1
}

// recurseThen: no frame is of the runtime, if none of block's is.
//
//go:noinline
func recurseThen(levels int, block func()) int {
	if levels <= 1 {
		block()
		return 0
	}
	return recurseThen(levels-1, block) + 1
}

// recurseInlined has two logical frames for each physical one.
//
//go:noinline
func recurseInlined(levels int) int {
	if levels <= 1 {
		return <-never
	}
	return between(levels) + 1
}

func between(levels int) int { return recurseInlined(levels-1) + 1 }

type wrapped interface{ down(levels int) int }

type inside struct{ depth int }

type outside struct{ inside }

//go:noinline
func (i inside) down(levels int) int {
	if levels <= 1 {
		return <-never
	}
	return throughWrappers(levels-1) + i.depth
}

//go:noinline
func throughWrappers(levels int) int {
	var w wrapped = &outside{inside{levels}}
	return w.down(levels)
}

// wide: its frames are far apart.
//
//go:noinline
func wide(levels int) int {
	var room [3000]int
	room[levels] = levels
	if levels <= 1 {
		return <-never
	}
	return wide(levels-1) + room[levels] + room[levels/2]
}

//go:noinline
func panicDeep(levels int) int {
	if levels == 40 {
		defer func() { recurse(45) }()
		panic(levels)
	}
	return panicDeep(levels-1) + 1
}
