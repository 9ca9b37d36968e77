//go:build !go1.18

package main

//go:noinline
func generic(ch chan place) place { return <-ch }
