package main

import (
	"reflect"
	"sort"
	"sync"
)

type box[T any] struct{ value T }

type shape interface{ area(scale int) int }

type square struct{ side int }

type circle struct{ square }

type holder struct{ shape }

// shapes has functions whose names and frames are special.
func shapes() []func() {
	return []func(){
		func() { generic(1) },
		func() { generic("text") },
		func() { generic(box[point]{}) },
		func() { (&box[int]{5}).get(2) },
		func() { box[map[string][]int]{}.hold() },
		func() { shape(&square{2}).area(3) },
		func() { shape(circle{square{4}}).area(5) },
		func() { shape(holder{&square{6}}).area(7) },
		func() { inlined(8) },
		func() { twice(func(n int) { <-never; use(n) }) },
		method(&square{9}),
		deferred,
		func() { recovered() },
		func() { nilPointer(nil) },
		func() { nilPointerBelow(nil) },
		func() { divided(1, 0) },
		func() { panicking("words", 11) },
		func() { reflected() },
		func() { new(sync.Once).Do(func() { <-never }) },
		func() { sort.Slice([]int{2, 1}, func(i, j int) bool { <-never; return i < j }) },
		made,
	}
}

//go:noinline
func generic[T any](value T) T {
	<-never
	return value
}

//go:noinline
func (b *box[T]) get(n int) T {
	<-never
	use(n)
	return b.value
}

//go:noinline
func (b box[T]) hold() T {
	func() { <-never }()
	return b.value
}

//go:noinline
func (s square) area(scale int) int {
	<-never
	return s.side * scale
}

func inlined(n int) int { return within(n+1) + 1 }

func within(n int) int { return innermost(n+1) + 1 }

func innermost(n int) int {
	<-never
	return n
}

//go:noinline
func twice(f func(int)) {
	f(1)
	f(2)
}

func method(s *square) func() {
	area := s.area
	return func() { use(area(1)) }
}

func deferred() {
	defer func() { <-never }()
	use(1)
}

func recovered() {
	defer func() {
		use(len(recover().(string)))
		<-never
	}()
	panic("recovered")
}

//go:noinline
func nilPointer(p *point) int32 {
	defer func() { <-never }()
	return p.x
}

//go:noinline
func nilPointerBelow(p *square) int {
	defer blockInDefer(1, "two")
	return useSide(p)
}

//go:noinline
func useSide(p *square) int { return p.side }

//go:noinline
func blockInDefer(a int, b string) {
	<-never
	use(a + len(b))
}

//go:noinline
func divided(a, b int) int {
	defer func() { <-never }()
	return a / b
}

//go:noinline
func panicking(why string, n int) {
	defer blockInDefer(n, why)
	panic(why)
}

func reflected() {
	values := []reflect.Value{reflect.ValueOf(1), reflect.ValueOf("two")}
	reflect.ValueOf(blockInDefer).Call(values)
}

// made: a function that reflection made calls another one.
func made() {
	block := func([]reflect.Value) []reflect.Value {
		<-never
		return nil
	}
	made := reflect.MakeFunc(reflect.TypeOf(func(int, string) {}), block)
	made.Interface().(func(int, string))(1, "two")
}
