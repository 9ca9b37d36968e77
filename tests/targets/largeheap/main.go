// Largeheap has a heap of any size, of shapes that are known: wide maps, long lists in and out of
// order, deep trees, objects that many others share, buffers, tables of pointers.
//
// Commands, a line each; each is answered by one line, "done":
//
//	fill N   adds N parts of each shape, about 0.6 MiB together, and collects garbage
//	tables N adds N tables of 1 MiB, each of 131,072 pointers to what other shapes have
//	churn    has a goroutine replace 100 records of the map, again and again
//	cut      sets all pointers to rows to nil
package main

import (
	"fmt"
	"math/rand"
	"runtime"

	"ebpfprof.test/harness"
)

type owner struct {
	name   string
	groups []*owner
}

type record struct {
	id    int
	owner *owner
	also  *owner
	data  []byte
}

type element struct {
	next, previous *element
	value          *[4]int
}

type link struct {
	next *link
	id   int
}

type branch struct {
	left, right *branch
	leaf        *int
}

type row struct {
	cells [100]*cell
}

type cell struct {
	any   interface{}
	owner *owner
}

type shown interface{ show() int }

type circle struct{ center *[2]int }

func (c *circle) show() int { return c.center[0] }

type table [128 << 10]*owner

var (
	tables  []*table
	records = map[int]*record{}
	owners  []*owner
	front   *element
	last    *element
	mixed   *link
	root    *branch
	rows    []*row
	shapes  []shown
	buffers [][]byte
	release = make(chan bool)
	random  = rand.New(rand.NewSource(1))
)

const (
	depth      = 11
	rowsOfPart = 4
)

func addOwners(count int) {
	for i := 0; i < count; i++ {
		one := &owner{name: fmt.Sprintf("owner-%d", len(owners))}
		for j := 0; j < 3 && len(owners) > 0; j++ {
			one.groups = append(one.groups, owners[random.Intn(len(owners))])
		}
		owners = append(owners, one)
	}
}

func anOwner() *owner { return owners[random.Intn(len(owners))] }

func addRecords(count int) {
	for i := 0; i < count; i++ {
		id := len(records)
		records[id] = &record{id: id, owner: anOwner(), also: anOwner(), data: make([]byte, 48)}
	}
}

func addElements(count int) {
	for i := 0; i < count; i++ {
		one := &element{previous: last, value: new([4]int)}
		if last == nil {
			front = one
		} else {
			last.next = one
		}
		last = one
	}
}

// addMixed adds a part to the list whose elements follow each other in no order of address.
func addMixed(count int) {
	links := make([]*link, count)
	for i := range links {
		links[i] = &link{id: i}
	}
	random.Shuffle(count, func(i, j int) { links[i], links[j] = links[j], links[i] })
	for _, one := range links {
		one.next = mixed
		mixed = one
	}
}

func tree(levels int, below *branch) *branch {
	if levels == 0 {
		return below
	}
	leaf := levels
	return &branch{left: tree(levels-1, below), right: tree(levels-1, nil), leaf: &leaf}
}

func addRows(count int) {
	for i := 0; i < count; i++ {
		one := &row{}
		for j := range one.cells {
			one.cells[j] = &cell{owner: anOwner()}
			if j%2 == 0 {
				one.cells[j].any = &circle{center: &[2]int{i, j}}
			} else {
				one.cells[j].any = fmt.Sprintf("cell %d", j)
			}
		}
		rows = append(rows, one)
		shapes = append(shapes, &circle{center: new([2]int)})
	}
}

func fill(parts int) {
	for i := 0; i < parts; i++ {
		addOwners(20)
		addRecords(1500)
		addElements(2000)
		addMixed(2000)
		root = tree(depth, root)
		addRows(rowsOfPart)
		buffers = append(buffers, make([]byte, 200<<10))
	}
	runtime.GC()
}

func addTables(count int) {
	for i := 0; i < count; i++ {
		one := &table{}
		for j := range one {
			one[j] = owners[(i+j)%len(owners)]
		}
		tables = append(tables, one)
	}
}

func churn() {
	for id := 0; ; id = (id + 1) % 100 {
		records[id] = &record{id: id, owner: anOwner(), data: make([]byte, 48)}
	}
}

//go:noinline
func hold(ready chan bool) {
	kept := tree(depth, nil)
	ready <- true
	<-release
	runtime.KeepAlive(kept)
}

func main() {
	ready := make(chan bool)
	go hold(ready)
	<-ready
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		switch words[0] {
		case "fill":
			fill(harness.Number(words[1]))
		case "tables":
			addTables(harness.Number(words[1]))
		case "churn":
			go churn()
		case "cut":
			for i := range rows {
				rows[i] = nil
			}
		}
		fmt.Println("done")
	}
}
