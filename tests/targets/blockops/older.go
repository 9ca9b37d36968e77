//go:build !go1.23

package main

var newerOperations []operation
