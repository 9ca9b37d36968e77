module mutexops

go 1.19
