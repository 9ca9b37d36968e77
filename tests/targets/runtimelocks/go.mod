module runtimelocks

go 1.25
