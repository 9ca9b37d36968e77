module cpuload

go 1.19
