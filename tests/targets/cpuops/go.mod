module cpuops

go 1.19
