//go:build !go1.18

package main

var genericOperations []operation
