//go:build !go1.18

package main

type any = interface{}

type plain struct{}

var genericShape = plain{}

//go:noinline
func (plain) make(round int) { keep(round, new([9]string)) }
