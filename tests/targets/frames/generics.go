//go:build go1.18

package main

type number interface{ ~int | ~float64 }

type stack[T number] struct{ items []T }

func (s *stack[T]) push(item T) { s.items = append(s.items, double(item)) }

func (s stack[T]) sum() (total T) {
	for _, item := range s.items {
		total = add(total, item)
	}
	return total
}

func double[T number](value T) T { return add(value, value) }

func add[T number](a, b T) T { return a + b }

type summer[T number] interface{ sum() T }

type named struct {
	stack[int]
	name string
}

type celsius float64

//go:noinline
func total[T number](s summer[T]) T { return s.sum() }

func sums() (string, []int) {
	ints, floats := &named{name: "ints"}, &stack[celsius]{}
	ints.push(1)
	floats.push(2)
	return ints.name, []int{int(total[celsius](floats)), total[int](ints)}
}
