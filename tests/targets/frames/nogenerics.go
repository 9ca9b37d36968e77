//go:build !go1.18

package main

type list struct{ items []int }

func (l list) sum() (total int) {
	for _, item := range l.items {
		total += item
	}
	return total
}

type named struct {
	list
	name string
}

type summer interface{ sum() int }

//go:noinline
func total(s summer) int { return s.sum() }

func sums() (string, []int) {
	ints := &named{list{[]int{2}}, "ints"}
	return ints.name, []int{total(ints)}
}
