//go:build withcgo

package main

import "C"
