//go:build go1.24

package main

import (
	"runtime"
	"weak"
)

type weakly struct {
	plain *int
	pad   [34]int
}

type cleaned struct {
	plain *int
	pad   [38]int
}

// Its type is found without a pointer of that type: it is larger than 512 bytes.
type cleanupArgument struct {
	words [90]*int
}

var (
	strong    *weakly
	weakTo    weak.Pointer[weakly]
	cleanable *cleaned
)

//go:noinline
func fillNew() {
	strong = &weakly{plain: number(1)}
	weakTo = weak.Make(strong)
	cleanable = &cleaned{plain: number(1)}
	argument := &cleanupArgument{}
	for i := range argument.words {
		argument.words[i] = number(i)
	}
	runtime.AddCleanup(cleanable, func(argument *cleanupArgument) {
		runtime.KeepAlive(argument)
	}, argument)
}

func cutNew(name string) {
	switch name {
	case "strong":
		strong = nil
	case "cleanable":
		cleanable = nil
	}
}
