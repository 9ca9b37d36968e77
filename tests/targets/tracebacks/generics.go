//go:build go1.27

package main

// convert is a generic method of a generic type.
//
//go:noinline
func (b *box[T]) convert[U any](value U) U {
	<-never
	return value
}

var newest = []func(){
	func() { (&box[int]{1}).convert("text") },
	func() { (&box[map[string][]int]{}).convert([]point{{1, 2}}) },
}
