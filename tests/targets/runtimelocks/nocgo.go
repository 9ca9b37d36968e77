//go:build !withcgo

package main

var cgoOperations []operation
