//go:build nolabels

//go:debug tracebacklabels=0
package main
