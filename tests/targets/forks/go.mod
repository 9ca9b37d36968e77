module forks

go 1.19
