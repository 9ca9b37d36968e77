//go:build go1.25 && !withcgo

package main

var cgoOperations []operation
