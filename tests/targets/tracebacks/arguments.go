package main

import (
	"errors"
	"io"
	"os"
)

type point struct{ x, y int32 }

type nested struct {
	name   string
	inner  struct{ at point }
	values [2]uint16
	empty  struct{}
}

type deep struct {
	a struct {
		b struct {
			c struct{ d struct{ e struct{ f int } } }
		}
	}
}

type large struct{ room [40]int }

var heldPoint = point{3, -4}

// arguments has calls with arguments of every kind.
func arguments() []func() {
	return []func(){
		func() { integers(1, -1, 0xffff_ffff_ffff, 1<<63, 7, 255, true) },
		func() { texts("hello", []byte("bytes"), nil, []string{"a"}) },
		func() { structs(point{1, -2}, nested{name: "n", values: [2]uint16{5, 6}}, &heldPoint) },
		func() { interfaces(io.EOF, 42, os.Stdin, nil) },
		func() { floats(1.5, -2, complex(1, 2)) },
		func() { functions(func() {}, map[string]int{"a": 1}, never) },
		func() { many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14) },
		func() { deeply(deep{}, [1]int{9}, [3]int{1, 2, 3}, [0]int{}) },
		func() { largely(large{}, 5) },
		func() { results(3) },
		func() { dead(1, 2, 3) },
		func() { halfDead(10, "gone") },
		func() { variadic("%d", 1, "two", 3.0) },
		func() { _ = errors.Is(waiting{}, io.EOF) },
	}
}

//go:noinline
func integers(a int, b int8, c uint64, d uint64, e int16, f byte, g bool) int {
	<-never
	return a + int(b) + int(c) + int(d) + int(e) + int(f)
}

//go:noinline
func texts(a string, b []byte, c []int, d []string) int {
	<-never
	return len(a) + len(b) + len(c) + len(d)
}

//go:noinline
func structs(a point, b nested, c *point) int32 {
	<-never
	return a.x + b.inner.at.y + c.x + int32(b.values[1]) + int32(len(b.name))
}

//go:noinline
func interfaces(a error, b any, c io.Reader, d any) int {
	<-never
	if a == nil || b == nil || c == nil || d == nil {
		return 1
	}
	return 0
}

//go:noinline
func floats(a float64, b float32, c complex128) float64 {
	<-never
	return a + float64(b) + real(c)
}

//go:noinline
func functions(a func(), b map[string]int, c chan int) int {
	<-never
	a()
	return len(b) + len(c)
}

//go:noinline
func many(a, b, c, d, e, f, g, h, i, j, k, l, m, n int) int {
	<-never
	return a + b + c + d + e + f + g + h + i + j + k + l + m + n
}

//go:noinline
func deeply(a deep, b [1]int, c [3]int, d [0]int) int {
	<-never
	return a.a.b.c.d.e.f + b[0] + c[1] + len(d)
}

//go:noinline
func largely(a large, b int) int {
	<-never
	return a.room[3] + b
}

//go:noinline
func results(a int) (b int, c string, d error) {
	<-never
	return a, "", nil
}

// dead: nothing needs its arguments while it waits.
//
//go:noinline
func dead(a, b, c int) {
	use(a + b + c)
	<-never
}

//go:noinline
func halfDead(a int, b string) int {
	use(len(b))
	<-never
	return a
}

//go:noinline
func use(int) {}

//go:noinline
func variadic(format string, values ...any) int {
	<-never
	return len(format) + len(values)
}

// waiting is an error that is compared for ever.
type waiting struct{}

func (waiting) Error() string { return "" }

func (waiting) Is(error) bool {
	<-never
	return true
}
