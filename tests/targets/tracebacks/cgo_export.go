//go:build withcgo

package main

import "C"

//export blockInGo
func blockInGo(depth C.int) {
	if depth > 1 {
		fromGo(int(depth) - 1)
	}
	<-never
}
