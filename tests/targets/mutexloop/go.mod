module mutexloop

go 1.19
