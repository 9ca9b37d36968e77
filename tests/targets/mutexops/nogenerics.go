//go:build !go1.18

package main

type any = interface{}

var genericOperations []operation
